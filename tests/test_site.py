"""The docs site: lists are rendered as on GitHub, and nothing is loaded from another host."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from project import REPOSITORY

sys.path.insert(0, str(REPOSITORY / "scripts"))

import docs_alone
import docs_site


@pytest.mark.parametrize(
    ("written", "wanted"),
    [
        ("1. one\n   - below\n     more\n2. two", "1. one\n    - below\n        more\n2. two"),
        ("- one\n\n  more\n- two", "- one\n\n    more\n\n- two"),
        ("- one\n  ```sh\n  - no item\n  ```\nend", "- one\n    ```sh\n    - no item\n    ```\nend"),
        ("```text\n- one\n  - two\n```", "```text\n- one\n  - two\n```"),
        ("- one\n\nend\n\n    code", "- one\n\nend\n\n    code"),
        ("text\n- one", "text\n- one"),
    ],
    ids=["nested", "paragraphs", "a fence inside", "a fence", "after the list", "no blank line"],
)
def test_lists_are_indented(written: str, wanted: str) -> None:
    assert docs_site.indent_lists(written) == wanted


def test_files_outside_of_the_docs_are_in_the_site() -> None:
    assert docs_site.find_source("docs", "../examples/embed.py") == "examples/embed.py"
    assert docs_site.find_source("docs", "agents.md") == ""
    assert docs_site.find_source("docs", "../gone.py") == ""
    assert "examples/embed.py" in docs_site.find_sources()


@pytest.mark.parametrize(
    ("name", "text", "is_alone"),
    [
        ("a.html", '<a href="https://example.org"><img src="a.png"><link rel="canonical" href="https://b.org">', True),
        ("b.html", '<script src="https://example.org/a.js"></script>', False),
        ("c.html", '<img src="//example.org/a.png">', False),
        ("d.html", '<link rel="stylesheet" href="https://fonts.example.org">', False),
        ("e.html", "<style>@import 'https://example.org/a.css'</style>", False),
        ("f.css", "a { background: url(https://example.org/a.png) }", False),
        ("g.css", "a { background: url(a.png) }", True),
    ],
    ids=lambda value: value if str(value).endswith(("html", "css")) and len(str(value)) < 8 else "",
)
def test_what_a_page_would_load_is_found(tmp_path: Path, name: str, text: str, is_alone: bool) -> None:
    page = tmp_path / name
    page.write_text(text)
    assert (docs_alone.find_requests(page) == []) == is_alone


def test_the_picture_loads_nothing() -> None:
    picture = REPOSITORY / "docs/images/live.svg"
    assert docs_alone.find_requests(picture) == []
    assert picture.read_text().replace("http://www.w3.org/2000/svg", "").count("://") == 0
