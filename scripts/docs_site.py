"""What mkdocs needs to know about this repository: `hooks` in mkdocs.yml.

Pages link to files outside of `docs/`, as `../examples/embed.py`. The site has copies of them in `source/`, so that it
is complete without the repository. CONTRIBUTING.md and CHANGELOG.md become pages.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.structure.files import Files

ROOT = Path(__file__).resolve().parent.parent
PAGES = {"contributing.md": "CONTRIBUTING.md", "changelog.md": "CHANGELOG.md"}
_LINK = re.compile(r"\]\(([^()\s#]+)")


def on_files(files: Files, config: Any) -> Files:
    """Adds the pages and copies that are not in `docs/`."""
    from mkdocs.structure.files import File

    for name, source in PAGES.items():
        files.append(File.generated(config, name, abs_src_path=str(ROOT / source)))
    for name in sorted(find_sources()):
        files.append(File.generated(config, f"source/{name}.txt", abs_src_path=str(ROOT / name)))
    return files


def find_sources() -> set[str]:
    """The files outside of `docs/` that a page links to, by their path from the root."""
    found = set()
    for page in (ROOT / "docs").rglob("*.md"):
        folder = page.parent.relative_to(ROOT).as_posix()
        links = _LINK.findall(page.read_text(encoding="utf-8"))
        found.update(target for link in links if (target := find_source(folder, link)))
    return found


def find_source(folder: str, link: str) -> str:
    """The file outside of `docs/` that a link from a page of this folder leads to; empty for any other link."""
    path = posixpath.normpath(posixpath.join(folder, link))
    is_outside = "://" not in link and not path.startswith(("docs/", "../"))
    return path if is_outside and (ROOT / path).is_file() else ""


def on_page_markdown(markdown: str, page: Any, **rest: Any) -> str:
    """Lets links lead to where the files are in the site."""
    if page.file.src_uri in PAGES:
        return markdown.replace("](docs/", "](")
    folder = posixpath.join("docs", posixpath.dirname(page.file.src_uri)).rstrip("/")
    up = "../" * page.file.src_uri.count("/")

    def point(match: re.Match[str]) -> str:
        target = find_source(folder, match[1])
        return f"]({up}source/{target}.txt" if target else match[0]

    return _LINK.sub(point, markdown)
