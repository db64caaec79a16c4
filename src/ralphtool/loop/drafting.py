"""Lets an agent draft a change from an idea. The draft is checked, and sent back once if it has problems.

The agent writes into `.ralph/runs/<run>/draft`, which is laid out like a project, so that the format's own adapter
can read the draft there. Nothing else that the agent writes is kept. Its output, actions and costs are recorded like
the iterations of a run, under the story `plan`.
"""

from __future__ import annotations

import os
from contextlib import closing, nullcontext
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from ralphtool.core import files, layout
from ralphtool.errors import DraftFailed, RalphError
from ralphtool.judging import draft_rules, verdict
from ralphtool.loop import draft_place, prompt
from ralphtool.loop.budget import Budget
from ralphtool.loop.drafted import (
    STORY,
    TITLE,
    DraftedChange,
    PlanRequest,
    build_end,
    describe_size,
    open_boxes,
    read_draft,
)
from ralphtool.loop.runners import build_agent_options, make_runners
from ralphtool.record import events, runs
from ralphtool.record.event_parts import Durations, RunGates, StoryBefore, Totals
from ralphtool.record.log import Log
from ralphtool.record.run_folder import build_id, make_folder
from ralphtool.specs import writing
from ralphtool.workspace.folder import Folder
from ralphtool.workspace.git import Repository
from ralphtool.workspace.paths import join_first
from ralphtool.workspace.protected_state import ProtectedState

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from ralphtool.agents import Runner
    from ralphtool.executors import Report
    from ralphtool.executors.local import LocalExecutor
    from ralphtool.executors.process import Supervisor
    from ralphtool.loop.draft_place import DraftPlace, PlaceChoice
    from ralphtool.loop.run import StopRequest
    from ralphtool.settings import Settings

_ROUNDS = 2  # a draft with problems is sent back once
_SHOWN = 5
_NOTHING = "the plan has no files: write them to the paths named above"


# --- the prompt -------------------------------------------------------------------------------------


def build_prompt(request: PlanRequest, project: str, folder: str, problems: Sequence[str] = ()) -> str:
    """The agent's prompt. `project` is where it finds the project, `folder` where it writes its draft."""
    made = request.made
    place = os.path.join(folder, request.inside)
    names = {name: os.path.join(place, name) if name else place for name in made.texts}
    material = prompt.PlanMaterial(
        change=made.change,
        format=made.format,
        project=project,
        idea=request.idea,
        files=list(names.values()),
        examples=[(name or os.path.basename(place), text) for name, text in made.texts.items()],
        guide=writing.find_guide(made.format).text,
        most_tasks=draft_rules.MOST_TASKS,
        gates=request.gates,
        problems=problems,
    )
    return prompt.build_plan(material, layout.prompts(request.root))


# --- drafting ---------------------------------------------------------------------------------------


def write_draft(
    request: PlanRequest,
    settings: Settings,
    runners: Sequence[Runner] = (),
    viewer: Callable[[str], AbstractContextManager[object]] = nullcontext,
    stop: StopRequest | None = None,
) -> DraftedChange:
    """Runs the agent, once more if its draft has problems. Nothing in the project is changed by this.

    The record stays without an end until `keep` or `reject` is called, unless this raises DraftFailed.
    """
    root = request.root
    _end_left_processes(root)
    repository = Repository.find(root)
    choice = draft_place.choose(settings, repository)
    checked = runners or make_runners(settings, is_boxed=choice.kind == "box")
    for runner in checked:
        draft_place.check_runner(choice, runner)
        runner.check()
    id = build_id(request.made.change)
    files.ensure_folder(layout.folder(root))
    make_folder(root, id)
    with closing(Log(layout.events(root, id))) as log, viewer(log.path):
        return _Drafting(
            request=request,
            settings=settings,
            runners=checked,
            id=id,
            log=log,
            stop=stop,
            choice=choice,
            budget=Budget(settings.run),
            agent_options=build_agent_options(root, settings, runners),
        ).execute(repository)


