"""Iterations on workers, from the loop's side: an order goes out, and a report comes back.

The lane of a loop keeps its own working tree, in which no program runs: the result of an order is put in place there,
so that merging, judging and keeping work as if the agent had worked here.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from itertools import count
from typing import TYPE_CHECKING, Any

from msgspec import MsgspecError, Struct, structs

from ralphtool import __version__
from ralphtool.agents import End, Failure
from ralphtool.core import layout, session
from ralphtool.errors import GitError, RemoteFailed, RemoteRefused, UnsafePath
from ralphtool.executors import Report, orders
from ralphtool.executors.orders import Offer, Order, Result
from ralphtool.executors.temporal.link import JobLimits
from ralphtool.executors.temporal.live import LiveRecord
from ralphtool.judging import gates
from ralphtool.record import events
from ralphtool.workspace.remote import hide_login, read_folder, write_files

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ralphtool.executors import Assignment
    from ralphtool.executors.orders import OrderKind
    from ralphtool.executors.temporal.link import JobState, Link, RemoteJob
    from ralphtool.judging.gates import Baseline, GateResult
    from ralphtool.record.log import Log
    from ralphtool.settings import Settings
    from ralphtool.workspace.box import Box
    from ralphtool.workspace.remote import Remote

_TICK = 0.3  # seconds between two looks at a job
_LONELY = 5.0  # seconds that a job waits before a notice says that no worker takes it
_GRACE = 60.0  # seconds that a worker has to hand in its work, once it was asked to end
_OWN_TURN = 10.0  # seconds that a worker has to begin an order that is only for it
_MOST_REFUSALS = 10  # of one order, by workers that can't do it, if no other worker is known
_PAUSE, _LONGEST_PAUSE = 1.0, 15.0  # seconds before an order is sent again
_MOST_PUSHES = 200  # of the same work, if the remote does not accept it: most of an hour
_MOST_LOSSES = 3  # of workers, in a row, at one story
_BESIDES = 4 * 3600.0  # seconds for setup and gates, besides an agent's own time
# Reasons why this worker can't do it, but another one may: nothing is wrong with the work.
_UNFIT = ("agent", "disk", "remote", "version", "workspace")
_MACHINE_FAULTS = (*_UNFIT, "avoid", "stopping", "lost", "ended", orders.UNSENT)
# The gates' results about the work. The loop itself knows the other fields of a report.
_PROVEN = ("results", "red", "gates_ran", "proof", "ahead", "gate_seconds", "ending")


class RemoteContext(Struct, frozen=True, kw_only=True):
    """What an executor needs to have work done on workers."""

    link: Link
    remote: Remote
    workspace: Box
    log: Log
    settings: Settings
    run: str
    change: str
    spec: str
    prd_ids: Sequence[str]
    folder: str  # of the run's records
    losses: Counter[str]  # of workers, by entry


class _Refused(Exception):
    """A worker could not do it. An unfit worker is not asked again; one that was away or stopped may be."""

    def __init__(self, worker: str, text: str, kind: str = "remote") -> None:
        super().__init__(text)
        self.worker = worker
        self.is_unfit = kind in _UNFIT
        self.is_unsent = kind == orders.UNSENT  # it has done the work, but the remote did not accept it


class TemporalExecutor:
    """Has one iteration after another done by any free worker."""

    def __init__(self, context: RemoteContext) -> None:
        self.context = context
        self._is_cut_off = False  # from the remote or the server: the order may be carried out anyway
        self._worker = ""  # the worker that did the work in place: it has the packages that its agent installed

    # --- the executor's interface -----------------------------------------------------------------

    def take_up(self, assignment: Assignment) -> Assignment:
        """A worker continues when its loop is killed: its work, finished or not, belongs to the sent assignment."""
        sent = self._find_sent(assignment)
        if sent is None:
            return assignment
        names = ("token", "prompt", "base", "kept", "cut_off", "agent", "attempt", "task", "fix")
        return structs.replace(assignment, **{name: getattr(sent.assignment, name) for name in names})

    def _find_sent(self, assignment: Assignment) -> Order | None:
        home = self.context.workspace.home
        commit = home.resolve(self._name_sent(assignment))
        if commit is None:
            return None
        try:
            return orders.decode_order(home.files_at(home.tree_of(commit), orders.ORDER_FILE)[orders.ORDER_FILE])
        except (MsgspecError, KeyError):  # from another version
            home.set_refs({self._name_sent(assignment): None})
            return None

    def _name_sent(self, assignment: Assignment) -> str:
        return f"{layout.SENT}{self.context.change}/{assignment.entry}"

    def work(self, assignment: Assignment, stop: Callable[[], bool]) -> Report:
        order = self._find_sent(assignment) or structs.replace(
            self._build_order("work", assignment), **self._read_session()
        )
        result = self._carry_out(order, stop, assignment)
        report = result if isinstance(result, Report) else self._take_work(assignment, result)
        if not self._is_cut_off:
            self.context.workspace.home.set_refs({self._name_sent(assignment): None})
        return report

    def _take_work(self, assignment: Assignment, result: Result) -> Report:
        """Puts the work in place, and keeps it: from here on no worker is needed for it."""
        self._take_session(result.session)
        self._worker = result.worker
        report, place = _clean(result, "the worker sent no report"), self.context.workspace
        if report.tree:
            place.show_upon(str(place.tip), report.tree)
            place.protect(report.tree, assignment.story, assignment.entry)
        return report

    def prove(self, report: Report, assignment: Assignment, stop: Callable[[], bool]) -> Report:
        return self._have_gates_run("prove", report, assignment, stop)

    def run_gates_ahead(self, report: Report, assignment: Assignment, stop: Callable[[], bool]) -> Report:
        return self._have_gates_run("gates-ahead", report, assignment, stop)

    def _have_gates_run(
        self, kind: OrderKind, report: Report, assignment: Assignment, stop: Callable[[], bool]
    ) -> Report:
        order = structs.replace(self._build_order(kind, assignment), report=report, work=self._commit(report))
        result = self._carry_out(order, stop)
        if isinstance(result, Report) or result.report is None or result.report.full_disk:
            return structs.replace(report, ending="stopped")  # no gate has a result: it is proven another time
        return structs.replace(report, **{name: getattr(result.report, name) for name in _PROVEN})

    def measure(self, assignment: Assignment, stop: Callable[[], bool]) -> tuple[Baseline | None, float]:
        """Without a baseline, newly red gates are unknown: so this retries until it is measured."""
        for turn in count():
            order = self._build_order("measure", assignment)
            result = self._carry_out(order, stop)
            if not isinstance(result, Report):
                key = gates.build_key(self.context.workspace.home.tree_of(order.upon), assignment.gates)
                is_right = result.baseline is None or result.baseline.key == key
                return (result.baseline, result.seconds) if is_right else (None, 0.0)
            if stop():
                break
            self._note(f"no worker could run the gates; retrying: {result.end.reason}", once=turn > 0)
            time.sleep(min(_PAUSE * 2 ** min(turn, 4), _LONGEST_PAUSE))
        return None, 0.0

    def _note(self, text: str, *, once: bool = False) -> None:
        if not once:
            self.context.log.note(events.Notice(text=text))

    def examine(self, assignment: Assignment, stop: Callable[[], bool]) -> Report:
        result = self._carry_out(self._build_order("examine", assignment), stop)
        return result if isinstance(result, Report) else _clean(result, "the worker sent no report")

    def check_tip(self, gates: Sequence[str], directory: str, stop: Callable[[], bool]) -> tuple[GateResult, ...]:
        order = self._build_order("tip", _build_tip_assignment(self.context.change, gates, directory))
        result = self._carry_out(order, stop)
        return () if isinstance(result, Report) else result.results

    # --- the order --------------------------------------------------------------------------------

    def _build_order(self, kind: OrderKind, assignment: Assignment) -> Order:
        place = self.context.workspace
        kept, cut_off = (place.home.resolve(ref) if ref else None for ref in (assignment.kept, assignment.cut_off))
        return Order(
            kind=kind,
            name=f"{self.context.run}/{assignment.number:03}-{kind}-{os.urandom(4).hex()}",
            run=self.context.run,
            assignment=structs.replace(assignment, kept=kept, cut_off=cut_off, run=self.context.run),
            settings=orders.strip_secrets(self.context.settings),
            spec=self.context.spec,
            prd_ids=tuple(self.context.prd_ids),
            upon=str(place.tip),
        )

    def _commit(self, report: Report) -> str | None:
        place = self.context.workspace
        return (
            place.repository.commit(report.tree, [str(place.tip)], "ralphtool: to be proven\n") if report.tree else None
        )

    def _read_session(self) -> dict[str, Any]:
        state = session.load(self.context.run)
        return {"iteration": state["iteration"], "completed": tuple(state["completed_tasks"])}

    def _take_session(self, theirs: dict[str, Any]) -> None:
        """Adds what the agent has recorded there to the session here."""
        if not theirs:
            return
        with session.LockedSession(self.context.run) as held:
            session.inherit(held.state, session.parse(session.encode(theirs), f"{theirs.get('session_id')}.json"))
            told = [id for id in theirs.get("recalled", ()) if isinstance(id, str)]
            held.state["recalled"] = [*held.state.get("recalled", ()), *told]
            held.save()

    def _send(self, order: Order, sent: str) -> str:
        """Pushes an order; returns its commit. `sent` is a ref by which the next run finds it."""
        home, one = self.context.workspace.repository, order.assignment
        tree = write_files(home, {orders.ORDER_FILE: orders.encode(order)})
        parents = dict.fromkeys(filter(None, (order.upon, order.work, one.kept, one.cut_off)))
        commit = home.commit(tree, list(parents), f"ralphtool: {order.kind} for {one.change}, story {one.story}\n")
        if sent:
            home.set_refs({sent: commit})
        return self._push(order, commit)

    def _push(self, order: Order, commit: str) -> str:
        if not self.context.remote.push_new(layout.ORDERS + order.name, commit):
            raise GitError(f"{layout.ORDERS}{order.name} already exists, and belongs to another run")
        return commit

    # --- carrying it out --------------------------------------------------------------------------

    def _carry_out(self, order: Order, stop: Callable[[], bool], working: Assignment | None = None) -> Result | Report:
        """The result of an order, or a report of the machine's failure. The latter does not count as an attempt.

        `working` is the iteration that needs the work: the next run finds the order by it.
        """
        self._is_cut_off = False
        sent = self._name_sent(working) if working else ""
        try:
            known = self.context.workspace.home.resolve(sent) if sent else None
            commit = self._push(order, known) if known else self._send(order, sent)
            return self._offer_until_done(order, commit, working or order.assignment, stop, is_again=bool(known))
        except RemoteRefused:
            raise
        except (GitError, RemoteFailed) as error:
            self._is_cut_off = True
            return _build_stopped() if stop() else _build_lost(str(error))

    def _offer_until_done(
        self, order: Order, commit: str, one: Assignment, stop: Callable[[], bool], *, is_again: bool
    ) -> Result | Report:
        """Offers the order to one worker after another, as long as one may be able to do it."""
        avoid: list[str] = []
        own, unsent = self._worker if order.kind in ("prove", "gates-ahead") else "", 0
        for turn in count():
            if stop():
                return _build_stopped()
            if turn >= _MOST_REFUSALS and not own and not self._knows_others(avoid):
                break
            offer = self._build_offer(order, turn, commit, avoid, is_again=is_again)
            try:
                return self._follow(order, offer, self._build_limits(order, own), one, stop)
            except _Refused as error:
                unsent += error.is_unsent
                own = error.worker if error.is_unsent else ""
                if unsent > _MOST_PUSHES:
                    return _build_refused(str(error))
                self._note_refusal(order, error, avoid, unsent)
                time.sleep(min(_PAUSE * 1.2**turn, _LONGEST_PAUSE))
        return _build_lost(f"no worker could do it; {', '.join(avoid)} refused")

    def _build_offer(self, order: Order, turn: int, commit: str, avoid: Sequence[str], *, is_again: bool) -> Offer:
        return Offer(
            version=__version__,
            id=f"{order.name}-{turn}",
            run=order.run,
            change=order.assignment.change,
            story=order.assignment.story,
            kind=order.kind,
            token=order.assignment.token,
            remote=hide_login(self.context.remote.url),
            order=layout.ORDERS + order.name,
            commit=commit,
            result=layout.RESULTS + order.name,
            avoid=tuple(avoid),
            is_again=is_again or turn > 0,
        )

    def _knows_others(self, avoid: Sequence[str]) -> bool:
        """Whether there is a worker that has not refused: it may be busy for as long as a story takes."""
        names = [one.identity for one in self.context.link.list_workers()]
        names += [one.worker for one in self.context.link.list_jobs() if one.worker]
        return any(name not in avoid for name in names)

    def _note_refusal(self, order: Order, error: _Refused, avoid: list[str], unsent: int) -> None:
        """Notes a refusal once per worker."""
        who = f"worker {error.worker} can't work on story {order.assignment.story}: {error}"
        if error.is_unsent:
            self._note(f"{who}; it keeps the story, and retries", once=unsent > 1)
        elif error.is_unfit and error.worker not in avoid:
            avoid.append(error.worker)
            self._note(f"{who}; trying another worker")

    def _follow(
        self, order: Order, offer: Offer, limits: JobLimits, one: Assignment, stop: Callable[[], bool]
    ) -> Result | Report:
        """Waits for the end of a job, and records its worker's events meanwhile."""
        job = self.context.link.start(offer.id, orders.encode(offer), limits, stop)
        live = LiveRecord(self.context.log, self.context.folder, one)
        state = self._wait(job, live, stop)
        if state.state == "done":
            return self._take(order, offer, job.result(), live)
        if stop() or state.state == "cancelled":
            return _build_stopped()
        if state.kind in _MACHINE_FAULTS or limits.worker:
            worker = limits.worker or state.worker
            raise _Refused(worker, state.failure or "it is gone", state.kind)
        return self._count_loss(order, state)

    def _count_loss(self, order: Order, state: JobState) -> Report:
        """If one machine after another is lost at a story, the story is most likely the reason: that is an attempt."""
        text = _describe_loss(state, self.context.settings.executor.queue)
        if state.kind == "schedule_to_start" or order.kind != "work":
            return _build_lost(text)
        self.context.losses[order.assignment.entry] += 1
        if self.context.losses[order.assignment.entry] < _MOST_LOSSES:
            return _build_lost(text)
        return _build_refused(f"{_MOST_LOSSES} times in a row {text}")

    def _build_limits(self, order: Order, own: str) -> JobLimits:
        """The worker that did the work proves it best: its agent's packages are there. Otherwise any worker may."""
        settings = self.context.settings
        limits = JobLimits(heartbeat=settings.executor.heartbeat)
        if settings.run.timeout and order.kind == "work":
            limits = structs.replace(limits, start_to_close=settings.run.timeout + _BESIDES)
        return structs.replace(limits, worker=own, schedule_to_start=_OWN_TURN, attempts=1) if own else limits

    def _wait(self, job: RemoteJob, live: LiveRecord, stop: Callable[[], bool]) -> JobState:
        began, asked, is_told = time.monotonic(), 0.0, False
        while (state := job.look()).state in ("waiting", "running", "unreachable"):
            live.take(state.heartbeat)
            now = time.monotonic()
            if stop() and not asked:
                asked = now
                job.cancel()
            if asked and (now - asked > _GRACE or state.state == "waiting"):
                self._is_cut_off = state.state != "waiting"  # the next run may find its work
                return structs.replace(state, state="cancelled")
            if state.state == "waiting" and not is_told and now - began > _LONELY:
                is_told = self._tell_lonely()
            job.wait(_TICK)
        return state

    def _tell_lonely(self) -> bool:
        queue = self.context.settings.executor.queue
        seen = self.context.link.list_workers()
        why = (
            "all workers are busy"
            if seen
            else f"no worker is connected: start one with `ralphtool worker --queue {queue}`"
        )
        self.context.log.note(events.Notice(text=f"waiting for a worker in the queue {queue}: {why}"))
        return True

    def _take(self, order: Order, offer: Offer, answer: bytes, live: LiveRecord) -> Result:
        """Fetches a worker's result. Only a result for exactly this order counts."""
        receipt = orders.decode_receipt(answer)
        commit = self.context.remote.fetch(offer.result)
        if commit is None or receipt.token != offer.token or receipt.commit != commit:
            raise _Refused(receipt.worker, "it pushed something other than what was requested")
        try:
            return self._read_result(order, commit, live)
        except (MsgspecError, KeyError, ValueError, UnsafePath) as error:
            raise _Refused(receipt.worker, f"what it pushed can't be used: {error}") from None

    def _read_result(self, order: Order, commit: str, live: LiveRecord) -> Result:
        home = self.context.workspace.home
        found = home.files_at(home.tree_of(commit), orders.RESULT_FILE, orders.EVENTS_FILE)
        result = orders.decode_result(found[orders.RESULT_FILE])
        if (result.token, result.order) != (order.assignment.token, order.name):
            raise ValueError("it answers a different order")
        tree = result.report.tree if result.report and order.kind == "work" else None
        if tree and tree != home.tree_of(f"{commit}^1"):
            raise ValueError("the work differs from the report")
        live.finish(result, found.get(orders.EVENTS_FILE, b""))
        self._take_records(commit, order.assignment)
        return orders.decode_result(live.use_own_paths(found[orders.RESULT_FILE]))

    def _take_records(self, commit: str, one: Assignment) -> None:
        """Takes only the records of the iteration: the loop itself writes everything else in the run's folder."""
        home, place = self.context.workspace.home, f"{commit}:{orders.RECORDS}/{one.folder}"
        tree = home.text("rev-parse", "--verify", "--quiet", place, check=False)
        if tree:
            read_folder(home, tree, os.path.join(self.context.folder, one.folder))


