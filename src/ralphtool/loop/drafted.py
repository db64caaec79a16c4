"""A drafted change: read from its folder, checked by its adapter and the draft rules, then kept or rejected."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import closing
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from ralphtool import specs
from ralphtool.core import files, layout
from ralphtool.errors import ChangeNotFound, DraftFailed, InvalidValue, RalphError, SpecError
from ralphtool.judging import draft_rules
from ralphtool.loop.story_list import list_prd_ids
from ralphtool.record import events, run_command
from ralphtool.record.event_parts import NextStep, StoryAfter, Totals
from ralphtool.record.log import Log
from ralphtool.specs import scaffold, writing
from ralphtool.specs.scaffold import Scaffold

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ralphtool.judging.draft_rules import DraftProblem
    from ralphtool.specs import Story

STORY = "plan"  # the story id of this work in the record
TITLE = "Draft the change"
_MOST_FILES, _MOST_BYTES = 100, 1 << 20


class PlanRequest(Struct, frozen=True, kw_only=True):
    """A request for a plan: the user's idea, and the change that it becomes."""

    root: str
    idea: str
    made: Scaffold
    gates: tuple[str, ...] = ()

    @property
    def ref(self) -> str:
        return self.made.spec or self.made.format

    @property
    def inside(self) -> str:
        """The path of the new change, relative to the project's folder."""
        return os.path.relpath(self.made.place, self.root)


class DraftedChange(Struct, frozen=True, kw_only=True):
    """A draft as it is now. It can be kept unless `blocked` says why not."""

    request: PlanRequest
    run: str
    folder: str  # laid out like the project
    texts: dict[str, str]  # by path below the change's own place, as in a Scaffold
    stories: tuple[Story, ...] = ()
    scenarios: int = 0
    blocked: str = ""
    problems: tuple[DraftProblem, ...] = ()
    left_out: tuple[str, ...] = ()  # files that are not part of the change
    spent: Totals = Totals()

    @property
    def paths(self) -> list[str]:
        place = os.path.join(self.folder, self.request.inside)
        return [os.path.join(place, name) if name else place for name in self.texts]

    def list_complaints(self) -> list[str]:
        """One line for each problem."""
        told = [f"story {one.story}: {one.text}" if one.story else one.text for one in self.problems]
        return [*([self.blocked] if self.blocked else []), *told]


# --- reading a draft --------------------------------------------------------------------------------


def read_draft(draft: DraftedChange) -> DraftedChange:
    """The draft as it is on disk now, checked by its adapter and the draft rules."""
    try:
        texts, left_out = _read_texts(draft.request, draft.folder)
        found = structs.replace(draft, texts=texts, left_out=tuple(left_out), blocked="", stories=(), problems=())
        return _check(found) if texts else found
    except (RalphError, UnicodeDecodeError) as error:
        told = str(error).replace(f"{draft.folder}/", "")
        known = structs.replace(draft, texts=_list_names(draft), stories=(), scenarios=0, problems=())
        return structs.replace(known, blocked=told)


def open_boxes(draft: DraftedChange) -> DraftedChange:
    """The draft without its agent's ticks: nothing is done yet, and a ticked story would count as the user's tick."""
    ticked = [task.id for story in draft.stories for task in story.tasks if task.done]
    if not ticked:
        return draft
    spec = specs.open(draft.folder, draft.request.made.change, draft.request.ref)
    untick = getattr(spec, "untick", None)
    if untick is None:
        return structs.replace(draft, blocked=f"{', '.join(ticked)} is ticked, but nothing is done yet")
    for id in ticked:
        untick(id)
    return structs.replace(read_draft(draft), spent=draft.spent)


def _list_names(draft: DraftedChange) -> dict[str, str]:
    """The files of an unreadable draft, so that the user can edit them."""
    place = os.path.join(draft.folder, draft.request.inside)
    return {"" if path == place else os.path.relpath(path, place): "" for path in _list_files(place)}


def _check(draft: DraftedChange) -> DraftedChange:
    request = draft.request
    try:
        spec = specs.open(draft.folder, request.made.change, request.ref)
    except ChangeNotFound:  # some formats are recognized only by their tasks
        raise SpecError(
            f"{request.inside} has no tasks: write them as open boxes, below a heading for each story"
        ) from None
    stories = tuple(spec.stories())
    if all(task.done for story in stories for task in story.tasks):
        raise SpecError("it has no open box, so there is nothing to do: give each story tasks, as open boxes")
    scaffold.check_filled_in(spec)
    list_prd_ids(spec)
    told = {tuple(map(str, one.as_dict().values())) for story in stories for one in spec.scenarios(story)}
    expected = writing.find_guide(request.made.format).has_scenarios
    problems = draft_rules.find_problems(stories, len(told) if expected else None)
    return structs.replace(draft, stories=stories, scenarios=len(told), problems=tuple(problems))


