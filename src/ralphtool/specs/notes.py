"""A session's notes in Markdown: learnings, patterns and observations, each in its own section.

A missing section is added at the end. Nothing is written twice, and no note can break out of its place:
it can't forge a heading, and its control characters are made visible.
"""

import os

from ralphtool.core import files
from ralphtool.specs.markdown import Fences, edit, iterate_lines, parse_heading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any

    from ralphtool.specs.markdown import Heading


# --- the three kinds of notes -----------------------------------------------------------------------


def write_learnings(path: str, learnings: "Sequence[dict[str, Any]]") -> int:
    return _add_items(
        path, "Learnings", [(_build_group_title(one), format_item(_format_learning(one))) for one in learnings]
    )


def write_observations(path: str, observations: "Sequence[dict[str, Any]]") -> int:
    listed = [(_build_group_title(one), format_item(_format_observation(one))) for one in observations]
    return _add_items(path, "Observations", listed)


def write_patterns(path: str, patterns: "Sequence[dict[str, Any]]") -> int:
    groups = [(join_lines(one["name"]), format_paragraph(one["description"])) for one in patterns]
    return _write_notes(path, lambda notes: notes.add("Patterns", groups, join=False))


def _add_items(path: str, section: str, items: "list[tuple[str, list[str]]]") -> int:
    return _write_notes(path, lambda notes: notes.add(section, items, join=True))


def _build_group_title(record: "dict[str, Any]") -> str:
    day = str(record.get("timestamp") or "")[:10] or "undated"
    story = record.get("story_id")
    return f"{day} - Story {join_lines(str(story))}" if story else f"{day} - General"


def _format_learning(record: "dict[str, Any]") -> str:
    text, task = record["description"].strip(), record.get("task_id")
    return f"{text} (Task {join_lines(str(task))})" if task else text


def _format_observation(record: "dict[str, Any]") -> str:
    tags = ", ".join(str(record[name]) for name in ("category", "severity", "file") if record.get(name))
    head = f"{record['type']}: {record['title']}" + (f" ({tags})" if tags else "")
    return f"{head}\n{record['description']}" if record.get("description") else head


def _write_notes(path: str, add: "Callable[[Notes], None]") -> int:
    written = 0

    def change(text: str) -> str:
        nonlocal written
        notes = Notes(text)
        add(notes)
        written = notes.written
        return notes.text()

    try:
        if not os.path.lexists(path):
            files.create(path, change("").encode("utf-8"), mode=0o666)
            return written
    except FileExistsError:
        pass  # another process has just created the file: add to that one
    edit(path, change)
    return written


# --- escaping ---------------------------------------------------------------------------------------


def format_item(text: str) -> list[str]:
    """A note as a list item. Six spaces before further lines: there Markdown has no headings and no fences."""
    first, *more = _clean_lines(text)
    return [f"- {_escape_markup(first)}", *[f"      {line}".rstrip() for line in more]]


def format_paragraph(text: str) -> list[str]:
    first, *more = _clean_lines(text)
    return [_escape_markup(first), *[f"    {line}".rstrip() for line in more]]


def join_lines(text: str) -> str:
    return " ".join(" ".join(_clean_lines(text)).split())


def _clean_lines(text: str) -> list[str]:
    # If a comment in the file was left open, a `-->` of ours would close it.
    lines = text.strip().replace("\r\n", "\n").replace("\r", "\n").replace("-->", "--\\>").split("\n")
    return ["".join(c if c == "\t" or not _is_control(c) else ascii(c)[1:-1] for c in line).rstrip() for line in lines]


def _is_control(character: str) -> bool:
    # JSON can contain half of a surrogate pair, which can't be written as UTF-8.
    # Some Markdown readers start a new line at the Unicode line and paragraph separators.
    return (
        character < " "
        or "\x7f" <= character <= "\x9f"
        or "\ud800" <= character <= "\udfff"
        or character in "\u2028\u2029"
    )


def _escape_markup(line: str) -> str:
    return f"\\{line}" if line.startswith(("#", "```", "~~~", "<!--")) else line


# --- the text and its sections ----------------------------------------------------------------------


