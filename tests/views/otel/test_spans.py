"""The spans and metrics of a run, as pure functions of its events, checked with the real SDK of OpenTelemetry."""

from __future__ import annotations

import json
import time
import warnings
from typing import Any

import pytest
from google.protobuf import json_format
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1 import trace_pb2
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from project import REPOSITORY
from views.run_events import at, encoded, ended, gate, iteration, said, started, story

from ralphtool.record import events, trace_ids
from ralphtool.views.otel import otlp
from ralphtool.views.otel.metrics import build_metrics
from ralphtool.views.otel.model import Span
from ralphtool.views.otel.spans import SpanBuilder, build_spans

RUN = "add-login-20260301-120000-1a2b"
EXAMPLES = (REPOSITORY / "docs/events.jsonl").read_bytes().splitlines()


def verdict(id: str, status: str, seconds: int, **more: Any) -> dict[str, Any]:
    return {"at": at(seconds), "type": "verdict", "story": id, "status": status, **more}


NIGHT = (
    started(story("1", "Set up")),
    {"at": at(1), "type": "setup", "command": "npm ci", "ok": True, "exit_code": 0, "seconds": 1.0},
    iteration("1", begun=10, iteration=1, directory="somewhere"),
    {"at": at(12), "type": "gate_started", "when": "before", "command": "pytest", "iteration": 1},
    gate("pytest", True, "before", iteration=1) | {"at": at(20)},
    said("message", 25, text="SECRET words") | {"iteration": 1},
    said("tool", 30, name="Edit", detail="SECRET path") | {"iteration": 1},
    said("result", 31, text="SECRET result", ok=False) | {"iteration": 1},
    said("tool", 40, name="Bash", detail="SECRET command") | {"iteration": 1},
    said("usage", 50, input_tokens=100, output_tokens=10, cached_tokens=60, model="claude-opus-4") | {"iteration": 1},
    said("usage", 55, input_tokens=50, output_tokens=5, cost=0.5, model="claude-opus-4") | {"iteration": 1},
    said("end", 60, ok=True, message="SECRET end") | {"iteration": 1},
    {"at": at(61), "type": "queued", "story": "1", "iteration": 1, "waiting": 1},
    {"at": at(62), "type": "merging", "story": "1", "iteration": 1, "upon": "abc", "others": []},
    {"at": at(63), "type": "gate_started", "when": "after", "command": "pytest", "iteration": 1},
    gate("pytest", False, iteration=1, failed=["SECRET test"], tally="SECRET tally") | {"at": at(70)},
    {"at": at(71), "type": "merged", "story": "1", "iteration": 1, "commit": "def"},
    verdict("1", "failed", 72, iteration=1, summary="SECRET summary", cost=0.5, tasks_done=1, tasks_total=2),
    {"at": at(72), "type": "decision", "story": "1", "action": "retry", "reason": "SECRET", "iteration": 1},
    {"at": at(80), "type": "waiting", "seconds": 20.0, "until": at(100), "why": "SECRET limit"},
    iteration("1", attempt=2, begun=100, iteration=2),
    said("end", 110, ok=True) | {"iteration": 2},
    verdict("1", "completed", 120, iteration=2, cost=0.0),
    {"at": at(120), "type": "decision", "story": "1", "action": "next", "iteration": 2},
    {"at": at(121), "type": "checkpoint", "story": "1", "commit": "fff", "proof": "proven", "iteration": 2},
    {"at": at(121), "type": "proof", "story": "1", "receipt": {"state": "proven"}, "iteration": 2},
    gate("pytest", True, "tip") | {"at": at(130)},
    ended(result="done"),
)


def decode(*told: dict[str, Any]) -> list[events.Event]:
    return [event for one in told if (event := events.decode(encoded(one)))]


def parse(spans: list[Span]) -> list[trace_pb2.Span]:
    """ralphtool's JSON as the real protocol reads it; an unknown field is an error."""
    request = json_format.Parse(otlp.encode_spans(RUN, spans), ExportTraceServiceRequest())
    [resource] = request.resource_spans
    names = {one.key: one.value.string_value for one in resource.resource.attributes}
    assert (names["service.name"], names["service.instance.id"]) == ("ralphtool", RUN)
    return list(resource.scope_spans[0].spans)


def find(spans: list[Span], name: str, nth: int = 0) -> Span:
    return [span for span in spans if span.name == name][nth]


