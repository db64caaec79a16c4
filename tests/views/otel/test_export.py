"""`ralphtool otel`: real runs, a receiver that reads the real protocol, and servers that refuse."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lab import DONE, Lab, wait_until
from project import COMMAND, Ralph
from record.run_records import NOON, ended, line, moment, put, started, verdict
from views.otel.receiver import Receiver

from ralphtool.errors import RemoteFailed, WrongSetting
from ralphtool.record import trace_ids
from ralphtool.views.otel.sending import HttpTarget, parse_headers

RUN = "add-login-20260301-120000-1a2b"
BEGUN = {"type": "iteration_started", "at": "2026-03-01T12:01:00.000000Z", "story": "1", "iteration": 1, "number": 1}
SPOKEN = {
    "type": "agent",
    "at": "2026-03-01T12:02:00.000000Z",
    "event": {"kind": "tool", "name": "Edit", "detail": "x"},
}
RECORD: tuple[dict[str, Any], ...] = (started(), BEGUN, SPOKEN | {"iteration": 1}, verdict("1", iteration=1), ended())
ATTEMPT: tuple[dict[str, Any], ...] = (
    *RECORD[1:4],
    {"type": "decision", "iteration": 1},
    {"type": "paused", "at": NOON},
)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    opened = Receiver()
    yield opened
    opened.close()


def names(text: str | bytes) -> list[str]:
    read = [json.loads(one) for one in text.splitlines()]
    return [
        span["name"] for one in read for kept in one.get("resourceSpans", []) for span in kept["scopeSpans"][0]["spans"]
    ]


# --- a real run -------------------------------------------------------------------------------------


def test_a_run_exports_itself_and_its_agents_know_their_spans(lab: Lab, receiver: Receiver) -> None:
    lab.repository(tests=["test ! -e broken"])
    with (lab.root / ".ralph/config.toml").open("a") as file:
        file.write(f'[otel]\nendpoint = "{receiver.url}"\n')
    tell = {"run": "echo $TRACEPARENT > {story}.txt"}
    usage = {"usage": {"input_tokens": 10, "output_tokens": 2, "cost": 0.25}}
    lab.play(default=[tell, usage, {"tick": "all"}, {"complete": True}])
    done = lab.loop("add-login")
    [record] = (lab.root / ".ralph/runs").glob("*/events.jsonl")
    folder = record.parent
    assert wait_until(lambda: any(not span.parent_span_id for span in receiver.read_spans()), 60), done.stderr
    assert wait_until(lambda: "spans of" in (folder / "otel.log").read_text(), 60)
    told = [lab.git("show", f"ralph/add-login:{story}.txt") for story in ("1", "2")]
    assert told == [trace_ids.build_traceparent(folder.name, number) for number in (1, 2)]
    sent = names(b"\n".join(receiver.bodies["/v1/traces"]))
    assert {"invoke_agent scripted", "execute_tool run", "gate after", "story 1", "story 2"} <= set(sent)
    once = lab.run("otel", "--to", "-")
    assert sorted(names(once.stdout)) == sorted(sent)  # no span was sent twice, and none is missing
    assert lab.run("otel", "--to", "-").stdout == once.stdout
    ids = [
        span["spanId"] for span in json.loads(once.stdout.splitlines()[0])["resourceSpans"][0]["scopeSpans"][0]["spans"]
    ]
    assert {one.rsplit("-", 2)[1] for one in told} <= set(ids)


def test_a_dry_run_exports_nothing(lab: Lab, receiver: Receiver) -> None:
    lab.repository()
    with (lab.root / ".ralph/config.toml").open("a") as file:
        file.write(f'[otel]\nendpoint = "{receiver.url}"\n')
    lab.play(default=DONE)
    lab.run("run", "add-login", "--dry-run")
    time.sleep(0.5)
    assert receiver.headers == []


def test_an_endpoint_that_is_not_there_does_not_disturb_a_run(lab: Lab) -> None:
    lab.repository()
    with (lab.root / ".ralph/config.toml").open("a") as file:
        file.write('[otel]\nendpoint = "http://127.0.0.1:9"\n')
    lab.play(default=DONE)
    assert lab.loop("add-login").exit_code == 0
    [log] = (lab.root / ".ralph/runs").glob("*/otel.log")
    assert wait_until(lambda: "can't be reached" in log.read_text(), 60)


# --- files and standard output ----------------------------------------------------------------------


def test_a_file_and_standard_output_are_the_same(ralph: Ralph) -> None:
    put(ralph.root, RUN, *RECORD)
    told = ralph.run("otel")
    assert (told.exit_code, told.stderr) == (0, "")
    assert names(told.stdout) == ["execute_tool Edit", "invoke_agent", "story 1", "invoke_workflow add-login"]
    assert ralph.run("otel", RUN, "--to", "out.jsonl").stdout == ""
    assert ralph.read("out.jsonl") == told.stdout
    assert ralph.run("otel", "--to", ".").exit_code == 1


def test_content_is_a_setting(ralph: Ralph) -> None:
    told = SPOKEN | {"iteration": 1, "event": {"kind": "tool", "name": "Edit", "detail": "SECRET"}}
    folder = f".ralph/runs/{RUN}"
    inside = BEGUN | {"directory": f"{folder}/001-x"}
    outside = BEGUN | {"directory": f"{folder}/../../..", "iteration": 2}
    put(ralph.root, RUN, started(), inside, told, outside, told | {"iteration": 2}, ended())
    ralph.write(f"{folder}/001-x/prompt.md", "Do SECRET things")
    ralph.write("prompt.md", "STRANGE")
    assert "SECRET" not in ralph.run("otel").stdout
    ralph.write(".ralph/config.toml", "[otel]\ncontent = true\n")
    written = ralph.run("otel").stdout
    assert "Do SECRET things" in written
    assert "STRANGE" not in written


def begin(ralph: Ralph) -> Path:
    """The record of a run in progress: this process counts as its owner."""
    return put(ralph.root, RUN, RECORD[0] | {"at": moment(), "pid": os.getpid()})


def add(path: Path, *told: dict[str, Any]) -> None:
    with path.open("ab") as record:
        record.write(b"".join(map(line, told)))


def test_a_run_is_followed_to_its_end(ralph: Ralph) -> None:
    path = begin(ralph)
    command = [COMMAND, "otel", "--follow"]
    with subprocess.Popen(command, cwd=ralph.root, env=ralph.env, stdout=subprocess.PIPE) as following:
        add(path, *ATTEMPT)
        assert following.stdout is not None
        assert names(following.stdout.readline()) == ["execute_tool Edit", "invoke_agent", "story 1"]
        add(path, RECORD[4] | {"at": moment()})
        assert names(following.stdout.read()) == ["pause", "invoke_workflow add-login"]
    assert following.returncode == 0


def test_what_could_not_be_sent_is_sent_at_the_end(ralph: Ralph, receiver: Receiver) -> None:
    path = begin(ralph)
    receiver.answers = [400]
    command = [COMMAND, "otel", "--follow", "--to", receiver.url]
    with subprocess.Popen(command, cwd=ralph.root, env=ralph.env, stderr=subprocess.PIPE) as following:
        add(path, *ATTEMPT)
        assert wait_until(lambda: receiver.headers, 60)
        add(path, RECORD[4] | {"at": moment()})
        _, warned = following.communicate()
    assert following.returncode == 0
    assert b"answered 400" in warned
    sent = ["execute_tool Edit", "invoke_agent", "story 1", "pause", "invoke_workflow add-login"]
    assert [span.name for span in receiver.read_spans()] == sent


def test_a_run_that_died_is_exported_whole(ralph: Ralph) -> None:
    put(ralph.root, RUN, *RECORD[:3])
    for arguments in ((), ("--follow",)):
        told = ralph.run("otel", *arguments)
        assert names(told.stdout) == ["execute_tool Edit", "invoke_agent", "story 1", "invoke_workflow add-login"]


# --- servers ----------------------------------------------------------------------------------------


def test_it_is_sent_with_the_headers_of_the_environment(ralph: Ralph, receiver: Receiver) -> None:
    put(ralph.root, RUN, *RECORD)
    headers = "Authorization=Bearer%20SECRET, x-team = a"
    told = ralph.run("otel", "--to", receiver.url, OTEL_EXPORTER_OTLP_HEADERS=headers)
    assert told.stdout == f"4 spans of {RUN} are sent to {receiver.url.removeprefix('http://')}\n"
    assert len(receiver.read_spans()) == 4
    assert len(receiver.bodies["/v1/metrics"]) == 1
    assert {(one["authorization"], one["x-team"], one["content-type"]) for one in receiver.headers} == {
        ("Bearer SECRET", "a", "application/json")
    }


@pytest.mark.parametrize(("status", "words"), [(401, "OTEL_EXPORTER_OTLP_HEADERS"), (302, "redirects"), (500, "log")])
def test_a_refusal_is_told_without_secrets(ralph: Ralph, receiver: Receiver, status: int, words: str) -> None:
    put(ralph.root, RUN, *RECORD)
    receiver.answers = [status]
    told = ralph.run("otel", "--to", receiver.url, OTEL_EXPORTER_OTLP_HEADERS="a=SECRET")
    assert told.exit_code == 1
    assert f"answered {status}" in " ".join(told.stderr.split())
    assert words in told.stderr
    assert "SECRET" not in told.stderr + told.stdout
    assert len(receiver.headers) == 1  # neither retried nor redirected


def test_what_passes_is_tried_again(receiver: Receiver) -> None:
    pauses: list[float] = []
    target = HttpTarget(receiver.url, {}, pauses.append)
    receiver.answers = [503, 429, 502]
    target.send_spans(b"{}")
    assert (pauses, len(receiver.bodies["/v1/traces"])) == ([1.0, 2.0, 4.0], 1)
    receiver.answers = [503] * 4
    with pytest.raises(RemoteFailed, match="answered 503"):
        target.send_spans(b"{}")


def test_the_record_itself_is_never_overwritten(ralph: Ralph) -> None:
    path = put(ralph.root, RUN, *RECORD)
    before = path.read_bytes()
    told = ralph.run("otel", "--to", str(path))
    assert (told.exit_code, path.read_bytes()) == (1, before)
    assert "name another file" in told.stderr


def test_what_a_server_rejects_is_told(ralph: Ralph, receiver: Receiver) -> None:
    put(ralph.root, RUN, *RECORD)
    receiver.answer = b'{"partialSuccess": {"rejectedSpans": "3", "errorMessage": "no"}}'
    told = ralph.run("otel", "--to", receiver.url)
    assert told.exit_code == 1
    assert "rejected" in told.stderr


@pytest.mark.parametrize(
    "answer",
    [
        *(b"", b"[]", b"no", b'{"partialSuccess": 3}', b"\xff", b'{"partialSuccess":null}'),
        b'{"partialSuccess":{"rejectedSpans":1e999}}',
    ],
)
def test_an_answer_in_other_words_is_a_yes(receiver: Receiver, answer: bytes) -> None:
    receiver.answer = answer
    target = HttpTarget(receiver.url, {})
    target.send_spans(b"{}")
    assert target.rejected == 0


@pytest.mark.parametrize("text", ["SECRET", "a b=SECRET", "a=SECRET%0d%0aX: y", "=SECRET", "a=SECRET\u00e4"])
def test_headers_that_cannot_be_read_are_not_shown(text: str) -> None:
    with pytest.raises(WrongSetting) as caught:
        parse_headers(text)
    assert "SECRET" not in str(caught.value)


@pytest.mark.parametrize("url", ["ftp://x", "http://me:SECRET@host", "http://", "https://host/?q=1", "http://a b"])
def test_an_address_has_no_login(ralph: Ralph, url: str) -> None:
    put(ralph.root, RUN, *RECORD)
    told = ralph.run("otel", "--to", url)
    assert told.exit_code == 1
    assert "SECRET" not in told.stderr
    ralph.write(".ralph/config.toml", f'[otel]\nendpoint = "{url}"\n')
    told = ralph.run("otel")
    assert told.exit_code == 2
    assert "otel.endpoint must be a URL without a login" in " ".join(told.stderr.split())
