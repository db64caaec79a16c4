"""What other limits would have changed: puts recorded runs through the same decisions again.

Values go in, values come out. After the first decision of a story that differs, the real course is unknown: the
recorded iterations that would not have happened are counted, and what would have happened instead is estimated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct, structs

from ralphtool.core.amounts import format_duration
from ralphtool.judging.recovery import decide
from ralphtool.judging.verdict import Verdict
from ralphtool.record.steps import Expense, rebuild_input, sum_expenses

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ralphtool.record.steps import RecordedIteration, RecordedRun

NOT_BEGUN, GOES_ON = "not begun", "goes on"  # actions that no decision has


class Difference(Struct, kw_only=True):
    """A point at which a run would have taken another course, and the effect of that."""

    limit: str
    run: str
    change: str
    story: str
    entry: str
    attempt: int
    was: str  # the action
    would_be: str
    reason: str
    left_out: list[str] = []  # entries that would not exist
    saved: Expense = Expense()  # what would have been saved
    lost: list[str] = []  # entries that would no longer complete a story
    more: Expense | None = Expense()  # an estimate of the maximum extra expense; None: unknown
    more_attempts: int = 0
    completed_later: str | None = None  # the entry that completed it anyway, after a human's answer

    def leave_out(self, step: RecordedIteration) -> None:
        self.left_out.append(step.entry)
        self.saved = self.saved.plus(step.spent)
        if step.status == "completed":
            self.lost.append(step.entry)


class ReplayCheck(Struct):
    """How many recorded decisions are reproduced with the recorded limits."""

    decisions: int = 0
    same: int = 0
    rebuilt: int = 0  # of `same`: the record lacks the inputs of the decision, so they were rebuilt
    otherwise: int = 0  # made by another version of the decision table
    unknown: int = 0  # the record does not contain enough


class LimitTotal(Struct):
    """The total effect of one limit."""

    differences: int = 0
    saved: Expense = Expense()
    more: Expense = Expense()
    lost: int = 0


class Backtest(Struct, kw_only=True):
    runs: int
    check: ReplayCheck
    differences: list[Difference]

    def sum_by_limit(self) -> dict[str, LimitTotal]:
        found: dict[str, LimitTotal] = {}
        for one in self.differences:
            whole = found.setdefault(one.limit, LimitTotal())
            whole.differences += 1
            whole.saved, whole.more = whole.saved.plus(one.saved), whole.more.plus(one.more or Expense())
            whole.lost += len(one.lost)
        return found


def backtest(runs: Iterable[RecordedRun], limits: Mapping[str, float]) -> Backtest:
    """Takes runs of any changes, and the limits to change; 0 means no limit."""
    walk = _Replayer(limits)
    in_order = sorted(runs, key=lambda run: run.began)
    for run in in_order:
        walk.replay_run(run)
    return Backtest(runs=len(in_order), check=walk.check, differences=walk.differences)


# --- the replay -------------------------------------------------------------------------------------


class _RunReplay:
    """The position of the replay in one run."""

    def __init__(self, run: RecordedRun) -> None:
        self.run = run
        self.steps: list[RecordedIteration] = []  # that would have happened
        self.used = Expense()  # by `steps`
        self.used_on: dict[str, Expense] = {}
        self.gone = 0.0  # seconds of those that would not have happened
        self.over: Difference | None = None  # why nothing more would have happened
        self.left: dict[str, Difference] = {}  # stories that this run would not have continued
        self.lost: dict[str, Difference] = {}  # stories that it would no longer have completed

    def add(self, step: RecordedIteration) -> None:
        self.steps.append(step)
        self.used = self.used.plus(step.spent)
        self.used_on[step.story] = self.spent_on(step.story).plus(step.spent)

    def spent_on(self, story: str) -> Expense:
        return self.used_on.get(story, Expense())

    def elapsed_at(self, step: RecordedIteration) -> float:
        return max(step.begun - self.gone, 0.0)


class _StoryReplay:
    """The state of a story after the runs so far."""

    def __init__(self) -> None:
        self.steps: list[RecordedIteration] = []  # of this round: a human's answer begins a new one
        self.cause: Difference | None = None  # why nothing more of this round would have happened
        self.is_unknown = False  # the rest of this round can't be compared
        self.unasked: list[Difference] = []  # where a human would not have been asked yet
        self.lost: Difference | None = None  # why it would not be done

    def add_step(self, step: RecordedIteration) -> RecordedIteration | None:
        """Adds a step, and returns the one before it in its round."""
        before = self.steps[-1] if self.steps else None
        if before and step.attempt <= before.used:
            self.steps, self.cause, self.is_unknown, before = [], None, False, None
        self.steps.append(step)
        return before


class _Replayer:
    def __init__(self, limits: Mapping[str, float]) -> None:
        self.limits = limits
        self.check = ReplayCheck()
        self.differences: list[Difference] = []
        self._stories: dict[tuple[str, str], _StoryReplay] = {}

    def replay_run(self, run: RecordedRun) -> None:
        place = _RunReplay(run)
        for step in map(structs.replace, run.steps):  # a copy, because the replay changes it
            past = self._find_story(run, step.story)
            before = past.add_step(step)
            self._check_decision(run, step, before)
            cause = self._find_cause(place, step, past)
            if cause:
                self._leave_out(place, step, past, cause)
            else:
                place.add(step)
                self._compare_step(place, step, past)
        self._compare_run_end(place)

    def _find_story(self, run: RecordedRun, story: str) -> _StoryReplay:
        return self._stories.setdefault((run.change, story), _StoryReplay())

    # --- reproducing the recorded decisions -----------------------------------------------------

    def _check_decision(self, run: RecordedRun, step: RecordedIteration, before: RecordedIteration | None) -> None:
        """Drops the inputs of a decision that is not reproduced, so that it is not compared."""
        if not step.action:
            step.given = None
            return
        check, is_rebuilt = self.check, step.given is None
        step.given = step.given or rebuild_input(run, step, before)
        is_same = step.given is not None and step.given.decide_again().action == step.action
        check.decisions += 1
        check.same += is_same
        check.rebuilt += is_same and is_rebuilt
        check.unknown += not is_same and is_rebuilt
        check.otherwise += not is_same and not is_rebuilt
        if not is_same:
            step.given = None

    # --- iterations that would not have happened ------------------------------------------------

    def _find_cause(self, place: _RunReplay, step: RecordedIteration, past: _StoryReplay) -> Difference | None:
        others = place.run.depends_on.get(step.story, ())
        waits_for = (place.lost.get(id) or self._find_story(place.run, id).lost for id in others)
        known = (place.over, place.left.get(step.story), past.cause, *waits_for)
        return next(filter(None, known), None) or self._find_refusal(place, step)

    def _find_refusal(self, place: _RunReplay, step: RecordedIteration) -> Difference | None:
        """A limit that would have been reached before it began."""
        levels = {
            "max_iterations": len(place.steps),
            "max_time": place.elapsed_at(step),
            "max_tokens": place.used.tokens,
            "max_cost": place.used.cost,
            "story_tokens": place.spent_on(step.story).tokens,
            "story_cost": place.spent_on(step.story).cost,
        }
        for name, level in levels.items():
            if 0 < self._get_changed_limit(place, name) <= level:
                found = self._add_difference(place, step, name, NOT_BEGUN, self._describe_reached(name))
                self._stop(place, step, name, found)
                return found
        return None

    def _stop(self, place: _RunReplay, step: RecordedIteration, name: str, found: Difference) -> None:
        if name.startswith("max_"):
            place.over = found
            return
        place.left[step.story] = found
        if step.status == "completed":
            place.lost[step.story] = found

    def _leave_out(self, place: _RunReplay, step: RecordedIteration, past: _StoryReplay, cause: Difference) -> None:
        cause.leave_out(step)
        place.gone += step.spent.seconds
        if step.status == "completed" and cause.would_be == "manual":
            past.lost = cause  # it needs a human's answer
        elif step.status == "completed":
            place.lost[step.story] = cause  # the next run continues it

    # --- decisions that would differ ------------------------------------------------------------

    def _compare_step(self, place: _RunReplay, step: RecordedIteration, past: _StoryReplay) -> None:
        if step.status == "completed":
            past.lost = None
            for one in past.unasked:
                one.completed_later = one.completed_later or step.entry
        if past.is_unknown or step.given is None:
            return
        found = self._compare_ending(place, step) or self._compare_decision(place, step, past)
        if found is None or found.was == found.would_be:
            return
        past.is_unknown = True
        if found.would_be == "manual":
            past.cause = found
            past.lost = found if step.status == "completed" else None

    def _compare_decision(self, place: _RunReplay, step: RecordedIteration, past: _StoryReplay) -> Difference | None:
        """A different decision because of more or fewer attempts."""
        attempts = self.limits.get("attempts")
        if step.given is None or attempts is None:
            return None
        made = step.given.decide_again(attempts)
        if made.action == step.action:
            return None
        found = self._add_difference(place, step, "attempts", made.action, made.reason)
        if made.action not in ("manual", "skip"):
            found.more_attempts = max(int(attempts) - step.given.past.attempts, 0)
            found.more = _average_expense(past.steps).times(found.more_attempts)
            past.unasked.append(found)
        return found

    def _compare_ending(self, place: _RunReplay, step: RecordedIteration) -> Difference | None:
        """An attempt that would have been stopped earlier, or would not have been stopped."""
        return self._check_time(place, step) or self._check_budget(place, step) or self._check_more_time(place, step)

    def _check_time(self, place: _RunReplay, step: RecordedIteration) -> Difference | None:
        timeout, of_run = self._get_changed_limit(place, "timeout"), self._get_changed_limit(place, "max_time")
        left = max(of_run - place.elapsed_at(step), 0.0) if of_run else 0.0
        if of_run and step.agent_seconds > left and not 0 < timeout < left:
            found = self._build_early_end(place, step, "max_time", _INTERRUPTED, left / step.agent_seconds)
            place.over = found
            return found
        if 0 < timeout < step.agent_seconds and step.status != "transient":
            return self._build_early_end(place, step, "timeout", _OUT_OF_TIME, timeout / step.agent_seconds)
        return None

    def _check_budget(self, place: _RunReplay, step: RecordedIteration) -> Difference | None:
        """Uses the usage reported while it worked: an agent that reports only at its end is not stopped early."""
        for name in ("max_tokens", "max_cost", "story_tokens", "story_cost"):
            whose, _, what = name.partition("_")
            limit, used = (
                self._get_changed_limit(place, name),
                place.used if whose == "max" else place.spent_on(step.story),
            )
            own: float = getattr(step.spent, what)
            before: float = getattr(used, what) - own
            if limit and before + own * step.early >= limit:
                verdict = _INTERRUPTED if whose == "max" else _OUT_OF_BUDGET
                if found := self._build_early_end(place, step, name, verdict, (limit - before) / own if own else 1.0):
                    self._stop(place, step, name, found)
                return found
        return None

    def _build_early_end(
        self, place: _RunReplay, step: RecordedIteration, name: str, verdict: Verdict, share: float
    ) -> Difference | None:
        """An attempt that would have been stopped after a share of its work, and the decision after that."""
        if step.given is None:
            return None
        given, counted = step.given, step.status in ("failed", "blocked", "partial") and not step.has_ticked
        past = structs.replace(given.past, attempts=given.past.attempts + (not counted), blocker_is_real=None)
        attempts = int(self.limits.get("attempts", given.policy.attempts))
        made = decide(verdict, past, structs.replace(given.policy, attempts=attempts))
        found = self._add_difference(place, step, name, made.action, self._describe_reached(name))
        found.saved = step.spent.times(1 - share)
        if step.status == "completed":
            found.lost.append(step.entry)
        if name == "timeout" and made.action != "manual" and step.status == "completed":
            found.more_attempts = attempts - past.attempts
            found.more = step.spent.times(share * found.more_attempts)
        return found

    def _check_more_time(self, place: _RunReplay, step: RecordedIteration) -> Difference | None:
        """An attempt that was stopped by the time limit, and would have had more time."""
        before, now = place.run.limits.get("timeout", 0.0), self.limits.get("timeout")
        was_ended = step.given is not None and step.given.verdict.too_big and 0 < before <= step.agent_seconds
        if now is None or not was_ended or 0 < now <= before:
            return None
        found = self._add_difference(place, step, "timeout", GOES_ON, "the time limit would not have stopped it yet")
        found.more = Expense(seconds=now - before) if now else None
        return found

    # --- the end of a run -----------------------------------------------------------------------

    def _compare_run_end(self, place: _RunReplay) -> None:
        """A run that a limit ended would have continued with a higher one, and so would a story."""
        if place.over or not place.steps:
            return
        self._add_raised_limit(place, place.run.ended_by, place.steps, "the run ended")
        last = {step.story: step for step in place.steps}
        for name in ("story_tokens", "story_cost"):
            what, before = name.removeprefix("story_"), place.run.limits.get(name, 0.0)
            for story, step in last.items():
                is_open = step.action not in ("next", "skip", "manual") and story not in place.left
                if is_open and getattr(place.spent_on(story), what) >= before:
                    self._add_raised_limit(
                        place, name, [one for one in place.steps if one.story == story], "left for the run"
                    )

    def _add_raised_limit(self, place: _RunReplay, name: str, steps: Sequence[RecordedIteration], was: str) -> None:
        before, now = place.run.limits.get(name, 0.0), self.limits.get(name)
        if now is None or not before or 0 < now <= before:
            return
        found = self._add_difference(
            place, steps[-1], name, GOES_ON, f"{_describe_limit(name, before)} would not have been reached"
        )
        found.was = was
        found.more = _estimate_more(name, now - before, steps) if now else None

    # --- shared ---------------------------------------------------------------------------------

    def _get_changed_limit(self, place: _RunReplay, name: str) -> float:
        """A limit that differs from the run's; 0 if there is none, or it is the same."""
        limit = self.limits.get(name, 0.0)
        return 0.0 if limit == place.run.limits.get(name) else limit

    def _describe_reached(self, name: str) -> str:
        return f"{_describe_limit(name, self.limits[name])} would have been reached"

    def _add_difference(
        self, place: _RunReplay, step: RecordedIteration, limit: str, would_be: str, reason: str
    ) -> Difference:
        found = Difference(
            limit=limit,
            run=place.run.id,
            change=step.change,
            story=step.story,
            entry=step.entry,
            attempt=step.attempt,
            was=step.action or "cut off",
            would_be=would_be,
            reason=reason,
        )
        self.differences.append(found)
        return found


