"""The front matter of a Markdown file: the few forms of YAML that task files use, read and changed line by line.

Other forms are neither read nor written.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_FENCE = "---"
_SPECIAL = "&*!|>%@`\"'#,[]{}?:-"  # a plain scalar can't begin with these


class FrontMatter:
    """The top-level keys, each with its lines; `end` is the number of the closing line."""

    def __init__(self, text: str) -> None:
        lines = text.split("\n")
        self.end = 0
        self._values: dict[str, tuple[int, list[str]]] = {}
        if lines[0].rstrip() != _FENCE:
            return
        self.end = next((number for number, line in enumerate(lines) if number and line.rstrip() == _FENCE), 0)
        key = ""
        for number, line in enumerate(lines[1 : self.end], 1):
            head, colon, rest = line.rstrip("\r").partition(":")
            if colon and head and head[0] not in " \t-#" and (not rest or rest[0] in " \t"):
                key = head.strip()
                self._values[key] = (number, [rest.strip()])
            elif key:
                self._values[key][1].append(line.strip())

    def line_of(self, key: str) -> int | None:
        """The number of a key's line."""
        return self._values[key][0] if key in self._values else None

    def text(self, key: str) -> str:
        first, *more = self._values.get(key, (0, [""]))[1]
        if first[:1] in ("|", ">"):
            return "\n".join(more).strip() if first[0] == "|" else " ".join(more).strip()
        return _unquote(" ".join([first, *more]).strip())

    def texts(self, key: str) -> list[str]:
        """A list: `[a, b]` on one or more lines, or one item per line; a single text is a list of one."""
        whole = " ".join(self._values.get(key, (0, []))[1]).strip()
        if whole.startswith("["):
            inside = whole.partition("]")[0][1:]
            return [text for part in inside.split(",") if (text := _unquote(part.strip()))]
        items = [line for line in self._values.get(key, (0, []))[1] if line.startswith("-")]
        if items:
            return [text for line in items if (text := _unquote(line[1:].strip()))]
        return [text] if (text := self.text(key)) else []


def _unquote(text: str) -> str:
    if text[:1] == "'" and text.rfind("'") > 0:
        return text[1 : text.rfind("'")].replace("''", "'")
    if text[:1] == '"' and text.rfind('"') > 0:
        return text[1 : text.rfind('"')].replace('\\"', '"').replace("\\\\", "\\")
    return "" if text in ("null", "~") else text.partition(" #")[0].rstrip()


def quote(text: str) -> str:
    """A text as YAML: unquoted if that is unambiguous."""
    is_plain = (
        text
        and text[0] not in _SPECIAL
        and text == text.strip()
        and ": " not in text
        and " #" not in text
        and not text.endswith(":")
        and text.lower() not in ("null", "true", "false", "yes", "no", "on", "off", "~")
        and not text[0].isdigit()
    )
    return text if is_plain else "'" + text.replace("'", "''") + "'"


def quote_list(texts: "Sequence[str]") -> str:
    return f"[{', '.join(quote(text) for text in texts)}]"


def set_text(text: str, key: str, value: str) -> str:
    """Changes the value of a key; its quotes and all other bytes stay. A missing key is added."""
    lines, found = text.split("\n"), FrontMatter(text)
    at = found.line_of(key)
    ending = "\r" if lines[found.end].endswith("\r") else ""
    if at is None:
        lines.insert(found.end, f"{key}: {quote(value)}{ending}")
        return "\n".join(lines)
    head, _, rest = lines[at].partition(":")
    old = rest.strip()
    blanks = rest[: len(rest) - len(rest.lstrip())] if old else " "
    mark = old[:1] if old[:1] in ("'", '"') and old.rfind(old[:1]) > 0 else ""
    comment = old[old.rfind(mark) + 1 :] if mark else _find_comment(old)
    shown = f"{mark}{value}{mark}" if mark and mark not in value and "\\" not in value else quote(value)
    lines[at] = f"{head}:{blanks}{shown}{comment}{rest[len(rest.rstrip()) :] if old else ending}"
    return "\n".join(lines)


def _find_comment(text: str) -> str:
    plain, mark, comment = text.partition(" #")
    return text[len(plain.rstrip()) :] if mark and comment else ""


def strip_front_matter(text: str) -> str:
    """The text with empty lines in place of its front matter, which is not Markdown."""
    lines = text.split("\n")
    end = FrontMatter(text).end
    return "\n".join(["", *[""] * end, *lines[end + 1 :]]) if end else text


__all__ = ["FrontMatter", "quote", "set_text"]
