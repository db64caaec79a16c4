"""Requests that the page would never make: each is refused, reveals and changes nothing, and harms no other client."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import select
import socket
import ssl
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from lab import wait_until
from patience import PATIENCE
from project import Ralph
from views.night import RUN, Night, a_night
from views.web.hostile import (
    CHANGE,
    GUARDS,
    OTHER_RUN,
    SECRET,
    Changes,
    Server,
    check_guarded,
    check_refused,
    check_silent,
    connect,
    read_answer,
    read_until,
    receive,
    run_with_agent,
    send,
    wait_for_commands,
)

from ralphtool.views.web.access import COOKIE_SECONDS, Access

EVIL = "http://evil.example"
MORE_MEMORY = 64 << 20  # bytes that a server may use, whatever clients do to it
ACTIONS = ("answer", "guide", "pause", "resume", "stop", "stop-after", "retry", "skip", "accept", "reject", "run")
PAGES = ("log", "story", "gate", "timeline", "report")

# Logs of gates, as the record of `OTHER_RUN` names them: only the first one is honest.
HONEST_LOG = "logs/1.txt"
STOLEN_LOGS = {
    "relative": "../../../secret.txt",
    "deep": "logs/../../../../secret.txt",
    "absolute": "{root}/secret.txt",
    "link": "logs/link.txt",
    "folder that is a link": "way/secret.txt",
    "neighbour whose name begins alike": f"../{OTHER_RUN}-more/secret.txt",
    "nul": "logs/1.txt\0",
    "folder": "logs",
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Ralph:
    """A project with a change, a run that has ended, and a record that an attacker wrote."""
    ralph = Ralph(tmp_path_factory.mktemp("hostile"))
    ralph.openspec()
    a_night().write(ralph.root)
    _write_other_run(ralph)
    return ralph


def _write_other_run(ralph: Ralph) -> None:
    night = Night()
    night.start()
    night.add("iteration_started", number=1, story="2", entry="add-login-2-1", attempt=1)
    for log in (HONEST_LOG, *STOLEN_LOGS.values()):
        night.add("gate_started", when="after", command="pytest")
        night.add("gate", when="after", command="pytest", ok=True, log=log.replace("{root}", str(ralph.root)))
    folder = night.write(ralph.root, OTHER_RUN).parent
    ralph.write("secret.txt", SECRET)
    ralph.write(f".ralph/runs/{OTHER_RUN}-more/secret.txt", SECRET)
    (folder / "logs").mkdir()
    (folder / HONEST_LOG).write_text("what the gate printed")
    (folder / "logs/link.txt").symlink_to(ralph.root / "secret.txt")
    (folder / "way").symlink_to(ralph.root)


@pytest.fixture(scope="module")
def server(place: Ralph) -> Iterator[Server]:
    started = Server(place)
    yield started
    started.close()


@pytest.fixture(scope="module")
def looking(place: Ralph) -> Iterator[Server]:
    """A read-only server."""
    started = Server(place, "--read-only")
    yield started
    started.close()


@pytest.fixture(scope="module")
def private(place: Ralph, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server at a socket that another server left behind."""
    path = str(tmp_path_factory.mktemp("s") / "s")
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(path)
    started = Server(place, socket_path=path)
    yield started
    started.close()


def ids(cases: dict[str, Any]) -> list[str]:
    return [name.replace(" ", "-") for name in cases]


def each(names: str, cases: dict[str, Any]) -> Callable[[Any], Any]:
    """A case for every entry, named after it."""
    return pytest.mark.parametrize(names, list(cases.values()), ids=ids(cases))


# --- what is allowed: otherwise the refusals below would prove nothing -------------------------------


def test_an_honest_page_sees_everything(server: Server) -> None:
    assert b"<script>" in server.get("/").body
    assert server.get("/api/session").json == {"read_only": False}
    assert CHANGE.encode() in server.get().body
    assert b"Login form" in server.get(server.name_run("story", story="2")).body
    assert server.get(server.name_run("gate", iteration="1", gate="0")).status == 200
    assert [server.get(server.name_run(one)).status for one in ("timeline", "report")] == [200, 200]


@pytest.mark.parametrize("about", ["everything", "a-run"])
def test_an_honest_page_hears_what_happens(server: Server, about: str) -> None:
    target = server.name_run("stream") if about == "a-run" else "/api/stream"
    with server.listen(target) as line:
        assert CHANGE.encode() in read_until(line, CHANGE.encode())


def test_an_honest_page_steers_and_what_it_says_is_text(server: Server) -> None:
    before = server.look()[0]
    assert server.ask(server.build_order()).status == 200
    told = server.ask(server.build_order(do="guide", text="--clear"))
    assert told.status == 200, told.raw
    said = [json.loads(Path(path).read_text()) for path in server.look()[0] if path not in before and ".json" in path]
    assert [(one["action"], one["text"], one["via"]) for one in said] == [
        ("pause", "", "web"),
        ("guide", "--clear", "web"),
    ]


@each(
    "changes",
    {
        "by the other name": {"Host": ["localhost:{port}"], "Origin": ["http://localhost:{port}"]},
        "typed into the browser": {"Sec-Fetch-Site": ["none"]},
        "by a browser that says nothing of itself": {"Sec-Fetch-Site": []},
    },
)
def test_an_honest_page_is_opened(server: Server, changes: Changes) -> None:
    assert server.get("", changes).status == 200


# --- Host -------------------------------------------------------------------------------------------

HOSTS: dict[str, Sequence[str]] = {
    "foreign": ["evil.example"],
    "foreign with our port": ["evil.example:{port}"],
    "missing": [],
    "empty": [""],
    "doubled": ["{host}", "{host}"],
    "doubled, the second foreign": ["{host}", "evil.example"],
    "doubled, the first foreign": ["evil.example", "{host}"],
    "a list": ["{host}, evil.example"],
    "upper case": ["LOCALHOST:{port}"],
    "IPv6": ["[::1]:{port}"],
    "IPv4 in IPv6": ["[::ffff:127.0.0.1]:{port}"],
    "trailing dot": ["localhost.:{port}"],
    "trailing dot of a number": ["127.0.0.1.:{port}"],
    "without port": ["127.0.0.1"],
    "name without port": ["localhost"],
    "other port": ["127.0.0.1:1"],
    "port with zeros": ["127.0.0.1:0{port}"],
    "userinfo": ["evil.example@{host}"],
    "ours as userinfo": ["{host}@evil.example"],
    "ours as a subdomain": ["localhost.evil.example:{port}"],
    "ours as a path": ["evil.example/{host}"],
    "short number": ["127.1:{port}"],
    "one number": ["2130706433:{port}"],
    "any address": ["0.0.0.0:{port}"],
    "another of the loopback": ["127.0.0.2:{port}"],
    "with a scheme": ["http://{host}"],
}


@each("hosts", HOSTS)
def test_a_wrong_host_is_refused(server: Server, hosts: Sequence[str]) -> None:
    check_refused(server, server.build(changes={"Host": hosts}), 400, 421)


@each("hosts", {name: HOSTS[name] for name in ("foreign", "missing", "empty", "doubled")})
def test_a_wrong_host_is_refused_in_the_http_of_before(server: Server, hosts: Sequence[str]) -> None:
    check_refused(server, server.build(changes={"Host": hosts}, version="1.0"), 400, 421)


