"""Builds an agent's prompt from the state of a story and from what is known."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from ralphtool.core import layout, learnings_file
from ralphtool.loop import prompt
from ralphtool.memory.knowledge import KnowledgeQuery

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ralphtool.history import History
    from ralphtool.history.analyzer import AttemptContext
    from ralphtool.loop.prompt import Prompt
    from ralphtool.memory.knowledge import RelevantKnowledge
    from ralphtool.record.change_state import ChangeState, StoryState
    from ralphtool.settings import Settings
    from ralphtool.specs import Spec, Story

_CUT_OFF = """\
The last iteration of this story was interrupted from outside; it did nothing wrong. Its unfinished work is in the tree,
uncommitted and unproven: review it, and continue from there."""
_SHOWN_FILES = 200


class Situation(Struct, frozen=True, kw_only=True):
    """The state of a story when an iteration is about to begin."""

    root: str
    spec: Spec
    story: Story
    change_state: ChangeState
    before: AttemptContext
    settings: Settings
    gates: Sequence[str]
    box: str = ""  # the description of the agent's box, if it works in one

    @property
    def state(self) -> StoryState:
        return self.change_state.story(self.story.id)

    @property
    def task(self) -> str | None:
        """The one task to do, if the story is done in chunks."""
        return next((one.id for one in self.story.required if not one.done), None) if self.state.in_chunks else None


def build_query(situation: Situation, history: History) -> KnowledgeQuery:
    """The query for the memory."""
    story, before, state = situation.story, situation.before, situation.state
    tasks = [one.text for one in story.tasks if situation.task in (None, one.id) and not one.done]
    last = history.last_entry(before.prd_id) if before.previous_failure else None
    return KnowledgeQuery(
        prd_id=before.prd_id,
        story=f"{story.title}.\n{story.description or ''}",
        story_id=story.id,
        tasks=tasks,
        failure=f"{before.previous_failure}\n{state.error}" if before.previous_failure else "",
        files=last.files_modified[:_SHOWN_FILES] if last else (),
    )


def build(situation: Situation, known: RelevantKnowledge, token: str) -> Prompt:
    spec, story, state, settings = situation.spec, situation.story, situation.state, situation.settings
    return prompt.build(
        prompt.Material(
            change=spec.change,
            story=story,
            token=token,
            attempt=state.attempts + 1,
            attempts=settings.run.attempts,
            task=situation.task,
            proposal=spec.proposal(),
            design=spec.design(),
            scenarios=spec.scenarios(story),
            failure=_describe_failure(situation.before.previous_failure, state.error),
            guidance=_join_guidance(situation.change_state, state),
            warnings=situation.before.warnings,
            memory=known.items,
            known=known.known,
            notes=learnings_file.read(spec.change),
            notes_path=learnings_file.path_of(spec.change),
            box=situation.box,
            gates=situation.gates,
            budget_tokens=settings.prompt.budget_tokens,
            memory_tokens=settings.memory.budget_tokens,
        ),
        templates_path(situation.root),
    )


def _describe_failure(told: str | None, output: str) -> str | None:
    """How the last attempt ended, with the error that its gates printed: the names of tests alone may not help."""
    if not told or not output:
        return told
    return f"{told}\n\nThe end of the output of the red gates:\n{output}"


def templates_path(root: str) -> str:
    """The folder with the user's own prompt sections."""
    return layout.prompts(root)


def _join_guidance(current: ChangeState, state: StoryState) -> str:
    """A person's words come first, so that they stay if there is not enough room for everything."""
    answer = state.answer and f"A human answered: {state.answer}"
    told = [f"A human says: {text}" for text in (*current.told, *state.told)]
    return "\n\n".join(filter(None, [answer, *told, state.guidance, _describe_tree(state)]))


def _describe_tree(state: StoryState) -> str:
    """What the tree contains besides the last checkpoint, and why."""
    if state.sent_back:
        return state.sent_back.text
    met = (
        (f"Earlier work on this story was dropped: {state.met}. The tree has the other story's work.")
        if state.met
        else ""
    )
    return " ".join(filter(None, [met, _CUT_OFF if state.cut_off else ""]))
