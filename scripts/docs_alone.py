"""Checks that a built site is self-contained: none of its pages, styles or scripts loads anything from another host.

.venv/bin/python scripts/docs_alone.py site
"""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path

LOADED = {("script", "src"), ("img", "src"), ("iframe", "src"), ("source", "src"), ("link", "href")}
NOT_LOADED = {"canonical", "next", "prev", "alternate"}  # a <link> of these kinds causes no request
_IN_STYLE = re.compile(r"(?:@import\s*|url\(\s*)[\"']?((?:https?:)?//[^\s\"')]+)")


class Requests(HTMLParser):
    """Every address of another host that a browser would request when it opens a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = dict(attributes)
        if tag == "link" and NOT_LOADED & set((values.get("rel") or "").split()):
            return
        for name, value in attributes:
            if (tag, name) in LOADED and re.match(r"(https?:)?//", value or ""):
                self.found.append(str(value))
            if name == "style":
                self.found += _IN_STYLE.findall(value or "")


def find_requests(page: Path) -> list[str]:
    text = page.read_text(encoding="utf-8")
    if page.suffix != ".html":
        return _IN_STYLE.findall(text)
    requests = Requests()
    requests.feed(text)
    return requests.found + _IN_STYLE.findall("".join(re.findall(r"<style.*?</style>", text, re.DOTALL)))


def main() -> int:
    site = Path(sys.argv[1])
    pages = [page for page in sorted(site.rglob("*")) if page.suffix in (".html", ".css", ".svg")]
    found = [f"{page}: loads {address}" for page in pages for address in find_requests(page)]
    print(*found, sep="\n", end="\n" if found else "", file=sys.stderr)
    return 1 if found or not pages else 0


if __name__ == "__main__":
    sys.exit(main())
