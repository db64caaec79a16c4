"""A change that a run works on: its stories, which of them are done, and which one is next."""

from __future__ import annotations

import copy
import os
import tempfile
from collections import Counter
from typing import TYPE_CHECKING

from msgspec import structs

from ralphtool import specs
from ralphtool.core import session
from ralphtool.errors import ChangeNotFound, RalphError, SpecError, shorten
from ralphtool.history import analyzer
from ralphtool.loop import acceptance, plan_edits
from ralphtool.record import change_flag, change_state, questions, receipts, run_command, steering
from ralphtool.specs import remaining
from ralphtool.workspace.git import Repository

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from ralphtool.core.session import SessionState
    from ralphtool.history import History
    from ralphtool.history.analyzer import AttemptContext
    from ralphtool.judging.guarded_tests import GuardedTests
    from ralphtool.judging.receipt import Receipt
    from ralphtool.loop.unread import StoryOutlook
    from ralphtool.record.change_state import ChangeState, StoryState
    from ralphtool.record.events import Event
    from ralphtool.record.steering import SteeringCommand
    from ralphtool.specs import Spec, Story
    from ralphtool.workspace import Workspace


_MOST_RENEWALS = 3  # per story and run: an agent could request them too, and continue forever


class Change:
    """A change as a run sees it."""

    def __init__(self, root: str, run: str, name: str, ref: str, workspace: Workspace, history: History) -> None:
        self.root = root
        self.run = run  # the id of the run, and of its session
        self.name = name
        self.ref = ref
        self.agent_options = ""  # with which a command line uses the same agent again
        self.workspace = workspace
        self.history = history
        self.change_state: ChangeState = change_state.load(root, name)
        self.change_state.spec = ref
        self._is_beside = False  # other lanes work on other stories at the same time
        self._completed: list[str] = []
        self._observed = 0
        self._recalled = 0
        self._renewals: Counter[str] = Counter()
        self.awaited: list[str] = []  # stories that wait only for an answer
        self.answers: dict[str, str] = {}  # those seen so far, by story
        self.notices: list[str] = []
        self.events: list[Event] = []  # for the record: the results of a person's decisions
        self._done_at_start: set[str] | None = None  # stories that were ticked before any attempt

    @property
    def spec(self) -> Spec:
        return specs.open(self.workspace.root, self.name, self.ref)

    def stories(self) -> list[Story]:
        return self.spec.stories(self.state()["completed_tasks"])

    def prd_id(self, story: str) -> str:
        return specs.prd_id(self.spec, story)

    def look_back(self, story: str) -> AttemptContext:
        """The context from earlier attempts at the story."""
        return analyzer.look_back(self.history, self.prd_id(story), self.change_state.story(story).since)

    def change_flag(self) -> str:
        """The option that names this change in a suggested command; empty if there is no other change."""
        return change_flag.build(self.name, *{self.root, self.workspace.root})

    def spec_flag(self) -> str:
        """The option that a command line needs to find this change and no other; empty if it finds it without."""
        return run_command.build_spec_option(self.workspace.root, self.name, self.ref)

    def save(self) -> None:
        change_state.save(self.root, self.name, self.change_state)

    # --- the session ----------------------------------------------------------------------------

    def state(self) -> SessionState:
        return session.load(self.run)

    def begin(self, story: str) -> None:
        """Begins an iteration: everything recorded from here on belongs to it."""
        if self.workspace.branch is None and not self.change_state.story(story).is_tried:
            # without git, nothing else distinguishes its ticks from the user's
            self.change_state.story(story).is_tried = True
            self.save()
        with session.LockedSession(self.run) as held:
            held.state["current_story_id"] = story
            held.state["iteration"] += 1
            held.save()
            self._completed = list(held.state["completed_tasks"])
            self._observed = len(held.state["observations"])
            self._recalled = len(_read_recalled(held.state))

    def list_observations(self, story: str) -> list[SessionState]:
        """The observations of this iteration's agent."""
        found: list[SessionState] = self.state()["observations"][self._observed :]
        return [one for one in found if not self._is_beside or one.get("story_id") in (story, None)]

    def seen_from(self, workspace: Workspace) -> Change:
        """The same change, seen from another workspace, while other lanes work on it."""
        beside = copy.copy(self)
        beside.workspace = workspace
        beside._is_beside = True
        return beside

    def list_recalled(self) -> list[str]:
        """The ids of the items that this iteration's agent recalled from the memory."""
        return _read_recalled(self.state())[self._recalled :]

    def take_up_killed_proofs(self) -> list[str]:
        """Lets stories resume from attempts that were being proven when the last run was killed."""
        made = self.change_state.outcome
        found = [one for one in self.workspace.take_protected(self.run) if not (made and made.entry.id == one.entry)]
        for one in found:
            state = self.change_state.story(one.story)
            state.cut_off, state.sent_back = one.ref, None
            self.save()
        text = "was being proven when the last run was interrupted: its work is resumed"
        return [f"{one.entry} {text}" for one in found]

    def undo_ticks(self, story: Story) -> None:
        """Reopens the tasks that this iteration ticked, since its work is not kept."""
        self._set_completed([*self._completed, *self._list_ticked_beside(story)])

    def restore_ticks(self, story: Story | None = None) -> None:
        """Formats without boxes keep ticks in the session: only those count whose work was kept."""
        kept = [task for one in self.change_state.stories.values() for task in one.completed]
        self._set_completed([*kept, *(self._list_ticked_beside(story) if story else ())])

    def _list_ticked_beside(self, story: Story) -> list[str]:
        """The tasks that other lanes have ticked since this iteration began."""
        if not self._is_beside:
            return []
        own = {*self._completed, *(task.id for task in story.tasks)}
        return [task for task in self.state()["completed_tasks"] if task not in own]

    def _set_completed(self, completed: Sequence[str]) -> None:
        completed = list(dict.fromkeys(completed))
        with session.LockedSession(self.run) as held:
            if held.state["completed_tasks"] != completed:
                held.state["completed_tasks"] = completed
                held.save()

    # --- which story ----------------------------------------------------------------------------

    def done(self, stories: Sequence[Story]) -> set[str]:
        """The stories with a checkpoint. Ticks alone prove nothing, except those from before ralphtool began."""
        if self._done_at_start is None:
            self._done_at_start = self._find_ticked_at_start(stories)
        known = self.workspace.checkpoints().keys() | self._done_at_start
        return {story.id for story in stories if story.done and (story.id in known or self._was_completed(story))}

    def forget_ticked_at_start(self) -> None:
        """The user edited the plan, so other boxes may be ticked in it."""
        self._done_at_start = None

    def list_outlooks(self) -> dict[str, StoryOutlook]:
        """For each story, whether another attempt may follow without a person, or why not."""
        self.workspace.begin(None)  # drops what the last attempt did to the spec
        stories = self.stories()
        done = self.done(stories)
        return {story.id: "done" if story.id in done else self._find_outlook(story.id) for story in stories}

    def _find_outlook(self, story: str) -> StoryOutlook:
        state = self.change_state.story(story)
        if state.decision and state.decision.action == "skip":
            return "skipped"
        return "waiting" if state.question and not self.answers.get(story) else "open"

    def has_checkpoint(self, story: Story) -> bool:
        """Whether its "done" is the work of a run, not a tick by the user."""
        return story.id in self.workspace.checkpoints() or self._was_completed(story)

    def list_guarded(self) -> tuple[GuardedTests, ...]:
        """The tests that earlier stories changed, the oldest first: as they were, they guard the next one.

        A story that is done again is itself one of them.
        """
        states, gone = self.change_state.stories, self.change_state.guards
        done = [id for id in self.workspace.checkpoints() if id in states]
        found = [structs.replace(one, story=id) for id in done if (one := states[id].guarded)]
        return tuple(sorted([*gone, *found], key=self._count_commits_before) if gone else found)

    def _count_commits_before(self, one: GuardedTests) -> int:
        repository = Repository.find(self.root)
        told = repository.text("rev-list", "--count", one.base, check=False) if repository else ""
        return int(told or 0)

    def keep_guards(self, removed: Sequence[str]) -> None:
        """The work of done stories that are removed from the plan stays, so what they changed in tests still counts."""
        states = self.change_state.stories
        found = [(id, state.guarded) for id in removed if (state := states.get(id))]
        self.change_state.guards += [structs.replace(one, story=f"{id} (removed)") for id, one in found if one]

    def read_receipts(self) -> dict[str, Receipt]:
        """What is claimed about the branch as it is now; without those that only the user ticked."""
        states = self.change_state.stories
        known = {id: one.proof for id, one in states.items() if one.proof}
        completed = {story.id for story in self.stories() if self._was_completed(story)}
        repository = None if self.workspace.branch is None else Repository.find(self.root)
        return receipts.find_current(repository, self.name, known, self.change_state.finished, completed)

    def _find_ticked_at_start(self, stories: Sequence[Story]) -> set[str]:
        """Stories that the user ticked before ralphtool began; without git, the ticked ones that were never tried."""
        with tempfile.TemporaryDirectory(prefix="ralph-") as place:
            folder = os.path.join(place, self.name)  # some changes are named after their folder
            os.mkdir(folder)
            if self.workspace.write_spec_at_start(folder, self.ref):
                try:
                    given = specs.open(folder, self.name, self.ref).stories()
                except (ChangeNotFound, SpecError):
                    return set()  # it did not exist, or was not readable: nothing was ticked
                return {story.id for story in given if story.done}
        untried = [story for story in stories if not self.change_state.story(story.id).is_tried]
        return {story.id for story in untried if story.done and self._last_status(story) is None}

    def _was_completed(self, story: Story) -> bool:
        """Whether an attempt completed it, or a person accepted one: its checkpoint may be gone from the branch."""
        state = self.change_state.stories.get(story.id)
        if state and (state.proof or state.status == "completed"):
            return True
        return self.workspace.branch is None and self._last_status(story) == "completed"

    def _last_status(self, story: Story) -> str | None:
        last = self.history.last_entry(self.prd_id(story.id)) if story.tasks else None
        return last.status if last else None

    def next_story(
        self, *, strict_order: bool, is_spent: Callable[[str], bool], takes_edits: bool = True
    ) -> Story | None:
        """The first story that can be worked on, read from the tree that its next attempt begins with.

        Without `takes_edits` the plan stays as it is, because other lanes are working on its stories.
        """
        self.workspace.begin(None)  # drops what the last attempt did to the spec
        if takes_edits:
            plan_edits.take_up(self)
        story = self._find_first_ready(strict_order=strict_order, is_spent=is_spent)
        state = self.change_state.story(story.id) if story else None
        if story is None or state is None or not (state.kept or state.cut_off):
            return story
        self.workspace.begin(state.kept, state.cut_off)
        return specs.find_story(self.stories(), story.id)

    def follow_branch(self) -> None:
        """Makes the user's new commits part of the change."""
        if text := self.workspace.follow_branch():
            self.notices.append(text)

    def _find_first_ready(self, *, strict_order: bool, is_spent: Callable[[str], bool]) -> Story | None:
        """The first story that is open, not skipped, within budget and waits for nothing; optional ones come last."""
        stories = self.stories()
        done = self.done(stories)
        self._close_settled(done)
        self.awaited = []
        ready = []
        for story in stories:
            is_due = not waits_for(story, stories, done, strict_order=strict_order)
            is_open = story.id not in done and specs.can_be_handed_out(story)
            if is_open and is_due and not is_spent(story.id) and not self._is_held(story):
                ready.append(story)
        return next((story for story in ready if not story.optional), ready[0] if ready else None)

    def _close_settled(self, done: Collection[str]) -> None:
        """A question about a story that was done in another clone meanwhile, as on the user's machine after a job."""
        states = [state for id, state in self.change_state.stories.items() if id in done]
        if settled := [one for one in states if one.question and one.status != "completed"]:
            for state in settled:
                self.close_question(state)
            self.save()

    def explain_rest(self) -> str:
        """Why open stories were never given to an agent."""
        return remaining.explain_rest(self.stories())

    def _is_held(self, story: Story) -> bool:
        state = self.change_state.story(story.id)
        return bool(state.decision and state.decision.action == "skip") or self._waits_for_answer(story.id, state)

    def _waits_for_answer(self, story: str, state: StoryState) -> bool:
        """Whether a person must answer first. An answer is applied here, and brings fresh attempts."""
        if state.question is None:
            return False
        if state.status == "completed":  # it was done, but not proven, and the user unticked it: that decides
            self.close_question(state)
            return False
        path = questions.path_of(self.root, state.question.name)
        with questions.turn(path):
            told = self._read_answer(story, path)
            if told is None or not self._can_restart(story):
                self._ask_again(path, state.question.text)
                self.awaited += [story] if self._renewals[story] < _MOST_RENEWALS else []
                return True
            change_state.apply_answer(state, told)
            self.save()
            questions.archive(path)
        return False

    def _read_answer(self, story: str, path: str) -> str | None:
        """The answer, even if an agent has deleted its file since it was seen."""
        return questions.read_answer(path) if os.path.lexists(path) else self.answers.get(story)

    def _ask_again(self, path: str, text: str) -> None:
        if away := questions.ask(path, text):
            self.notices.append(
                f"{path} had no answer below its last heading, where answers belong. Its old text is in {away}"
            )

    def has_answers(self) -> bool:
        """Whether an answer has arrived that the run waits for; an edit of the plan counts as one."""
        if self.workspace.has_edited_plan(self.ref):
            return True
        asked = [(id, self.change_state.story(id).question) for id in self.awaited]
        return any(self._read_answer(id, questions.path_of(self.root, one.name)) for id, one in asked if one)

    def _can_restart(self, story: str) -> bool:
        """Whether a story may get fresh attempts once more in this run."""
        self._renewals[story] += 1
        return self._renewals[story] <= _MOST_RENEWALS

    # --- steering ---------------------------------------------------------------------------------

    def apply(self, said: Sequence[SteeringCommand]) -> list[str]:
        """Applies steering commands to the change state in one step; returns the ids of the postponed ones."""
        new = [one for one in said if one.id not in self.change_state.heeded]
        if any(one.story is not None for one in new):
            self.workspace.begin(None)  # drops what the last attempt did to the spec
        put_off = [one.id for one in new if not self._apply_command(one)]
        ids = [one.id for one in said if one.id not in put_off]
        if new:
            self.change_state.heeded = ids
            self.save()
        self._forget_commands(ids)
        return put_off

    def _forget_commands(self, ids: Sequence[str]) -> None:
        steering.remove_applied(self.root, self.name, ids)

    def _apply_command(self, said: SteeringCommand) -> bool:
        """Whether the command is dealt with, even if only by a notice that it was ignored; False if it is postponed."""
        story = said.story
        if story is None:
            change_state.apply(self.change_state, said)
        elif story not in {one.id for one in self.stories()}:
            told = f"your {said.action} for the story {shorten(story)} was ignored: there is no such story"
            self.notices.append(told)
        elif said.action in steering.JUDGEMENTS:
            self._decide(said)
        elif said.action == "retry" and not self._can_restart(story):
            told = (
                f"story {story} got fresh attempts {_MOST_RENEWALS} times in this run, the maximum: retry it in the "
                "next run"
            )
            self.notices.append(told)
            return False
        else:
            self._apply_to_story(said, self.change_state.story(story))
        return True

    def _decide(self, said: SteeringCommand) -> None:
        try:
            made = acceptance.plan(self, said)
            acceptance.carry_out(self, made)
        except RalphError as error:
            self.notices.append(f"your {said.action} for story {said.story} failed: {error}")
        else:
            self.notices.append(made.text)

    def close_question(self, state: StoryState) -> None:
        """Archives the question of a story that is decided."""
        if asked := state.question:
            path = questions.path_of(self.root, asked.name)
            with questions.turn(path):
                questions.archive(path)
            state.question = None

    def _apply_to_story(self, said: SteeringCommand, state: StoryState) -> None:
        asked, story = state.question, said.story or ""
        path = questions.path_of(self.root, asked.name) if asked else ""
        if asked and said.action == "retry" and (told := self._read_answer(story, path)):
            change_state.apply_answer(state, told)
        change_state.apply(self.change_state, said)
        if asked and state.question is None:
            with questions.turn(path):
                questions.archive(path)

    def drain_events(self) -> list[Event]:
        """The events that are not in the record yet."""
        made, self.events = self.events, []
        return made

    def drain_notices(self) -> list[str]:
        """The notices that are not in the record yet."""
        told, self.notices = self.notices, []
        return told


def waits_for(story: Story, stories: Sequence[Story], done: Collection[str], *, strict_order: bool) -> list[str]:
    """The stories that must be done before this one."""
    before = [one.id for one in stories[: stories.index(story)] if not one.optional] if strict_order else []
    return [id for id in dict.fromkeys([*story.depends_on, *before]) if id not in done]


def _read_recalled(state: SessionState) -> list[str]:
    found = state.get("recalled")
    return [id for id in found if isinstance(id, str)] if isinstance(found, list) else []