def check(spans: list[Span]) -> None:
    """Checks the spans of any record. Ids are bytes in the protocol, and base64 in the JSON of others."""
    read = json.loads(otlp.encode_spans(RUN, spans))["resourceSpans"][0]["scopeSpans"][0]["spans"]
    assert len({one["spanId"] for one in read}) == len(read) == len(parse(spans))
    known = {one["spanId"] for one in read}
    assert [one for one in read if one.get("parentSpanId") and one["parentSpanId"] not in known] == []
    assert {one["traceId"] for one in read} <= {trace_ids.build_trace_id(RUN)}
    assert all(int(one["startTimeUnixNano"]) <= int(one["endTimeUnixNano"]) for one in read)
    assert all(len(one["traceId"]) == 32 and len(one["spanId"]) == 16 for one in read)


def test_the_tree_is_run_story_agent_tool() -> None:
    spans = build_spans(decode(*NIGHT), RUN)
    check(spans)
    by_id = {span.span_id: span for span in spans}
    tree = {(by_id[span.parent_id].name if span.parent_id else "", span.name) for span in spans}
    run, agent = "invoke_workflow add-login", "invoke_agent claude"
    below_story = ("gate before", agent, "wait for merge", "merge", "gate after")
    assert tree == {
        *(("", run), (run, "setup"), (run, "story 1"), (run, "wait"), (run, "gate tip")),
        *(("story 1", name) for name in below_story),
        *((agent, f"execute_tool {name}") for name in ("Edit", "Bash")),
    }


def test_times_are_those_of_the_record() -> None:
    spans = build_spans(decode(*NIGHT), RUN)
    noon = 1772366400
    names = ("story 1", "invoke_agent claude", "execute_tool Edit", "execute_tool Bash", "merge", "wait", "setup")
    found = [find(spans, name) for name in names]
    assert [((one.start / 1e9) - noon, (one.end / 1e9) - noon) for one in found] == [
        *((10, 72), (20, 60), (30, 31), (40, 60), (62, 71), (80, 100), (0, 1))
    ]
    assert (find(spans, "gate after").end - find(spans, "gate after").start) == 7 * 10**9


def test_attributes_follow_the_conventions() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they are moving to a separate package
        from opentelemetry.semconv._incubating.attributes import gen_ai_attributes as names

    spans = build_spans(decode(*NIGHT), RUN)
    agent, tool = find(spans, "invoke_agent claude").attributes, find(spans, "execute_tool Edit").attributes
    assert agent[names.GEN_AI_OPERATION_NAME] == names.GenAiOperationNameValues.INVOKE_AGENT.value
    assert agent[names.GEN_AI_PROVIDER_NAME] == names.GenAiProviderNameValues.ANTHROPIC.value
    assert agent[names.GEN_AI_AGENT_NAME] == "claude"
    assert agent[names.GEN_AI_REQUEST_MODEL] == "claude-opus-4"
    assert (agent[names.GEN_AI_USAGE_INPUT_TOKENS], agent[names.GEN_AI_USAGE_OUTPUT_TOKENS]) == (150, 15)
    assert agent[names.GEN_AI_USAGE_CACHE_READ_INPUT_TOKENS] == 60
    assert tool[names.GEN_AI_OPERATION_NAME] == names.GenAiOperationNameValues.EXECUTE_TOOL.value
    assert tool[names.GEN_AI_TOOL_NAME] == "Edit"
    known = {value for name, value in vars(names).items() if name.startswith("GEN_AI_")}
    content = build_spans(decode(*NIGHT), RUN, read=lambda path: "the prompt")
    used = {key for span in [*spans, *content] for key in span.attributes if key.startswith("gen_ai.")}
    assert used <= known


def test_ours_are_about_stories() -> None:
    spans = build_spans(decode(*NIGHT), RUN)
    first, second = find(spans, "story 1").attributes, find(spans, "story 1", 1).attributes
    assert (first["ralphtool.attempt"], first["ralphtool.verdict"], first["ralphtool.decision"]) == (
        1,
        "failed",
        "retry",
    )
    assert first["ralphtool.cost"] == 0.5
    assert (second["ralphtool.verdict"], second["ralphtool.proof"]) == ("completed", "proven")
    assert find(spans, "invoke_workflow add-login").attributes["ralphtool.result"] == "done"


def test_what_failed_is_an_error() -> None:
    read = parse(build_spans(decode(*NIGHT), RUN))
    failed = [one.name for one in read if one.status.code == trace_pb2.Status.STATUS_CODE_ERROR]
    assert failed == ["execute_tool Edit", "gate after", "story 1"]


