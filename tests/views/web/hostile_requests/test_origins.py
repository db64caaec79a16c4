"""Other hosts, and other pages: their requests are refused, reveal nothing and change nothing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from views.web.hostile import (
    CHANGE,
    EVIL,
    Changes,
    Server,
    check_refused,
    each,
    read_until,
)

from ralphtool.views.web.access import COOKIE_SECONDS

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