@pytest.mark.parametrize("path", ["/", "/api/session", "/api/stream", "/nothing"])
def test_a_wrong_host_is_refused_everywhere(server: Server, path: str) -> None:
    check_refused(server, server.build(target=path, changes={"Host": ["evil.example"]}), 421)


@each(
    "target,host,status",
    {
        "foreign target, our host": (EVIL + "{log}", "{host}", 404),
        "our target, foreign host": ("http://{host}{log}", "evil.example", 421),
        "foreign target, foreign host": (EVIL + "{log}", "evil.example", 421),
        "userinfo in the target": ("http://{host}@evil.example{log}", "{host}", 404),
    },
)
def test_an_absolute_target_opens_nothing(server: Server, target: str, host: str, status: int) -> None:
    said = server.build(target=target.replace("{log}", server.log), changes={"Host": [host]})
    check_refused(server, said, status)


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_name_that_was_rebound_to_this_machine_is_refused(server: Server, method: str) -> None:
    rebound = {"Host": ["evil.example:{port}"], "Origin": [EVIL + ":{port}"], "Sec-Fetch-Site": ["same-origin"]}
    said = server.build_order(rebound) if method == "POST" else server.build(changes=rebound)
    check_refused(server, said, 421)


# --- Origin, and what browsers say about themselves -------------------------------------------------

ORIGINS: dict[str, Sequence[str]] = {
    "foreign": [EVIL],
    "null": ["null"],
    "empty": [""],
    "other port": ["http://127.0.0.1:1"],
    "without port": ["http://127.0.0.1"],
    "https": ["https://{host}"],
    "our other name": ["http://localhost:{port}"],
    "upper case": ["HTTP://{host}"],
    "with a path": ["http://{host}/"],
    "ours as the beginning": ["http://{host}.evil.example"],
    "doubled": ["http://{host}", "http://{host}"],
    "doubled, the second foreign": ["http://{host}", EVIL],
    "a list": ["http://{host} " + EVIL],
}


@pytest.mark.parametrize("method", ["GET", "POST"])
@each("origins", ORIGINS)
def test_a_wrong_origin_is_refused(server: Server, method: str, origins: Sequence[str]) -> None:
    changes = {"Origin": origins}
    said = server.build_order(changes) if method == "POST" else server.build(changes=changes)
    check_refused(server, said, 403)


def test_a_command_without_origin_is_refused(server: Server) -> None:
    check_refused(server, server.build_order({"Origin": []}), 403)


def test_a_login_without_origin_is_refused(server: Server) -> None:
    check_refused(server, server.build_login(server.token, {"Origin": []}), 403)


SITES: dict[str, Sequence[str]] = {
    "cross-site": ["cross-site"],
    "same-site": ["same-site"],
    "made up": ["trust-me"],
    "empty": [""],
    "upper case": ["SAME-ORIGIN"],
    "doubled": ["same-origin", "cross-site"],
    "a list": ["same-origin, cross-site"],
}


@pytest.mark.parametrize("method", ["GET", "POST"])
@each("sites", SITES)
def test_another_site_is_refused(server: Server, method: str, sites: Sequence[str]) -> None:
    changes = {"Sec-Fetch-Site": sites}
    said = server.build_order(changes) if method == "POST" else server.build(changes=changes)
    check_refused(server, said, 403)


@pytest.mark.parametrize("what", ["command", "login"])
def test_nobody_types_a_command_into_the_browser(server: Server, what: str) -> None:
    changes = {"Sec-Fetch-Site": ["none"]}
    said = server.build_order(changes) if what == "command" else server.build_login(server.token, changes)
    check_refused(server, said, 403)


ELEMENTS = {
    "image": ("image", "no-cors"),
    "script tag": ("script", "no-cors"),
    "style sheet": ("style", "no-cors"),
    "EventSource": ("empty", "cors"),
    "fetch": ("empty", "no-cors"),
    "worker": ("worker", "same-origin"),
    "service worker": ("serviceworker", "same-origin"),
    "frame": ("iframe", "navigate"),
    "object": ("object", "no-cors"),
    "video": ("video", "no-cors"),
    "link that is followed": ("document", "navigate"),
}


@pytest.mark.parametrize("about", ["log", "stream"])
@each("dest,mode", ELEMENTS)
def test_an_element_of_another_page_gets_nothing(server: Server, about: str, dest: str, mode: str) -> None:
    changes = {"Sec-Fetch-Site": ["cross-site"], "Sec-Fetch-Dest": [dest], "Sec-Fetch-Mode": [mode]}
    target = server.name_run("stream") if about == "stream" else server.log
    check_refused(server, server.build(target=target, changes={**changes, "Referer": [EVIL + "/"]}), 403)


def test_a_browser_that_says_nothing_of_itself_keeps_the_cookie_from_other_pages(server: Server) -> None:
    """As `SameSite=Strict` says: without a cookie nothing is shown."""
    kept = server.ask(server.build_login(server.token)).get("set-cookie").split("; ")
    assert {"HttpOnly", "SameSite=Strict", "Path=/", f"Max-Age={COOKIE_SECONDS}"} == set(kept[1:])
    check_refused(server, server.build(changes={"Sec-Fetch-Site": [], "Cookie": []}), 401)
    check_refused(server, server.build(target=server.name_run("stream"), changes={"Cookie": []}), 401)


TYPES: dict[str, Sequence[str]] = {
    "form": ["application/x-www-form-urlencoded"],
    "form with a file": ["multipart/form-data; boundary=x"],
    "plain text": ["text/plain"],
    "missing": [],
    "empty": [""],
    "doubled": ["application/json", "text/plain"],
    "twice the same": ["application/json", "application/json"],
    "JSON as a parameter": ["text/plain; application/json"],
    "begins alike": ["application/jsonp"],
    "a list": ["application/json, text/plain"],
}


@pytest.mark.parametrize("what", ["command", "login"])
@each("types", TYPES)
def test_what_a_form_can_send_is_refused(server: Server, what: str, types: Sequence[str]) -> None:
    changes = {"Content-Type": types}
    said = server.build_order(changes) if what == "command" else server.build_login(server.token, changes)
    check_refused(server, said, 415)


def test_a_form_of_another_page_is_refused_first(server: Server) -> None:
    form = {"Content-Type": ["text/plain"], "X-CSRF-Token": []}
    check_refused(server, server.build_order({**form, "Origin": [EVIL], "Sec-Fetch-Site": ["cross-site"]}), 403)
    check_refused(server, server.build_order({**form, "Origin": ["null"], "Sec-Fetch-Site": []}), 403)


WEBSOCKET = {
    "Connection": ["Upgrade"],
    "Upgrade": ["websocket"],
    "Sec-WebSocket-Key": ["dGhlIHNhbXBsZSBub25jZQ=="],
    "Sec-WebSocket-Version": ["13"],
}


@each(
    "target,changes,status",
    {
        "of another page": ("/api/stream", {**WEBSOCKET, "Origin": [EVIL]}, 403),
        "of another page, without origin": ("/api/stream", {**WEBSOCKET, "Sec-Fetch-Site": ["cross-site"]}, 403),
        "rebound": ("/api/stream", {**WEBSOCKET, "Host": ["evil.example"], "Origin": [EVIL]}, 421),
        "without cookie": ("/api/stream", {**WEBSOCKET, "Cookie": []}, 401),
        "where nothing is": ("/ws", WEBSOCKET, 404),
        "HTTP/2": ("/ws", {"Connection": ["Upgrade, HTTP2-Settings"], "Upgrade": ["h2c"], "HTTP2-Settings": [""]}, 404),
    },
)
def test_there_is_no_other_protocol(server: Server, target: str, changes: Changes, status: int) -> None:
    check_refused(server, server.build(target=target, changes=changes), status)