def test_tests_that_have_to_fail_are_no_error() -> None:
    wanted = [gate("pytest", False, when) for when in ("own-tests", "blind")]
    spans = build_spans(decode(NIGHT[0], iteration("1"), *wanted), RUN, is_over=False)
    assert [(span.name, span.error) for span in spans] == [("gate own-tests", None), ("gate blind", None)]


def test_content_is_only_there_if_it_is_wanted() -> None:
    without = otlp.encode_spans(RUN, build_spans(decode(*NIGHT), RUN))
    assert b"SECRET" not in without
    told = otlp.encode_spans(RUN, build_spans(decode(*NIGHT), RUN, read=lambda path: f"PROMPT of {path}"))
    for word in (b"words", b"path", b"result", b"command", b"end", b"test", b"tally", b"summary", b"limit"):
        assert b"SECRET " + word in told
    assert b"PROMPT of somewhere/prompt.md" in told
    agent = find(build_spans(decode(*NIGHT), RUN, read=lambda path: "PROMPT"), "invoke_agent claude").attributes
    assert json.loads(str(agent["gen_ai.output.messages"]))[0]["parts"][-1]["content"] == "SECRET end"


def test_metrics_are_those_of_the_conventions() -> None:
    metrics = build_metrics(build_spans(decode(*NIGHT), RUN))
    request = json_format.Parse(otlp.encode_metrics(RUN, metrics), ExportMetricsServiceRequest())
    read = {one.name: one for one in request.resource_metrics[0].scope_metrics[0].metrics}
    tokens = {
        next(one.value.string_value for one in point.attributes if one.key == "gen_ai.token.type"): point
        for point in read["gen_ai.client.token.usage"].histogram.data_points
    }
    assert (tokens["input"].sum, tokens["output"].sum) == (150, 15)
    for point in [*tokens.values(), *read["gen_ai.client.operation.duration"].histogram.data_points]:
        assert len(point.bucket_counts) == len(point.explicit_bounds) + 1
        assert sum(point.bucket_counts) == point.count
    seconds = read["gen_ai.client.operation.duration"].histogram.data_points
    assert sorted(point.sum for point in seconds) == [10, 40]
    assert read["ralphtool.cost"].sum.data_points[0].as_double == 0.5
    assert sum(point.as_double for point in read["ralphtool.attempts"].sum.data_points) == 2


# --- ids --------------------------------------------------------------------------------------------


def test_the_same_record_gives_the_same_bytes() -> None:
    once, twice = (build_spans(decode(*NIGHT), RUN) for _ in range(2))
    assert otlp.encode_spans(RUN, once) == otlp.encode_spans(RUN, twice)
    assert otlp.encode_metrics(RUN, build_metrics(once)) == otlp.encode_metrics(RUN, build_metrics(twice))


def test_what_is_seen_of_a_run_under_way_stays_as_it_is() -> None:
    whole = build_spans(decode(*NIGHT), RUN)
    for length in range(len(NIGHT)):
        seen = build_spans(decode(*NIGHT[:length]), RUN, is_over=False)
        assert seen == whole[: len(seen)]


def test_a_record_that_begins_anew_gives_the_same() -> None:
    builder, told = SpanBuilder(RUN), decode(*NIGHT)
    for event in told[:10]:
        builder.feed(event)
    assert [span for event in told for span in builder.feed(event)] == build_spans(told, RUN)


def test_spans_of_an_agent_hang_below_its_own() -> None:
    told = trace_ids.build_traceparent(RUN, 1)
    context = TraceContextTextMapPropagator().extract({"traceparent": told})
    child: Any = TracerProvider().get_tracer("an agent").start_span("its work", context)
    agent = find(build_spans(decode(*NIGHT), RUN), "invoke_agent claude")
    assert f"{child.context.trace_id:032x}" == agent.trace_id
    assert f"{child.parent.span_id:016x}" == agent.span_id
    assert child.context.trace_flags.sampled


def test_an_agent_that_checks_a_blocker_has_a_span_of_its_own() -> None:
    spans = build_spans(decode(*NIGHT[:12], said("end", 65, ok=True) | {"iteration": 1}), RUN)
    _, check_span = (span for span in spans if span.name == "invoke_agent claude")
    assert trace_ids.build_traceparent(RUN, 1, 1) == f"00-{check_span.trace_id}-{check_span.span_id}-01"


# --- records of all kinds ---------------------------------------------------------------------------


