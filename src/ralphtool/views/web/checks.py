"""Which requests are answered: pure functions of the request, one check after the other, in a fixed order.

A server on 127.0.0.1 is reached by every user of the machine and, through a browser, by every web page. So a request
must name this server as its host (another name would be DNS rebinding), must not come from another page, and must have
a cookie that this server issued. If it changes something, it must also prove that it comes from ralphtool's page.
"""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING, NamedTuple

from ralphtool.views.web.requests import refuse

if TYPE_CHECKING:
    from ralphtool.views.web.access import Access
    from ralphtool.views.web.requests import Request, Response

STREAM = "/api/stream"
LONGEST_BODY = 20_000  # bytes
_LONGEST_HEAD = 16_000
_OPEN_AGAIN = "open the address that `ralphtool web` printed, or type it into the browser"


class Site(NamedTuple):
    """The address of the page, and the access to it."""

    scheme: str
    hosts: frozenset[str]  # as browsers write them: with the port, in lower case
    access: Access
    read_only: bool = False


def find_foreign(request: Request, site: Site) -> Response | None:
    """A refusal, if a request comes neither from ralphtool's page nor from a user who opens it."""
    if sum(len(name) + len(value) for name, value in request.headers) > _LONGEST_HEAD:
        return refuse(431, "the head of the request is too long")
    hosts = request.list_values("host")
    if len(hosts) != 1:
        return refuse(400, "a request has to name one host")
    if hosts[0] not in site.hosts:
        return refuse(421, f"this is not a host of this page: {_OPEN_AGAIN}")
    origins = request.list_values("origin")
    if origins and origins != [f"{site.scheme}://{hosts[0]}"]:
        return refuse(403, f"another page asked for this: {_OPEN_AGAIN}")
    # The browser sets this header, and no page can change it; `none` means that the user typed the address.
    allowed = ("same-origin", "none") if request.method == "GET" else ("same-origin",)
    if any(one not in allowed for one in request.list_values("sec-fetch-site")):
        return refuse(403, f"another page asked for this: {_OPEN_AGAIN}")
    return None


def find_cookie(request: Request, site: Site, now: float) -> str | None:
    """The valid cookie among those of that name: another server on this machine can set one too."""
    found = request.list_cookies(site.access.cookie_name)
    return next((one for one in found if site.access.is_cookie(one, now)), None)


def find_forged(request: Request, site: Site) -> Response | None:
    """A refusal, if a command might be forged by another page."""
    if not request.list_values("origin"):
        return refuse(403, "a command has to come from the page")
    kinds = [one.partition(";")[0].strip().lower() for one in request.list_values("content-type")]
    if kinds != ["application/json"]:
        return refuse(415, "a command is JSON")
    lengths = request.list_values("content-length")
    if any(not one.isdecimal() or len(one) > 9 or int(one) > LONGEST_BODY for one in lengths):
        return refuse(413, f"that is too long: {LONGEST_BODY} bytes are the most")
    return None


def is_signed(request: Request, site: Site, cookie: str) -> bool:
    """Whether a request has its page's key. A stream can't set headers: it has another key, in its query."""
    given, purpose = request.list_values("x-csrf-token"), "page"
    if request.path == STREAM:
        given, purpose = [request.query.get("key", "")], "stream"
    key = site.access.derive_key(cookie, purpose)
    return len(given) == 1 and hmac.compare_digest(given[0].encode("utf-8", "replace"), key.encode())