def test_an_honest_websocket_is_none(server: Server) -> None:
    answer = server.get("/api/session", WEBSOCKET)
    assert (answer.status, answer.get("upgrade")) == (200, "")


# --- the key ----------------------------------------------------------------------------------------

NO_KEY: dict[str, Any] = {"list": ["x"], "number": 1, "null": None, "true": True, "object": {"token": "x"}}


WRONG_KEYS: dict[str, Callable[[str], str]] = {
    "wrong": lambda key: "0" * len(key),
    "empty": lambda _: "",
    "upper case": str.upper,
    "cut": lambda key: key[:-1],
    "longer": lambda key: f"{key}0",
    "with a blank": lambda key: f"{key} ",
    "with a nul": lambda key: f"{key}\0",
    "no ASCII": lambda key: "\xe4" * len(key),
    "a header": lambda _: "\r\nSet-Cookie: a=b\r\n\r\n",
    "longer than is looked at": lambda _: "0" * 10_000,
    "longer than is looked at, and right at first": lambda key: key + "0" * 10_000,
}


@each("spoil", WRONG_KEYS)
def test_a_wrong_key_opens_nothing(server: Server, spoil: Callable[[str], str]) -> None:
    answer = check_refused(server, server.build_login(spoil(server.token), {"Cookie": []}), 403, 429)
    assert answer.get("set-cookie") == ""


@each("token", NO_KEY)
def test_a_key_that_is_no_text_opens_nothing(server: Server, token: Any) -> None:
    check_refused(server, server.build_login(token), 400)


@each("body", {"nothing": b"", "no JSON": b"token", "a list": b"[]", "a bare text": b'"x"', "deep": b"[" * 19_000})
def test_a_login_that_is_none_opens_nothing(server: Server, body: bytes) -> None:
    check_refused(server, server.build("POST", "/api/login", body=body), 400)


def test_a_login_without_key_opens_nothing(server: Server) -> None:
    check_refused(server, server.build("POST", "/api/login", body=b"{}"), 403, 429)


def test_a_huge_key_is_not_even_read(server: Server) -> None:
    check_refused(server, server.build_login("0" * 100_000), 413)


def test_the_key_is_not_taken_from_the_address(server: Server) -> None:
    check_refused(server, server.build(target=f"/api/session?token={server.token}", changes={"Cookie": []}), 401)
    check_refused(server, server.build("POST", f"/api/login?token={server.token}", body=b"{}"), 403, 429)


def test_whoever_guesses_is_told_to_wait_and_locks_nobody_out(server: Server) -> None:
    told = [server.ask(server.build_login(f"{number:064}")) for number in range(12)]
    assert {one.status for one in told} <= {403, 429}
    assert [(one.status, one.get("retry-after")) for one in told[-2:]] == [(429, "60")] * 2
    assert server.log_in()[0].startswith(f"{server.cookie_name}=")


def test_a_new_key_makes_the_old_one_and_its_cookies_worthless(server: Server, place: Ralph) -> None:
    renewed = Server(place, "--new-key")
    try:
        assert renewed.token != server.token
        assert renewed.cookie_name == server.cookie_name
        check_refused(renewed, renewed.build_login(server.token), 403)
        check_refused(renewed, renewed.build(changes={"Cookie": [server.cookie]}), 401)
        check_refused(renewed, renewed.build_order({"X-CSRF-Token": [server.csrf]}), 403)
    finally:
        renewed.close()


def test_the_key_is_in_a_file_of_the_users_own(server: Server, place: Ralph) -> None:
    [path] = (place.tmp / "ralph/web").iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [stat.S_IMODE(one.stat().st_mode) for one in (path.parent, path.parent.parent)] == [0o700, 0o700]
    words = (
        Path(f"/proc/{server.process.pid}/cmdline").read_bytes()
        + Path(f"/proc/{server.process.pid}/environ").read_bytes()
    )
    assert server.token.encode() not in words, "every user of a machine sees command lines"


# --- the cookie -------------------------------------------------------------------------------------


def forge(change: Callable[[str], str]) -> Callable[[Server], Sequence[str]]:
    """A cookie with the right name, and a value made from the right one."""
    return lambda server: [f"{server.cookie_name}={change(server.cookie.partition('=')[2])}"]


def issue(server: Server, *, key: str = "", age: float = 0) -> str:
    made = Access(key or server.token, "").issue_cookie(time.time() - age)
    return f"{server.cookie_name}={made}"


def sign(server: Server, cookies: Sequence[str]) -> dict[str, Sequence[str]]:
    """Cookies, with the key that belongs to the first, so that only the cookie can be refused."""
    value = cookies[0].partition("=")[2] if cookies else ""
    return {"Cookie": cookies, "X-CSRF-Token": [Access(server.token, "").derive_key(value)]}


def test_a_second_login_leaves_the_pages_that_are_open_alone(server: Server) -> None:
    answer = server.ask(server.build_login(server.token))
    assert answer.get("set-cookie").partition(";")[0] == server.cookie
    assert answer.json["csrf"] == server.csrf


def prolong(value: str) -> str:
    expires, _, rest = value.partition(".")
    return f"{int(expires) + 1}.{rest}"


def sign_for_something_else(server: Server) -> Sequence[str]:
    content = server.cookie.partition("=")[2].rpartition(".")[0]
    return [f"{server.cookie_name}={content}.{Access(server.token, '').derive_key(content)}"]


@pytest.mark.parametrize("what", ["session", "log", "story", "gate", "timeline", "report", "stream"])
@pytest.mark.parametrize("key", ["", "0" * 64])
def test_a_cookie_alone_opens_nothing(server: Server, what: str, key: str) -> None:
    """A browser sends it to every server on this machine, whatever the port; only the page has the key."""
    target = server.name_run(what, before=server.end, story="2", iteration="1", gate="0", key=key)
    check_refused(server, server.build(target=target, changes={"X-CSRF-Token": [key] if key else []}), 401)


OTHER_KEY = "f" * 64
WRONG_COOKIES: dict[str, Callable[[Server], Sequence[str]]] = {
    "missing": lambda _: [],
    "empty": forge(lambda _: ""),
    "garbage": forge(lambda _: "garbage"),
    "dots": forge(lambda _: "..."),
    "no ASCII": forge(lambda _: "\xe4.\xb2.\xff"),
    "huge": forge(lambda _: "1" * 8000),
    "huge behind the right one": forge(lambda value: value + "1" * 8000),
    "expired": lambda server: [issue(server, age=COOKIE_SECONDS + 1)],
    "of another key": lambda server: [issue(server, key=OTHER_KEY)],
    "prolonged": forge(prolong),
    "without signature": forge(lambda value: value.rpartition(".")[0]),
    "with an empty signature": forge(lambda value: value.rpartition(".")[0] + "."),
    "with the signature cut": forge(lambda value: value[:-1]),
    "with a longer signature": forge(lambda value: f"{value}0"),
    "in upper case": forge(str.upper),
    "signed for something else": sign_for_something_else,
    "the key itself": lambda server: [f"{server.cookie_name}={server.token}"],
    "quoted": forge(lambda value: f'"{value}"'),
    "of another project": lambda server: [server.cookie.replace(server.cookie_name, "ralph-000000000000")],
    "name in upper case": lambda server: [server.cookie.replace("ralph-", "RALPH-")],
    "name with a prefix": lambda server: [f"__Host-{server.cookie}"],
    "without a name": lambda server: [server.cookie.partition("=")[2]],
    "thrown twice from another port": lambda server: [f"{issue(server, key=OTHER_KEY)}; {issue(server, key='0' * 64)}"],
}