def _end_left_processes(root: str) -> None:
    """Ends the agents of a command that was killed together with its supervisor."""
    from ralphtool.executors import process
    from ralphtool.executors.environment import check_session_id

    for id in runs.list_ids(root)[:_SHOWN]:
        if _has_content(layout.processes(root, id)) and runs.read_summary(root, id).state == "died":
            process.end_orphans(layout.processes(root, id), check_session_id(id))


def _has_content(path: str) -> bool:
    return os.path.isfile(path) and os.path.getsize(path) > 0


class _Drafting(Struct, frozen=True, kw_only=True):
    """The work on one draft."""

    request: PlanRequest
    settings: Settings
    runners: Sequence[Runner]
    id: str
    log: Log
    stop: StopRequest | None
    choice: PlaceChoice
    budget: Budget
    agent_options: str

    @property
    def folder(self) -> str:
        return os.path.join(layout.run(self.request.root, self.id), "draft")

    @property
    def is_stopped(self) -> bool:
        return self.stop is not None and self.stop.count > 0

    def execute(self, repository: Repository | None) -> DraftedChange:
        try:
            self._announce()
            draft = self._work(repository)
        except (RalphError, OSError) as error:
            result = "interrupted" if self.is_stopped else "unfinished"
            self.log.add(build_end(_build_totals(self.budget), result, str(error)))
            raise
        return structs.replace(draft, spent=_build_totals(self.budget))

    def _announce(self) -> None:
        made = self.request.made
        self.log.add(
            events.RunStarted(
                run=self.id,
                change=made.change,
                purpose="plan",
                agent=self.runners[0].name,
                agent_options=self.agent_options,
                adapter=made.format,
                workspace=self.choice.kind,
                pid=os.getpid(),
                stories=(StoryBefore(id=STORY, title=TITLE, state="open"),),
                gates=RunGates(commands=self.request.gates),
            )
        )
        self.log.note(events.Notice(text=self.choice.describe()))

    def _work(self, repository: Repository | None) -> DraftedChange:
        from ralphtool.executors.process import Supervisor

        root = self.request.root
        for path in _list_targets(self.request, self.folder):
            os.makedirs(os.path.dirname(path), exist_ok=True)
        with (
            draft_place.open_place(
                self.choice, root, self.id, self.folder, self.settings, self.runners, self.log, repository
            ) as place,
            Supervisor(layout.processes(root, self.id), place.confine) as supervisor,
        ):
            return self._run_rounds(place, self._build_executor(place, supervisor))

    def _build_executor(self, place: DraftPlace, supervisor: Supervisor) -> LocalExecutor:
        from ralphtool.executors.local import ExecutorContext, LocalExecutor

        root, change = self.request.root, self.request.made.change
        return LocalExecutor(
            ExecutorContext(
                workspace=Folder(place.root),
                supervisor=supervisor,
                runners=self.runners,
                log=self.log,
                protected_state=ProtectedState(root, change, self.id),
                settings=self.settings,
                session_id=self.id,
                change=change,
                ref=self.request.ref,
                prd_ids=(),
                folder=layout.run(root, self.id),
                user_root=root,
            )
        )

    # --- rounds ---------------------------------------------------------------------------------

    def _run_rounds(self, place: DraftPlace, executor: LocalExecutor) -> DraftedChange:
        """A draft with problems goes back to the agent once. If an agent can't work, the next one takes over."""
        agent, rounds, complaints, why = 0, 0, list[str](), "the agent was not started"
        draft = self._read()
        while rounds < _ROUNDS and not self.budget.is_exhausted and not self.is_stopped:
            report = self._ask(place, executor, agent, complaints)
            draft = self._read()
            why = _explain_nothing(report)
            self._record_verdict(report, draft, why)
            if verdict.is_transient(report) and not draft.texts:
                agent = self._hand_over(report, agent)
                continue
            rounds += 1
            complaints = draft.list_complaints() if draft.texts else [_NOTHING]
            if not complaints or verdict.describe_bad_end(report):
                break
        if self.is_stopped:
            raise DraftFailed(f"stopped before the draft was complete: {self._name_leftovers(draft)}")
        if not draft.texts:
            raise DraftFailed(f"{why}: {self._name_leftovers(draft)}")
        return open_boxes(draft)

    def _ask(self, place: DraftPlace, executor: LocalExecutor, agent: int, complaints: Sequence[str]) -> Report:
        from ralphtool.executors import Assignment

        self.budget.iterations += 1
        number, left = self.budget.iterations, self.budget.remaining_for(STORY)
        assignment = Assignment(
            number=number,
            change=self.request.made.change,
            story=STORY,
            task=None,
            entry="",
            attempt=number,
            token=os.urandom(16).hex(),
            prompt=build_prompt(self.request, place.root, self.folder, complaints),
            shown={},
            agent=self.runners[agent].name,
            kept=None,
            cut_off=None,
            fix=False,
            gates=(),
            baseline=None,
            folder=f"{number:03}-{STORY}",
            seconds=left.seconds,
            tokens=left.tokens,
            cost=left.cost,
        )
        self._record_start(os.path.join(layout.run(self.request.root, self.id), assignment.folder), number, agent)
        report = executor.draft(assignment, self.folder, lambda: self.is_stopped)
        self.budget.add(STORY, report)
        return report

    def _record_start(self, directory: str, number: int, agent: int) -> None:
        self.log.add(
            events.IterationStarted(
                number=number,
                story=STORY,
                title=TITLE,
                attempt=number,
                attempts=max(_ROUNDS, number),
                directory=directory,
                agent=self.runners[agent].name,
                iteration=number,
            )
        )

    def _record_verdict(self, report: Report, draft: DraftedChange, why: str) -> None:
        complaints = draft.list_complaints()
        is_failed = bool(complaints) or not draft.texts
        why = complaints[0] if draft.texts and complaints else why
        status = "interrupted" if self.is_stopped else "transient" if verdict.is_transient(report) else "failed"
        self.log.add(
            events.Verdict(
                story=STORY,
                attempt=self.budget.iterations,
                status=status if is_failed else "completed",
                summary=why if is_failed else describe_size(draft),
                reasons=tuple(complaints),
                files=tuple(
                    os.path.join(self.request.inside, name) if name else self.request.inside for name in draft.texts
                ),
                ended=report.left,
                seconds=Durations(agent=round(report.agent_seconds, 3)),
                input_tokens=report.usage.input_tokens,
                output_tokens=report.usage.output_tokens,
                cost=report.usage.cost or 0.0,
                iteration=self.budget.iterations,
            )
        )

    def _hand_over(self, report: Report, agent: int) -> int:
        """The next agent, after one that reached a limit or could not be reached."""
        why = report.failure.text if report.failure else ""
        if agent + 1 == len(self.runners):
            raise DraftFailed(f"{self.runners[agent].name} can't work now: {why}; run the command again later")
        self.log.note(events.HandedOver(to=self.runners[agent + 1].name, why=why))
        return agent + 1

    def _name_leftovers(self, draft: DraftedChange) -> str:
        instead = f" instead ({join_first(draft.left_out)})" if draft.left_out and not draft.texts else ""
        there = f"what it wrote{instead} is in {self.folder}; " if draft.texts or draft.left_out else ""
        return f"{there}`ralphtool logs {self.id}` shows what it did"

    def _read(self) -> DraftedChange:
        return read_draft(DraftedChange(request=self.request, run=self.id, folder=self.folder, texts={}))


def _explain_nothing(report: Report) -> str:
    """Why there is no draft; the agent's last message may be the best explanation."""
    if told := verdict.describe_bad_end(report, report.detail):
        return told
    said = " ".join(report.end.message.split())
    return f'the agent wrote no draft; it said: "{said[:300]}"' if said else "the agent wrote no draft"


def _list_targets(request: PlanRequest, folder: str) -> list[str]:
    place = os.path.join(folder, request.inside)
    return [os.path.join(place, name) if name else place for name in request.made.texts]


def _build_totals(budget: Budget) -> Totals:
    spent = budget.total.as_dict() | {"seconds": round(budget.seconds, 3), "iterations": budget.iterations}
    return Totals(**spent)
