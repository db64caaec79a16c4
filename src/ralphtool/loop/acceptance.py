"""A person's decisions about a story: accepted as it is, or rejected and open again.

A decision is planned first, which changes nothing and finds every error. Then it is carried out.
A kill at any point leaves the old state, the new one, or a state in which repeating the command leads to the new one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct, structs

from ralphtool import specs
from ralphtool.core import layout, session
from ralphtool.errors import GitError, InvalidValue, SpecError
from ralphtool.history import analyzer
from ralphtool.judging import receipt
from ralphtool.judging.receipt import Receipt
from ralphtool.loop import outcome
from ralphtool.record import change_state, events, kept_attempts, run_command
from ralphtool.record.change_state import Outcome
from ralphtool.workspace.git import Repository

if TYPE_CHECKING:
    from ralphtool.loop.change import Change
    from ralphtool.record.change_state import StoryState
    from ralphtool.record.steering import SteeringCommand
    from ralphtool.specs import Spec, Story

_MOST_FILES = 1000


class DecisionPlan(Struct, frozen=True, kw_only=True):
    """The effect of a person's decision. Without a `kind` there is nothing to do, and `text` says why."""

    story: Story
    said: SteeringCommand
    text: str
    kind: str = ""  # receipt, attempt or revert
    tree: str = ""  # the branch's new tree
    entry: str = ""  # the attempt that is accepted
    reopened: tuple[str, ...] = ()  # the stories, newest first


def plan(change: Change, said: SteeringCommand) -> DecisionPlan:
    """Plans a decision, or raises the error that prevents it."""
    stories = change.stories()
    story = specs.find_story(stories, said.story or "")
    is_done = story.id in change.done(stories)
    if said.action == "reject":
        return _plan_rejection(change, said, story, is_done=is_done)
    return _plan_receipt(change, said, story) if is_done else _plan_attempt(change, said, story)


def carry_out(change: Change, made: DecisionPlan) -> None:
    """Applies a plan to the change; its events for the record go to `change.events`."""
    if made.kind == "receipt":
        _accept_story(change, made)
    elif made.kind == "attempt":
        _accept_attempt(change, made)
    elif made.kind == "revert":
        _reject(change, made)


# --- accepting a story that is done -----------------------------------------------------------------


def _plan_receipt(change: Change, said: SteeringCommand, story: Story) -> DecisionPlan:
    state, name = change.change_state.story(story.id), f"story {story.id} of {change.name}"
    if not change.has_checkpoint(story):
        return DecisionPlan(story=story, said=said, text=f"{name} was ticked by you: there is nothing to accept")
    if said.entry and said.entry != state.entry:
        raise InvalidValue(
            f"{name} is already done with another attempt: reject that first (`ralphtool reject "
            f"{story.id}{change.change_flag()}`), then accept {said.entry}"
        )
    claim = change.read_receipts().get(story.id)
    if claim and claim.state != "unproven":
        text = f"{name} is already {receipt.describe(claim)}: there is nothing to accept"
        return DecisionPlan(story=story, said=said, text=text)
    return DecisionPlan(story=story, said=said, kind="receipt", text=f"{name} is accepted")


def _accept_story(change: Change, made: DecisionPlan) -> None:
    state = change.change_state.story(made.story.id)
    before = change.read_receipts().get(made.story.id) or Receipt()
    told = (*before.told, *([f"it was not proven: {before.why}"] if before.why else []))
    # If its checkpoint is gone from the branch, the person has looked at the branch as it is.
    commit = change.workspace.checkpoints().get(made.story.id) or change.workspace.tip
    state.proof = _sign(structs.replace(before, told=told, commit=commit), made.said)
    change.close_question(state)
    change.save()
    _record_proof(change, made.story, state)


def _sign(given: Receipt, said: SteeringCommand) -> Receipt:
    return structs.replace(given, state="accepted", why=said.text, by=said.by, at=said.at or session.now())


def _record_proof(change: Change, story: Story, state: StoryState) -> None:
    change.events.append(events.Proof(story=story.id, entry=state.entry or "", receipt=state.proof or Receipt()))


# --- accepting an attempt ---------------------------------------------------------------------------


