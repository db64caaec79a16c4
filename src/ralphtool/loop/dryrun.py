"""The plan of a run, without running it: the stories in order, the gates, and the first prompt."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import suppress
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from ralphtool import specs
from ralphtool.core import locks
from ralphtool.errors import RalphError
from ralphtool.history import History, analyzer
from ralphtool.loop import box_words, briefing, gate_notices, plan_edits, workspace_choice
from ralphtool.loop.briefing import Situation
from ralphtool.loop.change import waits_for
from ralphtool.loop.runners import make_runners
from ralphtool.loop.story_order import find_rounds
from ralphtool.memory.knowledge import KnowledgeBase
from ralphtool.memory.labels import INDEX
from ralphtool.record import change_state, questions, steering
from ralphtool.workspace import branch, spec_files
from ralphtool.workspace.git import Repository

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ralphtool.agents import Runner
    from ralphtool.loop.prompt import Prompt
    from ralphtool.record.change_state import ChangeState
    from ralphtool.settings import Settings
    from ralphtool.specs import Spec, Story

TOKEN = "a-new-token-for-each-iteration"  # noqa: S105 (it only stands where one will)


class PlannedStory(Struct, frozen=True, kw_only=True):
    """One story of the plan."""

    id: str
    title: str
    state: Literal["done", "skipped", "waiting", "later", "ready"]
    waits_for: list[str]  # stories; if the state is `waiting`, also for a person
    optional: bool
    attempts: int  # used so far
    tasks_total: int
    tasks_done: int
    put_aside: str = ""  # why no agent gets it: "blocked" or "deferred"


class Plan(Struct, frozen=True, kw_only=True):
    """What a run would do."""

    change: str
    held_by: str | None
    paused: bool
    steps: list[PlannedStory]  # in the order in which they would begin; those that are done come first
    gates: list[str]
    gate_troubles: list[str]  # why some of them can't be started
    workspace: list[str]  # where work would happen, and why not in a better place
    first: str | None  # the story that would begin
    prompt: str | None
    cut: list[str]  # what was shortened in the prompt
    side_by_side: int = 1  # the most stories that would be worked on at once
    rounds: list[list[str]] = []  # stories that could run side by side: each round waits for the rounds before it


def plan(root: str, spec: Spec, settings: Settings, gates: Sequence[str], given: Sequence[Runner] = ()) -> Plan:
    """`given` is the agent of the command line, if there is one."""
    stands = _load_updated_state(root, spec.change)
    holder = locks.find_holder(root, spec.change)
    with branch.open_spec(root, spec.change, spec.ref) as on_branch:
        found = on_branch or spec
        if edit := branch.find_edit(found):
            plan_edits.move_state(stands, edit)
        stories = found.stories(_list_completed(stands))
        steps = _plan_stories(stories, stands, strict_order=settings.run.strict_order)
        first = next((one for one in steps if one.state == "ready"), None)
        story = specs.find_story(stories, first.id) if first else None
        box = _describe_box(root, spec.change, settings, gates, given) if story else ""
        built = _build_prompt(root, found, story, stands, settings, gates, box) if story else None
    return Plan(
        change=spec.change,
        held_by=holder.describe() if holder else None,
        paused=stands.paused,
        steps=steps,
        gates=list(gates),
        gate_troubles=gate_notices.list_for_plan(settings, root, gates),
        workspace=workspace_choice.preview(settings, Repository.find(root), gates, spec.change),
        first=first.id if first else None,
        prompt=built.text if built else None,
        cut=list(built.cut) if built else [],
        side_by_side=settings.run.side_by_side,
        rounds=find_rounds({one.id: one.waits_for for one in steps if one.state in ("ready", "later")}),
    )


def _load_updated_state(root: str, change: str) -> ChangeState:
    """The change state after a run has applied the pending steering commands and answers."""
    stands = change_state.load(root, change)
    for one in questions.list_open(root, change):
        if one.answer:
            change_state.apply_answer(stands.story(one.story), one.answer)
    for said in steering.list_pending(root, change, stands.heeded):
        change_state.apply(stands, said)
    return stands


def _list_completed(stands: ChangeState) -> list[str]:
    """Formats without boxes keep their ticks in the change state."""
    return [task for state in stands.stories.values() for task in state.completed]


def _plan_stories(stories: Sequence[Story], stands: ChangeState, *, strict_order: bool) -> list[PlannedStory]:
    done = {story.id for story in stories if story.done and _is_proven(stands, story.id)}
    steps = [_plan_story(one, stories, stands, done, strict_order=strict_order) for one in stories]
    rank = {"done": 0, "ready": 1, "later": 2, "waiting": 3, "skipped": 4}
    return sorted(steps, key=lambda one: (rank[one.state], one.optional))


def _is_proven(stands: ChangeState, story: str) -> bool:
    """A tick counts, unless the last attempt at the story did not complete."""
    state = stands.stories.get(story)
    return state is None or state.status in (None, "completed")


def _plan_story(
    story: Story, stories: Sequence[Story], stands: ChangeState, done: set[str], *, strict_order: bool
) -> PlannedStory:
    state = stands.stories.get(story.id) or change_state.StoryState()
    before = waits_for(story, stories, done, strict_order=strict_order)
    told: Literal["done", "skipped", "waiting", "later", "ready"] = "later" if before else "ready"
    if story.id in done:
        told, before = "done", []
    elif state.question:
        told = "waiting"
    elif (state.decision and state.decision.action == "skip") or not specs.can_be_handed_out(story):
        told = "skipped"
    return PlannedStory(
        id=story.id,
        title=story.title,
        state=told,
        waits_for=before,
        optional=story.optional,
        attempts=state.attempts,
        tasks_total=len(story.tasks),
        tasks_done=story.tasks_done,
        put_aside=story.put_aside,
    )


def _build_prompt(
    root: str, spec: Spec, story: Story, stands: ChangeState, settings: Settings, gates: Sequence[str], box: str
) -> Prompt:
    history = History.open_read_only(root)
    before = analyzer.look_back(history, specs.prd_id(spec, story.id))
    with tempfile.TemporaryDirectory(prefix="ralph-") as folder:
        story = _read_kept_story(root, spec, story, stands, folder)
        situation = Situation(
            root=root,
            spec=spec,
            story=story,
            change_state=stands,
            before=before,
            settings=settings,
            gates=gates,
            box=box,
        )
        knowledge = KnowledgeBase(history, index=_copy_index(os.path.join(history.folder, INDEX), folder))
        knowledge.sync()
        known = knowledge.select_for_story(briefing.build_query(situation, history))
        built = briefing.build(situation, known, TOKEN)
        knowledge.close()
    return built


def _describe_box(root: str, change: str, settings: Settings, gates: Sequence[str], given: Sequence[Runner]) -> str:
    """What a prompt says about the box that its agent would work in; empty if it would not work in one."""
    is_remote = settings.run.executor != "local"
    if not is_remote and workspace_choice.find_expected(settings, Repository.find(root), gates, change).kind != "box":
        return ""
    runners: Sequence[Runner] = given
    with suppress(RalphError):  # no agent is configured, which is reported elsewhere
        runners = given or make_runners(settings, is_boxed=not is_remote)
    return box_words.describe_box(settings, runners, root)


def _copy_index(index: str, folder: str) -> str:
    """A copy of the memory's index: rebuilding it would take long, and the real one must not be changed."""
    copy = os.path.join(folder, INDEX)
    with suppress(OSError):  # it can be rebuilt from the history
        shutil.copyfile(index, copy)
    return copy


def _read_kept_story(root: str, spec: Spec, story: Story, stands: ChangeState, folder: str) -> Story:
    """The story as the next attempt finds it: with the ticks of work that was kept."""
    kept = stands.story(story.id).kept
    repository = Repository.find(root) if kept else None
    if not kept or repository is None or repository.resolve(kept) is None:
        return story
    spec_files.write_spec_files(repository, root, spec.change, kept, folder, spec.ref)
    there = specs.open(folder, spec.change, spec.ref).stories(_list_completed(stands))
    return specs.find_story(there, story.id)
