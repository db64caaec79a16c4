"""The hooks for mkdocs: `hooks` in mkdocs.yml.

Pages link to files outside `docs/`, such as `../examples/embed.py`. The site has copies of them in `source/`, so that
it is complete without the repository. CONTRIBUTING.md and CHANGELOG.md become pages.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGES = {"contributing.md": "CONTRIBUTING.md", "changelog.md": "CHANGELOG.md"}
_LINK = re.compile(r"\]\(([^()\s#]+)")
_ITEM = re.compile(r"(?:[-*+]|\d+\.) +(?=\S)")
_STEP = 4  # spaces by which mkdocs requires the contents of a list to be indented


def on_files(files: Any, config: Any) -> Any:
    """Adds the pages and copies that are not in `docs/`."""
    from mkdocs.structure.files import File  # type: ignore[import-not-found,unused-ignore]

    for name, source in PAGES.items():
        files.append(File.generated(config, name, abs_src_path=str(ROOT / source)))
    for name in sorted(find_sources()):
        files.append(File.generated(config, f"source/{name}.txt", abs_src_path=str(ROOT / name)))
    return files


def find_sources() -> set[str]:
    """The files outside `docs/` that a page links to, by their path from the root."""
    found: set[str] = set()
    for page in (ROOT / "docs").rglob("*.md"):
        folder = page.parent.relative_to(ROOT).as_posix()
        links = _LINK.findall(page.read_text(encoding="utf-8"))
        found.update(target for link in links if (target := find_source(folder, link)))
    return found


def find_source(folder: str, link: str) -> str:
    """The file outside `docs/` that a link from a page of this folder leads to; empty for any other link."""
    path = posixpath.normpath(posixpath.join(folder, link))
    is_outside = "://" not in link and not path.startswith(("docs/", "../"))
    return path if is_outside and (ROOT / path).is_file() else ""


def on_page_markdown(markdown: str, page: Any, **rest: Any) -> str:
    """Points links to the copies of the files in the site."""
    if page.file.src_uri in PAGES:
        return indent_lists(markdown.replace("](docs/", "]("))
    folder = posixpath.join("docs", posixpath.dirname(page.file.src_uri)).rstrip("/")
    up = "../" * page.file.src_uri.count("/")

    def point(match: re.Match[str]) -> str:
        target = find_source(folder, match[1])
        return f"]({up}source/{target}.txt" if target else match[0]

    return indent_lists(_LINK.sub(point, markdown))


def indent_lists(markdown: str) -> str:
    """Indents lists as mkdocs requires. GitHub needs less, and our pages are written for both."""
    inside: list[int] = []  # the text columns of the open items
    is_code = is_apart = False  # inside a fence; after a paragraph that is not part of an item's first line
    lines = [""]
    for line in markdown.split("\n"):
        text = line.lstrip(" ")
        column = len(line) - len(text)
        item = None if is_code else _ITEM.match(text)
        if text and not is_code:
            while inside and column < inside[-1] and (item or not lines[-1].strip()):
                inside.pop()
        if item and is_apart and lines[-1].strip():
            lines.append("")
        is_apart = not item and (is_apart or not text)
        depth = sum(column >= one for one in inside)
        lines.append(" " * (_STEP * depth + column - (inside[depth - 1] if depth else 0)) + text)
        if item:
            inside.append(column + item.end())
        is_code ^= text.startswith("```")
    return "\n".join(lines[1:])
