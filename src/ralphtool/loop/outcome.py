"""From a verdict to its lasting results: the entry, the commit, the question, and the new state of the story."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

from msgspec import Struct, structs

from ralphtool import specs
from ralphtool.core import secrets, session
from ralphtool.core.text import fence_visible
from ralphtool.executors import gate_run
from ralphtool.history import analyzer
from ralphtool.history.records import Observation, RecoveryAction
from ralphtool.judging import gates
from ralphtool.judging.proof_words import drop_agent_advice, list_agent_advice
from ralphtool.memory import usefulness
from ralphtool.memory.usefulness import ShownItems
from ralphtool.record import questions
from ralphtool.record.change_state import Outcome, Question
from ralphtool.specs import titles
from ralphtool.workspace import checkpoints

if TYPE_CHECKING:
    from ralphtool.core.session import SessionState
    from ralphtool.executors import Assignment, Report
    from ralphtool.history.analyzer import AttemptContext
    from ralphtool.history.records import Entry
    from ralphtool.judging.blockers import BlockerCheck
    from ralphtool.judging.recovery import RecoveryContext, RecoveryDecision
    from ralphtool.judging.verdict import Verdict
    from ralphtool.loop.change import Change
    from ralphtool.record.change_state import StoryState
    from ralphtool.specs import Spec, Story

_MOST_FILES = 1000


class Iteration(Struct, frozen=True, kw_only=True):
    """One iteration whose verdict and decision are known."""

    story: Story
    assignment: Assignment
    before: AttemptContext
    report: Report
    verdict: Verdict
    past: RecoveryContext
    decision: RecoveryDecision
    observations: tuple[Observation, ...]
    check: BlockerCheck  # of a claimed blocker
    dependencies: list[str] = []  # their prd_ids

    @property
    def is_done(self) -> bool:
        return self.verdict.status == "completed"

    @property
    def is_kept(self) -> bool:
        return self.verdict.status in ("completed", "partial")

    @property
    def is_done_chunk(self) -> bool:
        return self.verdict.status == "partial" and self.assignment.task in self.verdict.ticked


def settle(change: Change, iteration: Iteration) -> Outcome:
    """Writes the outcome of an iteration, in one step. From then on it counts, and must only be carried out."""
    change.change_state.story(iteration.story.id).close_return()
    if not iteration.is_kept:
        change.undo_ticks(iteration.story)
    tree = _mark_done(change, iteration)
    commit = _commit(change, iteration, tree)
    drawn = _draw_learnings(change, _build_entry(change, iteration, commit))
    receipt = iteration.verdict.receipt if iteration.is_done else None
    made = Outcome(
        story=iteration.story.id,
        entry=drawn.entry,
        learnings=drawn.learnings,
        showing=iteration.assignment.shown,
        commit=commit,
        tree=tree if iteration.is_done else None,
        question=_build_question(change, iteration) if _needs_person(iteration) else None,
        proof=structs.replace(receipt, commit=commit) if receipt else None,
    )
    _update_story_state(change, iteration, made)
    _keep_baseline(change, iteration, tree)
    change.change_state.outcome = made
    change.save()
    return made


def _needs_person(iteration: Iteration) -> bool:
    return iteration.decision.action == "manual" or bool(iteration.verdict.asks)


def carry_out(change: Change, outcome: Outcome) -> str:
    """Every step may be repeated. The entry comes last, and shows that all steps were done.

    Returns what else went wrong, if anything.
    """
    if outcome.commit:
        story = outcome.story if outcome.tree else ""
        change.workspace.publish(outcome.entry.id, outcome.commit, tree=outcome.tree, story=story)
    if outcome.question:
        questions.ask(questions.path_of(change.root, outcome.question.name), outcome.question.text)
    entry = outcome.entry
    trouble = usefulness.record_showing(
        change.root, ShownItems(entry.id, entry.status, outcome.showing, entry.timestamp)
    )
    shown = [id for id in outcome.showing.values() if id]
    change.history.append(outcome.entry, outcome.learnings, shown)
    return trouble


def is_pending(change: Change) -> bool:
    """Whether a run was killed between writing an outcome and carrying it out."""
    made = change.change_state.outcome
    if made is None or change.history.next_iteration(made.entry.prd_id) != made.entry.iteration:
        return False
    # If the branch has moved meanwhile, without the outcome, the attempt counts as interrupted.
    return made.tree is None or made.commit is None or change.workspace.follows(made.commit)


# --- the commit -------------------------------------------------------------------------------------


def _mark_done(change: Change, iteration: Iteration) -> str | None:
    """The tree of the attempt; if a format marks a story as done, only ralphtool sets that mark, and only now."""
    tree, story = iteration.report.tree, iteration.story
    # The spec is opened only for work that is done: an agent may have removed it.
    if not iteration.is_done or _is_marked(spec := change.spec, story.id):
        return tree
    spec.tick(story.required[-1].id, change.state()["completed_tasks"], proven=True)
    return change.workspace.add(specs.list_own_paths(change.workspace.root, spec))


def has_marks(spec: Spec) -> bool:
    """Whether the format marks a story as done, besides its tasks."""
    return hasattr(spec, "is_marked") or bool(getattr(spec, "done_key", None))


def _is_marked(spec: Spec, story_id: str) -> bool:
    """Whether a story already has its mark. If tasks have their own marks, they don't show that."""
    own = getattr(spec, "is_marked", None)
    if own is None and getattr(spec, "done_key", None):
        return False
    return specs.find_story(spec.stories(), story_id).done and (own is None or own(story_id))


