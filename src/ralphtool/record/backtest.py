"""What other limits would have changed: recorded runs, put once more through the same decisions.

Values go in, values come out. Where the first decision of a story comes out otherwise, what happened from there on is
no longer known: what would not have happened is counted as it was, and what would have come instead is estimated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct, structs

from ralphtool.judging.recovery import decide
from ralphtool.judging.verdict import Verdict
from ralphtool.record.steps import Spent, rebuilt, total

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ralphtool.record.steps import Run, Step

NOT_BEGUN, GOES_ON = "not begun", "goes on"  # what no decision says


class Difference(Struct, kw_only=True):
    """Where a run would have gone another way, and what that would have come to."""

    limit: str
    run: str
    change: str
    story: str
    entry: str
    attempt: int
    was: str  # the action
    would_be: str
    reason: str
    left_out: list[str] = []  # entries that would not have come about
    saved: Spent = Spent()  # what these cost
    lost: list[str] = []  # those of them that completed a story
    more: Spent | None = Spent()  # what else could have been spent at the most; an estimate. None: nobody knows
    more_attempts: int = 0
    completed_later: str | None = None  # the entry that completed it all the same, after a human's answer

    def leave_out(self, step: Step) -> None:
        self.left_out.append(step.entry)
        self.saved = self.saved.plus(step.spent)
        if step.status == "completed":
            self.lost.append(step.entry)


class Check(Struct):
    """How far the recorded decisions come out as they were recorded, with the recorded limits."""

    decisions: int = 0
    same: int = 0
    rebuilt: int = 0  # of the same: put together from a record that does not say what the decision was made of
    otherwise: int = 0  # another version of the decision table has made these
    unknown: int = 0  # the record does not tell enough


class Total(Struct):
    """What one limit would have come to."""

    differences: int = 0
    saved: Spent = Spent()
    more: Spent = Spent()
    lost: int = 0


class Backtest(Struct, kw_only=True):
    runs: int
    check: Check
    differences: list[Difference]

    def totals(self) -> dict[str, Total]:
        found: dict[str, Total] = {}
        for one in self.differences:
            whole = found.setdefault(one.limit, Total())
            whole.differences += 1
            whole.saved, whole.more = whole.saved.plus(one.saved), whole.more.plus(one.more or Spent())
            whole.lost += len(one.lost)
        return found


def backtest(runs: Iterable[Run], limits: Mapping[str, float]) -> Backtest:
    """Runs of any changes, and the limits that are others than they had; 0 is no limit."""
    walk = _Walk(limits)
    in_order = sorted(runs, key=lambda run: run.began)
    for run in in_order:
        walk.through(run)
    return Backtest(runs=len(in_order), check=walk.check, differences=walk.differences)


# --- the walk ---------------------------------------------------------------------------------------


class _Place:
    """How far the walk is in one run."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.steps: list[Step] = []  # that would have come about
        self.used = Spent()  # by these
        self.used_on: dict[str, Spent] = {}
        self.gone = 0.0  # seconds of those that would not
        self.over: Difference | None = None  # why nothing more would have come
        self.left: dict[str, Difference] = {}  # stories that would not have been gone on with in this run
        self.lost: dict[str, Difference] = {}  # and those of them that it completed

    def add(self, step: Step) -> None:
        self.steps.append(step)
        self.used = self.used.plus(step.spent)
        self.used_on[step.story] = self.on(step.story).plus(step.spent)

    def on(self, story: str) -> Spent:
        return self.used_on.get(story, Spent())

    def clock(self, step: Step) -> float:
        return max(step.begun - self.gone, 0.0)


class _Past:
    """What is known of a story from the runs so far."""

    def __init__(self) -> None:
        self.steps: list[Step] = []  # of this round: a human's answer begins another one
        self.cause: Difference | None = None  # why nothing more of this round would have come about
        self.is_unknown = False  # what came in this round can't be compared any more
        self.unasked: list[Difference] = []  # where a human would not have been asked yet
        self.lost: Difference | None = None  # why it would not be done

    def meet(self, step: Step) -> Step | None:
        """Takes a step up, and tells the one before it in its round."""
        before = self.steps[-1] if self.steps else None
        if before and step.attempt <= before.used:
            self.steps, self.cause, self.is_unknown, before = [], None, False, None
        self.steps.append(step)
        return before


