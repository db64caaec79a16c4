"""Settings from `.ralph/config.toml`. A setting that is missing there has a default.

The agent's hot path needs two lists of commands from it and can't afford a TOML parser, so a small reader
handles the plain cases and leaves everything else to `tomllib`.
"""

from ralphtool.core import files, layout
from ralphtool.errors import InvalidValue

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def path_of(project: str) -> str:
    return layout.config(project)


def _read_text(project: str) -> str | None:
    path = path_of(project)
    try:
        return files.read(path).decode("utf-8").removeprefix("\ufeff")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except UnicodeDecodeError as error:
        raise InvalidValue(f"{path}: byte {error.start} is not UTF-8: save the file as UTF-8") from None
    except OSError as error:
        raise InvalidValue(f"{path} can't be read ({error.strerror}): check its permissions") from None


def _read_table(project: str, name: str) -> "dict[str, Any]":
    text = _read_text(project)
    return {} if text is None else _parse_table(text, project, name)


def _parse_table(text: str, project: str, name: str) -> "dict[str, Any]":
    import tomllib

    try:
        table = tomllib.loads(text).get(name, {})
    except (ValueError, RecursionError) as error:  # ValueError also for a number that is too long
        raise InvalidValue(f"{path_of(project)}: {error}: fix that line") from None
    if not isinstance(table, dict):
        raise InvalidValue(f"{path_of(project)}: {name} must be a table: write [{name}]")
    return table


def mentions(project: str, word: str) -> bool:
    return word in (_read_text(project) or "")


def read_spec(project: str) -> str | None:
    """`[run] spec`: the format or the file that `--spec` would name."""
    value = _read_table(project, "run").get("spec")
    if value is not None and not isinstance(value, str):
        raise InvalidValue(f'{path_of(project)}: run.spec must be a string, as in spec = "docs/plan.md"')
    return value


def read_spec_of(project: str, name: str) -> str | None:
    """The part of `[run] spec` after the name of this format: `12` for `github:12`."""
    text = _read_text(project)
    if text is None or f"{name}:" not in text:
        return None
    format, _, where = (read_spec(project) or "").partition(":")
    return where if format == name and where else None


def read_tracker(project: str, name: str) -> "dict[str, Any]":
    """`[specs.NAME]`: the settings of an issue tracker. Their values are not checked here."""
    text = _read_text(project)
    if text is None or "specs" not in text:
        return {}
    table = _parse_table(text, project, "specs").get(name, {})
    if not isinstance(table, dict):
        raise InvalidValue(f"{path_of(project)}: specs.{name} must be a table: write [specs.{name}]")
    return table


def read_verify(project: str) -> dict[str, list[str]]:
    """`[verify] checks` and `tests`, as far as they are set."""
    text = _read_text(project)
    if text is None or "verify" not in text:
        return {}
    table = _parse_plain_verify(text)
    if table is None:
        table = _parse_table(text, project, "verify")
    return _check_command_lists(table, project)


def accepts_unproven(project: str) -> bool:
    """`[proof] accept = "unproven"`: stories that are not proven need no decision."""
    return mentions(project, "unproven") and _read_table(project, "proof").get("accept") == "unproven"


def _check_command_lists(table: "dict[str, Any]", project: str) -> dict[str, list[str]]:
    for key in ("checks", "tests"):
        value = table.get(key, [])
        if not isinstance(value, list) or not all(isinstance(command, str) for command in value):
            raise InvalidValue(
                f'{path_of(project)}: verify.{key} must be a list of strings, as in {key} = ["make {key}"]'
            )
    return {key: table[key] for key in ("checks", "tests") if key in table}


# --- the small reader -------------------------------------------------------------------------------


def _parse_plain_verify(text: str) -> "dict[str, Any] | None":
    """The `[verify]` table if the file is plain, as most are; None if it needs a real parser."""
    if '"""' in text or "'''" in text:  # without these, a line that begins with '#' is always a comment
        return None
    lines = [line.strip() for line in text.split("\n") if not line.lstrip().startswith("#")]
    if "[verify]" not in lines or "\n".join(lines).count("verify") != 1:
        return None
    body = lines[lines.index("[verify]") + 1 :]
    table: dict[str, Any] = {}
    while body and not body[0].startswith("["):
        key, equals, value = body[0].partition("=")
        if body[0]:
            name = key.strip()
            found = (
                _parse_plain_value(value.strip(), body)
                if equals and name.isidentifier() and name not in table
                else None
            )
            if found is None:
                return None
            table[name] = found[0]
        del body[0]
    return table


def _parse_plain_value(text: str, body: list[str]) -> "tuple[list[str] | None] | None":
    """A list of quoted strings, which may span several lines; other plain values are skipped."""
    if not text.startswith("["):
        return (None,) if _is_plain(text) else None
    while (found := _parse_quoted(text)) is None and len(body) > 1:
        del body[0]
        text += "\n" + body[0]
    return None if found is None else (found,)


def _is_plain(text: str) -> bool:
    """A number, true or false, or a quoted string without special characters."""
    if text[:1] in ("'", '"'):
        return text.count(text[0]) == 2 and text.endswith(text[0]) and "\\" not in text and text.isprintable()
    return text.isascii() and (text.isdigit() or text in ("true", "false"))


def _parse_quoted(text: str) -> list[str] | None:
    """The strings of `["a", 'b']`; None if the list is not closed yet, or contains anything else."""
    texts: list[str] = []
    index, wants_comma = 1, False
    while index < len(text):
        mark = text[index]
        if mark in "\"'" and not wants_comma:
            end = text.find(mark, index + 1)
            if end < 0 or "\\" in text[index:end] or not text[index:end].isprintable():
                return None
            texts.append(text[index + 1 : end])
            index, wants_comma = end, True
        elif mark == "," and wants_comma:
            wants_comma = False
        elif mark == "]":
            rest = text[index + 1 :].strip()
            return texts if not rest or rest.startswith("#") else None
        elif mark not in " \t\n":
            return None
        index += 1
    return None