def _commit(change: Change, iteration: Iteration, tree: str | None) -> str | None:
    story, verdict, entry = iteration.story, iteration.verdict, iteration.assignment.entry
    trailers = f"Ralph-Change: {change.name}\nRalph-Entry: {entry}\n"
    if not iteration.is_done:
        trailers += checkpoints.build_project_trailer(change.workspace.prefix)
        return change.workspace.commit(tree, f"{entry}: {verdict.status}\n\n{verdict.summary}\n\n{trailers}")
    note = build_note(change, verdict.receipt.state, tree) if verdict.receipt else ""
    return change.workspace.commit(tree, build_message(change, story, entry, note))


def build_note(change: Change, proof: str, tree: str | None) -> str:
    """The trailer with the state of the proof; empty without git."""
    before = change.workspace.checkpoint_tree
    return checkpoints.build_note(proof, before, tree) if before and tree else ""


def build_message(change: Change, story: Story, entry: str, note: str, body: str = "", trailer: str = "") -> str:
    """The message of a story's checkpoint; `note` is about its proof."""
    title = titles.find_title(change.spec)
    about = f"{make_one_line(title, 60)}, {story.id}" if title else f"{change.name} {story.id}"
    subject = f"{make_one_line(story.title, 100)} ({about})"
    tasks = "\n".join(f"- {task.id} {make_one_line(task.text, 200)}" for task in story.tasks)
    trailers = f"{note}Ralph-Change: {change.name}\nRalph-Entry: {entry}\nRalph-Story: {story.id}\n"
    trailers += checkpoints.build_project_trailer(change.workspace.prefix)
    parts = [subject, tasks, body, trailers + (f"{trailer}\n" if trailer else "")]
    return "\n\n".join(filter(None, parts))


def make_one_line(text: str, longest: int) -> str:
    return " ".join(text.split())[:longest]


# --- the entry --------------------------------------------------------------------------------------


def _build_entry(change: Change, iteration: Iteration, commit: str | None) -> Entry:
    state = change.change_state.story(iteration.story.id)
    led_here = state.decision if state.decision and state.decision.action in get_args(RecoveryAction) else None
    report, verdict, real = iteration.report, iteration.verdict, iteration.check.is_real
    status: Any = verdict.status
    return analyzer.record(
        iteration.before,
        status,
        observations=iteration.observations,
        duration_seconds=round(report.agent_seconds + report.gate_seconds),
        summary=verdict.summary,
        files_modified=report.paths[:_MOST_FILES],
        git_commits=[commit] if commit else [],
        recovery_action=led_here.action if led_here else None,
        recovery_guidance=(state.guidance or None) if led_here else None,
        dependencies_completed=iteration.dependencies,
        blocker_verified=real is not None if verdict.status == "blocked" else None,
        blocker_valid=real if verdict.status == "blocked" else None,
    )


def _draw_learnings(change: Change, entry: Entry) -> analyzer.EntryLearnings:
    if not any(analyzer.has_learning(one) for one in entry.observations):
        return analyzer.EntryLearnings(entry, ())
    return analyzer.draw_learnings(entry, change.history.learnings(), change.history.next_learning_number())


def build_observation(fields: SessionState) -> Observation:
    """An agent's observation, as the history keeps it."""
    names = ("type", "title", "description", "file", "category", "severity")
    given = {name: fields[name] for name in names if fields.get(name) is not None}
    return Observation(**secrets.mask(given, secrets.list_values()))


# --- the question -----------------------------------------------------------------------------------