def _plan_attempt(change: Change, said: SteeringCommand, story: Story) -> DecisionPlan:
    entry = said.entry or _find_last_attempt(change, story)
    if not _is_about(change, story, entry):
        raise InvalidValue(f"{entry} is not an attempt at story {story.id}: `ralphtool attempts` lists the attempts")
    tree = change.workspace.edit_spec(
        change.workspace.merge_attempt(entry, _find_commit(change, entry), change.ref),
        change.ref,
        lambda spec: _tick_all(spec, story.id),
    )
    change.workspace.check_publish(tree)
    text = f"story {story.id} of {change.name} is done: the attempt {entry} is accepted as it is"
    return DecisionPlan(story=story, said=said, kind="attempt", text=text, tree=tree, entry=entry)


def _find_commit(change: Change, entry: str) -> str | None:
    """The work of an attempt; None if it was not kept."""
    repository = Repository.find(change.root)
    there = repository.resolve(layout.ATTEMPTS + entry) if repository else None
    if repository is None or there is None:
        return None
    own = kept_attempts.read_own(repository, change.root, change.history, [entry])
    if not own:
        raise kept_attempts.build_lost_error(repository, entry, there)
    return own[entry]


def _is_about(change: Change, story: Story, entry: str) -> bool:
    """An edit of the plan may have given the story another id since, and its id to another story."""
    state, (prd_id, _, number) = change.change_state.story(story.id), entry.rpartition("-")
    is_numbered = prd_id == change.prd_id(story.id) and number.isdecimal()
    return entry == state.entry or (is_numbered and int(number) >= state.since)


def _find_last_attempt(change: Change, story: Story) -> str:
    last = change.history.last_entry(change.prd_id(story.id))
    known = change.change_state.story(story.id).entry
    if known and (last is None or not _is_about(change, story, last.id)):
        return known
    if last is None or not _is_about(change, story, last.id):
        raise InvalidValue(
            f"story {story.id} of {change.name} has no attempt yet to accept: "
            f"`{run_command.build(change.root, change.name)}` makes one"
        )
    return last.id


def _tick_all(spec: Spec, story: str) -> None:
    tasks = [task.id for task in specs.find_story(spec.stories(), story).required]
    for task in tasks:
        spec.tick(task, tasks, proven=True)


def _accept_attempt(change: Change, made: DecisionPlan) -> None:
    """Saved as the outcome of an iteration: if this is interrupted, the next run carries it out."""
    before = change.look_back(made.story.id)
    commit = change.workspace.commit(made.tree, _build_message(change, made, f"{before.prd_id}-{before.iteration}"))
    by = f" by {made.said.by}" if made.said.by else ""
    entry = analyzer.record(
        before,
        "completed",
        summary=f"accepted as it is ({made.entry}){by}{made.said.text and f': {made.said.text}'}",
        files_modified=change.workspace.list_changed(made.tree)[:_MOST_FILES],
        git_commits=[commit] if commit else [],
        dependencies_completed=[change.prd_id(id) for id in made.story.depends_on],
    )
    state = change.change_state.story(made.story.id)
    proof = _sign(_read_evidence(change, made, state, commit), made.said)
    change.close_question(state)
    change_state.finish_accepted(state, entry.id, [task.id for task in made.story.tasks], proof)
    made_of = Outcome(story=made.story.id, entry=entry, commit=commit, tree=made.tree, proof=proof)
    change.change_state.outcome = made_of
    change.save()
    outcome.carry_out(change, made_of)
    change.restore_ticks()
    change.workspace.begin(None)
    change.events.append(
        events.Checkpoint(story=made.story.id, commit=commit, subject=made.story.title, proof="accepted")
    )
    _record_proof(change, made.story, state)


def _read_evidence(change: Change, made: DecisionPlan, state: StoryState, commit: str | None) -> Receipt:
    """The evidence against an attempt that a person accepts: it stays on record."""
    lost = tuple(state.accused[: receipt.MOST_NAMES]) if made.entry == state.entry else ()
    found = change.history.last_entry(change.prd_id(made.story.id))
    told = (f"it was judged failed: {found.summary}",) if found and found.id == made.entry and found.summary else ()
    return Receipt(commit=commit, lost=lost, told=told)


