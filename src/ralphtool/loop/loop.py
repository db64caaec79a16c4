"""The loop: pick a story, look back, ask an agent, judge, decide, record, and again. Only here everything is joined."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import Struct, structs

from ralphtool import specs
from ralphtool.core import lifecycle, secrets
from ralphtool.executors import Assignment, Report, gate_run
from ralphtool.history import analyzer, from_session
from ralphtool.judging import blockers, recovery
from ralphtool.judging.verdict import Evidence, claim, is_transient, judge
from ralphtool.loop import briefing, iteration_events, outcome, prompt, run_result
from ralphtool.loop.briefing import Situation
from ralphtool.loop.budget import Budget
from ralphtool.loop.listener import Attention
from ralphtool.loop.outcome import Iteration
from ralphtool.loop.roster import Roster
from ralphtool.memory import usefulness
from ralphtool.memory.knowledge import Knowledge
from ralphtool.memory.labels import NOTE, notes_of
from ralphtool.record import events, questions

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ralphtool.core.session import State
    from ralphtool.executors import Executor
    from ralphtool.history.analyzer import LookBack
    from ralphtool.history.records import Entry, Observation
    from ralphtool.judging.recovery import Past
    from ralphtool.judging.verdict import Verdict
    from ralphtool.loop.change import Change
    from ralphtool.loop.roster import Turn
    from ralphtool.record.change_state import Outcome, Question
    from ralphtool.record.events import RunEnded
    from ralphtool.record.log import Log
    from ralphtool.settings import Settings
    from ralphtool.specs import Story

_RECENT = 500  # entries in which a solved blocker is looked for
_TICK = 0.2  # seconds between two looks at what could end a wait
_LEARNT = 30  # learnings that are looked through for a way around a failure


def _nobody(**fields: Any) -> str:
    return ""


class Parts(Struct, frozen=True, kw_only=True):
    """What a loop is joined of."""

    change: Change
    folder: str  # where the run's records lie
    settings: Settings
    gates: Sequence[str]
    executor: Executor
    agents: Sequence[str]  # their names, in the order of handing over
    log: Log
    stop: Callable[[], bool]
    notify: Callable[..., str] = _nobody  # tells somebody who is not there; returns what went wrong with that


class Loop:
    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.change = parts.change
        self.history = parts.change.history
        self.settings = parts.settings
        self.log = parts.log
        self.budget = Budget(parts.settings.run)
        self.knowledge = Knowledge(self.history)
        self.attention = Attention(self.change, self.log)
        self.roster = Roster(parts.agents, [_stop_at(parts.settings, name) for name in parts.agents])
        self.policy = recovery.Policy(parts.settings.run.attempts)
        self.agent = 0  # whose turn it is
        self.unpriced: set[str] = set()  # agents of which nobody knows what they cost
        self.reason = ""  # why there is no next iteration
        self.patience_ends: float | None = None  # when a wait for answers is over
        self.is_left = False  # a person does not want the story that is worked on

    def run(self) -> RunEnded:
        """Iterations until nothing is left to do, or a limit is reached."""
        self._take_up()
        while (story := self._next_story()) is not None:
            before = analyzer.look_back(self.history, self.change.prd_id(story.id))
            dependencies = [self.change.prd_id(id) for id in story.depends_on]
            assignment = self._assignment(story, before)
            report = self._executed(assignment)
            assignment = self._with_recalled(assignment)
            observations = tuple(outcome.observation(one) for one in self.change.observed())
            verdict = self._judge(story, assignment, report, observations)
            past, check = self._past(story, assignment, report, verdict, before)
            decision = recovery.decide(verdict, past, self.policy)
            iteration = Iteration(
                story=story,
                assignment=assignment,
                before=before,
                report=report,
                verdict=verdict,
                past=past,
                decision=decision,
                observations=observations,
                check=check,
                dependencies=dependencies,
            )
            self._tell(iteration)
            self._act(iteration)
        self.attention.heed()
        self.change.workspace.begin(None)
        lifecycle.drain(self.change.run, self._write_out)
        self.history.fold()
        self.knowledge.close()
        return run_result.conclude(self.change, self.budget, self.reason, is_stopped=self._is_stopped())

    # --- before an iteration --------------------------------------------------------------------

    def _take_up(self) -> None:
        """Goes on where the last run was: an outcome that was written down is carried out, if it was not yet."""
        made = self.change.standing.outcome
        if made and outcome.is_pending(self.change):
            self._carry_out(made)
            text = f"{made.entry.id} had been judged when the last run was cut off: it counts"
            self.log.note(events.Notice(text=text))
        self.change.restore_ticks()
        self.change.workspace.begin(None)
        self.change.done(self.change.stories())  # what is done before we begin

    def _next_story(self) -> Story | None:
        """The story to work on now: what a person said is taken up first, and again if something was said meanwhile."""
        self.patience_ends = None
        while not self._is_over():
            self.attention.heed()
            story = self.change.next_story(strict_order=self.settings.run.strict_order, is_spent=self.budget.is_spent)
            if story is None and not self._hears_an_answer():
                self.reason = self.reason or "nothing is left that could be worked on now"
                return None
            if story and self.change.standing.paused:
                self._pause()
            elif story and not self._agent_is_free():
                return None
            elif story and not self.attention.has_news:
                return story
        return None

    def _is_over(self) -> bool:
        self.attention.listen()
        if self._is_stopped():
            self.reason = "interrupted"
        elif self.attention.stops_after:
            self.reason = "you stopped it after the iteration that was going on"
        else:
            self.reason = self.budget.reached()
        return bool(self.reason)

    def _is_stopped(self) -> bool:
        return self.parts.stop() or self.attention.is_stopped

    def _has_to_end(self, story: str) -> bool:
        """Whether the agent that works on a story has to be ended now."""
        self.attention.listen()
        self.is_left = self.is_left or self.attention.leaves(story)
        return self._is_stopped() or self.is_left

    def _pause(self) -> None:
        """A person's pause is nobody's time: the limit of it does not come nearer."""
        why = f"you paused it; `ralphtool resume {self.change.name}` lets it go on"
        self.log.add(events.Paused(why=why))
        while self.change.standing.paused and not self._is_over():
            self.budget.rest(_TICK)
            self.attention.heed()
        if not self.change.standing.paused:
            self.log.add(events.Resumed())

    def _hears_an_answer(self) -> bool:
        """Waits for a person, if that is wanted and nothing else is left to do; tells whether anything was said."""
        seconds, asked = self.settings.run.wait_for_answers, self.change.awaited
        if not (seconds and asked):
            return False
        if self.patience_ends is None:
            self.patience_ends = until = time.time() + seconds
            why = f"story {', '.join(asked)} waits for your answer, and nothing else is left to do"
            self.log.add(events.Waiting(seconds=seconds, until=_spell(until), why=why))
        while time.time() < self.patience_ends and not self._is_over():
            if self.attention.has_news or self.change.has_answers():
                return True
            time.sleep(_TICK)
        return False

    def _agent_is_free(self) -> bool:
        """Waits for an agent, if all of them have to rest. Tells whether there is still something to be done then."""
        turn = self.roster.next()
        if turn.agent != self.agent:
            before, why = self.roster.name(self.agent), self.roster.why_not(self.agent) or "it can go on"
            self.log.note(events.HandedOver(from_=before, to=self.roster.name(turn.agent), why=why))
        self.agent = turn.agent
        if turn.seconds > 0 and self.budget.has_time_for(turn.seconds):
            self._wait(turn)
        elif turn.seconds > 0:
            self.reason = f"{turn.why}: that would be over only after the limit of time (--max-time)"
            return False
        return not self._is_over()

    def _wait(self, turn: Turn) -> None:
        """By the clock on the wall, which goes on while a machine sleeps."""
        until = time.time() + turn.seconds
        self.log.add(events.Waiting(seconds=turn.seconds, until=_spell(until), why=turn.why))
        while (left := until - time.time()) > 0 and not (self._is_over() or self.attention.has_news):
            time.sleep(min(_TICK, left))

    def _assignment(self, story: Story, before: LookBack) -> Assignment:
        self.budget.iterations += 1
        number, left = self.budget.iterations, self.budget.left(story.id)
        situation = self._situation(story, before)
        state, task = situation.state, situation.task
        entry, token = f"{before.prd_id}-{before.iteration}", os.urandom(16).hex()
        self._keep_up()
        known = self.knowledge.for_story(briefing.wanted(situation, self.history))
        built = briefing.build(situation, known, token)
        self.change.begin(story.id)
        assignment = Assignment(
            number=number,
            story=story.id,
            task=task,
            entry=entry,
            attempt=state.attempts + 1,
            token=token,
            prompt=built.text,
            shown=usefulness.as_shown({one.text: one.id for one in built.shown}),
            agent=self.agent,
            kept=state.kept,
            cut_off=state.cut_off,
            fix=bool(state.decision and state.decision.action == "fix-state"),
            gates=tuple(self.parts.gates),
            baseline=self.change.standing.baseline,
            directory=os.path.join(self.parts.folder, f"{number:03}-{entry[-200:]}"),
            seconds=left.seconds,
            tokens=left.tokens,
            cost=left.cost,
        )
        self._announce(story, assignment, built)
        return assignment

    def _situation(self, story: Story, before: LookBack) -> Situation:
        return Situation(
            root=self.change.root,
            spec=self.change.spec,
            story=story,
            standing=self.change.standing,
            before=before,
            settings=self.settings,
            gates=self.parts.gates,
        )

    def _keep_up(self) -> None:
        self.knowledge.sync(self.change.run, secrets.masked(notes_of(self.change.state()), secrets.values()))

    def _announce(self, story: Story, assignment: Assignment, built: prompt.Prompt) -> None:
        agent = self.parts.agents[assignment.agent]
        self.log.add(iteration_events.build_start(assignment, story, agent, self.settings.run.attempts, built.cut))

    def _executed(self, assignment: Assignment) -> Report:
        """The iteration. One that ended because the run's own budget is used up is the run's end, not the story's."""
        self.is_left = False
        report = self.parts.executor.execute(assignment, partial(self._has_to_end, assignment.story))
        self.budget.add(assignment.story, report)
        self._mention_unknown_cost(report)
        is_cut_off = report.ending == "budget" or (report.ending == "exit" and not report.end.ok)
        if is_cut_off and not is_transient(report) and self.budget.is_used_up:
            return structs.replace(report, ending="stopped")
        return report

    def _with_recalled(self, assignment: Assignment) -> Assignment:
        """What an agent asked for and was told counts as shown, like what its prompt had."""
        recalled = self.change.recalled()
        if not recalled:
            return assignment
        told = self.knowledge.memory.get(recalled)
        shown = usefulness.as_shown({text: _history_id(id) for id, (text, _) in told.items()})
        return structs.replace(assignment, shown={**shown, **assignment.shown})

    # --- judging and deciding -------------------------------------------------------------------

    def _judge(
        self, story: Story, assignment: Assignment, report: Report, observations: Sequence[Observation]
    ) -> Verdict:
        return judge(
            Evidence(
                ending=report.ending,
                end=report.end,
                claim=claim(report.end.message, assignment.token),
                failure=report.failure,
                task=assignment.task,
                tasks=tuple(task.id for task in story.tasks),
                ticked_before=report.ticked_before,
                ticked=report.ticked,
                red=report.red,
                gates_ran=report.gates_ran,
                still_red=tuple(one.command for one in report.results if not one.ok),
                findings=report.findings,
                is_guarded=self.settings.run.guard == "fail",
                blockers=tuple(_told(one) for one in observations if one.type == "blocker"),
                trouble=report.trouble,
                exit_detail=report.detail,
            )
        )

    def _past(
        self, story: Story, assignment: Assignment, report: Report, verdict: Verdict, before: LookBack
    ) -> tuple[Past, blockers.Check]:
        """What a decision needs to know besides the verdict, and what came of looking into a claimed blocker."""
        state = self.change.standing.story(story.id)
        check = self._checked(story, assignment, verdict)
        is_done_chunk = verdict.status == "partial" and assignment.task in verdict.ticked
        counts = verdict.status in ("failed", "blocked", "partial") and not is_done_chunk
        known = self._workaround(verdict, report) if counts and not verdict.is_dishonest else None
        past = recovery.Past(
            attempts=state.attempts + counts,
            last_status=state.status if state.attempts else None,
            last_failure=before.previous_failure if state.attempts else None,
            open_tasks=len(story.tasks)
            - story.tasks_done
            - (len(verdict.ticked) if verdict.status == "partial" else 0),
            in_chunks=state.in_chunks,
            is_optional=story.optional,
            blocker_is_real=check.is_real,
            blocker_check=check.found,
            workaround=known,
        )
        return past, check

    def _checked(self, story: Story, assignment: Assignment, verdict: Verdict) -> blockers.Check:
        """Looks into a claimed blocker: ourselves, and then, where that is wanted, by an agent that changes nothing."""
        if verdict.status != "blocked":
            return blockers.Check(None, "")
        check = blockers.check(verdict.blocker or "", self.change.workspace.root, os.environ, self.settings.blockers)
        if check.is_real is not None or not self.settings.run.check_blockers:
            return check
        token = os.urandom(16).hex()
        text = prompt.blocker(story, verdict.blocker or "", token, briefing.folder_of_templates(self.change.root))
        left = self.budget.left(story.id)
        looking = structs.replace(
            assignment, prompt=text, token=token, seconds=left.seconds, tokens=left.tokens, cost=left.cost
        )
        report = self.parts.executor.examine(looking, partial(self._has_to_end, story.id))
        self.budget.add(story.id, report)
        found = blockers.answer(report.end.message, token) if report.end.ok else None
        check = found or blockers.Check(None, f"{check.found}, and an agent could not tell: {_why_not(report)}")
        self.log.note(
            events.BlockerChecked(
                entry=assignment.entry,
                story=story.id,
                real=check.is_real,
                found=check.found,
                iteration=assignment.number,
            )
        )
        return check

    def _workaround(self, verdict: Verdict, report: Report) -> recovery.Workaround | None:
        told = [verdict.summary, verdict.blocker or "", gate_run.last_words(report.results)]
        failure = "\n".join(filter(None, told))
        self._keep_up()
        found = [one for one in self.knowledge.search(failure, _LEARNT) if one.type == "error-workaround"]
        return recovery.find_workaround(
            failure,
            self.history.blockers(last=_RECENT),
            self._solution,
            [(one.text, one.id or "learnt in this run") for one in found],
        )

    def _solution(self, blocked: Entry) -> Entry | None:
        """The entry that completed what another one was blocked at."""
        later = self.history.entries(prd_id=blocked.prd_id)
        return next((one for one in later if one.iteration > blocked.iteration and one.status == "completed"), None)

    def _tell(self, iteration: Iteration) -> None:
        self.log.note(iteration_events.build_verdict(iteration, self.settings.run.guard))
        self.log.add(iteration_events.build_decision(iteration, self.policy))

    def _mention_unknown_cost(self, report: Report) -> None:
        """A limit that can't hold is worse than none, if nobody says so; once for each agent is enough."""
        run, usage, name = self.settings.run, report.usage, self.roster.name(self.agent)
        is_unknown = usage.input_tokens + usage.output_tokens > 0 and usage.cost is None
        if (run.max_cost or run.story_cost) and is_unknown and name not in self.unpriced:
            self.unpriced.add(name)
            model = usage.model or name
            text = f"nobody knows what {name} costs, so the limit of cost can't hold for it: set [prices.{model}]"
            self.log.note(events.Notice(text=text))

    # --- acting ---------------------------------------------------------------------------------

    def _act(self, iteration: Iteration) -> None:
        if iteration.verdict.status in ("interrupted", "transient"):
            self._put_off(iteration)
            return
        self.change.standing.story(iteration.story.id).cut_off = None  # it was taken up, for good or ill
        self.roster.could(self.agent, iteration.report.quotas)
        made = outcome.settle(self.change, iteration)
        self._carry_out(made, iteration.story.title, iteration.assignment.number)

    def _put_off(self, iteration: Iteration) -> None:
        """Nothing is wrong with the work: it is kept, and taken up when an agent can go on."""
        report, verdict = iteration.report, iteration.verdict
        state = self.change.standing.story(iteration.story.id)
        self.change.take_back_ticks()
        ref = self.change.workspace.keep_interrupted(self.change.run, state.cut_off)
        # What was red before the work is known only now, where there is no git to go back to that.
        self.change.standing.baseline = report.baseline or self.change.standing.baseline
        if verdict.status == "transient" and not report.findings and not report.trouble:
            state.cut_off = ref
        self.change.save()
        if verdict.status == "transient" or not (self._is_over() or self.is_left):
            self.roster.could_not(self.agent, verdict.summary, verdict.retry_at)

    def _carry_out(self, made: Outcome, title: str = "", iteration: int = 0) -> None:
        if trouble := outcome.carry_out(self.change, made):
            self.log.note(events.Notice(text=trouble))
        if made.tree:
            checkpoint = events.Checkpoint(story=made.story, commit=made.commit, subject=title, iteration=iteration)
            self.log.note(checkpoint)
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

    def _write_out(self, state: State) -> None:
        """What agents recorded goes to the spec, which is one more commit, and to the history."""
        workspace = self.change.workspace
        workspace.begin(None)
        spec, state = self.change.spec, secrets.masked(state, secrets.values())
        spec.write_learnings(state["learnings"])
        spec.write_patterns(state["patterns"])
        spec.write_observations(state["observations"])
        taken = workspace.take()
        if taken.tree and taken.paths:
            name = self.change.name
            commit = workspace.commit(taken.tree, f"Learnings of {name}\n\nRalph-Change: {name}\n")
            workspace.publish("", commit, tree=taken.tree)
        from_session.write(self.history, state, lambda story: specs.prd_id(spec, story))


def _spell(moment: float) -> str:
    """Seconds since the epoch as RFC 3339, UTC."""
    return datetime.fromtimestamp(moment, UTC).isoformat().replace("+00:00", "Z")


def _history_id(id: str) -> str | None:
    return None if id.startswith(NOTE) else id


def _why_not(report: Report) -> str:
    if report.end.ok:
        return "it ended without an answer"
    return report.failure.text if report.failure else report.end.reason or report.ending


def _stop_at(settings: Settings, name: str) -> float | None:
    agent = settings.agents.get(name)
    return agent.stop_at if agent else None


def _told(observation: Observation) -> str:
    return f"{observation.title}: {observation.description}" if observation.description else observation.title