def _describe_loss(state: JobState, queue: str) -> str:
    if state.kind == "schedule_to_start":
        return f"no worker in the queue {queue} accepted it: start one with `ralphtool worker`"
    who = f"worker {state.worker}" if state.worker else "its worker"
    return f"{who} was lost ({state.failure or state.kind or state.state})"


def _build_lost(text: str) -> Report:
    """A machine's failure: not counted as an attempt, and retried after a while."""
    return Report(ending="exit", end=End(False, reason=text), failure=Failure("network", text, time.time() + _PAUSE))


def _build_refused(text: str) -> Report:
    """Counts as an attempt: otherwise it would be retried forever."""
    return Report(ending="exit", end=End(False, reason=text), trouble=text)


def _clean(result: Result, otherwise: str) -> Report:
    """A worker's report of an agent's work, without gate results and without its own full disk."""
    report = result.report or _build_lost(otherwise)
    if report.full_disk:
        failure = Failure("network", f"the disk of worker {result.worker} is full", time.time() + _PAUSE)
        report = structs.replace(report, ending="exit", failure=failure, full_disk="", fills_disk=False)
        report = structs.replace(report, end=structs.replace(report.end, ok=False))
    return structs.replace(report, results=(), red=(), ahead=(), proof=None)


def _build_stopped() -> Report:
    return Report(ending="stopped", end=End(False))


def _build_tip_assignment(change: str, gates: Sequence[str], directory: str) -> Assignment:
    from ralphtool.executors import Assignment

    return Assignment(
        number=0,
        change=change,
        story="",
        task=None,
        entry="",
        attempt=0,
        token=os.urandom(16).hex(),
        prompt="",
        shown={},
        agent="",
        kept=None,
        cut_off=None,
        fix=False,
        gates=tuple(gates),
        baseline=None,
        folder=os.path.basename(directory),
        seconds=0.0,
    )
