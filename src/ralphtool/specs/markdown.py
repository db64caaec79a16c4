"""Markdown as the spec formats use it: fences, headings, boxes and sections.

Hand-written, without `re`: every `task done` imports this module, and importing `re` alone takes longer than
the whole command may take. Lines end at line feeds; a carriage return is part of its line.
"""

import os

from ralphtool.core import files, project
from ralphtool.errors import SpecError, UnsafePath

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

__all__ = ["Section", "sections"]

BOM = "\ufeff"
_BULLETS = "-*+"


# --- reading ----------------------------------------------------------------------------------------


def decode(data: bytes, path: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise SpecError(f"{path}: byte {error.start} is not UTF-8: save the file as UTF-8") from None


def load(path: str) -> str | None:
    """The text of a file without its byte order mark; None if there is no file."""
    try:
        return decode(files.read(path), path).removeprefix(BOM)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:  # a folder, a link to itself, a file that we may not read
        raise SpecError(f"{path} can't be read ({error.strerror}): check its permissions") from None


def load_context(path: str, warn: "Callable[[str], None]") -> str | None:
    """The text of a file that is only context: bytes that are not UTF-8 are replaced, with a warning."""
    try:
        return load(path)
    except SpecError as error:
        if not os.path.isfile(path) or not os.access(path, os.R_OK):
            raise
        warn(f"{error}. Until then, \ufffd replaces what can't be decoded")
        return files.read(path).decode("utf-8", "replace").removeprefix(BOM)


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
    """A checkbox: `start` and `end` enclose the text between its brackets, on line `line`."""

    __slots__ = ("end", "indent", "line", "mark", "start", "texts")

    def __init__(self, line: int, indent: int, start: int, end: int, mark: str, text: str) -> None:
        self.line = line
        self.indent = indent
        self.start = start
        self.end = end
        self.mark = mark
        self.texts = [text]

    @property
    def done(self) -> bool:
        return self.mark in ("x", "X")

    @property
    def text(self) -> str:
        return "\n".join(self.texts)


def parse_heading(line: str, number: int = 0) -> Heading | None:
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


def parse_box(line: str, number: int = 0) -> Box | None:
    """A list item with a checkbox that contains at most one character; only x and X mean done.

    As permissive as the OpenSpec program: the work of an overlooked box would never be done.
    """
    opening = line.find("[")
    if opening < 0 or not _is_marker(line[:opening].strip()):
        return None
    closing = line.find("]", opening)
    inner = line[opening + 1 : closing]
    mark = inner.strip()
    if closing < 0 or len(mark) > 1 or (line[closing + 1 : closing + 2] in ("(", "[") and (mark or not inner)):
        return None  # one letter in brackets, then more brackets: a link
    indent = _measure_indent(line[: len(line) - len(line.lstrip())])
    return Box(number, indent, opening + 1, closing, mark, line[closing + 1 :].strip())


def _is_marker(text: str) -> bool:
    if len(text) == 1:
        return text in _BULLETS
    return 1 < len(text) <= 10 and text[-1] in ".)" and text[:-1].isascii() and text[:-1].isdigit()


class Fences:
    """Finds, line by line, what is inside a code fence.

    A fence inside a list item ends with the item, closed or not: otherwise one unclosed fence would hide all
    the tasks that follow.
    """

    def __init__(self) -> None:
        self.mark = ""
        self._owner = 0  # lines indented less than this are outside the item that contains the fence
        self._items: list[int] = []  # the text columns of the enclosing list items, outermost first

    def inside(self, line: str) -> bool:
        """Must be called for each line in order; the lines of the fence itself count as inside."""
        bare = line.lstrip()
        if not bare:
            return bool(self.mark)
        indent = _measure_indent(line[: len(line) - len(bare)])
        if self.mark and indent >= self._owner:
            if bare.startswith(self.mark) and not bare.strip(self.mark[0]).strip():
                self.mark = ""
            return True
        self.mark = ""
        return self._opens_fence(bare, indent)

    def _opens_fence(self, bare: str, indent: int) -> bool:
        while self._items and indent < self._items[-1]:
            self._items.pop()
        text = _parse_item_text(bare)
        if text is not None:
            indent += len(bare) - len(text)
            self._items.append(indent)
            bare = text
        self._owner = self._items[-1] if self._items else 0
        # With four extra spaces, it is code or the rest of a paragraph, not a fence.
        self.mark = _parse_fence(bare) if indent - self._owner < 4 else ""
        return bool(self.mark)

    @property
    def closing(self) -> list[str]:
        """The lines to insert before an unindented line, so that it is outside."""
        return [self.mark] if self.mark and not self._owner else []


def _measure_indent(blank: str) -> int:
    return len(blank.expandtabs(4))


def _parse_item_text(bare: str) -> str | None:
    """The text after the marker of a list item; None if the line is not one."""
    marker, _, text = bare.partition(" ")
    return text.lstrip() if text and _is_marker(marker) else None


def _parse_fence(bare: str) -> str:
    for mark in ("`", "~"):
        if bare.startswith(mark * 3):
            info = bare.lstrip(mark)
            return "" if mark == "`" and mark in info else mark * (len(bare) - len(info))
    return ""


def iterate_lines(lines: "Sequence[str]", path: str | None = None) -> "Iterator[tuple[int, str, bool]]":
    """Every line with its number, and whether it is plain text rather than code.

    With a path, an unclosed fence that hides boxes is refused: the change would look done.
    """
    fences, opened = Fences(), -1
    for number, line in enumerate(lines):
        inside = fences.inside(line)
        opened = -1 if not fences.mark else number if opened < 0 else opened
        yield number, line, not inside
    if path and fences.closing and any(parse_box(line) for line in lines[opened:]):
        raise SpecError(f"{path}: the code fence in line {opened + 1} is never closed and hides boxes: close it")


_CONFLICT = ("<<<<<<< ", "=======", ">>>>>>> ")  # how the lines of git's conflict markers begin, in their order


def refuse_conflict(text: str, path: str) -> None:
    """Refuses a file with git's conflict markers: it would have the stories of both sides."""
    if number := find_conflict(text):
        raise SpecError(
            f"{path} has merge conflict markers (from line {number} on): resolve the conflict, then try again"
        )


def find_conflict(text: str) -> int:
    """The number of the line in which a conflict begins; 0 if there is none. Code may show what one looks like."""
    if _CONFLICT[0] not in text or _CONFLICT[2] not in text:
        return 0  # almost every file; agents read theirs with each command
    found: list[int] = []
    for number, line, plain in iterate_lines(text.split("\n")):
        if plain and line.startswith(_CONFLICT[0]):
            found = [number + 1]
        elif found and plain and _is_next_marker(line, len(found)):
            found.append(number + 1)
        if len(found) == len(_CONFLICT):
            return found[0]
    return 0


def _is_next_marker(line: str, index: int) -> bool:
    return line.rstrip() == _CONFLICT[1] if index == 1 else line.startswith(_CONFLICT[index])


class Section:
    """A heading, the headings above it, and what follows up to the next heading."""

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
        elif (
            self.boxes
            and line.strip()
            and _measure_indent(line[: len(line) - len(line.lstrip())]) > self.boxes[-1].indent
        ):
            self.boxes[-1].texts.append(line.strip())  # indented lines below a box belong to it
        else:
            self.prose.append(line.rstrip())


def sections(text: str, path: str, is_mark: "Callable[[str], bool]" = bool, *, is_file: bool = True) -> list[Section]:
    """All sections in order. The first one is the text before any heading.

    Boxes with an unusual mark are left out unless `is_mark` accepts it. Only a file can be in conflict by mistake.
    """
    if is_file:
        refuse_conflict(text, path)
    found = [Section(0, "", ())]
    above: list[tuple[int, str]] = []
    for number, line, plain in iterate_lines(text.split("\n"), path):
        head = parse_heading(line, number) if plain else None
        if head is None:
            one = parse_box(line, number) if plain else None
            found[-1].add(line, one if one and (one.mark in ("", "x", "X") or is_mark(one.mark)) else None)
            continue
        above = [(level, title) for level, title in above if level < head.level]
        found.append(Section(head.level, head.title, tuple(title for _, title in above)))
        above.append((head.level, head.title))
    return found


# --- parsing headings -------------------------------------------------------------------------------

_DIGITS = 9  # a longer number is not the number of a story
_LATER = ("optional", "future", "nice to have")
_KINDS_OF_WORK = ("", "work", "tasks", "items", "ideas", "stories", "features", "improvements", "enhancements")


# In the languages that specs are written in.
_OPTIONAL = (
    "optional",
    "opcional",
    "optionnel",
    "facultatif",
    "opzionale",
    "可选",
    "可選",
    "オプション",
    "任意",
    "선택",
)
_NARROW = str.maketrans("\uff08\uff09\uff0c\u3001\uff1b", "(),,;")


def is_optional(title: str, above: "Sequence[str]" = ()) -> bool:
    return _says_optional(title) or any(_is_for_later(name) for name in (title, *above))


def _says_optional(title: str) -> bool:
    """In parentheses, with or without a remark: `(optional)`, `(optional, later)`."""
    parts = title.lower().translate(_NARROW).split("(")
    calls = [one[-1:].isascii() and one[-1:].isalnum() for one in parts]
    return any(_begins_optional(one, is_call=is_call) for is_call, one in zip(calls, parts[1:], strict=False))


def _begins_optional(text: str, *, is_call: bool) -> bool:
    """`is_call`: in `find(optional, name)`, it is no remark."""
    return any(text.startswith(f"{word}{end}") for word in _OPTIONAL for end in (")" if is_call else "),;"))


def _is_for_later(title: str) -> bool:
    lower = title.lower()
    return any(name.split(" ", 1)[0] in lower and _is_called(title, name, _KINDS_OF_WORK) for name in _LATER)


def clean_words(title: str) -> str:
    """The words of a heading in lower case, without numbers, emphasis and emojis."""
    return " ".join("".join(c if c.isalpha() else " " for c in title.lower().replace("'", "")).split())


def find_reason_aside(title: str, above: "Sequence[str]" = ()) -> str:
    """Why the tasks below a heading are not worked on: "blocked", "deferred", or empty."""
    for one in (title, *above):
        lower = one.lower()
        for name, reason in _ASIDE.items():
            if name in lower and _is_called(one, name, _KINDS_OF_ASIDE):
                return reason
    return ""


def _is_called(title: str, name: str, kinds: "Sequence[str]") -> bool:
    words = clean_words(title)
    return words.startswith(name) and words[len(name) :].strip() in kinds


_ASIDE = {"blocked": "blocked", **dict.fromkeys(("deferred", "postponed", "on hold", "parked"), "deferred")}
_KINDS_OF_ASIDE = (*_KINDS_OF_WORK, "by", "on", "waiting", "issues", "bugs", "for now", "later", "until later")


def is_notes(title: str) -> bool:
    """Whether a section without boxes is only information, and not a story without tasks."""
    name = (split_number(title) or ("", title))[1]
    for mark in ("(", ":", "\uff1a", "&", "/", ",", " and "):
        name = name.partition(mark)[0]
    words = clean_words(name)
    return words in _NOTES or words.startswith(_NOTES_WITHOUT_BLANKS) or words.endswith(_KINDS_OF_NOTES)


# In the languages that specs are written in.
_NOTES = (
    *("note", "notes", "background", "references", "reference", "overview", "summary", "context", "introduction"),
    *("success criteria", "acceptance criteria", "definition of done", "validation", "verification", "dependencies"),
    *("dependency graph", "execution order", "out of scope", "scope", "goal", "goals", "non goals", "purpose"),
    *("assumptions", "risks", "risks and mitigations", "open questions", "questions", "rollback", "rollback plan"),
    *("timeline", "estimate", "estimates", "estimated effort", "effort", "legend", "glossary", "appendix", "status"),
    *("parallelization", "parallel opportunities", "decisions", "related", "links", "resources", "changelog"),
    *("notizen", "hinweise", "anmerkungen", "hintergrund", "überblick", "übersicht", "zusammenfassung", "kontext"),
    *("referenzen", "erfolgskriterien", "akzeptanzkriterien", "validierung", "abhängigkeiten", "risiken"),
    *("notas", "antecedentes", "contexto", "referencias", "resumen", "visión general", "criterios de éxito"),
    *("criterios de aceptación", "validación", "dependencias", "riesgos", "referências", "resumo", "visão geral"),
    *("critérios de sucesso", "critérios de aceitação", "validação", "dependências", "riscos", "observações"),
    *("remarques", "contexte", "références", "aperçu", "résumé", "critères de succès", "critères dacceptation"),
    *("dépendances", "risques", "note tecniche", "contesto", "riferimenti", "panoramica", "criteri di successo"),
    *("dipendenze", "convalida", "примечания", "заметки", "контекст", "обзор", "ссылки", "критерии успеха"),
    *("критерии приемки", "критерии приёмки", "проверка", "зависимости", "риски", "참고", "참고 사항", "배경", "개요"),
    *("성공 기준", "검증", "의존성", "메모", "요약"),
)
_KINDS_OF_NOTES = (" notes", " references", " overview", " summary", " criteria", " dependencies", " questions")
_NOTES_WITHOUT_BLANKS = (
    *(
        "备注",
        "说明",
        "背景",
        "参考",
        "概述",
        "概览",
        "总结",
        "成功标准",
        "验收标准",
        "验证",
        "依赖",
        "注意事项",
        "风险",
    ),
    *("備註", "說明", "參考", "概要", "驗收標準", "驗證", "依賴", "備考", "メモ", "成功基準", "受け入れ基準", "検証"),
    *("依存関係", "注意事項", "まとめ"),
)
_PHASES = (
    *("phase", "stage", "step", "part", "milestone", "sprint", "iteration", "epic", "week", "day", "story", "task"),
    *("fase", "etapa", "étape", "schritt", "этап", "фаза", "шаг", "paso", "passo", "tappa", "faza", "단계"),
)
_PHASES_WITHOUT_BLANKS = ("阶段", "階段", "フェーズ", "ステージ", "步骤", "步驟", "단계")


def parse_phase(title: str) -> tuple[str, str] | None:
    """Splits "Phase 3: Title", "Stage 3.1 - Title" and "阶段 3: Title" into the number and the title."""
    bare = title.strip("*_ ").replace("\uff1a", ":")
    while bare and not bare[0].isalnum():  # an emoji
        bare = bare[1:]
    word, _, after = bare.partition(" ")
    if word.lower() not in _PHASES:
        joined = next((name for name in _PHASES_WITHOUT_BLANKS if bare.startswith(name)), None)
        if joined is None:
            return None
        after = bare[len(joined) :]
    number, _, rest = after.strip().replace(":", " ", 1).partition(" ")
    number = number.rstrip(".)")
    counts = any(character.isdigit() for character in number) or (len(number) == 1 and number.isalnum())
    return (number, rest.strip(" \t-\u2013\u2014*_") or title) if counts and number.isascii() else None


def parse_dependencies(title: str) -> list[str]:
    """The items of `(depends on 1, 2 and Setup)`: its words, and its parts between commas as slugs."""
    listed = find_dependency_list(title, "(").partition(")")[0]
    parts = listed.replace(";", ",").replace(" and ", ",").split(",")
    words = listed.replace(",", " ").replace(":", " ").replace(";", " ").replace("#", " ").split()
    return list(dict.fromkeys([*(word.rstrip(".") for word in words), *(project.build_slug(part) for part in parts)]))


def find_dependency_list(text: str, before: str = "") -> str:
    """The text after "depends on", with any usual capitalization."""
    for words in ("depends on", "Depends on", "Depends On", "DEPENDS ON"):
        _, found, after = text.partition(before + words)
        if found:
            return after
    return ""


def is_number(text: str) -> bool:
    return bool(text) and not text.strip("0123456789.") and text[0] != "." and text[-1] != "."


def split_number(text: str) -> tuple[str, str] | None:
    """Splits "1. Title" and "1.2 Title" into the number and the rest."""
    rest = text.lstrip("0123456789.")
    head = text[: len(text) - len(rest)]
    number = head.rstrip(".")
    if not is_number(number) or ".." in number or any(len(part) > _DIGITS for part in number.split(".")):
        return None
    if rest and rest[0] not in " \t:)" and head == number:
        return None  # "3-way", "2D"
    return number, rest.lstrip(" \t:)-–—")


def join_prose(lines: "Iterable[str]") -> str | None:
    return "\n".join(lines).strip() or None


# --- writing ----------------------------------------------------------------------------------------


def edit(path: str, change: "Callable[[str], str]") -> None:
    """Rewrites a user's file; the byte order mark and everything that `change` does not touch are kept."""

    def on_bytes(data: bytes) -> bytes:
        text = decode(data, path)
        mark = BOM if text.startswith(BOM) else ""
        return (mark + change(text.removeprefix(BOM))).encode("utf-8")

    _refuse_link_out(path)
    try:
        files.rewrite(path, on_bytes)
    except FileNotFoundError:
        raise SpecError(f"{path} is missing: write it, then try again") from None


def _refuse_link_out(path: str) -> None:
    """In a cloned repository, a spec can be a link to a file that we must not change."""
    if not os.path.islink(path):
        return
    target, root = os.path.realpath(path), os.path.realpath(project.find(os.path.dirname(path)))
    if not target.startswith(os.path.join(root, "")):
        raise UnsafePath(f"{path} is a link that points outside of {root}, to {target}: replace the link by the file")


def untick(text: str, found: Box) -> str:
    lines = text.split("\n")
    line = lines[found.line]
    lines[found.line] = f"{line[: found.start]} {line[found.end :]}"
    return "\n".join(lines)


def tick(text: str, found: Box) -> str:
    lines = text.split("\n")
    line = lines[found.line]
    rest = line[found.end :]
    if rest[1:2] in ("(", "["):  # `[x](` would be a link, no longer a box
        rest = f"] {rest[1:]}"
    lines[found.line] = f"{line[: found.start]}x{rest}"
    return "\n".join(lines)
