"""How an iteration ended. Evidence goes in, a verdict comes out. Nothing is read, run or written here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol

from msgspec import Struct

from ralphtool.agents import TRANSIENT, End, Failure
from ralphtool.judging.gates import RedGate
from ralphtool.judging.guard.model import HAS_MARKERS, GuardFinding
from ralphtool.judging.guarded_tests import GuardedTests
from ralphtool.judging.proof import ProofResult
from ralphtool.judging.proof_words import RUN_AND_KEEP, describe_proof
from ralphtool.judging.receipt import Receipt

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

VerdictStatus = Literal["completed", "failed", "blocked", "partial", "interrupted", "transient"]
Ending = Literal[
    "exit",
    "wall-clock",
    "silence",
    "stopped",
    "too-much",
    "no-room",
    "supervisor-lost",
    "not-started",
    "budget",
    "retrying",
]
_SHOWN = 5


class Claim(Struct, frozen=True):
    """The promise in an agent's final message, with the token of its iteration."""

    complete: bool = False
    blocked: str | None = None


class Evidence(Struct, frozen=True, kw_only=True):
    """Everything known about an iteration after its agent has ended and the gates have run."""

    ending: Ending
    end: End
    claim: Claim
    failure: Failure | None = None  # the last error that the agent reported
    task: str | None = None  # of a chunk
    tasks: tuple[str, ...]  # of the story, in order
    ticked_before: frozenset[str]
    ticked: frozenset[str]
    red: tuple[RedGate, ...] = ()
    gates_ran: bool = False
    still_red: tuple[str, ...] = ()  # commands that were red before and still are
    findings: tuple[GuardFinding, ...] = ()
    is_guarded: bool = True  # findings prevent a story from being done
    blockers: tuple[str, ...] = ()  # observed by the agent
    trouble: str = ""  # why the state of the tree could not be recorded
    full_disk: str = ""  # a folder whose disk was full at the end
    retry_at: float | None = None  # when to check a full disk again
    exit_detail: str = ""
    proof: ProofResult | None = None  # of a story that claims to be complete


class Verdict(Struct, frozen=True, kw_only=True):
    """How an iteration ended, in one value."""

    status: VerdictStatus
    summary: str
    reasons: tuple[str, ...] = ()
    ticked: tuple[str, ...] = ()
    blocker: str | None = None
    too_big: bool = False  # the time or the agent's context ran out
    is_broken: bool = False  # the tree or the environment is not fit to work in
    is_dishonest: bool = False
    retry_at: float | None = None
    receipt: Receipt | None = None  # if completed
    to_guard: GuardedTests | None = None  # likewise: tests that it changed
    lost: tuple[str, ...] = ()  # tests whose old versions fail on the new code
    asks: str = ""  # what a person must check although it is done
    question: str = ""  # the agent's question, in its own words


def parse_claim(message: str, token: str) -> Claim:
    """Reads only the last line that is not empty. Anything before it may be talk, an echo or a quotation."""
    line = message.rstrip().rpartition("\n")[2].strip()
    if line == f"<promise>COMPLETE:{token}</promise>":
        return Claim(complete=True)
    start = f"<promise>BLOCKED:{token}:"
    if line.startswith(start) and line.endswith("</promise>"):
        return Claim(blocked=line[len(start) : -len("</promise>")].strip() or "no reason was given")
    return Claim()


