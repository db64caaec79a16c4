"""The page itself: one document, with its style and its script inside, and a policy that allows just these two."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from pathlib import Path

from ralphtool.views import look
from ralphtool.views.web.requests import Response

NOTHING = "default-src 'none'; frame-ancestors 'none'; form-action 'none'; base-uri 'none'"


@cache
def answer_page() -> Response:
    """Built once. It contains the style of the report, so that both look the same."""
    report, _, _ = _read("../report/page.css").partition("@media print")  # a live page is not printed
    style = _squeeze(_strip(report + look.build_css() + _read("page.css")))
    script = _squeeze_script(_strip(_read("page.js")))
    if "</" in style or "</script" in script:
        raise ValueError("a style or a script that would end itself")
    body = _read("page.html").replace("{style}", style).replace("{script}", script)
    policy = (
        f"{NOTHING}; script-src {_hash(script)}; style-src {_hash(style)}; connect-src 'self'; img-src data:; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    )
    return Response(200, "text/html; charset=utf-8", body.encode(), (("Content-Security-Policy", policy),))


def _read(name: str) -> str:
    return (Path(__file__).parent / name).read_text("utf-8")


def _strip(text: str) -> str:
    """Removes indents and comment lines, which only readers of the source need."""
    lines = [line.strip() for line in text.split("\n")]
    return "\n".join(line for line in lines if line and not line.startswith(("//", "/* ")))


def _squeeze(style: str) -> str:
    """A style sheet without superfluous blanks."""
    return re.sub(r"\s*([{};,])\s*|(:)\s+", lambda found: found[1] or found[2], style).replace(";}", "}")


def _squeeze_script(script: str) -> str:
    """A script without blanks around operators. Strings, templates and line ends are kept."""
    parts = r'("(?:\\.|[^"\\\n])*"|`(?:\\.|[^`\\])*`)|[ \t]*([=+*<>!&|?:;,(){}\[\]-])[ \t]*'
    return re.sub(parts, lambda found: found[1] or found[2], script)


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