def _read_texts(request: PlanRequest, folder: str) -> tuple[dict[str, str], list[str]]:
    """The files of the change by path below its place, and the paths of files that are not part of it."""
    place = os.path.join(folder, request.inside)
    own = list(_list_files(place))
    others = [path for path in _list_files(folder) if path not in own]
    if len(own) > _MOST_FILES:
        raise InvalidValue(f"it has {len(own)} files, which is too many for a plan: the maximum is {_MOST_FILES}")
    texts = {"" if path == place else os.path.relpath(path, place): _read_text(path) for path in own}
    return texts, [os.path.relpath(path, folder) for path in others]


def _list_files(place: str) -> Iterator[str]:
    """Only plain, visible files: a link leads elsewhere, and a hidden file may contain instructions for agents."""
    if os.path.isfile(place) and not os.path.islink(place):
        yield place
    for folder, names, found in os.walk(place):
        names[:] = sorted(name for name in names if not name.startswith("."))
        for name in sorted(found):
            path = os.path.join(folder, name)
            if not name.startswith(".") and stat.S_ISREG(os.lstat(path).st_mode):
                yield path


def _read_text(path: str) -> str:
    if os.path.getsize(path) > _MOST_BYTES:
        raise InvalidValue(f"{path} is bigger than {_MOST_BYTES >> 20} MB, which is too big for a plan: shorten it")
    try:
        text = files.read(path).decode("utf-8")
    except UnicodeDecodeError:
        raise InvalidValue(f"{path} is not UTF-8: save it as UTF-8") from None
    if "\0" in text:
        raise InvalidValue(f"{path} contains NUL characters: it must be text")
    return text


def describe_size(draft: DraftedChange) -> str:
    """`3 stories (1 optional), 9 tasks, 2 scenarios, 2 files, 64 lines`."""
    tasks = sum(len(story.tasks) for story in draft.stories)
    lines = sum(text.count("\n") for text in draft.texts.values())
    optional = sum(story.optional for story in draft.stories)
    counts = [(len(draft.stories), "story", "stories"), (tasks, "task", "tasks")]
    counts += [(draft.scenarios, "scenario", "scenarios")] if draft.scenarios else []
    counts += [(len(draft.texts), "file", "files"), (lines, "line", "lines")]
    told = [f"{count} {one if count == 1 else many}" for count, one, many in counts]
    return ", ".join([told[0] + (f" ({optional} optional)" if optional else ""), *told[1:]])


# --- keeping and rejecting --------------------------------------------------------------------------


def keep(draft: DraftedChange) -> Scaffold:
    """Puts the draft in place as it is now, in one step. Existing files are never touched."""
    now = read_draft(draft)
    if now.blocked or not now.texts:
        raise DraftFailed(f"the draft can't be kept: {now.blocked or 'it is gone'}")
    made = now.request.made
    final = Scaffold(made.change, made.place, now.texts, made.spec, made.if_taken)
    final.format = made.format
    try:
        scaffold.write(final)
    except OSError as error:
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
            raise
        raise InvalidValue(f"{made.place} already exists and is not changed: the draft is in {draft.folder}") from None
    flag = f" --spec {made.spec}" if made.spec else ""
    steps = (
        NextStep(say="read it", run=f"ralphtool show {made.change}{flag}"),
        NextStep(say="run it", run=run_command.build_located(draft.request.root, made.change, made.spec or "")),
    )
    _record_end(draft, "done", f"{made.change} is planned: {describe_size(now)}", "done", steps)
    return final


def reject(draft: DraftedChange, why: str) -> None:
    """Records that the draft was not kept. It stays where it is."""
    _record_end(draft, "unfinished", f"{why}; the draft is in {draft.folder}", "open", ())


def _record_end(draft: DraftedChange, result: str, reason: str, state: str, steps: tuple[NextStep, ...]) -> None:
    with closing(Log(layout.events(draft.request.root, draft.run))) as log:
        log.add(build_end(draft.spent, result, reason, state, steps))


def build_end(
    spent: Totals, result: str, reason: str, state: str = "open", steps: tuple[NextStep, ...] = ()
) -> events.RunEnded:
    known = {name: value for name, value in structs.asdict(spent).items() if value is not None}
    attempts = known.pop("iterations", 0)
    why = "" if state == "done" else reason
    row = StoryAfter(id=STORY, title=TITLE, state=state, attempts=attempts, why=why, **known)
    return events.RunEnded(result=result, reason=reason, stories=(row,), spent=spent, next=steps)
