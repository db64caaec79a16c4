"""The page as a document: small, and it can neither run nor load anything that it did not come with."""

from __future__ import annotations

import base64
import hashlib
import re

from ralphtool.views.web import page

MOST = 30_000  # bytes


def find_part(name: str) -> str:
    found = re.search(rf"<{name}>(.*?)</{name}>", page.answer_page().body.decode(), re.DOTALL)
    assert found
    return found[1]


def test_page_script_and_style_are_small() -> None:
    assert len(page.answer_page().body) <= MOST


def test_the_policy_allows_this_script_and_this_style_only() -> None:
    policy = dict(page.answer_page().headers)["Content-Security-Policy"]
    allowed = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    for name in ("script", "style"):
        digest = base64.b64encode(hashlib.sha256(find_part(name).encode()).digest()).decode()
        assert allowed[f"{name}-src"] == f"'sha256-{digest}'"
    assert allowed["default-src"] == allowed["frame-ancestors"] == allowed["form-action"] == "'none'"
    assert "unsafe" not in policy


def test_the_page_never_makes_elements_of_text() -> None:
    script = find_part("script")
    for word in ("innerHTML", "outerHTML", "insertAdjacent", "DOMParser", "document.write", "eval(", "Function("):
        assert word not in script
