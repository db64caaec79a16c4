"""Notes that a session leaves in Markdown: learnings, patterns and observations, each in its section.

A section that is missing is made at the end. Nothing is written twice, and no note can break out of its
place: it forges no heading, and its control characters are made visible.
"""

import os

from ralphtool import files
from ralphtool.errors import SpecError
from ralphtool.specs.markdown import Fences, Heading, edit, heading, unfenced

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any


# --- what the three kinds look like -----------------------------------------------------------------


def write_learnings(path: str, learnings: "Sequence[dict[str, Any]]") -> int:
    return _add_items(path, "Learnings", learnings, _learning)


def write_observations(path: str, observations: "Sequence[dict[str, Any]]") -> int:
    return _add_items(path, "Observations", observations, _observation)


def write_patterns(path: str, patterns: "Sequence[dict[str, Any]]") -> int:
    def add(notes: Notes) -> None:
        for pattern in patterns:
            notes.add_group("Patterns", one_line(pattern["name"]), paragraph(pattern["description"]))

    return _write(path, add)


def _add_items(
    path: str, section: str, records: "Sequence[dict[str, Any]]", render: "Callable[[dict[str, Any]], str]"
) -> int:
    groups: dict[str, list[list[str]]] = {}
    for record in records:
        groups.setdefault(_group_title(record), []).append(item(render(record)))

    def add(notes: Notes) -> None:
        for title, items in groups.items():
            notes.add_items(section, title, items)

    return _write(path, add)


def _group_title(record: "dict[str, Any]") -> str:
    day = str(record.get("timestamp") or "")[:10] or "undated"
    story = record.get("story_id")
    return f"{day} - Story {one_line(str(story))}" if story else f"{day} - General"


def _learning(record: "dict[str, Any]") -> str:
    text, task = record["description"].strip(), record.get("task_id")
    return f"{text} (Task {one_line(str(task))})" if task else text


def _observation(record: "dict[str, Any]") -> str:
    tags = ", ".join(str(record[name]) for name in ("category", "severity", "file") if record.get(name))
    head = f"{record['type']}: {record['title']}" + (f" ({tags})" if tags else "")
    return f"{head}\n{record['description']}" if record.get("description") else head


def _write(path: str, add: "Callable[[Notes], None]") -> int:
    written = 0

    def change(text: str) -> str:
        nonlocal written
        notes = Notes(text)
        add(notes)
        written = notes.written
        return notes.text()

    if os.path.lexists(path):
        edit(path, change)
        return written
    with files.Locked(os.path.dirname(path)):
        try:
            files.create(path, change("").encode("utf-8"), mode=0o666)
        except FileExistsError:
            raise SpecError(f"{path} appeared while it was being made: run the command again") from None
    return written


# --- text that stays in its place -------------------------------------------------------------------


def item(text: str) -> list[str]:
    """A note as a list item. Six blanks before what follows: there Markdown knows no heading and no fence."""
    first, *more = _clean(text)
    return [f"- {_harmless(first)}", *[f"      {line}".rstrip() for line in more]]


def paragraph(text: str) -> list[str]:
    first, *more = _clean(text)
    return [_harmless(first), *[f"    {line}".rstrip() for line in more]]


def one_line(text: str) -> str:
    return " ".join(" ".join(_clean(text)).split())


def _clean(text: str) -> list[str]:
    lines = text.strip().replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return ["".join(c if c == "\t" or not _is_control(c) else ascii(c)[1:-1] for c in line).rstrip() for line in lines]


def _is_control(character: str) -> bool:
    # Half of a surrogate pair, which JSON can bring in, is no character and can't be written as UTF-8.
    return character < " " or "\x7f" <= character <= "\x9f" or "\ud800" <= character <= "\udfff"


def _harmless(line: str) -> str:
    return f"\\{line}" if line.startswith(("#", "```", "~~~")) else line


# --- the text and its sections ----------------------------------------------------------------------


