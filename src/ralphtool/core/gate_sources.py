"""The files of a project that gates are inferred from; unreadable ones are ignored, and no more is read than needed."""

import os

from ralphtool.core import files

_MOST_FOLDERS = 200  # of a workspace

Guess = tuple[list[str], list[str]]  # the commands that check, and those that test


class SourceFolder:
    """A folder of the project: the names in it, and its files as text. An unreadable file counts as empty."""

    __slots__ = ("names", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            self.names = set(os.listdir(path))
        except OSError:
            self.names = set()

    def read(self, name: str) -> str:
        try:
            return files.read(os.path.join(self.path, name)).decode("utf-8", "replace") if name in self.names else ""
        except OSError:
            return ""  # a folder of that name, or a file that we may not read

    def open(self, name: str) -> "SourceFolder":
        return SourceFolder(os.path.join(self.path, name))

    def list_members(self, patterns: "list[str]") -> "list[SourceFolder]":
        """The folders that patterns like `packages/*` match; for `**`, only the first level."""
        found = []
        for pattern in patterns:
            base, star, _ = pattern.strip().removeprefix("./").partition("*")
            names = sorted(self.open(base).names) if star else [""]
            found += [os.path.join(base, name).rstrip("/") for name in names if not name.startswith(".")]
        return [self.open(path) for path in dict.fromkeys(found) if path and ".." not in path][:_MOST_FOLDERS]


def parse_tables(text: str) -> dict[str, str]:
    """The tables of a TOML or INI file by name, each with its lines: no full parser is needed."""
    tables: dict[str, list[str]] = {"": []}
    body = tables[""]
    for line in text.split("\n"):
        head = line.partition("#")[0].strip()
        name = head[1:-1].strip()
        if head.startswith("[") and head.endswith("]") and name and not name.startswith(("'", '"')):
            body = tables.setdefault(name, [])
        else:
            body.append(line)
    return {name: "\n".join(lines) for name, lines in tables.items()}


def find_values(body: str) -> dict[str, str]:
    """The keys of a table with their raw values, which may span several lines."""
    found: dict[str, str] = {}
    last = ""
    for line in body.split("\n"):
        key, equals, value = line.partition("=")
        name = key.strip().strip("\"'")
        if equals and line[:1] not in " \t#" and not set(name) & set("\"'[]{},"):
            last = name
            found[last] = value.strip()
        elif last:
            found[last] += "\n" + line
    return found


def list_quoted(text: str) -> list[str]:
    """Every quoted string in a value."""
    parts = text.replace("'", '"').split('"')
    return parts[1::2]


def is_python_test(name: str) -> bool:
    return name.endswith("_test.py") or (name.startswith("test_") and name.endswith(".py"))


def is_only_test(name: str) -> bool:
    """A file that usually has all the tests of a small project. pytest does not find it by itself; unittest does."""
    return name in ("test.py", "tests.py")