def _build_message(change: Change, made: DecisionPlan, entry: str) -> str:
    story, said = made.story, made.said
    body = f"Accepted as it is: {made.entry}{said.text and f'{chr(10)}{chr(10)}{said.text}'}"
    trailers = f"Ralph-Accepted-By: {said.by}" if said.by else ""
    note = outcome.build_note(change, "accepted", made.tree)
    return outcome.build_message(change, story, entry, note, body, trailers)


# --- rejecting --------------------------------------------------------------------------------------


def _plan_rejection(change: Change, said: SteeringCommand, story: Story, *, is_done: bool) -> DecisionPlan:
    name = f"story {story.id} of {change.name}"
    if not is_done:  # not an error: repeating a rejection that was killed must succeed
        text = f"{name} is not done: there is nothing to reject"
        command = f'ralphtool guide {story.id} "…"{change.change_flag()}'
        return DecisionPlan(story=story, said=said, text=f"{text} (to send guidance: `{command}`)")
    if change.workspace.branch and not change.has_checkpoint(story):
        raise InvalidValue(f"{name} was ticked by you, so there is no work to revert: untick its boxes instead")
    if said.entry and said.entry != change.change_state.story(story.id).entry:
        raise InvalidValue(
            f"{name} is not done with {said.entry}: `ralphtool reject {story.id}{change.change_flag()}` reverts its "
            "current attempt"
        )
    known = change.change_state.story(story.id).proof
    taken = change.workspace.revert(story.id, change.ref, known.commit if known else None)
    tree = change.workspace.edit_spec(taken.tree, change.ref, lambda spec: _untick_all(spec, taken.stories))
    change.workspace.check_publish(tree)
    text = f"{name} is open again: its work is reverted"
    if others := [id for id in taken.stories if id != story.id]:
        told = ", ".join(story.id for story in change.stories() if story.id in others)
        text += f"; stories that changed the same lines are reverted and open again, too: {told}"
    return DecisionPlan(story=story, said=said, kind="revert", text=text, tree=tree, reopened=taken.stories)


def _untick_all(spec: Spec, stories: tuple[str, ...]) -> None:
    untick = getattr(spec, "untick", None)
    if untick is None:
        raise GitError(
            f"the spec format {spec.adapter} can't untick a box: revert the work by hand, and untick the boxes"
        )
    known = spec.stories()
    for id in stories:
        for task in specs.find_story(known, id).tasks:
            untick(task.id)
    if done := [one.id for one in spec.stories() if one.id in stories and one.done]:
        raise SpecError(f"{spec.path}: the story {done[0]} can't be marked as open again")


def _reject(change: Change, made: DecisionPlan) -> None:
    """Saves the state before the branch: after an interruption the story is still done and can be rejected again."""
    for id in made.reopened:
        _reopen(change, made, id)
    change.save()
    commit = change.workspace.commit(made.tree, _build_revert_message(change, made))
    change.workspace.publish("", commit, tree=made.tree)
    change.workspace.drop_checkpoints(made.reopened)
    change.restore_ticks()
    change.workspace.begin(None)
    for id in made.reopened:
        why = made.said.text if id == made.story.id else f"it builds on story {made.story.id}, which was rejected"
        change.events.append(events.Reopened(story=id, why=why, by=made.said.by, commit=commit))


def _reopen(change: Change, made: DecisionPlan, id: str) -> None:
    state, said = change.change_state.story(id), made.said
    why = said.text and f": {said.text}"
    if id == made.story.id:
        reason, told = f"you rejected it{why}", f"The earlier work on this story was rejected{why}"
    else:
        reason = f"it builds on story {made.story.id}, which you rejected"
        told = f"The earlier work on this story was reverted, because story {made.story.id} was rejected{why}"
    change.close_question(state)
    change_state.begin_anew(state, reason, told)


def _build_revert_message(change: Change, made: DecisionPlan) -> str:
    said = made.said
    subject = f"Revert: {outcome.make_one_line(made.story.title, 90)} ({change.name} {made.story.id})"
    rejected = "".join(f"Ralph-Rejected: {id}\n" for id in made.reopened)
    by = f"Ralph-Rejected-By: {said.by}\n" if said.by else ""
    why = f"{said.text}\n\n" if said.text else ""
    return f"{subject}\n\n{why}Ralph-Change: {change.name}\n{rejected}{by}"
