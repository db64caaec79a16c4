"""The types of the events: what is written, what is read back, and what arbitrary bytes can do to a reader."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lab import DONE, Lab
from msgspec import structs
from properties import examples

from ralphtool import agents
from ralphtool.record import events, lines
from ralphtool.record.event_parts import Durations, RunLimits
from ralphtool.record.fitting import trim
from ralphtool.record.log import Log
from ralphtool.settings import list_limits

EXAMPLES = (Path(__file__).parents[2] / "docs/events.jsonl").read_bytes().splitlines()
KINDS = get_args(events.Event)
OF_ITERATION = {
    *("iteration_started", "setup", "gate_started", "gate", "agent", "blocker_checked", "verdict", "decision"),
    *("ticked", "checkpoint", "proof", "question"),
}


def encode(event: events.Event) -> bytes:
    return msgspec.json.encode(events.encode_fields(event, event.at))


# --- writing and reading ----------------------------------------------------------------------------


def test_there_is_an_example_of_every_event() -> None:
    assert [type(events.decode(line)) for line in EXAMPLES] == list(KINDS)


@pytest.mark.parametrize("line", EXAMPLES, ids=[str(kind.__struct_config__.tag) for kind in KINDS])
def test_what_is_written_is_read_back_with_its_type_at_a_fixed_place(line: bytes) -> None:
    event = events.decode(line)
    assert event is not None
    written = encode(event)
    assert events.decode(written) == event
    assert json.loads(written) == json.loads(line)
    tag = str(type(event).__struct_config__.tag)
    assert written.startswith(f'{{"at":"{event.at}","type":"{tag}"'.encode())
    assert lines.read_type(written) == tag.encode()


@pytest.mark.parametrize(
    "said",
    [
        agents.Output("x"),
        agents.Message("x"),
        agents.Tool("Edit", "a.py"),
        agents.Result("x", ok=False),
        agents.Usage(5, 6, 0.5, 1, "some"),
        agents.Quota(0.5, 1.0, "week"),
        agents.Failure("network", "x", 2.0),
        agents.End(True, "x", "y"),
    ],
)
def test_what_an_agent_emits_is_read_back(said: events.AgentEvent) -> None:
    event = events.Agent(at="2026-03-01T22:00:00.000000Z", event=said, iteration=3, story="s" * 300)
    assert events.decode(encode(event)) == event
    assert lines.is_usage(encode(event)) == isinstance(said, agents.Usage)


def test_what_an_agent_does_not_report_is_left_out_and_what_is_empty_is_not() -> None:
    written = json.loads(encode(events.Agent(event=agents.Usage(model=""))))
    assert written["event"] == {
        "kind": "usage",
        "input_tokens": 0,
        "output_tokens": 0,
        "cached_tokens": 0,
        "model": "",
    }


def test_the_log_says_when_and_masks_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_TOKEN", "hunter2-hunter2")
    path = tmp_path / "events.jsonl"
    log = Log(str(path))
    log.add(events.Decision(guidance="use hunter2-hunter2", given={"deep": ["hunter2-hunter2"]}))
    log.close()
    [line] = path.read_bytes().splitlines()
    decision = events.decode(line)
    assert isinstance(decision, events.Decision)
    assert (decision.guidance, decision.given) == ("use [redacted]", {"deep": ["[redacted]"]})
    assert len(decision.at) == len("2026-03-01T22:00:00.000000Z")
    assert lines.read_type(line) == b"decision"


def test_every_limit_of_the_settings_stands_in_the_first_event() -> None:
    assert RunLimits.__struct_fields__ == list_limits()


# --- in a run ---------------------------------------------------------------------------------------


def test_every_event_of_an_iteration_carries_its_number_and_its_story(lab: Lab) -> None:
    options: dict[str, Any] = {"workspace": "worktree", "setup": ["true"], "check_blockers": True, "attempts": 2}
    lab.repository("## 1. First\n\n- [ ] 1.1 Make a\n\n## 2. Second\n\n- [ ] 2.1 Make b\n", tests=["true"], **options)
    lab.play({"story": "2", "steps": [{"blocked": "the colour is not known"}]}, default=DONE)
    lab.loop()
    [path] = lab.root.glob(".ralph/runs/*/events.jsonl")
    written = path.read_bytes().splitlines()
    found = [event for line in written if (event := events.decode(line))]
    assert len(found) == len(written)
    where: tuple[int, str] = (0, "")
    seen, numbers = set(), list[tuple[int, str]]()
    for event in found:
        if isinstance(event, events.IterationStarted):
            where = (len(numbers) + 1, event.story)
            numbers.append(where)
            assert Path(event.directory).name == f"{where[0]:03}-{event.entry}"
        tag = str(type(event).__struct_config__.tag)
        if getattr(event, "when", "") == "tip":  # the last check belongs to no story
            where = (0, "")
        if tag in OF_ITERATION:
            seen.add(tag)
            fields = structs.asdict(event)
            assert (fields["iteration"], fields["story"]) == where, tag
    assert numbers[-1] == (3, "2")
    assert where == (0, "")
    assert seen == OF_ITERATION


def test_all_that_belongs_to_an_iteration_has_fields_for_that() -> None:
    fields = {str(kind.__struct_config__.tag): set(kind.__struct_fields__) for kind in KINDS}
    named = OF_ITERATION | {"denied", "worker", "queued", "merging", "merged", "sent_back"}  # not in every run
    assert {tag for tag, names in fields.items() if "iteration" in names} == named
    assert all("story" in fields[tag] for tag in named)


# --- records of other versions, and arbitrary ones --------------------------------------------------

OLD: dict[bytes, events.Event] = {
    b'{"at":"x","type":"gate","when":"after","command":"make","ok":true}': events.Gate(
        at="x", when="after", command="make", ok=True, iteration=0, story=""
    ),
    b'{"at":"x","type":"gate_started","when":"before","command":"make"}': events.GateStarted(
        at="x", when="before", command="make", iteration=0, story=""
    ),
    b'{"at":"x","type":"agent","event":{"kind":"tool","name":"Edit"}}': events.Agent(
        at="x", event=agents.Tool("Edit"), iteration=0, story=""
    ),
    b'{"at":"x","type":"waiting","seconds":3,"until":1772402100.5,"why":"y"}': events.Waiting(
        at="x", seconds=3, until=1772402100.5, why="y"
    ),
    b'{"at":"x","type":"checkpoint","story":"1","commit":"c","subject":"s"}': events.Checkpoint(
        at="x", story="1", commit="c", subject="s", iteration=0
    ),
    b'{"at":"x","type":"run_started","gates":{"checks":["a"],"tests":["b"]},"limits":{"attempts":3}}': (
        events.RunStarted(at="x", limits=RunLimits(attempts=3))
    ),
    b'{"at":"x","type":"run_ended","result":"done","reason":"r","stories":[],"spent":{},"next":[]}': events.RunEnded(
        at="x", result="done", reason="r"
    ),
}


@pytest.mark.parametrize(("line", "event"), OLD.items(), ids=[type(event).__name__ for event in OLD.values()])
def test_records_of_earlier_versions_are_read(line: bytes, event: events.Event) -> None:
    assert events.decode(line) == event


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"no",
        b"[]",
        b"7",
        b'{"at":"x"}',
        b'{"at":"x","type":5}',
        b'{"at":"x","type":"from the future","story":"1"}',
        b'{"at":"x","type":"agent","event":{"kind":"from the future"}}',
        b'{"at":"x","type":"agent"}',
        b'{"at":"x","type":"notice","text":"cut',
        b'{"type":"notice","text":"\xff"}',
        b'{"type":"decision","given":' + b"[" * 100_000,
        b'{"type":"decision","given":' + b"9" * 10_000 + b"}",
    ],
)
def test_what_is_no_event_is_passed_over(line: bytes) -> None:
    assert events.decode(line) is None


def test_half_of_a_character_does_not_hide_the_rest_of_an_event() -> None:
    assert events.decode(b'{"type":"notice","text":"a\\ud800"}') == events.Notice(text="a\ud800")
    assert events.decode(b'{"type":"agent","event":{"kind":"\\ud800"}}') is None
    given = events.decode(b'{"type":"decision","action":"next","given":{"reason":"\\ud800"}}')
    assert isinstance(given, events.Decision)
    assert trim(given).given is None


def test_fields_of_later_versions_are_passed_over() -> None:
    line = b'{"at":"x","type":"notice","text":"hello","from the future":[1]}'
    assert events.decode(line) == events.Notice(at="x", text="hello")


def test_a_field_that_does_not_fit_does_not_take_the_others_with_it() -> None:
    odd = {
        "story": [],
        "input_tokens": -1,
        "output_tokens": 10**30,
        "cost": 1e300,
        "seconds": {"agent": -1, "gates": 2},
    }
    findings = [{"kind": "spec-edited", "path": 3}, "x"]
    line = json.dumps({"type": "verdict", "status": "failed", **odd, "files": ["a", 3], "findings": findings})
    found = events.decode(line.encode())
    assert isinstance(found, events.Verdict)
    assert (found.status, found.story, found.input_tokens, found.output_tokens, found.cost) == (
        "failed",
        "",
        0,
        0,
        None,
    )
    assert (found.seconds, found.files) == (Durations(gates=2), ("a",))
    assert [(one.kind, one.path) for one in found.findings] == [("spec-edited", "")]


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)
NAMES = sorted({name for kind in KINDS for name in kind.__struct_encode_fields__})
TAGS = [str(kind.__struct_config__.tag) for kind in KINDS]


@settings(max_examples=examples(300), deadline=None)
@given(st.sampled_from(TAGS), st.dictionaries(st.sampled_from(NAMES), JSON, max_size=8))
def test_no_value_of_a_field_makes_a_reader_fail(tag: str, fields: dict[str, Any]) -> None:
    found = events.decode(json.dumps({"type": tag, **fields}).encode())
    assert found is not None or tag == "agent"
    if found is not None:
        assert events.decode(encode(found)) == found


CUT = st.sampled_from(EXAMPLES).flatmap(lambda line: st.integers(0, len(line)).map(lambda end: line[:end] + b"}"))


@settings(max_examples=examples(300), deadline=None)
@given(st.binary(max_size=200) | CUT)
def test_no_bytes_make_a_reader_fail(line: bytes) -> None:
    events.decode(line)
