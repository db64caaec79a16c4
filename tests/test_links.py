"""No link in the docs is broken: relative paths are files, and anchors are headings, as GitHub names them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from project import REPOSITORY

DOCS = REPOSITORY / "docs"
PAGES = sorted([*REPOSITORY.glob("*.md"), *DOCS.rglob("*.md")])
_FENCE = re.compile(r"^( *)(`{3,}|~{3,}).*?^ *\2`* *$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)", re.DOTALL)
_LINK = re.compile(r"!?\[(?:[^\[\]]|\[[^\[\]]*\])*\]\(<?([^()\s>]+)>?(?: \"[^\"]*\")?\)")
_HEADING = re.compile(r"^#{1,6} +(.*?) *#* *$", re.MULTILINE)


def read_prose(page: Path) -> str:
    """A page without its code blocks."""
    return _FENCE.sub("", page.read_text(encoding="utf-8"))


def find_links(page: Path) -> list[str]:
    """The links of a page that stay in the repository."""
    links = _LINK.findall(_CODE.sub("", re.sub(r"\[`[^`]*`\]", "[code]", read_prose(page))))
    return [link for link in links if not re.match(r"[a-z]+:", link)]


def name_anchor(heading: str) -> str:
    """The anchor of a heading: lower case, hyphens for spaces, no other punctuation."""
    words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    return re.sub(r"[^\w\- ]", "", words.lower()).replace(" ", "-")


def list_anchors(page: Path) -> set[str]:
    found: set[str] = set()
    for heading in _HEADING.findall(read_prose(page)):
        name = name_anchor(heading)
        number = 0
        while (anchor := f"{name}-{number}" if number else name) in found:
            number += 1
        found.add(anchor)
    return found


def find_broken(page: Path, link: str) -> str:
    """What is wrong with a link; empty if it works."""
    path, _, anchor = link.partition("#")
    target = page.parent / path if path else page
    if not target.exists():
        return f"{link}: there is no such file"
    if anchor and target.suffix == ".md" and anchor not in list_anchors(target):
        return f"{link}: there is no such heading"
    return ""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(REPOSITORY).as_posix())
def test_links_and_anchors_lead_somewhere(page: Path) -> None:
    assert [trouble for link in find_links(page) if (trouble := find_broken(page, link))] == []


def test_links_are_found_and_broken_ones_are_told(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        '# One thing: "done"\n\n[a](page.md#one-thing-done) [b](#one-thing-don) [`c`](gone.md) ![d](gone.svg)\n'
        "`[e](code.md)` [f](https://example.org)\n\n```\n[g](code.md)\n# No heading\n```\n"
    )
    assert find_links(page) == ["page.md#one-thing-done", "#one-thing-don", "gone.md", "gone.svg"]
    assert [bool(find_broken(page, link)) for link in find_links(page)] == [False, True, True, True]
    assert list_anchors(page) == {"one-thing-done"}


def test_the_site_has_every_page() -> None:
    """A page outside the navigation is never found. The pages of single commands are listed on a separate page."""
    named = set(re.findall(r": ([\w/-]+\.md)$", (REPOSITORY / "mkdocs.yml").read_text(), re.MULTILINE))
    pages = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")}
    commands = {page for page in pages if page.startswith("commands/")} - {"commands/README.md"}
    assert named - {"contributing.md", "changelog.md"} == pages - commands


def test_every_page_is_reached_from_the_first() -> None:
    first = {(DOCS / link.partition("#")[0]).resolve() for link in find_links(DOCS / "index.md")}
    assert set(DOCS.glob("*.md")) - first - {DOCS / "index.md"} == set()


def test_the_readme_counts_what_the_battery_counts() -> None:
    [counted] = re.findall(r"^\| \*\*all\*\* \| \| (\d+): \1 caught, 0 missed", (DOCS / "truth.md").read_text(), re.M)
    assert f"[{counted} such cheats](docs/truth.md), none missed" in (REPOSITORY / "README.md").read_text()
