"""The loop: pick a story, look back, run an agent, judge, decide, record, repeat. All parts are joined only here."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from msgspec import Struct, field, structs

from ralphtool.core import lifecycle, secrets
from ralphtool.executors import Assignment, Report
from ralphtool.judging import blockers, recovery
from ralphtool.judging.verdict import is_transient
from ralphtool.loop import (
    blocker_look,
    box_words,
    briefing,
    iteration_events,
    judgement,
    moved_proofs,
    outcome,
    plan_edits,
    prompt,
    publishing,
    run_result,
    spec_notes,
    workarounds,
)
from ralphtool.loop.briefing import Situation
from ralphtool.loop.budget import Budget, RemainingBudget
from ralphtool.loop.last_check import TipGates
from ralphtool.loop.listener import Listener
from ralphtool.loop.outcome import Iteration
from ralphtool.loop.project_gates import ProjectGates
from ralphtool.loop.roster import Roster, find_quota_limit
from ralphtool.memory import usefulness
from ralphtool.memory.knowledge import KnowledgeBase
from ralphtool.memory.labels import get_id_in_history, list_notes
from ralphtool.record import events, questions

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ralphtool.executors import Executor, StoryExecutor
    from ralphtool.history.analyzer import AttemptContext
    from ralphtool.judging.recovery import RecoveryContext
    from ralphtool.judging.verdict import Verdict
    from ralphtool.loop.change import Change
    from ralphtool.loop.roster import NextAgent
    from ralphtool.record.change_state import Outcome, Question
    from ralphtool.record.event_parts import LastCheck
    from ralphtool.record.events import RunEnded
    from ralphtool.record.log import Log
    from ralphtool.settings import Settings
    from ralphtool.specs import Story

_TICK = 0.2  # seconds between two checks whether a wait must end


def _notify_nobody(**fields: Any) -> str:
    return ""


class Parts(Struct, frozen=True, kw_only=True):
    """The parts of a loop."""

    change: Change
    folder: str  # of the run's records
    settings: Settings
    gates: Sequence[str]
    executor: Executor
    agents: Sequence[str]  # their names, in handover order
    log: Log
    stop: Callable[[], bool]
    box: str = ""  # the description of the agents' box, if they work in one
    blind: set[str] = field(default_factory=set)  # gates that were green with broken code, until they are red
    notify: Callable[..., str] = _notify_nobody  # notifies an absent user; returns the error, if any


class Started(Struct, frozen=True, kw_only=True):
    """An iteration that has begun. Its change is seen from its own workspace."""

    change: Change
    story: Story
    before: AttemptContext
    dependencies: list[str]
    assignment: Assignment


class Loop:
    """Works on one story after another."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.change = parts.change
        self.history = parts.change.history
        self.settings = parts.settings
        self.log = parts.log
        self.budget = Budget(parts.settings.run)
        self.knowledge = KnowledgeBase(self.history)
        self.listener = Listener(self.change, self.log)
        self.roster = Roster(parts.agents, [find_quota_limit(parts.settings, name) for name in parts.agents])
        self.policy = recovery.RecoveryPolicy(parts.settings.run.attempts)
        self.agent = 0  # the index of the current one
        self.agents_without_price: set[str] = set()  # agents whose cost is unknown
        self.reason = ""  # why there is no next iteration
        self.answer_deadline: float | None = None  # when a wait for answers ends
        self.is_abandoned = False  # a person skipped or accepted the current story
        self.gates = ProjectGates(self.change, parts.gates, parts.folder, self.log)
        self.tip_gates = TipGates(self.change, is_boxed=bool(parts.box))

    def run(self) -> RunEnded:
        """Runs iterations until nothing is left to do, or a limit is reached."""
        self._resume()
        self._work_through()
        return self._conclude()

    def _work_through(self) -> None:
        while (story := self._next_story()) is not None:
            started = self._start(self.change, story)
            self._finish(started, self._execute(started.assignment))

    def _start(self, change: Change, story: Story) -> Started:
        before = change.look_back(story.id)
        dependencies = [change.prd_id(id) for id in story.depends_on]
        assignment = self._build_assignment(change, story, before)
        return Started(change=change, story=story, before=before, dependencies=dependencies, assignment=assignment)

    def _finish(self, started: Started, report: Report) -> None:
        """Judges an iteration, decides what happens next, and does it."""
        self.tip_gates.add_iteration(started.change, started.assignment.gates, report.baseline)
        iteration = self._judge(started, report)
        self._log_iteration(iteration)
        self._act(started.change, iteration)

    def _conclude(self) -> RunEnded:
        plan_edits.follow_user_at_end(self.change)
        self.listener.apply(is_over=True)
        self.change.workspace.begin(None)
        lifecycle.drain(self.change.run, partial(spec_notes.write_out, self.change, self.history))
        self.history.fold()
        self.knowledge.close()
        return run_result.conclude(
            self.change,
            self.budget,
            self.reason,
            is_stopped=self._is_stopped(),
            tip=self._check_tip(),
            accepts_unproven=self.settings.proof.accept == "unproven",
        )

    # --- before an iteration --------------------------------------------------------------------

    def _resume(self) -> None:
        """Resumes where the last run stopped: an outcome that was written but not carried out is carried out now."""
        made = self.change.change_state.outcome
        if made and outcome.is_pending(self.change):
            self._carry_out(self.change, made)
            text = f"{made.entry.id} was judged just before the last run was interrupted: it counts"
            self.log.note(events.Notice(text=text))
        for told in self.change.take_up_killed_proofs():
            self.log.note(events.Notice(text=told))
        plan_edits.finish_killed(self.change)
        self.change.restore_ticks()
        self.change.workspace.begin(None)
        self.change.done(self.change.stories())  # notes what is done at the start

    def _next_story(self) -> Story | None:
        """The story to work on now. Steering commands are applied first, and again if more arrived meanwhile."""
        self.answer_deadline = None
        if not self._is_over():
            self.gates.look(self.parts.executor, self._is_stopped, self.parts.blind)
        while not self._is_over():
            self.change.follow_branch()
            self.listener.apply()
            story = self.change.next_story(
                strict_order=self.settings.run.strict_order, is_spent=self.budget.is_story_exhausted
            )
            self.listener.report()  # an edit of the plan is reported before the story that it affects
            if story is None and not self._wait_for_answer():
                self.reason = self.reason or self.change.explain_rest() or "no story can be worked on now"
                return None
            if story and self.change.change_state.paused:
                self._pause()
            elif story and not self._wait_for_agent():
                return None
            elif story and not self.listener.has_pending:
                return story
        return None

    def _is_over(self) -> bool:
        self.listener.listen()
        if self._is_stopped():
            self.reason = "interrupted"
        elif self.listener.stops_after:
            self.reason = "you stopped it after the current iteration"
        else:
            self.reason = self.budget.describe_reached_limit()
        return bool(self.reason)

    def _is_stopped(self) -> bool:
        return self.parts.stop() or self.listener.is_stopped

    def _must_end_agent(self, story: str) -> bool:
        """Whether the agent that works on a story must be ended now."""
        self.listener.listen()
        self.is_abandoned = self.is_abandoned or self.listener.is_skipped(story)
        return self._is_stopped() or self.is_abandoned

    def _pause(self) -> None:
        """A pause does not count towards the time limit."""
        why = f"you paused it; `ralphtool resume {self.change.name}` resumes it"
        self.log.add(events.Paused(why=why))
        while self.change.change_state.paused and not self._is_over():
            self.budget.sleep_uncounted(_TICK)
            self.listener.apply()
        if not self.change.change_state.paused:
            self.log.add(events.Resumed())

    def _wait_for_answer(self) -> bool:
        """Waits for a person, if configured and nothing else is left to do; returns whether anything arrived."""
        seconds, asked = self.settings.run.wait_for_answers, self.change.awaited
        if not (seconds and asked):
            return False
        if self.answer_deadline is None:
            self.answer_deadline = until = time.time() + seconds
            why = f"story {', '.join(asked)} needs your answer, and nothing else is left to do"
            self.log.add(events.Waiting(seconds=seconds, until=_spell(until), why=why))
        while time.time() < self.answer_deadline and not self._is_over():
            if self.listener.has_pending or self.change.has_answers():
                return True
            time.sleep(_TICK)
        return False

    def _wait_for_agent(self) -> bool:
        """Waits for an agent, if all of them must rest. Returns whether the run continues after that."""
        turn = self.roster.next()
        self._hand_over(turn)
        if turn.seconds > 0 and self.budget.has_time_for(turn.seconds):
            self._wait(turn)
        elif turn.seconds > 0:
            self.reason = f"{turn.why}: waiting would exceed the time limit (--max-time)"
            return False
        return not self._is_over()

    def _hand_over(self, turn: NextAgent) -> None:
        if turn.agent != self.agent:
            before, why = self.roster.name(self.agent), self.roster.explain_unavailable(self.agent) or "it can continue"
            self.log.note(events.HandedOver(from_=before, to=self.roster.name(turn.agent), why=why))
        self.agent = turn.agent

    def _wait(self, turn: NextAgent) -> None:
        """Uses the wall clock, which continues while the machine sleeps."""
        until = time.time() + turn.seconds
        self.log.add(events.Waiting(seconds=turn.seconds, until=_spell(until), why=turn.why))
        while (left := until - time.time()) > 0 and not (self._is_over() or self.listener.has_pending):
            time.sleep(min(_TICK, left))

    def _build_assignment(self, change: Change, story: Story, before: AttemptContext) -> Assignment:
        self.budget.iterations += 1
        number, left = self.budget.iterations, self._share_budget(story.id)
        state, task = (situation := self._build_situation(change, story, before)).state, situation.task
        entry, token = f"{before.prd_id}-{before.iteration}", os.urandom(16).hex()
        self._sync_knowledge()
        known = self.knowledge.select_for_story(briefing.build_query(situation, self.history))
        built = briefing.build(situation, known, token)
        change.begin(story.id)
        self.listener.mark_read(story.id)
        assignment = Assignment(
            number=number,
            change=change.name,
            story=story.id,
            task=task,
            entry=entry,
            attempt=state.attempts + 1,
            token=token,
            prompt=built.text,
            shown=usefulness.digest_texts({one.text: one.id for one in built.shown}),
            agent=self.roster.name(self.agent),
            base=change.workspace.tip,
            kept=state.kept,
            cut_off=state.cut_off,
            fix=bool(state.decision and state.decision.action == "fix-state"),
            gates=self.gates.commands,
            baseline=self.change.change_state.baseline,
            guarded=change.list_guarded(),
            folder=f"{number:03}-{entry[-200:]}",
            seconds=left.seconds,
            tokens=left.tokens,
            cost=left.cost,
        )
        self._announce(story, assignment, built)
        return assignment

    def _share_budget(self, story: str) -> RemainingBudget:
        return self.budget.remaining_for(story)

    def _build_situation(self, change: Change, story: Story, before: AttemptContext) -> Situation:
        return Situation(
            root=change.root,
            spec=change.spec,
            story=story,
            change_state=change.change_state,
            before=before,
            settings=self.settings,
            gates=self.gates.commands,
            box=self.parts.box,
        )

    def _sync_knowledge(self) -> None:
        self.knowledge.sync(self.change.run, secrets.mask(list_notes(self.change.state()), secrets.list_values()))

    def _announce(self, story: Story, assignment: Assignment, built: prompt.Prompt) -> None:
        directory = os.path.join(self.parts.folder, assignment.folder)
        self.log.add(iteration_events.build_start(assignment, story, directory, self.settings.run.attempts, built.cut))

    def _execute(self, assignment: Assignment) -> Report:
        """Executes the iteration. If it ended because the run's budget is used up, that ends the run, not the story."""
        self.is_abandoned = False
        executor = cast("StoryExecutor", self.parts.executor)
        return self._count(assignment, executor.execute(assignment, partial(self._must_end_agent, assignment.story)))

    def _count(self, assignment: Assignment, report: Report) -> Report:
        """Adds the usage of an iteration to the budget."""
        self.budget.add(assignment.story, report)
        self._warn_unknown_cost(assignment, report)
        is_cut_off = report.ending == "budget" or (report.ending == "exit" and not report.end.ok)
        if is_cut_off and not is_transient(report) and self.budget.is_exhausted:
            return structs.replace(report, ending="stopped")
        return report

    def _add_recalled(self, change: Change, assignment: Assignment) -> Assignment:
        """Items that an agent recalled count as shown, like those in its prompt."""
        if not (recalled := change.list_recalled()):
            return assignment
        told = self.knowledge.memory.get(recalled)
        shown = usefulness.digest_texts({text: get_id_in_history(id) for id, (text, _) in told.items()})
        return structs.replace(assignment, shown={**shown, **assignment.shown})

    # --- judging and deciding -------------------------------------------------------------------

    def _judge(self, started: Started, report: Report) -> Iteration:
        change, story = started.change, started.story
        assignment = self._add_recalled(change, started.assignment)
        observations = tuple(outcome.build_observation(one) for one in change.list_observations(story.id))
        accused = bool(change.change_state.story(story.id).accused)
        told = (self.settings, accused, self.parts.blind)
        verdict = judgement.judge_iteration(story, assignment, report, observations, *told)
        past, check = self._build_past(started, assignment, report, verdict)
        return Iteration(
            story=story,
            assignment=assignment,
            before=started.before,
            report=report,
            verdict=verdict,
            past=past,
            decision=recovery.decide(verdict, past, self.policy),
            observations=observations,
            check=check,
            dependencies=started.dependencies,
        )

    def _build_past(
        self, started: Started, assignment: Assignment, report: Report, verdict: Verdict
    ) -> tuple[RecoveryContext, blockers.BlockerCheck]:
        """What a decision needs besides the verdict, and the result of checking a claimed blocker."""
        story, before = started.story, started.before
        state = self.change.change_state.story(story.id)
        check = self._check_blocker(started.change, story, assignment, verdict)
        is_done_chunk = verdict.status == "partial" and assignment.task in verdict.ticked
        counts = verdict.status in ("failed", "blocked", "partial") and not is_done_chunk
        known = self._find_workaround(verdict, report) if counts and not verdict.is_dishonest else None
        past = recovery.RecoveryContext(
            attempts=state.attempts + counts,
            last_status=state.status if state.attempts else None,
            last_failure=before.previous_failure if state.attempts else None,
            last_question=state.asked if state.attempts else "",
            open_tasks=sum(not task.done for task in story.required)
            - (len(verdict.ticked) if verdict.status == "partial" else 0),
            in_chunks=state.in_chunks,
            is_optional=story.optional,
            blocker_is_real=check.is_real,
            blocker_check=check.found,
            workaround=known,
        )
        return past, check

    def _check_blocker(
        self, change: Change, story: Story, assignment: Assignment, verdict: Verdict
    ) -> blockers.BlockerCheck:
        """Checks a claimed blocker: first without an agent, then, if configured, with an agent that changes nothing."""
        if verdict.status != "blocked":
            return blockers.BlockerCheck(None, "")
        claim, place = verdict.blocker or "", change.workspace
        check = box_words.check_hidden(place, self.settings, self.log.path, claim) or blockers.check_claim(
            claim, place.root, os.environ, self.settings.blockers
        )
        if check.is_real is not None or not self.settings.run.check_blockers:
            return check
        left = self.budget.remaining_for(story.id)
        asked = blocker_look.Claim(story=story, claim=claim, root=self.change.root, known=check.found)
        check = blocker_look.ask_agent(asked, assignment, left, partial(self._examine, story))
        about: dict[str, Any] = {"entry": assignment.entry, "story": story.id, "iteration": assignment.number}
        self.log.note(events.BlockerChecked(**about, real=check.is_real, found=check.found))
        return check

    def _examine(self, story: Story, looking: Assignment) -> Report:
        report = self.parts.executor.examine(looking, partial(self._must_end_agent, story.id))
        self.budget.add(story.id, report)
        return report

    def _find_workaround(self, verdict: Verdict, report: Report) -> recovery.Workaround | None:
        self._sync_knowledge()
        return workarounds.find_workaround(self.history, self.knowledge, verdict, report)

    def _log_iteration(self, iteration: Iteration) -> None:
        self.log.note(iteration_events.build_verdict(iteration, self.settings.run.guard))
        self.log.add(iteration_events.build_decision(iteration, self.policy))

    def _warn_unknown_cost(self, assignment: Assignment, report: Report) -> None:
        """A limit that can't be enforced is worse than none if it is not reported; once per agent is enough."""
        run, usage, name = self.settings.run, report.usage, assignment.agent
        is_unknown = usage.input_tokens + usage.output_tokens > 0 and usage.cost is None
        if (run.max_cost or run.story_cost) and is_unknown and name not in self.agents_without_price:
            self.agents_without_price.add(name)
            told = f"the cost of {name} is unknown, so the cost limit can't be enforced for it"
            self.log.note(events.Notice(text=f"{told}: set [prices.{usage.model or name}]"))

    # --- acting ---------------------------------------------------------------------------------

    def _act(self, change: Change, iteration: Iteration) -> None:
        if iteration.verdict.status in ("interrupted", "transient"):
            self._postpone(change, iteration)
            return
        plan_edits.note_rewording(self.change, iteration)
        self.roster.mark_available(self.roster.find(iteration.assignment.agent), iteration.report.quotas)
        made = outcome.settle(change, iteration)
        if made.tree:
            self.tip_gates.add_story(made.tree, iteration.report.results)
        self._carry_out(change, made, iteration.story.title, iteration.assignment.number)

    def _postpone(self, change: Change, iteration: Iteration) -> None:
        """Nothing is wrong with the work: it is kept, and resumed when an agent can continue."""
        report, verdict, state = iteration.report, iteration.verdict, self.change.change_state.story(iteration.story.id)
        change.undo_ticks(iteration.story)
        ref = change.workspace.keep_interrupted(self.change.run, state.cut_off)
        # Without git to go back to the old state, the baseline is known only from this attempt.
        self.change.change_state.baseline = report.baseline or self.change.change_state.baseline
        if verdict.status == "transient" and not (report.findings or report.trouble or report.fills_disk):
            state.cut_off = ref
        self.change.save()
        if verdict.status == "transient" or not (self._is_over() or self.is_abandoned):
            self._rest_agent(iteration)

    def _rest_agent(self, iteration: Iteration) -> None:
        agent, told = self.roster.find(iteration.assignment.agent), iteration.verdict
        self.roster.mark_unavailable(agent, told.summary, told.retry_at)

    def _carry_out(self, change: Change, made: Outcome, title: str = "", iteration: int = 0) -> None:
        if trouble := outcome.carry_out(change, made):
            self.log.note(events.Notice(text=trouble))
        if made.tree:
            state = made.proof.state if made.proof else ""
            checkpoint = events.Checkpoint(
                story=made.story, commit=made.commit, subject=title, proof=state, iteration=iteration
            )
            self.log.note(checkpoint)
            publishing.report(
                self.log, self.change.root, self.change.spec, self.settings, self._is_stopped, during_run=True
            )
        if made.proof:
            about = {"story": made.story, "entry": made.entry.id}
            self.log.note(events.Proof(receipt=made.proof, iteration=iteration, **about))
        if made.question:
            self._ask(made, made.question, iteration)

    def _ask(self, made: Outcome, question: Question, iteration: int) -> None:
        path, missing = questions.path_of(self.change.root, question.name), question.missing or made.entry.summary or ""
        asked = {"story": made.story, "prd_id": made.entry.prd_id, "path": path, "missing": missing}
        self.log.note(events.Question(**asked, iteration=iteration))
        about = {"title": question.title, "why": question.why, "run": self.change.run}
        if trouble := self.parts.notify(event="question", change=self.change.name, **asked, **about):
            self.log.note(events.Notice(text=trouble))

    # --- the end --------------------------------------------------------------------------------

    def _check_tip(self) -> LastCheck | None:
        if not self.gates.commands or self._is_stopped():
            return None
        folder = os.path.join(self.parts.folder, "tip")
        run = partial(self.parts.executor.check_tip, self.gates.commands, folder, self._is_stopped)
        return moved_proofs.hold_moved(self.change, self.tip_gates.check(run), self.log)


def _spell(moment: float) -> str:
    """Seconds since the epoch as RFC 3339, UTC."""
    return datetime.fromtimestamp(moment, UTC).isoformat().replace("+00:00", "Z")