_INTERRUPTED = Verdict(status="interrupted", summary="interrupted")
_OUT_OF_TIME = Verdict(status="failed", summary="the agent ran out of time and was stopped", too_big=True)
_OUT_OF_BUDGET = Verdict(status="failed", summary="the budget was used up and the agent was stopped")


def _average_expense(steps: Sequence[RecordedIteration]) -> Expense:
    """The average expense of an attempt; iterations that don't count as attempts are left out."""
    counted = [step.spent for step in steps if step.status not in ("", "interrupted", "transient")]
    return sum_expenses(counted).times(1 / len(counted)) if counted else Expense()


def _estimate_more(name: str, more: float, steps: Sequence[RecordedIteration]) -> Expense:
    """What could have been spent before reaching the higher limit."""
    if name == "max_iterations":
        return _average_expense(steps).times(more)
    what = name.rpartition("_")[2]
    return Expense(**{{"time": "seconds", "tokens": "tokens", "cost": "cost"}[what]: more})


def _describe_limit(name: str, limit: float) -> str:
    amount = {
        "max_iterations": f"{limit:.0f} iteration{'' if limit == 1 else 's'}",
        "max_time": format_duration(limit),
        "timeout": format_duration(limit),
        "max_tokens": f"{limit:,.0f} tokens",
        "story_tokens": f"{limit:,.0f} tokens",
        "max_cost": f"${limit:,.2f}",
        "story_cost": f"${limit:,.2f}",
    }[name]
    return f"the limit of {amount} (--{name.replace('_', '-')})"