@pytest.mark.parametrize("method", ["GET", "POST"])
@each("make", WRONG_COOKIES)
def test_a_wrong_cookie_opens_nothing(server: Server, method: str, make: Callable[[Server], Sequence[str]]) -> None:
    changes = sign(server, make(server))
    said = server.build_order(changes) if method == "POST" else server.build(changes=changes)
    check_refused(server, said, 401)


def test_a_cookie_that_was_issued_before_still_counts(server: Server) -> None:
    """The counterpart of the expired one: it shows that the time makes the difference."""
    assert server.get("", sign(server, [issue(server, age=COOKIE_SECONDS - 3600)])).status == 200


@pytest.mark.parametrize("what", PAGES)
def test_nothing_is_shown_without_a_cookie(server: Server, what: str) -> None:
    target = server.name_run(what, story="2", before="9999", iteration="1", gate="0")
    check_refused(server, server.build(target=target, changes={"Cookie": []}), 401)


def test_a_cookie_of_100_kilobytes_opens_nothing(server: Server) -> None:
    check_refused(server, server.build(changes={"Cookie": [f"{server.cookie_name}={'1' * 100_000}"]}), 400, 401, 431)


@pytest.mark.parametrize("lines", [1, 2])
def test_a_cookie_that_another_port_has_thrown_locks_nobody_out(server: Server, lines: int) -> None:
    both = [issue(server, key=OTHER_KEY), server.cookie]
    changes = {"Cookie": both if lines == 2 else ["; ".join(both)]}
    assert server.get("", changes).status == 200
    assert server.ask(server.build_order({**changes, "X-CSRF-Token": ["x"]})).status == 403


# --- what only the page knows -----------------------------------------------------------------------


WRONG_CSRF: dict[str, Callable[[Server], Sequence[str]]] = {
    "missing": lambda _: [],
    "empty": lambda _: [""],
    "wrong": lambda _: ["0" * 64],
    "cut": lambda server: [server.csrf[:-1]],
    "upper case": lambda server: [server.csrf.upper()],
    "no ASCII": lambda _: ["\xe4" * 64],
    "doubled": lambda server: [server.csrf, server.csrf],
    "a list": lambda server: [f"{server.csrf}, {server.csrf}"],
    "the key itself": lambda server: [server.token],
    "the signature of the cookie": lambda server: [server.cookie.rpartition(".")[2]],
}


@each("make", WRONG_CSRF)
def test_a_command_that_our_page_has_not_signed_is_refused(
    server: Server, make: Callable[[Server], Sequence[str]]
) -> None:
    check_refused(server, server.build_order({"X-CSRF-Token": make(server)}), 403)


def test_a_command_that_is_signed_for_another_cookie_is_refused(server: Server) -> None:
    _, csrf = server.log_in()
    check_refused(server, server.build_order({"X-CSRF-Token": [csrf]}), 403)


def test_what_signs_a_command_is_not_taken_from_elsewhere(server: Server) -> None:
    body = json.dumps({"project": server.project, "do": "pause", "change": CHANGE, "csrf": server.csrf}).encode()
    unsigned: Changes = {"X-CSRF-Token": []}
    check_refused(server, server.build("POST", f"/api/do?x-csrf-token={server.csrf}", unsigned, body), 403)


# --- paths ------------------------------------------------------------------------------------------

PATHS = {
    "up": "/../../etc/passwd",
    "up from below": "/api/../../etc/passwd",
    "dots encoded": "/%2e%2e/%2e%2e/etc/passwd",
    "slashes encoded": "/..%2f..%2fetc%2fpasswd",
    "all encoded": "/%2e%2e%2f%2e%2e%2fetc%2fpasswd",
    "upper case": "/%2E%2E%2Fetc/passwd",
    "backslash": "/..\\..\\etc\\passwd",
    "backslash encoded": "/..%5c..%5cetc%5cpasswd",
    "twice encoded": "/%252e%252e%252fetc%252fpasswd",
    "overlong UTF-8": "/%c0%ae%c0%ae%c0%afetc%c0%afpasswd",
    "half UTF-8": "/%ff%fe/%e4",
    "percent u": "/%u002e%u002e%u2215etc",
    "broken percent": "/%2/%/%zz",
    "nul": "/%00",
    "nul behind a page": "/api/log%00.html",
    "four dots": "/....//....//etc/passwd",
    "semicolon": "/..;/..;/etc/passwd",
    "two slashes": "//etc/passwd",
    "the record itself": f"/.ralph/runs/{RUN}/events.jsonl",
    "the project": "/openspec/changes/add-login/tasks.md",
    "the sources": "/page.js",
    "trailing slash": "/api/log/",
    "upper case of a page": "/API/LOG",
    "dot in between": "/api/./log",
    "slash in between": "/api//log",
    "parameter of a path": "/api/log;a=b",
    "new line": "/%0d%0aSet-Cookie:%20a=b",
    "star": "*",
    "file": "file:///etc/passwd",
    "very long": "/" + "a" * 8000,
}


@each("path", PATHS)
def test_a_path_leads_nowhere(server: Server, path: str) -> None:
    answer = check_refused(server, server.build(target=path), 404)
    assert b"root:" not in answer.raw
    assert answer.get("set-cookie") == ""


@each(
    "path",
    {
        "nul": b"/\0",
        "no ASCII": "/ä".encode(),
        "control character": b"/\x1b[31m",
        "blank": b"/api /log",
        "empty": b"",
        "carriage return": b"/\rX: y",
    },
)
def test_a_path_that_is_none_is_refused(server: Server, path: bytes) -> None:
    check_refused(server, server.build(target="/path").replace(b"/path", path, 1), 400)


WAYS_OUT = {
    "up": "../../secret.txt",
    "dots encoded": "%2e%2e/%2e%2e/secret.txt",
    "slashes encoded": "..%2f..%2fsecret.txt",
    "all encoded": "%2e%2e%2f%2e%2e%2fsecret.txt",
    "backslash": "..%5c..%5csecret.txt",
    "twice encoded": "%252e%252e%252f%252e%252e%252fsecret.txt",
    "overlong UTF-8": "%c0%ae%c0%ae%c0%afsecret.txt",
    "half UTF-8": "%ff%fe",
    "nul": "%00",
    "absolute": "%2fetc%2fpasswd",
    "home": "~",
    "new line": "x%0d%0aSet-Cookie:%20a=b",
    "option": "--help",
    "empty": "",
}
ASKED_BY = {
    "project": "log",
    "run": "report",
    "story": "story",
    "before": "log",
    "iteration": "gate",
    "gate": "gate",
}


