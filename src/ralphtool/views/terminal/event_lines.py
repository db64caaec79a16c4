"""Each event of a run as a line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ralphtool import agents, workspace
from ralphtool.core.amounts import format_duration, pluralize
from ralphtool.record.events import (
    Agent,
    Answered,
    BlockerChecked,
    Checkpoint,
    Decision,
    Denied,
    Gate,
    HandedOver,
    IterationStarted,
    Merging,
    Notice,
    Paused,
    PlanEdited,
    Proof,
    Question,
    Queued,
    Reopened,
    RunEnded,
    RunStarted,
    SentBack,
    Setup,
    Steered,
    Verdict,
    Waiting,
    WorkerJoined,
    WorkspaceChosen,
)
from ralphtool.views import look
from ralphtool.views.receipts import describe_receipt, describe_weaker
from ralphtool.views.terminal.phrases import (
    ACTIONS,
    LONGEST_WORKER,
    choose_mark,
    describe_denial,
    describe_gate_time,
    describe_return,
    flatten,
    flatten_first,
    format_attempt,
    is_expected,
    make_copyable,
    render_attempt_mark,
    render_mark,
    shorten_middle,
)
from ralphtool.views.terminal.styled import assemble
from ralphtool.views.terminal.summary import describe_run_end

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ralphtool.record.events import AgentEvent, Event
    from ralphtool.views.terminal.styled import StyledLine

_LAST = 2000  # characters of output that are searched for its last line


def render_agent_event(said: AgentEvent) -> StyledLine:
    match said:
        case agents.Tool():
            return assemble((flatten(said.name, 40), "cyan"), " ", flatten(said.detail))
        case agents.End():
            return assemble(("the agent has ended", "dim"))
        case agents.Failure():
            return assemble((f"{flatten(said.trouble, 40)}: {flatten(said.text)}", "red"))
        case agents.Output():
            *_, last = said.text[-_LAST:].strip().splitlines() or [""]
            return assemble((flatten(last), "dim"))
        case agents.Message() | agents.Result():
            return assemble(flatten(said.text))
    return assemble()


def format_gate_result(gate: Gate) -> str:
    """The result of a gate, to follow its command."""
    found = ", ".join(list_gate_results(gate, flatten(gate.tally or "", 80)))
    return f": {found}" if found else ""


def list_gate_results(gate: Gate, tally: str) -> Iterator[str]:
    """The result of a gate, in parts."""
    if tally:
        yield tally
    if gate.why:
        yield "stopped"
    if gate.new:
        yield f"{len(gate.new)} newly red"
    elif not gate.ok and gate.when == "after" and gate.failed:
        yield "nothing newly red"
    elif not gate.ok and not tally and not gate.why:
        yield f"exit code {'?' if gate.exit_code is None else gate.exit_code}"


def name_change(event: RunStarted, longest: int = 100) -> str:
    """The title of the change, with the name that commands take."""
    title, name = flatten(event.title, longest), flatten(event.change, longest)
    return f"{title} ({name})" if title else name


def _describe_start(event: RunStarted, name: str) -> StyledLine:
    done = sum(one.done for one in event.stories)
    if event.purpose == "plan":
        return assemble((f"{flatten(event.change, 100)}: drafted by {flatten(event.agent, 60)}", "bold"))
    parts = [f"{pluralize(len(event.stories), 'story', 'stories')}, {done} done", flatten(event.agent, 60)]
    parts += [f"branch {branch}"] if (branch := shorten_middle(flatten(event.branch or "", 200), 60)) else []
    return assemble((f"{name_change(event)}: {', '.join(filter(None, parts))}", "bold"))


def _describe_workspace(event: WorkspaceChosen, name: str) -> StyledLine | None:
    told = workspace.describe(event.kind)
    return assemble((told, "yellow" if event.kind == "here" else "dim")) if told else None


def _describe_iteration(event: IterationStarted, name: str) -> StyledLine:
    parts = [format_attempt(event.attempt, event.attempts), flatten(event.agent, 60)]
    parts += [f"task {task}"] if (task := flatten(event.task or "", 20)) else []
    return assemble((f"{name}: {', '.join(filter(None, parts))}", "bold"))


def _describe_setup(event: Setup, name: str) -> StyledLine:
    took = format_duration(event.seconds)
    if event.ok:
        return assemble(f"setup passed: {flatten(event.command)} ({took})")
    code = "?" if event.exit_code is None else event.exit_code
    told = f"setup failed: {flatten(event.command)} (exit code {code}, {took})"
    return assemble((f"{told} {make_copyable(event.log)}".rstrip(), "red"))


def _describe_gate(event: Gate, name: str) -> StyledLine:
    new = flatten_first(event.new)
    is_fine = is_expected(event.when, event.ok) and not event.why
    result = "passed" if event.ok else "did not end" if event.why else "failed"
    words = [f"gate {result}", describe_gate_time(event.when)]
    when = " ".join(filter(None, words)) + (", as it should" if is_fine and not event.ok else "")
    told = f"{when}: {flatten(event.command)}{format_gate_result(event)} ({format_duration(event.seconds)})"
    if new:
        told += f" {flatten(', '.join(new))}"
    style = "" if is_fine else "red" if new else "yellow"
    return assemble((told if event.ok or is_fine else f"{told} {make_copyable(event.log)}".rstrip(), style))


def _describe_agent(event: Agent, name: str) -> StyledLine | None:
    return assemble("agent: ", render_agent_event(event.event)) if isinstance(event.event, agents.Failure) else None


def _describe_verdict(event: Verdict, name: str) -> StyledLine | None:
    if event.status == "interrupted":
        return None  # the end of the run or a steering command says so
    about = [f"attempt {event.attempt}"] if event.attempt else []
    if event.tasks_total:
        about.append(f"{event.tasks_done}/{event.tasks_total} tasks")
    about.append(format_duration(event.seconds.agent + event.seconds.gates))
    reasons = [] if event.status == "completed" else flatten_first(event.reasons)
    why = flatten("; ".join(reasons) or event.summary)
    sign = render_attempt_mark(event.status)
    word = (flatten(event.status, 20), sign[1])
    return assemble(sign, f" {name}: ", word, f" ({', '.join(about)})", f": {why}" if why else "")


def _describe_decision(event: Decision, name: str) -> StyledLine | None:
    if event.action in ("next", "stop"):
        return None  # the start of the next story says so, or the end of the run
    action = ACTIONS.get(event.action, flatten(event.action, 20))
    return assemble(f"{name}: {action}{_format_reason(event.reason)}")


def _format_reason(text: str) -> str:
    """A reason with its colon; empty if there is none."""
    text = flatten(text)
    return f": {text}" if text else ""


def _describe_checkpoint(event: Checkpoint, name: str) -> StyledLine:
    return assemble(("checkpoint ", "dim"), flatten(event.commit or "", 100)[:10], " ", flatten(event.subject))


def _describe_worker(event: WorkerJoined, name: str) -> StyledLine | None:
    worker, about = flatten(event.worker, LONGEST_WORKER), name if event.story else "the last check"
    return assemble((f"{about}: on worker {worker}", "dim")) if worker else None


def _describe_queued(event: Queued, name: str) -> StyledLine | None:
    return assemble((f"{name} {look.PHASES['waiting']}", "dim")) if event.waiting else None


def _describe_merging(event: Merging, name: str) -> StyledLine | None:
    others = flatten(", ".join(event.others))
    return assemble((f"{name} is {look.PHASES['merging']} together with story {others}", "dim")) if others else None


def _describe_return(event: SentBack, name: str) -> StyledLine:
    return assemble((f"{name} is sent back to its agent: {describe_return(event)}", "yellow"))


def _describe_proof(event: Proof, name: str) -> StyledLine:
    sign = render_mark(choose_mark("done", event.receipt.state))
    style = "yellow" if event.receipt.state == "unproven" else "green"
    weaker = describe_weaker(event.receipt)
    return assemble(sign, f" {name}: ", (describe_receipt(event.receipt), style), f"; {weaker}" if weaker else "")


def _describe_reopening(event: Reopened, name: str) -> StyledLine:
    return assemble((f"{name} is open again, its work is reverted{_format_reason(event.why)}", "yellow"))


def _describe_plan_edit(event: PlanEdited, name: str) -> StyledLine:
    return assemble((flatten(event.text), "yellow"))


def _describe_question(event: Question, name: str) -> StyledLine:
    missing = flatten(event.missing)
    told = f"{name} needs your answer: {make_copyable(event.path)}{f' ({missing})' if missing else ''}"
    return assemble(render_mark("waiting"), " ", (told, "yellow"))


def _describe_notice(event: Notice, name: str) -> StyledLine:
    return assemble((flatten(event.text), "yellow"))


def _describe_denied(event: Denied, name: str) -> StyledLine:
    return assemble((describe_denial(flatten(event.host, 100), event.port, flatten(event.allow)), "yellow"))


def _describe_wait(event: Waiting, name: str) -> StyledLine:
    return assemble(f"waiting {format_duration(event.seconds)}: {flatten(event.why)}")


def _describe_hand_over(event: HandedOver, name: str) -> StyledLine:
    names = f"{flatten(event.from_, 40)} hands over to {flatten(event.to, 40)}"
    return assemble((f"{names}: {flatten(event.why)}", "yellow"))


def _describe_blocker_check(event: BlockerChecked, name: str) -> StyledLine:
    return assemble(f"{name}: the blocker was checked: {flatten(event.found)}")


def _describe_steering(event: Steered, name: str) -> StyledLine:
    """A steering command."""
    about = name if event.story else ""
    done = {
        "pause": "you asked for a pause",
        "resume": "you resumed it",
        "stop": "you asked it to stop",
        "stop-after": "you asked it to stop after this iteration",
        "forget": f"you withdrew your guidance{f' for {about}' if about else ''}",
        "guide": f"your guidance for {about}" if about else "your guidance",
        "retry": f"you gave {about or 'a story'} fresh attempts",
        "skip": f"you skipped {about or 'a story'}",
        "accept": f"you accepted {about or 'a story'}",
        "reject": f"you rejected {about or 'a story'}",
    }.get(event.action, f"your command: {flatten(event.action, 20)}")
    return assemble((f"{done}{_format_reason(event.text)}", "cyan"))


def _describe_pause(event: Paused, name: str) -> StyledLine:
    return assemble((f"paused{_format_reason(event.why)}", "yellow"))


def _describe_answer(event: Answered, name: str) -> StyledLine:
    return assemble((f"{name}: you answered: {flatten(event.text)}", "cyan"))


def _describe_run_ended(event: RunEnded, name: str) -> StyledLine:
    return assemble((describe_run_end(event), "bold"))


def describe_event(event: Event, name: str) -> StyledLine | None:
    """The event as one line; `name` is the story's. None if the event is not worth a line."""
    tell = _DESCRIBE_BY_TYPE.get(type(event))
    return tell(event, name) if tell else None


_DESCRIBE_BY_TYPE: dict[type, Callable[[Any, str], StyledLine | None]] = {
    RunStarted: _describe_start,
    WorkspaceChosen: _describe_workspace,
    IterationStarted: _describe_iteration,
    Setup: _describe_setup,
    Gate: _describe_gate,
    Agent: _describe_agent,
    Verdict: _describe_verdict,
    Decision: _describe_decision,
    Checkpoint: _describe_checkpoint,
    WorkerJoined: _describe_worker,
    Queued: _describe_queued,
    Merging: _describe_merging,
    SentBack: _describe_return,
    Proof: _describe_proof,
    Reopened: _describe_reopening,
    PlanEdited: _describe_plan_edit,
    Question: _describe_question,
    Notice: _describe_notice,
    Denied: _describe_denied,
    HandedOver: _describe_hand_over,
    BlockerChecked: _describe_blocker_check,
    Waiting: _describe_wait,
    Steered: _describe_steering,
    Paused: _describe_pause,
    Answered: _describe_answer,
    RunEnded: _describe_run_ended,
}
