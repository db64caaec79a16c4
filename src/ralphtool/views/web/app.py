"""Answers requests: the page, its contents, the stream of updates, and steering commands."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import msgspec

from ralphtool import typed
from ralphtool.core import project
from ralphtool.errors import RalphError, from_os_error
from ralphtool.record import runs
from ralphtool.views.report.elements import build_tree
from ralphtool.views.web import checks, log_items, page, peers, requests
from ralphtool.views.web.access import COOKIE_SECONDS
from ralphtool.views.web.requests import answer_json, encode_headers, refuse
from ralphtool.views.web.served import NoSuchRun, refuse_stranger
from ralphtool.views.web.streams import Streams

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, MutableMapping

    from ralphtool.views.launch import Launch
    from ralphtool.views.report.elements import Element
    from ralphtool.views.web.commands import Order
    from ralphtool.views.web.requests import Request, Response
    from ralphtool.views.web.served import Served

    Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
    Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
    Answer = Callable[["App", Request], Awaitable[Response]]

_BODY_SECONDS = 10.0  # for a body to arrive
_SEND_SECONDS = 30.0  # for an answer to be read
_COMMANDS = 4  # at once
_START_SECONDS = 60.0  # for a run to create its record
_PIECE = 64 << 10  # bytes sent at once
_LOG_ITEMS = 200


class App:
    """An ASGI application for one set of projects."""

    def __init__(self, served: Served) -> None:
        self.served = served
        self.site = served.site
        self.streams = Streams(served)
        self._waits: set[asyncio.Future[None]] = set()  # for runs that were started here
        self._turns = asyncio.Semaphore(_COMMANDS)
        self._starting = asyncio.Lock()  # one run at a time

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return  # no WebSocket, and no start-up or shutdown work
        request = requests.read_request(scope)
        refused = checks.find_foreign(request, self.site)
        try:
            if refused is None and (request.method, request.path) == ("GET", checks.STREAM):
                refused = await self.streams.serve(request, receive, send)
                if refused is None:
                    return
            answer = refused or await self._answer(request, receive, scope.get("client"))
            await asyncio.wait_for(_send_answer(answer, send), _SEND_SECONDS)
        except TimeoutError:
            scope["state"]["abort"]()  # the client does not read: unsent data would be kept forever

    # --- requests

    async def _answer(self, request: Request, receive: Receive, client: tuple[str, int] | None) -> Response:
        if request.path not in _METHODS:
            return refuse(404, "there is nothing here")
        if request.method != _METHODS[request.path]:
            return refuse(405, "that can't be done here", ("Allow", _METHODS[request.path]))
        if request.path == "/":
            return page.answer_page()
        if request.method == "POST":
            return await self._answer_post(request, receive, client)
        if self.served.find_page(request) is None:
            return refuse_stranger()
        return await self._answer_safely(_ANSWERS[request.path](self, request))

    async def _answer_safely(self, answering: Awaitable[Response]) -> Response:
        """Errors in a project become answers; they don't end the server."""
        try:
            return await answering
        except NoSuchRun as error:
            return refuse(404, str(error))
        except RalphError as error:
            return refuse(409, str(error))
        except OSError as error:
            return refuse(409, str(from_os_error(error)))

    async def _answer_post(self, request: Request, receive: Receive, client: tuple[str, int] | None) -> Response:
        cookie = self.served.find_cookie(request)
        if request.path != "/api/login" and cookie is None:
            return refuse_stranger()
        if refused := checks.find_forged(request, self.site):
            return refused
        if cookie is not None and request.path != "/api/login" and not checks.is_signed(request, self.site, cookie):
            return refuse(403, "the page is out of date: reload it")
        try:
            body = await asyncio.wait_for(_read_body(receive), _BODY_SECONDS)
        except TimeoutError:
            return refuse(408, "that took too long")
        if body is None:
            return refuse(413, f"that is too long: {checks.LONGEST_BODY} bytes are the most")
        if request.path == "/api/login":
            return self._log_in(body, cookie)
        if await asyncio.to_thread(peers.is_agent, self.served.projects.values(), client):
            return refuse(403, "an agent of a run can't steer runs: what it is stuck on, it tells by `ralphtool agent`")
        return await self._answer_safely(self._obey(body))

    # --- login

    def _log_in(self, body: bytes, cookie: str | None) -> Response:
        access, now = self.site.access, time.time()
        try:
            token = typed.decode(body, dict[str, str]).get("token", "")
        except (msgspec.MsgspecError, ValueError):
            return refuse(400, "a login is an object with a token")
        if not access.is_token(token, now):
            return refuse(*_TOO_MANY) if access.is_guessing(now) else refuse(403, "that is not the key of this page")
        cookie = cookie or access.issue_cookie(now)  # a valid one is kept: other tabs use it too
        secure = "; Secure" if self.site.scheme == "https" else ""
        kept = f"{access.cookie_name}={cookie}; Path=/; HttpOnly; SameSite=Strict; Max-Age={COOKIE_SECONDS}{secure}"
        keys = {"csrf": access.derive_key(cookie), "stream": access.derive_key(cookie, "stream")}
        return answer_json({**keys, "read_only": self.site.read_only}, 200, ("Set-Cookie", kept))

    async def answer_session(self, request: Request) -> Response:
        """Also lets a page that lost its stream check whether its run still exists."""
        if "run" in request.query:
            self.served.find_run(request)
        return answer_json({"read_only": self.site.read_only})

    # --- contents

    async def answer_log(self, request: Request) -> Response:
        watched, before = self.served.find_run(request), _parse_number(request.query.get("before", ""))
        if before is None:
            return refuse(404, "there is no such place in the log")
        story = request.query.get("story", "")
        path, stories = watched.run.path, watched.view.stories
        items, rest = await asyncio.to_thread(log_items.read_before, path, before, _LOG_ITEMS, story, stories)
        return answer_json({"items": items, "before": rest})

    async def answer_story(self, request: Request) -> Response:
        from ralphtool.views.web import details

        watched = self.served.find_run(request)
        facts, id = watched.build_facts(), request.query.get("story", "")
        only_reads = self.site.read_only
        found = await asyncio.to_thread(lambda: details.build_story(watched, facts, id, read_only=only_reads))
        return await _answer_tree(found) if found else refuse(404, "there is no such story")

    async def answer_gate(self, request: Request) -> Response:
        from ralphtool.views.web import details

        watched = self.served.find_run(request)
        numbers = [_parse_number(request.query.get(name, "")) for name in ("iteration", "gate")]
        if None in numbers:
            return refuse(404, "there is no such gate")
        found = details.read_gate_output(watched, numbers[0] or 0, numbers[1] or 0)
        return answer_json(build_tree(found)) if found else refuse(404, "there is no such gate")

    async def answer_timeline(self, request: Request) -> Response:
        from ralphtool.views.web import details

        watched = self.served.find_run(request)
        return await _answer_tree(details.build_timeline(watched.build_facts()))

    async def answer_report(self, request: Request) -> Response:
        from ralphtool.views.web import details

        watched = self.served.find_run(request)
        run = runs.read_summary(watched.run.root, watched.run.id)
        return await _answer_tree(await asyncio.to_thread(details.build_report, run))

    # --- steering

    async def _obey(self, body: bytes) -> Response:
        from ralphtool.views.web import commands

        if self.site.read_only:
            return refuse(403, "this page is for looking only: start it without --read-only to steer")
        try:
            order = typed.decode(body, commands.Order)
        except (msgspec.MsgspecError, ValueError):
            return refuse(400, "that is no command of this page")
        root = self.served.projects.get(order.project)
        if root is None:
            return refuse(404, "there is no such project")
        if order.do == "run":
            async with self._starting:
                return await self._start_run(root, order)
        async with self._turns:
            is_done, said = await commands.run_command(root, commands.build_command(order))
        return answer_json({"said": said}) if is_done else refuse(409, said)

    async def _start_run(self, root: str, order: Order) -> Response:
        """Starts a run as the full screen does, and waits until it has a record or has failed."""
        from ralphtool.views import project_data
        from ralphtool.views.launch import Launch

        project.check_name(order.change, "a change's name")
        change = await asyncio.to_thread(project_data.find_change, root, order.change)
        launch = Launch(root, change.name, change.ref)
        end, has_ended = time.monotonic() + _START_SECONDS, False
        while not (launch.id or has_ended) and time.monotonic() < end:
            await asyncio.sleep(0.05)
            has_ended = launch.has_ended  # checked first, so that everything it wrote before its end is found below
            launch.find_run()
        error = "" if launch.id or not has_ended else launch.read_error()
        launch.remove_output()
        if not has_ended:
            self._waits.add(waiting := asyncio.ensure_future(_wait_for_end(launch)))
            waiting.add_done_callback(self._waits.discard)
        return refuse(409, error) if error else answer_json({"said": f"started {change.name}", "run": launch.id})