@pytest.mark.parametrize("name", list(ASKED_BY))
@each("value", WAYS_OUT)
def test_a_parameter_leads_nowhere(server: Server, name: str, value: str) -> None:
    honest = {"before": "9999", "story": "2", "iteration": "1", "gate": "0"}
    answer = check_refused(server, server.build(target=server.name_run(ASKED_BY[name], **{**honest, name: value})), 404)
    assert answer.get("set-cookie") == ""


@each("value", WAYS_OUT)
def test_a_story_that_is_a_path_has_no_log(server: Server, value: str) -> None:
    answer = server.get(server.name_run("log", before=server.end, story=value or "none"))
    assert (answer.status, answer.json["items"]) == (200, [])


RUNS = {
    "up and down": "..%2fruns%2f{run}",
    "here": ".%2f{run}",
    "through itself": "{run}%2f..%2f{run}",
    "with a slash": "{run}%2f",
    "its file": "{run}%2fevents.jsonl",
    "absolute": "{root}%2f.ralph%2fruns%2f{run}",
    "with a nul": "{run}%00",
    "the beginning": "add-login",
    "upper case": "ADD-LOGIN-20260301-220000-1A2B",
    "dot": ".",
    "two dots": "..",
    "star": "*",
}


@pytest.mark.parametrize("what", [*PAGES, "stream"])
@each("run", RUNS)
def test_a_run_is_named_by_its_id_alone(server: Server, what: str, run: str) -> None:
    name = run.replace("{run}", RUN).replace("{root}", str(server.ralph.root).replace("/", "%2f"))
    target = server.name_run(what, run=name, before="9999", story="2", iteration="1", gate="0")
    check_refused(server, server.build(target=target), 404)


@pytest.mark.parametrize("value", ["-1", "+1", "1e3", "0x10", "1.0", "%d9%a3", "9" * 30, "1_000", "%201", "1;2"])
@pytest.mark.parametrize("name", ["before", "iteration", "gate"])
def test_a_number_that_is_none_is_refused(server: Server, name: str, value: str) -> None:
    honest = {"before": "9999", "iteration": "1", "gate": "0"}
    check_refused(server, server.build(target=server.name_run(ASKED_BY[name], **{**honest, name: value})), 404)


@pytest.mark.parametrize("what", ["log", "gate"])
def test_a_number_beyond_everything_finds_nothing(server: Server, what: str) -> None:
    answer = server.get(server.name_run(what, before="9" * 15, iteration="9" * 15, gate="9" * 15))
    assert answer.status == (200 if what == "log" else 404)


@pytest.mark.parametrize("last", ["-1", "9" * 15, "9" * 5000, "1; DROP", "\xb2"])
def test_a_place_in_the_log_that_is_none_is_shown_the_log(server: Server, last: str) -> None:
    said = server.build(target=server.name_run("stream"), changes={"Last-Event-ID": [last]})
    with server.connect() as line:
        send(line, said)
        assert b"event: log" in read_until(line, b"event: log")


@each(
    "query",
    {
        "the second counts": f"run={RUN}&run=..%2f..",
        "too many": "&".join(f"a{number}=b" for number in range(300)),
        "no query": "&&&===;;;",
        "names encoded": "%70%72oject=x&%72un=..",
    },
)
def test_a_query_that_makes_no_sense_is_none(server: Server, query: str) -> None:
    check_refused(server, server.build(target=f"/api/report?project={server.project}&{query}"), 404)


def test_the_log_of_a_gate_is_shown(server: Server) -> None:
    answer = server.get(server.name_run("gate", run=OTHER_RUN, iteration="1", gate="0"))
    assert b"what the gate printed" in answer.body


@pytest.mark.parametrize(("number", "log"), list(enumerate(STOLEN_LOGS, 1)), ids=ids(STOLEN_LOGS))
def test_a_record_can_not_name_a_file_outside_of_its_run(server: Server, number: int, log: str) -> None:
    """An agent without a box can write the record: the page must not show another file."""
    answer = server.get(server.name_run("gate", run=OTHER_RUN, iteration="1", gate=str(number)))
    assert answer.status == 200, answer.raw
    assert SECRET.encode() not in answer.body, log
    assert b"It printed nothing" in answer.body


# --- methods and headers ----------------------------------------------------------------------------

METHODS = ("PUT", "DELETE", "OPTIONS", "TRACE", "HEAD", "PATCH", "CONNECT", "PROPFIND", "STEAL", "get", "Post")


@pytest.mark.parametrize("path", ["/", "/api/do", "/api/log", "/api/stream"])
@pytest.mark.parametrize("method", METHODS)
def test_a_method_that_is_not_there_is_refused(server: Server, method: str, path: str) -> None:
    answer = check_refused(server, server.build(method, path), 405)
    assert answer.get("allow") == ("POST" if path == "/api/do" else "GET")
    assert b"Cookie" not in answer.body, "what was asked is not told again"


@pytest.mark.parametrize("path", ["/api/do", "/api/login"])
def test_what_changes_something_is_not_got(server: Server, path: str) -> None:
    check_refused(server, server.build("GET", f"{path}?do=pause&change={CHANGE}&project={server.project}"), 405)


@pytest.mark.parametrize("path", ["/", "/api/session", "/api/log", "/api/stream"])
def test_what_is_got_is_not_posted(server: Server, path: str) -> None:
    check_refused(server, server.build("POST", path), 405)


def test_a_connection_to_elsewhere_is_refused(server: Server) -> None:
    check_refused(server, server.build("CONNECT", "127.0.0.1:22"), 404)


def test_another_page_is_not_told_that_it_may_ask(server: Server) -> None:
    wanted = {"Access-Control-Request-Method": ["POST"], "Access-Control-Request-Headers": ["x-csrf-token"]}
    asked = server.build("OPTIONS", "/api/do", {**wanted, "Origin": [EVIL], "Sec-Fetch-Site": ["cross-site"]})
    check_refused(server, asked, 403)
    network = {"Access-Control-Request-Private-Network": ["true"]}
    check_refused(server, server.build("OPTIONS", "/api/do", {**wanted, **network, "Origin": ["http://{host}"]}), 405)


@each(
    "line",
    {
        "no colon": b"nonsense",
        "blank before the colon": b"X : y",
        "nul": b"X: \0",
        "carriage return": b"X: a\rHost: evil.example",
        "no name": b": y",
        "name with a blank": b"a b: c",
        "no ASCII in the name": b"\xe4: c",
    },
)
def test_a_header_that_is_none_is_refused(server: Server, line: bytes) -> None:
    check_refused(server, server.build(changes={"X-Last": ["x"]}).replace(b"X-Last: x", line), 400)


@pytest.mark.parametrize("name", ["Host", "Origin", "Sec-Fetch-Site"])
def test_a_header_that_goes_on_in_the_next_line_is_another(server: Server, name: str) -> None:
    honest = {"Host": "{host}", "Origin": "http://{host}", "Sec-Fetch-Site": "same-origin"}
    check_refused(server, server.build(changes={name: [f"{honest[name]}\r\n evil.example"]}), 400, 403, 421)


@pytest.mark.parametrize("is_finished", [True, False], ids=["finished", "without-end"])
def test_a_head_of_20_kilobytes_is_refused(server: Server, is_finished: bool) -> None:
    said = server.build(changes={"X-Long": ["x" * 20_000]})
    check_refused(server, said if is_finished else said.rstrip(), 400, 431)


def test_ten_thousand_headers_are_refused(server: Server) -> None:
    check_refused(server, server.build(changes={"X-Many": ["x"] * 10_000}), 400, 431)