def judge(evidence: Evidence) -> Verdict:
    if evidence.ending == "stopped":
        return Verdict(status="interrupted", summary="interrupted")
    if transient := _build_transient(evidence):
        return transient
    new = tuple(task for task in evidence.tasks if task in evidence.ticked - evidence.ticked_before)
    against = _list_reasons(evidence)
    if not against:
        return _build_success(evidence, new)
    if evidence.full_disk and not evidence.findings:
        told = f"the disk of {evidence.full_disk} is full: free some space there; not counted as an attempt"
        return Verdict(status="transient", summary=told, retry_at=evidence.retry_at)
    blocker = evidence.claim.blocked or next(iter(evidence.blockers), None)
    lost = evidence.proof.lost if evidence.proof else ()
    question = blocker or _find_question(evidence)
    cheated = bool(lost) or (evidence.is_guarded and any(not one.is_warning for one in evidence.findings))
    common = {
        "lost": lost,
        "question": question,
        "reasons": tuple(against),
        "ticked": new,
        "too_big": evidence.ending == "wall-clock" or _has_run_out(evidence),
        "is_dishonest": cheated,
        "is_broken": bool(evidence.trouble) or evidence.ending in ("no-room", "not-started", "supervisor-lost"),
    }
    if blocker:
        return Verdict(status="blocked", summary=f"blocked: {_shorten_line(blocker)}", blocker=blocker, **common)  # type: ignore[arg-type]
    is_refuted = bool(evidence.proof and evidence.proof.against)
    # The next attempt has to keep what such a gate changes, so it begins with the work. A task alone is then not done.
    is_red = any(evidence.task or not one.is_repair for one in evidence.red)
    if new and not is_red and not cheated and not evidence.trouble and not is_refuted:
        done = f"{_format_count(len(new), 'task')} done"
        return Verdict(status="partial", summary=f"{done}, but {against[0]}", **common)  # type: ignore[arg-type]
    return Verdict(status="failed", summary="; ".join(against[:2]), **common)  # type: ignore[arg-type]


def _find_question(evidence: Evidence) -> str:
    """The question in the final message of an agent that ended by itself and made no promise."""
    from ralphtool.judging.agent_questions import find_question  # compiles its patterns

    has_ended = evidence.ending == "exit" and evidence.end.ok
    return find_question(evidence.end.message) if has_ended and evidence.claim == Claim() else ""


def _build_success(evidence: Evidence, new: tuple[str, ...]) -> Verdict:
    if evidence.task and not evidence.ticked.issuperset(evidence.tasks):
        return Verdict(
            status="partial", summary=f"task {evidence.task} is done, {_describe_gates(evidence)}", ticked=new
        )
    receipt, to_guard = (evidence.proof.receipt, evidence.proof.to_guard) if evidence.proof else (None, None)
    words = describe_proof(receipt.state, receipt.why) if receipt else _describe_gates(evidence)
    warned = f"; warned: {_describe_findings(evidence.findings)}" if evidence.findings else ""
    summary = f"every task is ticked, {words.removeprefix('done, ')}{warned}"
    asks = evidence.proof.asks if evidence.proof else ""
    return Verdict(status="completed", summary=summary, ticked=new, receipt=receipt, to_guard=to_guard, asks=asks)


def _describe_gates(evidence: Evidence) -> str:
    if not evidence.gates_ran:
        return "there is no gate"
    if not evidence.still_red:
        return "all gates are green"
    red = ", ".join(f"`{_shorten_line(one, 80)}`" for one in evidence.still_red)
    return f"no gate is newly red; still red as before: {red}"


class AgentExit(Protocol):
    """How an agent's program ended."""

    @property
    def ending(self) -> Ending: ...
    @property
    def end(self) -> End: ...
    @property
    def failure(self) -> Failure | None: ...


def is_transient(ended: AgentExit) -> bool:
    """A limit, an overload, the network, a login: not the agent's fault, and not counted as an attempt."""
    failure = ended.failure
    is_passing = failure is not None and failure.trouble in TRANSIENT
    return is_passing and not ended.end.ok and ended.ending in _BY_ITSELF


def _build_transient(evidence: Evidence) -> Verdict | None:
    failure = evidence.failure
    if failure is None or not is_transient(evidence):
        return None
    return Verdict(
        status="transient", summary=f"{failure.trouble}: {_shorten_line(failure.text)}", retry_at=failure.reset_at
    )


# The endings of an agent that could only retry. If its time ran out, that was because of the same trouble.
_BY_ITSELF = ("exit", "retrying", "silence", "wall-clock")


def _has_run_out(evidence: Evidence) -> bool:
    return evidence.failure is not None and evidence.failure.trouble == "context" and not evidence.end.ok


_ENDINGS: dict[str, str] = {
    "stopped": "the agent was stopped",
    "wall-clock": "the agent ran out of time and was stopped",
    "silence": "the agent printed nothing for too long and was stopped",
    "too-much": "the agent printed too much and was stopped",
    "no-room": "the disk was full and the agent was stopped",
    "supervisor-lost": "the agent's supervisor process was killed",
    "not-started": "the agent could not be started",
    "budget": "the budget was used up and the agent was stopped",
    "retrying": "the agent only retried, and was stopped",
}


