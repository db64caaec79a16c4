"""Updates as server-sent events: one stream for each open page.

Parts of the page are sent when they have changed, and lines of the log in order; the id of a message is the offset in
the record after it. So a page that lost its connection sends its last offset, and misses nothing.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import msgspec

from ralphtool.views.report.elements import build_tree
from ralphtool.views.web import page
from ralphtool.views.web.requests import encode_headers, refuse
from ralphtool.views.web.served import NoSuchRun, refuse_stranger
from ralphtool.views.web.watched import LOOK_SECONDS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping

    from ralphtool.views.web.requests import Request, Response
    from ralphtool.views.web.served import Served
    from ralphtool.views.web.watched import WatchedRun

    Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
    Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_MOST = 20  # streams at once
_HEARTBEAT = 15.0  # seconds
_SEND_SECONDS = 30.0  # for a message to be read: slower readers are disconnected, and reconnect
_HOME_SECONDS = 1.0  # between two checks of all projects
_FAR_BEHIND = 4 << 20  # bytes: a page that is farther behind gets the end, and can scroll back
_SHRUNK_LOOKS = 50  # checks in which a record may be shorter than before: a run may be rewriting it


class _Connection:
    """The connection to one page."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self._spoke = time.monotonic()
        self.is_gone = asyncio.Event()

    async def watch_for_end(self) -> None:
        # The first message is the request itself; only a later one reports a disconnect.
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.is_gone.set()

    async def begin(self) -> None:
        headers = encode_headers("text/event-stream; charset=utf-8", ("Content-Security-Policy", page.NOTHING))
        await self._write({"type": "http.response.start", "status": 200, "headers": headers})
        await self._say(b": welcome\n\n")

    async def send_event(self, name: str, data: bytes, place: int | None = None) -> None:
        id = b"" if place is None else b"id: %d\n" % place
        await self._say(b"%sevent: %s\ndata: %s\n\n" % (id, name.encode(), data))

    async def rest(self, seconds: float) -> None:
        """Waits, and sends a comment now and then, so that no proxy closes the connection as idle."""
        if time.monotonic() - self._spoke > _HEARTBEAT:
            await self._say(b": still here\n\n")
        try:
            await asyncio.wait_for(self.is_gone.wait(), seconds)
        except TimeoutError:
            pass

    async def _say(self, data: bytes) -> None:
        self._spoke = time.monotonic()
        await self._write({"type": "http.response.body", "body": data, "more_body": True})

    async def _write(self, message: MutableMapping[str, Any]) -> None:
        await asyncio.wait_for(self._send(message), _SEND_SECONDS)


class Streams:
    def __init__(self, served: Served) -> None:
        self._served = served
        self._count = 0
        self._home: dict[str, bytes] = {}  # the first page, built once for all clients
        self._home_of: tuple[object, ...] = ()
        self._home_lock = asyncio.Lock()

    async def serve(self, request: Request, receive: Receive, send: Send) -> Response | None:
        """Serves a stream until its page is gone; or returns a refusal."""
        if self._served.find_page(request) is None:
            return refuse_stranger()
        try:
            watched = self._served.find_run(request) if "run" in request.query else None
        except NoSuchRun as error:
            return refuse(404, str(error))
        if self._count >= _MOST:
            return refuse(503, f"{_MOST} pages are open already: close one", ("Retry-After", "10"))
        self._count += 1
        try:
            await self._serve(_Connection(receive, send), watched, _find_place(request))
        finally:
            self._count -= 1
        return None

    async def _serve(self, connection: _Connection, watched: WatchedRun | None, place: int | None) -> None:
        ending = asyncio.ensure_future(connection.watch_for_end())
        try:
            await connection.begin()
            await (self._stream_home(connection) if watched is None else self._watch(connection, watched, place))
        finally:
            ending.cancel()

    # --- one run

    async def _watch(self, connection: _Connection, watched: WatchedRun, place: int | None) -> None:
        watched.watchers += 1
        try:
            await self._stream_run(connection, watched, place)
        finally:
            watched.watchers -= 1

    async def _stream_run(self, connection: _Connection, watched: WatchedRun, place: int | None) -> None:
        sent: dict[str, bytes] = {}
        shrunk = 0
        place = await self._begin_log(connection, watched, place)
        while not connection.is_gone.is_set():
            watched.refresh()
            await _send_changes(connection, watched.sections, sent)
            if watched.needs_tasks:
                edits = watched.view.plan_edits
                watched.set_tasks(await asyncio.to_thread(watched.load_tasks), edits)
            shrunk = shrunk + 1 if watched.size < place else 0
            if shrunk > _SHRUNK_LOOKS or watched.size - place > _FAR_BEHIND:
                shrunk, place = 0, await self._begin_log(connection, watched, None)
            batch = watched.read_batch(place)
            if batch.items or batch.end > place:
                place = batch.end
                await connection.send_event("log", msgspec.json.encode(batch.items), place)
            await connection.rest(0 if batch.is_behind else LOOK_SECONDS)

    async def _begin_log(self, connection: _Connection, watched: WatchedRun, place: int | None) -> int:
        """A new page, or one whose offset does not fit this record, begins near the end of the record."""
        if place is not None and place <= watched.size and watched.size - place <= _FAR_BEHIND:
            return place
        start = watched.find_start()
        await connection.send_event("restart", b"%d" % start)
        return start

    # --- all projects

    async def _stream_home(self, connection: _Connection) -> None:
        sent: dict[str, bytes] = {}
        while not connection.is_gone.is_set():
            await self._draw_home()
            await _send_changes(connection, self._home, sent)
            await connection.rest(_HOME_SECONDS)

    async def _draw_home(self) -> None:
        from ralphtool.views.web import home

        async with self._home_lock:
            served = self._served
            seen = await asyncio.to_thread(home.read_fingerprint, served.projects)
            if seen == self._home_of:
                return
            only_reads = served.site.read_only
            found = await asyncio.to_thread(lambda: home.build_sections(served.projects, read_only=only_reads))
            self._home_of = seen
            self._home = {name: msgspec.json.encode(build_tree(one)) for name, one in found.items()}


async def _send_changes(connection: _Connection, sections: dict[str, bytes], sent: dict[str, bytes]) -> None:
    changed = {name: data for name, data in sections.items() if sent.get(name) is not data}
    if changed:
        sent.update(changed)
        await connection.send_event(
            "page", b"{%s}" % b",".join(b'"%s":%s' % (name.encode(), data) for name, data in changed.items())
        )


def _find_place(request: Request) -> int | None:
    """The last offset of the page: a browser that reconnects by itself sends it in a header."""
    for text in (*request.list_values("last-event-id"), request.query.get("after", "")):
        if text.isascii() and text.isdecimal() and len(text) < 16:
            return int(text)
    return None