@each(
    "said",
    {
        "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "HTTP/0.9": b"GET /\r\n\r\n",
        "HTTP of a later time": b"GET / HTTP/11.0\r\nHost: {host}\r\n\r\n",
        "TLS": bytes.fromhex("16030100f4010000f00303") + bytes(240) + b"\r\n\r\n",
        "SSH": b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
        "SMTP": b"EHLO evil.example\r\n\r\n",
        "Redis": b"*1\r\n$4\r\nPING\r\n\r\n",
        "zeros": bytes(2000) + b"\r\n\r\n",
        "an answer": b"HTTP/1.1 200 OK\r\n\r\n",
    },
)
def test_another_language_is_not_understood(server: Server, said: bytes) -> None:
    check_refused(server, said.replace(b"{host}", server.host.encode()), 400)


# --- bodies -----------------------------------------------------------------------------------------

LENGTHS: dict[str, tuple[Sequence[str], int]] = {
    "a little too long": (["20001"], 413),
    "a gigabyte": (["1000000000"], 413),
    "absurd": (["9" * 18], 413),
    "more than absurd": (["9" * 40], 400),
    "negative": (["-1"], 400),
    "with a sign": (["+5"], 400),
    "hexadecimal": (["0x10"], 400),
    "a fraction": (["1.5"], 400),
    "empty": ([""], 400),
    "two of them": (["5", "6"], 400),
    "a list": (["5, 6"], 400),
    "no ASCII": (["\xb2"], 400),
}


@each("lengths,status", LENGTHS)
def test_a_wrong_length_is_refused_before_anything_is_read(server: Server, lengths: Sequence[str], status: int) -> None:
    check_refused(server, server.build_order({"Content-Length": lengths}), status)


def test_a_body_of_one_hundred_kilobytes_is_refused(server: Server) -> None:
    check_refused(server, server.build_order(text="x" * 100_000), 413)


def _build_chunks(*sizes: int) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (size, b"x" * size) for size in sizes)


CHUNKED: Changes = {"Content-Length": [], "Transfer-Encoding": ["chunked"]}


@each(
    "body,status",
    {
        "a large chunk": (_build_chunks(30_000), 413),
        "many chunks": (_build_chunks(*[100] * 300), 413),
        "tiny chunks": (_build_chunks(*[1] * 21_000), 413),
        "a chunk without end": (b"ffffffffffffff\r\n" + b"x" * 30_000, 413),
        "a size that is none": (b"zz\r\n", 400),
        "a negative size": (b"-1\r\n", 400),
        "a size beyond everything": (b"f" * 40 + b"\r\n", 400),
        "an extension without end": (b"1;" + b"x" * 20_000, 400),
        "nothing": (b"0\r\n\r\n", 400),
    },
)
def test_a_body_in_chunks_has_the_same_limit(server: Server, body: bytes, status: int) -> None:
    check_refused(server, server.build("POST", "/api/do", CHUNKED, body), status)


@each("encodings", {"gzip": ["gzip"], "twice": ["chunked, chunked"], "two": ["chunked", "identity"], "made up": ["x"]})
def test_a_body_in_another_encoding_is_refused(server: Server, encodings: Sequence[str]) -> None:
    changes = {"Content-Length": [], "Transfer-Encoding": encodings}
    check_refused(server, server.build("POST", "/api/do", changes, b"0\r\n\r\n"), 400)


@pytest.mark.parametrize("length", ["0", "5", "1000"])
def test_a_second_request_is_not_smuggled_in_a_body_with_two_lengths(server: Server, length: str) -> None:
    changes = {**CHUNKED, "Content-Length": [length]}
    said = server.build("POST", "/api/do", changes, b"0\r\n\r\n" + server.build_order())
    check_refused(server, said, 400)
    wait_for_commands(server)


@pytest.mark.parametrize("changes", [{"Content-Length": ["0"]}, {"Content-Length": []}], ids=["length", "no-length"])
def test_a_second_request_of_a_connection_is_not_heard(server: Server, changes: Changes) -> None:
    """Whatever a proxy in between takes for the end of the first one."""
    before = server.look()
    answer = server.ask(server.build(target="/api/session", changes=changes) + server.build_order())
    assert (answer.status, answer.raw.count(b"HTTP/1.1 ")) == (200, 1)
    wait_for_commands(server)
    assert server.look() == before


def test_a_body_that_ends_too_early_is_no_command(server: Server) -> None:
    before = server.look()
    with server.connect() as line:
        send(line, server.build_order()[:-1])
        line.shutdown(socket.SHUT_WR)
        assert read_answer(line).status in (0, 400)
    wait_for_commands(server)
    assert server.look() == before
    assert server.is_answering()


# --- requests of the page itself that make no sense --------------------------------------------------

ORDERS: dict[str, tuple[dict[str, Any], int]] = {
    "unknown field": ({"shell": "rm -rf /"}, 400),
    "number as action": ({"do": 1}, 400),
    "list as action": ({"do": ["pause"]}, 400),
    "nothing as change": ({"change": None}, 400),
    "object as text": ({"text": {"a": "b"}}, 400),
    "true as story": ({"story": True}, 400),
    "a long story": ({"story": "x" * 201}, 400),
    "a long change": ({"change": "x" * 201}, 400),
    "a long text": ({"text": "x" * 16_001}, 400),
    "half a character in the text": ({"do": "guide", "text": "\ud800"}, 400),
    "half a character in the story": ({"do": "retry", "story": "\udfff"}, 400),
    "nul in the text": ({"do": "guide", "text": "a\0b"}, 409),
    "nul in the story": ({"do": "retry", "story": "1\0"}, 409),
    "nul in the change": ({"change": "add\0"}, 409),
    "no such action": ({"do": "exec"}, 409),
    "a command that is no action": ({"do": "web"}, 409),
    "an action in upper case": ({"do": "PAUSE"}, 409),
    "an action with an option": ({"do": "stop --after"}, 409),
    "an attribute as action": ({"do": "__class__"}, 409),
    "no action": ({"do": ""}, 409),
    "no story": ({"do": "accept"}, 409),
    "no such project": ({"project": "00000000"}, 404),
    "a project that is a path": ({"project": "../.."}, 404),
    "a change that is a path": ({"change": "../../etc"}, 409),
    "a change that is absolute": ({"change": "/etc/passwd"}, 409),
    "a change that is an option": ({"change": "--help"}, 409),
    "a change that is a short option": ({"change": "-h"}, 409),
    "a change with a blank": ({"change": "a b"}, 409),
    "a change with a new line": ({"change": "a\r\nSet-Cookie: a=b"}, 409),
    "no change": ({"change": ""}, 409),
    "the folder as change": ({"change": "."}, 409),
    "a run of a path": ({"do": "run", "change": "../../etc"}, 409),
    "a run of an option": ({"do": "run", "change": "--help"}, 409),
    "a run of a file": ({"do": "run", "change": "/etc/passwd"}, 409),
}


@each("fields,status", ORDERS)
def test_an_order_that_makes_no_sense_is_refused(server: Server, fields: dict[str, Any], status: int) -> None:
    answer = check_refused(server, server.build_order(**fields), status)
    assert set(answer.json) == {"error"}
    assert answer.get("set-cookie") == ""


