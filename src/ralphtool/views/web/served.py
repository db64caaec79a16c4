"""What one server shows: its projects, and the runs that are being watched."""

from __future__ import annotations

import hashlib
import time
from typing import TYPE_CHECKING

from ralphtool.record import runs
from ralphtool.views.web import checks
from ralphtool.views.web.requests import refuse
from ralphtool.views.web.watched import WatchedRun

if TYPE_CHECKING:
    from ralphtool.views.web.checks import Site
    from ralphtool.views.web.requests import Request, Response

_KEPT = 4  # unwatched runs that are kept for a while: pages are reloaded


def refuse_stranger() -> Response:
    return refuse(401, "open the address that `ralphtool web` printed: this browser does not know its key")


class NoSuchRun(LookupError):
    pass


class Served:
    def __init__(self, roots: list[str], site: Site) -> None:
        self.projects = {name_project(root): root for root in roots}
        self.site = site
        self._watched: dict[tuple[str, str], WatchedRun] = {}

    def find_cookie(self, request: Request) -> str | None:
        return checks.find_cookie(request, self.site, time.time())

    def find_page(self, request: Request) -> str | None:
        """The cookie of a page that also has the key for it."""
        cookie = self.find_cookie(request)
        return cookie if cookie and checks.is_signed(request, self.site, cookie) else None

    def find_run(self, request: Request) -> WatchedRun:
        """The run that a request names: one of those that exist, never a path."""
        key = request.query.get("project", ""), request.query.get("run", "")
        found = self._watched.get(key)
        if found is None:
            root, id = self.projects.get(key[0]), key[1]
            if root is None or id not in runs.list_ids(root):
                raise NoSuchRun("there is no such run: it was removed, or the address is wrong")
            found = self._watched[key] = WatchedRun(root, id, key[0], read_only=self.site.read_only)
            self._forget_runs()
        found.refresh()
        return found

    def _forget_runs(self) -> None:
        idle = [key for key, one in self._watched.items() if not one.watchers]
        for key in idle[:-_KEPT]:
            del self._watched[key]


def name_project(root: str) -> str:
    """A short id that is the same at the next start."""
    return hashlib.sha256(root.encode("utf-8", "surrogateescape")).hexdigest()[:8]