def _build_question(change: Change, iteration: Iteration) -> Question:
    prd_id, verdict, check = iteration.before.prd_id, iteration.verdict, iteration.check
    story, why = iteration.story, iteration.decision.reason
    missing = check.found if check.is_real else verdict.asks or verdict.question or drop_agent_advice(verdict.summary)
    earlier = change.history.entries(last=5, prd_id=prd_id)
    tried = [f"- {one.id}: {drop_agent_advice(one.summary or one.status)}" for one in earlier]
    now = f"- {iteration.assignment.entry}: {drop_agent_advice(verdict.summary)}"
    text = questions.render(
        prd_id,
        {
            "Story": f"{story.id}. {story.title} (change {change.name})",
            **_describe_cause(check, verdict, missing),
            "Why you are asked": why,
            **_describe_meeting(change.change_state.story(story.id).met),
            **_describe_changed_tests(change, iteration),
            "What was tried": fence_visible("\n".join([*tried, now])),
        },
        is_done=iteration.is_done,
    )
    return Question(f"{prd_id[-200:]}.md", text, story.title, missing, why, session.now())


def _describe_cause(check: BlockerCheck, verdict: Verdict, missing: str) -> dict[str, str]:
    """What the agent needs, or else what happened, and what the agent was told about it."""
    if check.is_real:
        return {"What is missing": missing}
    if verdict.question or verdict.status == "blocked":
        return {"What is missing": fence_visible(missing)}
    advice = [] if verdict.asks else list_agent_advice(verdict.summary)
    return {"What happened": fence_visible("\n\n".join([missing, *(f"The agent was told: {one}." for one in advice)]))}


def _describe_meeting(met: str) -> dict[str, str]:
    """The other stories and the files, if resolving the conflict has failed."""
    return {"Conflict with other work": fence_visible(met)} if met else {}


def _describe_changed_tests(change: Change, iteration: Iteration) -> dict[str, str]:
    """What a person needs to decide about tests that were changed."""
    proof = iteration.report.proof
    sections = {"How the tests changed": fence_visible(proof.test_diff)} if proof and proof.test_diff else {}
    if iteration.verdict.asks:
        about = f"{iteration.story.id}{change.change_flag()}"
        say = f"`ralphtool accept {about}` if it is correct as it is, `ralphtool reject {about} --why …` if it is not."
        sections["Your options"] = say
    elif iteration.verdict.lost:
        sections["Your options"] = f"`ralphtool accept {iteration.assignment.entry}` accepts the attempt as it is."
    return sections


# --- the state of the story -------------------------------------------------------------------------


def _update_story_state(change: Change, iteration: Iteration, made: Outcome) -> None:
    state, decision = change.change_state.story(iteration.story.id), iteration.decision
    state.attempts += not (iteration.is_done or iteration.is_done_chunk)
    state.status, state.entry, state.decision = iteration.verdict.status, made.entry.id, decision
    state.guidance, state.asked = decision.guidance, iteration.verdict.question
    state.error = "" if iteration.is_done else _find_error(iteration)
    state.in_chunks = decision.action == "break-chunks" or (state.in_chunks and not iteration.is_done)
    state.question = made.question
    state.accused = list(iteration.verdict.lost)
    state.proof = made.proof or state.proof
    if iteration.is_kept:
        _keep_progress(change, iteration, state, made)
    if iteration.is_done:
        state.answer, state.told, state.returns, state.met = "", [], 0, ""
        state.guarded = iteration.verdict.to_guard or state.guarded  # of its earlier attempt, if it is done again
    if decision.action == "fix-state":
        state.kept, state.completed = None, []
        change.restore_ticks(iteration.story)


def _find_error(iteration: Iteration) -> str:
    """What the red gates printed about their newly red tests, or the old tests that fail on the new code."""
    report = iteration.report
    proof = report.proof if iteration.verdict.lost else None
    return gate_run.read_last_output(report.results, report.red) or (proof.old_output if proof else "")


def _keep_progress(change: Change, iteration: Iteration, state: StoryState, made: Outcome) -> None:
    ours = {task.id for task in iteration.story.tasks}
    state.completed = [task for task in change.state()["completed_tasks"] if task in ours]
    state.kept = None if iteration.is_done else made.commit


def _keep_baseline(change: Change, iteration: Iteration, tree: str | None) -> None:
    """The baseline of the tree that the next attempt begins with is known, so its gates need not run again."""
    report = iteration.report
    if iteration.is_done and report.gates_ran:
        key = gates.build_key(tree, iteration.assignment.gates)
        change.change_state.baseline = gates.build_baseline(key, report.results)
    elif report.baseline:
        change.change_state.baseline = report.baseline