@each(
    "body",
    {
        "nothing": b"",
        "no JSON": b"do=pause",
        "a list": b'["pause"]',
        "null": b"null",
        "deep": b"[" * 19_000,
        "deep in a field": b'{"do":' + b'{"a":' * 3_000,
        "deep in an unknown field": b'{"x":' + b"[" * 9_000 + b"]" * 9_000 + b"}",
        "no UTF-8": b'{"project":"\xff\xfe","do":"pause","change":"x"}',
        "a number beyond everything": b'{"do":' + b"9" * 19_000 + b"}",
        "two values": b'{"do":"pause"}{"do":"pause"}',
        "not a number": b'{"do":NaN}',
        "another encoding": '{"do":"pause"}'.encode("utf-16"),
    },
)
def test_a_body_that_is_no_order_is_refused(server: Server, body: bytes) -> None:
    check_refused(server, server.build("POST", "/api/do", body=body), 400)


@each(
    "fields",
    {
        "help": {"do": "accept", "story": "--help"},
        "short help": {"do": "retry", "story": "-h"},
        "an option that does something": {"do": "guide", "story": "--clear", "text": "x"},
        "an option with a value": {"do": "answer", "story": "--change=other", "text": "x"},
        "standard input": {"do": "retry", "story": "-", "text": "x"},
        "the end of options": {"do": "reject", "story": "--", "text": "--help"},
    },
)
def test_a_story_is_never_read_as_an_option(server: Server, fields: dict[str, Any]) -> None:
    answer = check_refused(server, server.build_order(**fields), 409, tells=True)
    assert "Examples" not in answer.json["error"]
    assert "story" in answer.json["error"]


# --- headers of every answer ------------------------------------------------------------------------


def _find_policy(server: Server) -> dict[str, str]:
    policy = server.get("/").get("content-security-policy")
    return {name: value for name, _, value in (one.partition(" ") for one in policy.split("; "))}


def test_the_page_can_be_framed_by_nobody(server: Server) -> None:
    policy = _find_policy(server)
    assert server.get("/").get("x-frame-options") == "DENY"
    assert (policy["frame-ancestors"], policy["default-src"]) == ("'none'", "'none'")
    assert (policy["form-action"], policy["base-uri"], policy["connect-src"]) == ("'none'", "'none'", "'self'")
    assert not {"frame-src", "child-src", "worker-src", "object-src", "script-src-elem", "script-src-attr"} & set(
        policy
    )


@pytest.mark.parametrize("kind", ["script", "style"])
def test_only_what_is_in_the_page_itself_is_run(server: Server, kind: str) -> None:
    [text] = re.findall(f"<{kind}>(.*?)</{kind}>".encode(), server.get("/").body, re.DOTALL)
    assert _find_policy(server)[f"{kind}-src"] == f"'sha256-{base64.b64encode(hashlib.sha256(text).digest()).decode()}'"
    assert not re.search(rb"<[^>]*\son\w+=|javascript:", server.get("/").body.replace(text, b""))


def test_the_page_itself_tells_nothing_of_the_project(server: Server) -> None:
    check_silent(server, server.get("/", {"Cookie": []}).raw)


@pytest.mark.parametrize("path", ["/", "/api/session", "/nothing", "{log}"])
@pytest.mark.parametrize("changes", [{}, {"Origin": ["http://{host}"]}], ids=["without-origin", "with-origin"])
def test_no_answer_may_be_read_by_another_page(server: Server, path: str, changes: Changes) -> None:
    answer = server.get(path.replace("{log}", server.log), changes)
    check_guarded(answer)
    assert answer.get("server") == ""
    assert answer.get("content-type") in ("application/json", "text/html; charset=utf-8")


def test_a_stream_may_not_be_read_by_another_page(server: Server) -> None:
    with server.listen("/api/stream") as line:
        head = read_until(line, b": welcome").decode("latin-1").lower()
    assert [name for name, value in GUARDS.items() if f"{name}: {value}".lower() not in head] == []
    assert ("access-control-" in head, "default-src 'none'; frame-ancestors 'none'" in head) == (False, True)


# --- many clients, and slow ones --------------------------------------------------------------------


def _can_listen(server: Server, stack: ExitStack) -> bool:
    line = stack.enter_context(server.listen("/api/stream"))
    return b": welcome" in read_until(line, b": welcome")


def test_the_21st_stream_is_told_to_wait_and_a_place_gets_free(server: Server) -> None:
    with ExitStack() as stack:
        for _ in range(20):
            assert wait_until(lambda: _can_listen(server, stack)), "those of before are gone soon"
        answer = check_refused(server, server.build(target="/api/stream"), 503)
        assert answer.get("retry-after") == "10"
    with ExitStack() as stack:
        assert wait_until(lambda: _can_listen(server, stack))


def test_those_who_never_read_keep_nobody_waiting(server: Server) -> None:
    _write_long_run(server.ralph)
    before = server.measure_memory()
    with ExitStack() as stack:
        target = server.name_run("stream", run=LONG_RUN, after="0")
        for _ in range(10):
            stack.enter_context(server.listen(target, room=4096))
        reader = stack.enter_context(server.listen(target))
        assert b"the last word" in read_until(reader, b"the last word"), "whoever reads gets it all"
        assert server.get().status == 200
        assert server.measure_memory() - before < MORE_MEMORY
    assert server.is_answering()


LONG_RUN = "add-login-20260303-220000-3c3c"


def _write_long_run(ralph: Ralph) -> None:
    night = Night()
    night.start()
    for number in range(3500):  # more than the system buffers for clients that don't read
        night.add("agent", event={"kind": "message", "text": f"{number} " + "x" * 1000})
    night.add("agent", event={"kind": "message", "text": "the last word"})
    night.write(ralph.root, LONG_RUN)


def _start_slow_ones(server: Server) -> dict[str, socket.socket]:
    """Starts clients that stall, each in its own way."""
    order = server.build_order()
    said = {
        "silent": b"",
        "half a line": b"GET / HT",
        "half a head": server.build()[:-10],
        "a head by and by": b"GET / HTTP/1.1\r\nX: ",
        "half a body": server.build_order({"Content-Length": ["100"]}).partition(b"\r\n\r\n")[0] + b"\r\n\r\n{",
        "a body by and by": order.partition(b"\r\n\r\n")[0] + b"\r\n\r\n",
        "a body in chunks by and by": server.build("POST", "/api/do", CHUNKED, b"1\r\n \r\n"),
    }
    lines = {name: server.connect() for name in said}
    for name, line in lines.items():
        send(line, said[name])
    return lines


def _wait_for_end(lines: dict[str, socket.socket]) -> dict[str, bytes]:
    """What each client gets in the end; slow senders keep sending until then."""
    told = dict.fromkeys(lines, b"")
    open_ones = dict(lines)
    end = time.monotonic() + PATIENCE
    while open_ones and time.monotonic() < end:
        ready = select.select(list(open_ones.values()), [], [], 0.3)[0]
        for name, line in list(open_ones.items()):
            if line in ready:
                block = receive(line)
                told[name] += block
                if not block:
                    del open_ones[name]
            elif "by and by" in name:
                send(line, b"1\r\n \r\n" if "chunks" in name else b" ")
    assert not open_ones, "they are let go after a while"
    return told