_TOO_MANY = (429, "too many wrong keys: wait a minute", ("Retry-After", "60"))
_ANSWERS: dict[str, Answer] = {
    "/api/session": App.answer_session,
    "/api/log": App.answer_log,
    "/api/story": App.answer_story,
    "/api/gate": App.answer_gate,
    "/api/timeline": App.answer_timeline,
    "/api/report": App.answer_report,
}
_METHODS = {
    **dict.fromkeys(("/", checks.STREAM, *_ANSWERS), "GET"),
    **dict.fromkeys(("/api/login", "/api/do"), "POST"),
}


async def _answer_tree(element: Element) -> Response:
    """In a thread, since it may be long and must not block other requests."""
    return await asyncio.to_thread(lambda: answer_json(build_tree(element)))


async def _wait_for_end(launch: Launch) -> None:
    """A process that has ended stays a zombie until it is polled."""
    while not launch.has_ended:
        await asyncio.sleep(1)


def _parse_number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 16 else None


async def _read_body(receive: Receive) -> bytes | None:
    """The body; None if it is too long."""
    body, has_more = b"", True
    while has_more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return b""
        body += message.get("body", b"")
        has_more = message.get("more_body", False)
        if len(body) > checks.LONGEST_BODY:
            return None
    return body


async def _send_answer(answer: Response, send: Send) -> None:
    named = {name for name, _ in answer.headers}
    policy = () if "Content-Security-Policy" in named else (("Content-Security-Policy", page.NOTHING),)
    headers = encode_headers(answer.content_type, ("Content-Length", str(len(answer.body))), *policy, *answer.headers)
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    # In pieces, to notice a client that does not read.
    for start in range(0, len(answer.body), _PIECE):
        await send({"type": "http.response.body", "body": answer.body[start : start + _PIECE], "more_body": True})
    await send({"type": "http.response.body", "body": b""})