class Notes:
    """A Markdown text that notes are added to, each under a `###` heading in a `##` section."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._ending = "\r" if 2 * text.count("\r\n") > text.count("\n") else ""
        complete = not text or text.endswith("\n")
        self._lines = (text if complete else f"{text}{self._ending}\n").split("\n")
        self.written = 0

    def text(self) -> str:
        return "\n".join(self._lines) if self.written else self._text

    def add(self, section: str, notes: "Iterable[tuple[str, list[str]]]", *, join: bool) -> None:
        """Adds notes, each with the title of its group. Notes with the same title join one group, or stay separate."""
        place = _NoteSection(self._lines, section)
        for title, lines in notes:
            self.written += (
                place.add(_normalize_title(title), lines) if join else place.add_alone(_normalize_title(title), lines)
            )
        if place.changed:
            self._lines = place.lines(self._ending)


def _normalize_title(title: str) -> str:
    """A title without the characters that Markdown treats as the end of a heading."""
    found = parse_heading(f"### {title}")
    return found.title if found else title


class _NoteGroup:
    """A `###` heading and the text below it, without trailing blank lines."""

    def __init__(self, title: str, lines: list[str]) -> None:
        self.title = title
        self.lines = _trim_blank_end(lines)
        self.blanks = lines[len(self.lines) :]
        self.fresh: list[str] = []
        self.items = set(_find_items([line.rstrip() for line in self.lines[1:]]))

    def has_same_text(self, lines: list[str]) -> bool:
        return [line.rstrip() for line in self.lines[1:]] == lines


class _NoteSection:
    """One section of a text, split once: the text before its groups, the groups, and the text after it."""

    def __init__(self, lines: list[str], title: str) -> None:
        heads = _find_headings(lines)
        start = next((n for n, head in heads.items() if head.level == 2 and head.title.lower() == title.lower()), None)
        self.changed = False
        self.before, self.after = lines, list[str]()
        self.groups: list[_NoteGroup] = []
        self._missing = [] if start is not None else [f"## {title}"]
        if start is not None:
            self._split_groups(lines, heads, start)
        self._by_title: dict[str, list[_NoteGroup]] = {}
        for group in self.groups:
            self._by_title.setdefault(group.title, []).append(group)

    def _split_groups(self, lines: list[str], heads: "dict[int, Heading]", start: int) -> None:
        end = next((n for n, head in heads.items() if n > start and head.level <= 2), len(lines))
        borders = [n for n, head in heads.items() if start < n < end and head.level == 3]
        self.before, self.after = lines[: borders[0] if borders else end], lines[end:]
        for at, to in zip(borders, [*borders[1:], end], strict=bool(borders)):
            self.groups.append(_NoteGroup(heads[at].title, lines[at:to]))

    def add(self, title: str, item: list[str]) -> bool:
        """Adds a list item to the group of that title, unless it is already there."""
        same = self._by_title.get(title) or [self._new_group(title)]
        if any(tuple(item) in group.items for group in same):
            return False
        group = same[-1]
        group.items.add(tuple(item))
        group.fresh += item
        self.changed = True
        return True

    def add_alone(self, title: str, body: list[str]) -> bool:
        """Adds a separate group, unless one with the same title and text exists."""
        if any(group.fresh == body or group.has_same_text(body) for group in self._by_title.get(title, [])):
            return False
        self._new_group(title).fresh = body
        self.changed = True
        return True

    def _new_group(self, title: str) -> _NoteGroup:
        group = _NoteGroup(title, [])
        self.groups.append(group)
        self._by_title.setdefault(title, []).append(group)
        return group

    def lines(self, ending: str) -> list[str]:
        """The whole text with the new notes; an unclosed fence before them is closed."""
        out = _LineWriter(self.before, ending)
        if self._missing:
            out.add_after_blank(self._missing)
        for group in self.groups:
            if group.lines:
                out.keep(group.lines)
                out.add(group.fresh)
                out.keep(group.blanks)
            else:
                out.add_after_blank([f"### {group.title}", *group.fresh])
        return out.finish(self.after)


class _LineWriter:
    """Collects old lines unchanged, and new ones with the text's line ending."""

    def __init__(self, lines: list[str], ending: str) -> None:
        self._out: list[str] = []
        self._fences = Fences()
        self._ending = ending
        self.keep(lines)

    def keep(self, lines: list[str]) -> None:
        for line in lines:
            self._fences.inside(line)
        self._out += lines

    def add(self, lines: list[str]) -> None:
        if lines:
            self.keep([line + self._ending for line in [*self._fences.closing, *lines]])

    def add_after_blank(self, lines: list[str]) -> None:
        """Adds lines after one blank line; existing trailing blank lines are moved after them."""
        kept = _trim_blank_end(self._out)
        blanks = self._out[len(kept) :]
        self._out = kept
        self.add([*([""] if kept else []), *lines])
        self._out += blanks

    def finish(self, after: list[str]) -> list[str]:
        if after and self._out[-1].strip():
            self._out.append(self._ending)
        return [*self._out, *after]


def _find_headings(lines: list[str]) -> "dict[int, Heading]":
    """The headings by line number, except those in a fence or a comment."""
    found: dict[int, Heading] = {}
    comment = False
    last_end = max((number for number, line in enumerate(lines) if "-->" in line), default=-1)
    for number, line, plain in iterate_lines(lines):
        if plain and not comment and (head := parse_heading(line, number)):
            found[number] = head
        if plain and number <= last_end and line.startswith(("<!--", " <!--", "  <!--", "   <!--")):
            comment = True
        if comment and "-->" in line:
            comment = False
    return found


def _find_items(lines: list[str]) -> list[tuple[str, ...]]:
    """The list items among some lines, each as a tuple of its lines without trailing blank ones."""
    items: list[list[str]] = []
    for line in lines:
        if line.startswith("- "):
            items.append([line])
        elif items:
            items[-1].append(line)
    return [tuple(_trim_blank_end(item)) for item in items]


def _trim_blank_end(lines: list[str]) -> list[str]:
    end = len(lines)
    while end and not lines[end - 1].strip():
        end -= 1
    return lines[:end]