class _Walk:
    def __init__(self, limits: Mapping[str, float]) -> None:
        self.limits = limits
        self.check = Check()
        self.differences: list[Difference] = []
        self._stories: dict[tuple[str, str], _Past] = {}

    def through(self, run: Run) -> None:
        place = _Place(run)
        for step in map(structs.replace, run.steps):  # a copy, which the walk may change
            past = self._past(run, step.story)
            before = past.meet(step)
            self._know(run, step, before)
            cause = self._cause(place, step, past)
            if cause:
                self._leave_out(place, step, past, cause)
            else:
                place.add(step)
                self._go_on(place, step, past)
        self._end(place)

    def _past(self, run: Run, story: str) -> _Past:
        return self._stories.setdefault((run.change, story), _Past())

    # --- do we decide as it was decided? --------------------------------------------------------

    def _know(self, run: Run, step: Step, before: Step | None) -> None:
        """What can't be replayed as it was is compared with nothing."""
        if not step.action:
            step.given = None
            return
        check, is_rebuilt = self.check, step.given is None
        step.given = step.given or rebuilt(run, step, before)
        is_same = step.given is not None and step.given.decided().action == step.action
        check.decisions += 1
        check.same += is_same
        check.rebuilt += is_same and is_rebuilt
        check.unknown += not is_same and is_rebuilt
        check.otherwise += not is_same and not is_rebuilt
        if not is_same:
            step.given = None

    # --- what would not have come about ---------------------------------------------------------

    def _cause(self, place: _Place, step: Step, past: _Past) -> Difference | None:
        others = place.run.depends_on.get(step.story, ())
        waits_for = (place.lost.get(id) or self._past(place.run, id).lost for id in others)
        known = (place.over, place.left.get(step.story), past.cause, *waits_for)
        return next(filter(None, known), None) or self._refused(place, step)

    def _refused(self, place: _Place, step: Step) -> Difference | None:
        """A limit that would have been reached before it began."""
        levels = {
            "max_iterations": len(place.steps),
            "max_time": place.clock(step),
            "max_tokens": place.used.tokens,
            "max_cost": place.used.cost,
            "story_tokens": place.on(step.story).tokens,
            "story_cost": place.on(step.story).cost,
        }
        for name, level in levels.items():
            if 0 < self._other(place, name) <= level:
                found = self._differ(place, step, name, NOT_BEGUN, self._reached(name))
                self._stop(place, step, name, found)
                return found
        return None

    def _stop(self, place: _Place, step: Step, name: str, found: Difference) -> None:
        if name.startswith("max_"):
            place.over = found
            return
        place.left[step.story] = found
        if step.status == "completed":
            place.lost[step.story] = found

    def _leave_out(self, place: _Place, step: Step, past: _Past, cause: Difference) -> None:
        cause.leave_out(step)
        place.gone += step.spent.seconds
        if step.status == "completed" and cause.would_be == "manual":
            past.lost = cause  # it waits for a human
        elif step.status == "completed":
            place.lost[step.story] = cause  # the next run takes it up

    # --- what would have been decided -----------------------------------------------------------

    def _go_on(self, place: _Place, step: Step, past: _Past) -> None:
        if step.status == "completed":
            past.lost = None
            for one in past.unasked:
                one.completed_later = one.completed_later or step.entry
        if past.is_unknown or step.given is None:
            return
        found = self._ended_otherwise(place, step) or self._decided_otherwise(place, step, past)
        if found is None or found.was == found.would_be:
            return
        past.is_unknown = True
        if found.would_be == "manual":
            past.cause = found
            past.lost = found if step.status == "completed" else None

    def _decided_otherwise(self, place: _Place, step: Step, past: _Past) -> Difference | None:
        """Another decision, because there would be more attempts, or fewer."""
        attempts = self.limits.get("attempts")
        if step.given is None or attempts is None:
            return None
        made = step.given.decided(attempts)
        if made.action == step.action:
            return None
        found = self._differ(place, step, "attempts", made.action, made.reason)
        if made.action not in ("manual", "skip"):
            found.more_attempts = max(int(attempts) - step.given.past.attempts, 0)
            found.more = _mean(past.steps).times(found.more_attempts)
            past.unasked.append(found)
        return found

    def _ended_otherwise(self, place: _Place, step: Step) -> Difference | None:
        """An attempt that would have been ended before its end, or would not have been."""
        return self._out_of_time(place, step) or self._out_of_budget(place, step) or self._in_time(place, step)

    def _out_of_time(self, place: _Place, step: Step) -> Difference | None:
        timeout, of_run = self._other(place, "timeout"), self._other(place, "max_time")
        left = max(of_run - place.clock(step), 0.0) if of_run else 0.0
        if of_run and step.agent_seconds > left and not 0 < timeout < left:
            found = self._ended(place, step, "max_time", _INTERRUPTED, left / step.agent_seconds)
            place.over = found
            return found
        if 0 < timeout < step.agent_seconds and step.status != "transient":
            return self._ended(place, step, "timeout", _OUT_OF_TIME, timeout / step.agent_seconds)
        return None

    def _out_of_budget(self, place: _Place, step: Step) -> Difference | None:
        """By what it told while it worked: an agent that tells it all at its end is not ended before."""
        for name in ("max_tokens", "max_cost", "story_tokens", "story_cost"):
            whose, _, what = name.partition("_")
            limit, used = self._other(place, name), place.used if whose == "max" else place.on(step.story)
            own: float = getattr(step.spent, what)
            before: float = getattr(used, what) - own
            if limit and before + own * step.early >= limit:
                verdict = _INTERRUPTED if whose == "max" else _OUT_OF_BUDGET
                if found := self._ended(place, step, name, verdict, (limit - before) / own if own else 1.0):
                    self._stop(place, step, name, found)
                return found
        return None

    def _ended(self, place: _Place, step: Step, name: str, verdict: Verdict, share: float) -> Difference | None:
        """An attempt of which only a share would have come about, and what would have been decided then."""
        if step.given is None:
            return None
        given, counted = step.given, step.status in ("failed", "blocked", "partial") and not step.has_ticked
        past = structs.replace(given.past, attempts=given.past.attempts + (not counted), blocker_is_real=None)
        attempts = int(self.limits.get("attempts", given.policy.attempts))
        made = decide(verdict, past, structs.replace(given.policy, attempts=attempts))
        found = self._differ(place, step, name, made.action, self._reached(name))
        found.saved = step.spent.times(1 - share)
        if step.status == "completed":
            found.lost.append(step.entry)
        if name == "timeout" and made.action != "manual" and step.status == "completed":
            found.more_attempts = attempts - past.attempts
            found.more = step.spent.times(share * found.more_attempts)
        return found

    def _in_time(self, place: _Place, step: Step) -> Difference | None:
        """An attempt that the clock ended, and that would have had more time."""
        before, now = place.run.limits.get("timeout", 0.0), self.limits.get("timeout")
        was_ended = step.given is not None and step.given.verdict.too_big and 0 < before <= step.agent_seconds
        if now is None or not was_ended or 0 < now <= before:
            return None
        found = self._differ(place, step, "timeout", GOES_ON, "the clock would not have ended it yet")
        found.more = Spent(seconds=now - before) if now else None
        return found

    # --- the end of a run -----------------------------------------------------------------------

    def _end(self, place: _Place) -> None:
        """A run that a limit ended would have gone on with a higher one; and so would a story."""
        if place.over or not place.steps:
            return
        self._raise(place, place.run.ended_by, place.steps, "the run ended")
        last = {step.story: step for step in place.steps}
        for name in ("story_tokens", "story_cost"):
            what, before = name.removeprefix("story_"), place.run.limits.get(name, 0.0)
            for story, step in last.items():
                is_open = step.action not in ("next", "skip", "manual") and story not in place.left
                if is_open and getattr(place.on(story), what) >= before:
                    self._raise(place, name, [one for one in place.steps if one.story == story], "left for the run")

    def _raise(self, place: _Place, name: str, steps: Sequence[Step], was: str) -> None:
        before, now = place.run.limits.get(name, 0.0), self.limits.get(name)
        if now is None or not before or 0 < now <= before:
            return
        found = self._differ(place, steps[-1], name, GOES_ON, f"{_in_words(name, before)} would not have been reached")
        found.was = was
        found.more = _room(name, now - before, steps) if now else None

    # --- in common ------------------------------------------------------------------------------

    def _other(self, place: _Place, name: str) -> float:
        """A limit that is another one than the run had; 0 if it is none, or the same."""
        limit = self.limits.get(name, 0.0)
        return 0.0 if limit == place.run.limits.get(name) else limit

    def _reached(self, name: str) -> str:
        return f"{_in_words(name, self.limits[name])} would have been reached"

    def _differ(self, place: _Place, step: Step, limit: str, would_be: str, reason: str) -> Difference:
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
_OUT_OF_TIME = Verdict(status="failed", summary="the agent ran out of time and was ended", too_big=True)
_OUT_OF_BUDGET = Verdict(status="failed", summary="the budget was used up and the agent was ended")


def _mean(steps: Sequence[Step]) -> Spent:
    """What an attempt of these cost on the average; what was no attempt is none."""
    counted = [step.spent for step in steps if step.status not in ("", "interrupted", "transient")]
    return total(counted).times(1 / len(counted)) if counted else Spent()


def _room(name: str, more: float, steps: Sequence[Step]) -> Spent:
    """What could have been spent until the higher limit."""
    if name == "max_iterations":
        return _mean(steps).times(more)
    what = name.rpartition("_")[2]
    return Spent(**{{"time": "seconds", "tokens": "tokens", "cost": "cost"}[what]: more})


def _in_words(name: str, limit: float) -> str:
    amount = {
        "max_iterations": f"{limit:.0f} iteration{'' if limit == 1 else 's'}",
        "max_time": f"{limit:g} seconds",
        "timeout": f"{limit:g} seconds",
        "max_tokens": f"{limit:.0f} tokens",
        "story_tokens": f"{limit:.0f} tokens",
        "max_cost": f"${limit:g}",
        "story_cost": f"${limit:g}",
    }[name]
    return f"the limit of {amount} (--{name.replace('_', '-')})"
