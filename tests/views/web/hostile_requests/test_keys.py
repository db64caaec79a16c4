"""Wrong keys, cookies and signatures open nothing."""

from __future__ import annotations

import json
import stat
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from project import Ralph
from views.web.hostile import (
    CHANGE,
    PAGES,
    Changes,
    Server,
    check_refused,
    each,
    run_with_agent,
    wait_for_commands,
)

from ralphtool.views.web.access import COOKIE_SECONDS, Access

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