class Notes:
    """A Markdown text to which notes are added, each under a `###` heading in a `##` section."""

    def __init__(self, text: str) -> None:
        self.lines = text.split("\n")
        self._ending = "\r" if 2 * text.count("\r\n") > text.count("\n") else ""
        self.written = 0

    def text(self) -> str:
        return "\n".join(self.lines)

    def add_items(self, section: str, title: str, items: "Iterable[list[str]]") -> None:
        """Adds list items to the group of that title, after those that are there."""
        start, end = self._group(section, title)
        known = set(_items(self.lines[start:end]))
        fresh = [item for item in _once(items) if tuple(item) not in known]
        self._insert(end, [line for item in fresh for line in item])
        self.written += len(fresh)

    def add_group(self, section: str, title: str, body: list[str]) -> None:
        """Adds a group of its own, unless one with that title says the same."""
        for start, end in self._groups(section, title):
            if [line.rstrip() for line in self.lines[start:end]] == body:
                return
        self._insert(self._new_group(section, title), body)
        self.written += 1

    def _group(self, section: str, title: str) -> tuple[int, int]:
        existing = self._groups(section, title)
        if existing:
            return existing[0]
        at = self._new_group(section, title)
        return at, at

    def _groups(self, section: str, title: str) -> list[tuple[int, int]]:
        """The lines of every group of that title, without the blank ones at its end."""
        heads, start, end = self._section(section)
        inner = [head for head in heads if start <= head.line < end and head.level <= 3]
        borders = [*[head.line for head in inner], end][1:]
        return [
            (head.line + 1, self._without_blanks(head.line + 1, border))
            for head, border in zip(inner, borders, strict=True)
            if head.level == 3 and head.title == title
        ]

    def _section(self, section: str) -> tuple[list[Heading], int, int]:
        heads = [head for n, line, plain in unfenced(self.lines) if plain and (head := heading(line, n))]
        for index, head in enumerate(heads):
            if head.level == 2 and head.title.lower() == section.lower():
                after = [later.line for later in heads[index + 1 :] if later.level <= 2]
                return heads, head.line + 1, after[0] if after else len(self.lines)
        return heads, -1, -1

    def _new_group(self, section: str, title: str) -> int:
        """Makes the heading of a group at the end of the section; tells the line after it."""
        if self._section(section)[1] < 0:
            self._new_section(section)
        _, start, end = self._section(section)
        at = self._without_blanks(start, end)
        self._insert(at, ["", f"### {title}"])
        if at < end and at + 2 < len(self.lines) and self.lines[at + 2].strip():
            self._insert(at + 2, [""])  # the next heading followed at once
        return at + 2

    def _new_section(self, section: str) -> None:
        fences = Fences()
        for line in self.lines:
            fences.inside(line)
        at = self._without_blanks(0, len(self.lines))
        # A fence that nobody closed would swallow the section.
        closing = [fences.mark] if fences.mark else []
        self._insert(at, [*closing, *([""] if at else []), f"## {section}"])

    def _without_blanks(self, start: int, end: int) -> int:
        while end > start and not self.lines[end - 1].strip():
            end -= 1
        return end

    def _insert(self, at: int, lines: list[str]) -> None:
        if not lines:
            return
        fresh = [line + self._ending for line in lines]
        if at == len(self.lines):  # the text had no line feed at its end
            if at:
                self.lines[-1] += self._ending
            fresh.append("")
        self.lines[at:at] = fresh


def _items(lines: list[str]) -> list[tuple[str, ...]]:
    """The list items among some lines, each as a tuple of its lines without trailing blanks."""
    items: list[list[str]] = []
    for line in lines:
        bare = line.rstrip()
        if bare.startswith("- "):
            items.append([bare])
        elif items:
            items[-1].append(bare)
    return [tuple(_trimmed(item)) for item in items]


def _trimmed(lines: list[str]) -> list[str]:
    while lines and not lines[-1]:
        lines.pop()
    return lines


def _once(items: "Iterable[list[str]]") -> list[list[str]]:
    return [list(item) for item in dict.fromkeys(tuple(item) for item in items)]
