"""Paths, headers and bodies that make no sense, or lead elsewhere, are refused and reveal nothing."""

from __future__ import annotations

import base64
import hashlib
import re

import pytest
from views.night import RUN
from views.web.hostile import (
    CHANGE,
    EVIL,
    GUARDS,
    OTHER_RUN,
    PAGES,
    SECRET,
    STOLEN_LOGS,
    Changes,
    Server,
    check_guarded,
    check_refused,
    check_silent,
    each,
    ids,
    read_until,
    send,
)

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
