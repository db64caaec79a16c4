"""Examples in Rust comments, which `cargo test` runs: builds the new source with the old examples."""

from __future__ import annotations

import re
from collections import Counter

_MODULE = re.compile(rb"\A(?:\s*^[ \t]*//![^\n]*\n)*", re.MULTILINE)
_ITEM = re.compile(
    rb"(?P<comment>(?:^[ \t]*///[^\n]*\n)*)(?:^[ \t]*#\[[^\n]*\n)*^[ \t]*(?:pub(?:\([^)]*\))?\s+)?"
    rb'(?:(?:async|unsafe|const|extern(?:\s+"C")?)\s+)*(?P<name>(?:fn|struct|enum|trait|mod|type|union|macro_rules!)\s+\w+)',
    re.MULTILINE,
)
_FENCE = b"```"


def restore_rust_examples(old: bytes, new: bytes) -> bytes:
    """Restores an old comment with examples even if the new item has none."""
    if _FENCE not in old and _FENCE not in new:
        return new
    before, parts, at = _find_comments(old), [], 0
    for key, (start, end) in _find_comments(new).items():
        was = old[slice(*before[key])] if key in before else None
        if was is not None and (_FENCE in was or _FENCE in new[start:end]):
            parts += [new[at:start], was]
            at = end
    return b"".join([*parts, new[at:]])


def _find_comments(data: bytes) -> dict[tuple[bytes, int], tuple[int, int]]:
    """The span of each item's comment; items with the same name are numbered."""
    module = _MODULE.match(data)
    found = {(b"", 0): module.span() if module else (0, 0)}
    seen = Counter[bytes]()
    for item in _ITEM.finditer(data, found[b"", 0][1]):
        name = b" ".join(item["name"].split())
        found[name, seen[name]] = item.span("comment")
        seen[name] += 1
    return found
