"""Markdown as the spec formats use it: fences, headings, boxes and sections.

Written by hand, without `re`: every `task done` imports this module, and `re` alone costs more time than
the whole command may take. Lines are what stands between line feeds; a carriage return stays with its line.
"""

from ralphtool import files
from ralphtool.errors import SpecError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

BOM = "\ufeff"
_BULLETS = "-*+"


# --- reading ----------------------------------------------------------------------------------------


def decode(data: bytes, path: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise SpecError(f"{path}: byte {error.start} is not UTF-8: save the file as UTF-8") from None


def load(path: str) -> str | None:
    """The text of a file without its byte order mark; None when there is no file."""
    try:
        return decode(files.read(path), path).removeprefix(BOM)
    except (FileNotFoundError, NotADirectoryError):
        return None


def load_required(path: str) -> str:
    text = load(path)
    if text is None:
        raise SpecError(f"{path} is missing: write it, then try again")
    return text


class Heading:
    __slots__ = ("level", "line", "title")

    def __init__(self, line: int, level: int, title: str) -> None:
        self.line = line
        self.level = level
        self.title = title


class Box:
    """A checkbox: `start` and `end` enclose what stands between its brackets, in line `line`."""

    __slots__ = ("done", "end", "indent", "line", "start", "text")

    def __init__(self, line: int, indent: int, start: int, end: int, done: bool, text: str) -> None:
        self.line = line
        self.indent = indent
        self.start = start
        self.end = end
        self.done = done
        self.text = text


def heading(line: str, number: int = 0) -> Heading | None:
    bare = line.lstrip(" ")
    if not bare.startswith("#") or len(line) - len(bare) > 3:
        return None
    title = bare.lstrip("#")
    level = len(bare) - len(title)
    if level > 6 or (title.strip() and title[0] not in " \t"):
        return None
    title = title.strip()
    closed = title.rstrip("#")
    if closed != title and (not closed or closed[-1] in " \t"):
        title = closed.rstrip()
    return Heading(number, level, title)


def box(line: str, number: int = 0) -> Box | None:
    """A list item with a checkbox that holds at most one character; only x and X mean done.

    As wide as the OpenSpec program reads it: a box that we overlooked would be work that nobody does.
    """
    opening = line.find("[")
    if opening < 0 or not _is_marker(line[:opening].strip()):
        return None
    closing = line.find("]", opening)
    inner = line[opening + 1 : closing]
    mark = inner.strip()
    if closing < 0 or len(mark) > 1 or (line[closing + 1 : closing + 2] in ("(", "[") and (mark or not inner)):
        return None  # one letter in brackets, then more brackets: that's a link
    indent = _width(line[: len(line) - len(line.lstrip())])
    return Box(number, indent, opening + 1, closing, mark in ("x", "X"), line[closing + 1 :].strip())


def _is_marker(text: str) -> bool:
    if len(text) == 1:
        return text in _BULLETS
    return 1 < len(text) <= 10 and text[-1] in ".)" and text[:-1].isascii() and text[:-1].isdigit()


class Fences:
    """Tells, line by line, what stands inside a code fence.

    A fence inside a list item ends with the item, closed or not: else one forgotten fence would hide all
    the tasks that follow.
    """

    def __init__(self) -> None:
        self.mark = ""
        self._owner = 0  # lines indented less than this are outside of the item that holds the fence
        self._item = 0  # where the text of the list item begins that we are in

    def inside(self, line: str) -> bool:
        """Takes the next line in order; the lines of the fence itself count as inside."""
        bare = line.lstrip()
        if not bare:
            return bool(self.mark)
        indent = _width(line[: len(line) - len(bare)])
        if self.mark and indent >= self._owner:
            if bare.startswith(self.mark) and not bare.strip(self.mark[0]).strip():
                self.mark = ""
            return True
        self.mark = ""
        return self._opens(bare, indent)

    def _opens(self, bare: str, indent: int) -> bool:
        text = _item_text(bare)
        if text is not None:
            indent = self._item = indent + len(bare) - len(text)
        elif indent == 0:
            self._item = 0
        self.mark = _fence(bare if text is None else text)
        self._owner = min(indent, self._item)
        return bool(self.mark)


def _width(blank: str) -> int:
    return len(blank.expandtabs(4))


def _item_text(bare: str) -> str | None:
    """What follows the marker of a list item; None for a line that is none."""
    marker, _, text = bare.partition(" ")
    return text.lstrip() if text and _is_marker(marker) else None


def _fence(bare: str) -> str:
    for mark in ("`", "~"):
        if bare.startswith(mark * 3):
            info = bare.lstrip(mark)
            return "" if mark == "`" and mark in info else mark * (len(bare) - len(info))
    return ""


def unfenced(lines: "Iterable[str]") -> "Iterator[tuple[int, str, bool]]":
    """Every line with its number, and whether it is plain text rather than code."""
    fences = Fences()
    for number, line in enumerate(lines):
        yield number, line, not fences.inside(line)


class Section:
    """A heading, what it stands under, and what follows up to the next heading."""

    __slots__ = ("above", "boxes", "level", "prose", "title")

    def __init__(self, level: int, title: str, above: tuple[str, ...]) -> None:
        self.level = level
        self.title = title
        self.above = above
        self.boxes: list[Box] = []
        self.prose: list[str] = []

    def add(self, line: str, found: Box | None) -> None:
        if found:
            self.boxes.append(found)
        elif self.boxes and line.strip() and _width(line[: len(line) - len(line.lstrip())]) > self.boxes[-1].indent:
            self.boxes[-1].text += f"\n{line.strip()}"  # what is indented below a box belongs to it
        else:
            self.prose.append(line.rstrip())


def sections(text: str) -> list[Section]:
    """All sections in order. The first one is what stands before any heading."""
    found = [Section(0, "", ())]
    path: list[tuple[int, str]] = []
    for number, line, plain in unfenced(text.split("\n")):
        head = heading(line, number) if plain else None
        if head is None:
            found[-1].add(line, box(line, number) if plain else None)
            continue
        path = [(level, title) for level, title in path if level < head.level]
        found.append(Section(head.level, head.title, tuple(title for _, title in path)))
        path.append((head.level, head.title))
    return found


# --- what headings say ------------------------------------------------------------------------------

_LATER = ("optional", "future", "nice to have")
_KINDS_OF_WORK = ("", "work", "tasks", "items", "ideas", "stories", "features", "improvements", "enhancements")


def is_optional(title: str, above: "Sequence[str]" = ()) -> bool:
    return "(optional)" in title.lower() or any(_is_for_later(name) for name in (title, *above))


def _is_for_later(title: str) -> bool:
    words = " ".join("".join(c if c.isalpha() else " " for c in title.lower()).split())
    return any(words.startswith(name) and words[len(name) :].strip() in _KINDS_OF_WORK for name in _LATER)


def depends_on(title: str) -> list[str]:
    """The ids named by `(depends on 1, 2)`; words such as "story" and "and" between them don't matter."""
    at = title.lower().find("(depends on")
    if at < 0:
        return []
    listed = title[at + len("(depends on") :].partition(")")[0]
    words = listed.replace(",", " ").replace(":", " ").replace(";", " ").replace("#", " ").split()
    return [word.rstrip(".") for word in words if any(character.isdigit() for character in word)]


def numbered(text: str) -> tuple[str, str] | None:
    """Parts "1. Title" and "1.2 Title" into the number and the rest."""
    rest = text.lstrip("0123456789.")
    number = text[: len(text) - len(rest)].rstrip(".")
    if not number or not number[0].isdigit() or ".." in number or (rest and rest[0] not in " \t:)-–—"):
        return None
    return number, rest.lstrip(" \t:)-–—")


def prose(lines: "Iterable[str]") -> str | None:
    return "\n".join(lines).strip() or None


# --- writing ----------------------------------------------------------------------------------------


def edit(path: str, change: "Callable[[str], str]") -> None:
    """Rewrites a user's file; the byte order mark and all that `change` leaves alone stay as they are."""

    def on_bytes(data: bytes) -> bytes:
        text = decode(data, path)
        mark = BOM if text.startswith(BOM) else ""
        return (mark + change(text.removeprefix(BOM))).encode("utf-8")

    try:
        files.rewrite(path, on_bytes)
    except FileNotFoundError:
        raise SpecError(f"{path} is missing: write it, then try again") from None


def tick(text: str, found: Box) -> str:
    lines = text.split("\n")
    line = lines[found.line]
    lines[found.line] = f"{line[: found.start]}x{line[found.end :]}"
    return "\n".join(lines)