def _list_reasons(evidence: Evidence) -> list[str]:
    """Every reason why it is not done, the most serious first."""
    against = []
    if evidence.trouble:
        against.append(f"the work can't be read: {_shorten_line(evidence.trouble)}")
    if evidence.is_guarded:
        against += _accuse([one for one in evidence.findings if not one.is_warning])
    against += [_describe_red_gate(one) for one in evidence.red]
    against += evidence.proof.against if evidence.proof else ()
    if bad_end := describe_bad_end(evidence, evidence.exit_detail):
        against.append(bad_end)
    against += _list_unfinished(evidence)
    return against


def describe_bad_end(ended: AgentExit, detail: str = "") -> str:
    """Why an agent did not end by itself, or failed; empty if it ended well."""
    if ended.ending != "exit":
        return _ENDINGS[ended.ending] + (f" ({_shorten_line(detail)})" if detail else "")
    if ended.end.ok:
        return ""
    return f"the agent failed: {_shorten_line(ended.end.reason) or 'it gave no reason'}"


def _list_unfinished(evidence: Evidence) -> list[str]:
    found = []
    if evidence.claim.blocked is not None:
        found.append(f"the agent reported a blocker: {_shorten_line(evidence.claim.blocked)}")
    wanted = [evidence.task] if evidence.task else list(evidence.tasks)
    if open_tasks := [task for task in wanted if task not in evidence.ticked]:
        found.append(f"{_format_count(len(open_tasks), 'task')} not ticked: {', '.join(open_tasks[:_SHOWN])}")
    if question := _find_question(evidence):
        found.append(f"the agent ended with a question: {_shorten_line(question)}")
    elif not evidence.claim.complete and evidence.claim.blocked is None:
        found.append("the final message does not end with the promise of this iteration")
    return found


def _describe_red_gate(red: RedGate) -> str:
    if red.is_repair:
        return f"`{_shorten_line(red.command, 80)}` did not test the work: {_shorten_line(red.why)}; {RUN_AND_KEEP}"
    if not red.tests:
        return f"`{_shorten_line(red.command, 80)}` is newly red{f': {_shorten_line(red.why)}' if red.why else ''}"
    more = f" and {len(red.tests) - _SHOWN} more" if len(red.tests) > _SHOWN else ""
    from ralphtool.judging.testresults.unloaded import describe_failure  # only a red gate needs it

    tests = ", ".join(_shorten_line(describe_failure(test)) for test in red.tests[:_SHOWN])
    return f"newly red: {tests}{more} (`{_shorten_line(red.command, 80)}`)"


def _accuse(found: Sequence[GuardFinding]) -> Iterator[str]:
    """A conflict that an agent did not resolve well is a mistake, not cheating."""
    rest = [one for one in found if one.kind not in ("conflict-marker", "merge-clobber")]
    if rest:
        yield f"the diff shows cheating: {_describe_findings(rest)}"
    marked = [one.path for one in found if one.detail == HAS_MARKERS]
    if marked:
        more = f" and {len(marked) - _SHOWN} more" if len(marked) > _SHOWN else ""
        yield f"conflict markers are left in {', '.join(marked[:_SHOWN])}{more}"
    if others := [one for one in found if one not in rest and one.detail != HAS_MARKERS]:
        yield f"conflicts were not resolved properly: {_describe_findings(others)}"


def _describe_findings(findings: Sequence[GuardFinding]) -> str:
    shown = [
        f"{one.kind} {one.path}{f' ({_shorten_line(one.detail)})' if one.detail else ''}" for one in findings[:_SHOWN]
    ]
    more = f" and {len(findings) - _SHOWN} more" if len(findings) > _SHOWN else ""
    return ", ".join(shown) + more


def _format_count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def _shorten_line(text: str, longest: int = 200) -> str:
    """Untrusted text as one short line."""
    line = " ".join(text.split())
    return line if len(line) <= longest else f"{line[: longest - 1]}…"