def test_a_run_that_died_ends_with_its_last_event() -> None:
    spans = build_spans(decode(*NIGHT[:9]), RUN)
    check(spans)
    assert {span.end for span in spans if span.name.startswith(("story", "invoke", "execute_tool Bash"))} == {
        find(spans, "execute_tool Bash").start
    }
    assert find(spans, "invoke_workflow add-login").attributes["error.type"] == "died"


def test_the_examples_of_the_docs() -> None:
    told = [event for line in EXAMPLES if (event := events.decode(line))]
    spans = build_spans(told)
    assert {span.trace_id for span in spans} == {trace_ids.build_trace_id("20260301-220000-7f3a")}
    parse(spans)


def test_an_old_record_does_not_say_which_iteration() -> None:
    old = [{key: value for key, value in one.items() if key != "iteration"} for one in NIGHT]
    old = [one for one in old if one["type"] not in ("gate_started", "queued", "merging", "merged", "proof")]
    spans = build_spans(decode(*old), RUN)
    check(spans)
    names = [span.name for span in spans if span.parent_id == find(spans, "story 1").span_id]
    assert names == ["gate before", "invoke_agent claude", "gate after"]


def test_unknown_events_and_times_are_left_out() -> None:
    strange = [{"at": at(5), "type": "of-the-future"}, said("of-the-future"), {"type": "notice", "at": "yesterday"}]
    told = [one for known in NIGHT for one in (known, *strange)]
    assert [span.span_id for span in build_spans(decode(*told), RUN)] == [
        span.span_id for span in build_spans(decode(*NIGHT), RUN)
    ]


def ascii_start(text: str) -> str:
    return ascii(text[:9])


@pytest.mark.parametrize("text", ["\x1b[2J", "\ud800", "\x00", "\u202e", "x" * 100_000, '"}]', ""], ids=ascii_start)
def test_hostile_texts_stay_texts(text: str) -> None:
    hostile = (
        started(story(text, text)) | {"change": text, "agent": text},
        iteration(text, iteration=1, agent=text, directory=text),
        said("tool", 5, name=text, detail=text) | {"iteration": 1},
        said("usage", 5, model=text) | {"iteration": 1},
        gate(text, False, text, iteration=1, failed=[text], log=text),
        verdict(text, text, 9, iteration=1, summary=text),
        ended(result=text, reason=text),
    )
    for read in (None, lambda path: text):
        spans = build_spans(decode(*hostile), RUN, read=read)
        check(spans)
        written = otlp.encode_spans(RUN, spans).decode()
        assert written.isprintable()
        assert len(written) < 500_000


PLAIN = st.fixed_dictionaries(
    {}, optional={"iteration": st.integers(0, 3), "at": st.sampled_from([at(n) for n in range(9)])}
)


@given(st.lists(st.tuples(st.sampled_from(NIGHT + tuple(map(json.loads, EXAMPLES))), PLAIN), max_size=40))
def test_any_order_of_events_gives_a_tree(told: list[tuple[dict[str, Any], dict[str, Any]]]) -> None:
    spans = build_spans(decode(*({**one, **more} for one, more in told)), RUN)
    last = max((number for number, (one, _) in enumerate(told) if one["type"] == "run_started"), default=0)
    check(build_spans(decode(*({**one, **more} for one, more in told[last:])), RUN))
    assert len(spans) <= 3 * len(told) + 1


def test_a_long_record_takes_time_in_proportion() -> None:
    def measure(count: int) -> float:
        tools = [said("tool", 30, name="Edit") | {"iteration": 1}] * count
        told = decode(*NIGHT[:3], *tools, *NIGHT[11:])
        began = time.process_time()
        otlp.encode_spans(RUN, build_spans(told, RUN))
        return time.process_time() - began

    measure(1000)
    assert measure(40_000) < 30 * measure(4_000)


@pytest.mark.parametrize("is_sent_back", [False, True])
def test_what_an_attempt_cost_that_was_not_judged_is_counted(is_sent_back: bool) -> None:
    spent = [said("usage", 20 + step, input_tokens=1, cost=0.25) | {"iteration": 1} for step in (0, 1)]
    back = [{**spent[0], "type": "sent_back", "story": "1", "why": "conflict"}] if is_sent_back else []
    night = (started(story("1", "Set up")), iteration("1", begun=10, iteration=1), *spent, *back)
    told = {metric.name: metric for metric in build_metrics(build_spans(decode(*night), RUN))}
    assert [point.sum for point in told["ralphtool.cost"].points] == [0.5]
    assert ("ralphtool.attempts" in told) == is_sent_back