def test_slow_ones_and_idle_ones_are_let_go_and_keep_nobody_waiting(server: Server, looking: Server) -> None:
    before, memory = server.look(), looking.measure_memory()
    slow = _start_slow_ones(server)
    idle = {str(number): connect(looking.where) for number in range(300)}
    with ExitStack() as stack:
        for line in (*slow.values(), *idle.values()):
            stack.enter_context(line)
        assert server.get().status == 200
        assert not select.select(list(slow.values()), [], [], 0)[0], "it was answered before those were let go"
        told = _wait_for_end(slow)
        assert [one for one in _wait_for_end(idle).values() if one] == []
        assert looking.is_answering(), "while none of those has closed its end"
        assert looking.measure_memory() - memory < MORE_MEMORY
    _check_let_go(told)
    assert (server.look(), server.is_answering()) == (before, True)


def _check_let_go(told: dict[str, bytes]) -> None:
    statuses = {name: raw.split(b" ", 2)[1] if raw else b"" for name, raw in told.items()}
    expected = {name: b"408" if "body" in name else b"" for name in told}
    assert statuses == expected


# --- a read-only server -----------------------------------------------------------------------------


@pytest.mark.parametrize("action", ACTIONS)
def test_nothing_is_done_by_a_server_for_looking(looking: Server, action: str) -> None:
    answer = check_refused(looking, looking.build_order(do=action, story="2", text="x"), 403)
    assert "--read-only" in answer.json["error"]


def test_a_server_for_looking_shows_everything(looking: Server) -> None:
    assert looking.get("/api/session").json["read_only"] is True
    queries = {"story": "2", "before": "9999", "iteration": "1", "gate": "0"}
    assert [looking.get(looking.name_run(what, **queries)).status for what in PAGES] == [200] * len(PAGES)
    with looking.listen(looking.name_run("stream")) as line:
        assert b"event: log" in read_until(line, b"event: log")


# --- where it listens -------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "::1", "192.0.2.1", "evil.example", ""])
def test_others_are_let_in_only_with_a_certificate_and_a_name(place: Ralph, host: str) -> None:
    told = place.run("web", "--json", "--host", host)
    assert (told.exit_code, told.stdout) == (2, "")
    assert "--cert" in told.stderr


@each(
    "options",
    {
        "certificate without key": ["--cert", "README.md"],
        "certificate without name": ["--host", "0.0.0.0", "--cert", "README.md", "--key", "README.md"],
        "name in upper case": ["--allow-host", "Evil.example"],
        "name with a port": ["--allow-host", "evil.example:80"],
        "every name": ["--allow-host", "*"],
        "socket and host": ["--socket", "s", "--host", "0.0.0.0"],
    },
)
def test_half_of_what_makes_it_safe_is_refused(place: Ralph, options: list[str]) -> None:
    told = place.run("web", "--json", *options)
    assert (told.exit_code, told.stdout) == (2, "")


def test_only_this_machine_can_reach_it(server: Server) -> None:
    assert server.list_addresses() == [("127.0.0.1", int(server.port))]


def test_a_socket_is_for_its_owner_alone_and_replaces_a_dead_one(private: Server) -> None:
    info = os.stat(str(private.where))
    assert (stat.S_ISSOCK(info.st_mode), stat.S_IMODE(info.st_mode)) == (True, 0o600)
    assert CHANGE.encode() in private.get().body
    assert private.list_addresses() == []


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "localhost:80", "LOCALHOST", ""])
def test_a_socket_knows_one_host(private: Server, host: str) -> None:
    check_refused(private, private.build(changes={"Host": [host]}), 400, 421)


def test_a_socket_wants_the_cookie_too(private: Server) -> None:
    check_refused(private, private.build(changes={"Cookie": []}), 401)
    check_refused(private, private.build_order({"X-CSRF-Token": []}), 403)


def test_a_socket_that_is_in_use_is_not_taken_over(private: Server) -> None:
    told = private.ralph.run("web", "--json", "--socket", str(private.where))
    assert (told.exit_code != 0, told.stdout, "already" in told.stderr) == (True, "", True)
    assert private.is_answering()


@pytest.mark.parametrize("kind", ["file", "link", "folder"])
def test_what_is_no_socket_is_not_replaced(place: Ralph, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "s"
    (tmp_path / "kept").write_text("kept")
    if kind == "file":
        path.write_text("kept")
    elif kind == "link":
        path.symlink_to("kept")
    else:
        path.mkdir()
    told = place.run("web", "--json", "--socket", str(path))
    assert (told.exit_code != 0, told.stdout, "not a socket" in told.stderr) == (True, "", True)
    assert (path.is_symlink(), path.is_dir()) == (kind == "link", kind == "folder")
    assert kind == "folder" or path.read_text() == "kept"


# --- agents -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["port", "socket"])
def test_an_agent_of_a_run_can_not_steer_by_the_page(server: Server, private: Server, where: str) -> None:
    asked = server if where == "port" else private
    with run_with_agent(asked.ralph) as agent:
        before = asked.look()
        assert agent.say(asked.where, asked.build()).status == 200, "it may look: it can read the record anyway"
        answer = agent.say(asked.where, asked.build_order())
        assert (answer.status, asked.look()) == (403, before)
        assert asked.ask(asked.build_order(do="resume")).status == 200, "a person can"


def test_an_agent_that_is_gone_at_once_can_not_steer_by_the_page(server: Server) -> None:
    """The sender can no longer be checked, so it was not a browser, which waits for the answer."""
    with run_with_agent(server.ralph) as agent:
        before = server.look()
        agent.say(server.where, server.build_order(), waits=False)
        wait_for_commands(server)
        assert server.look() == before


# --- another host name -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A certificate for box.example.org, and its key."""
    key, name, now = ec.generate_private_key(ec.SECP256R1()), x509.DNSName("box.example.org"), datetime.now(UTC)
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name.value)])
    builder = x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
    made = builder.add_extension(x509.SubjectAlternativeName([name]), critical=False).sign(key, hashes.SHA256())
    paths = [tmp_path_factory.mktemp("tls") / "both.pem"] * 2
    plain = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    paths[0].write_bytes(made.public_bytes(serialization.Encoding.PEM) + key.private_bytes(*plain))
    return str(paths[0]), str(paths[1])


def test_another_host_is_served_by_tls_and_by_its_own_name_only(place: Ralph, certificate: tuple[str, str]) -> None:
    cert, key = certificate
    options = ("--host", "127.0.0.2", "--allow-host", "box.example.org", "--cert", cert, "--key", key)
    command = [sys.executable, "-P", "-m", "ralphtool", "web", str(place.root), "--json", *options]
    with subprocess.Popen(command, cwd=place.root, env=place.env, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout
            address = json.loads(process.stdout.readline())["address"]
            port = int(address.partition("/#")[0].rpartition(":")[2])
            assert address.startswith("https://box.example.org:")
            answers = [ask_over_tls(cert, port, host) for host in (f"box.example.org:{port}", f"127.0.0.1:{port}")]
        finally:
            process.terminate()
    assert [one.split(b" ")[1] for one in answers] == [b"200", b"421"]
    assert b"<script>" not in answers[1]


def ask_over_tls(cert: str, port: int, host: str) -> bytes:
    context = ssl.create_default_context(cafile=cert)
    plain = socket.create_connection(("127.0.0.2", port))
    with context.wrap_socket(plain, server_hostname="box.example.org") as line:
        line.sendall(f"GET / HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        return b"".join(iter(lambda: line.recv(65536), b""))
