"""Tries the gates where the next run would run them, without a run, and remembers the results."""

from __future__ import annotations

import os
from contextlib import closing, contextmanager
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from ralphtool.core import gate_commands, secrets
from ralphtool.errors import InvalidValue, RalphError
from ralphtool.executors.gate_series import GateSeries
from ralphtool.executors.process import Supervisor
from ralphtool.executors.workspace_check import CheckResult, check_workspace
from ralphtool.loop import confining, git_identity, workspace_choice
from ralphtool.loop.runners import make_runners
from ralphtool.record import events
from ralphtool.record.log import Log
from ralphtool.workspace.trial_tree import open_trial

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ralphtool.agents import Runner
    from ralphtool.executors.process import Confine
    from ralphtool.judging.gate_trouble import Trouble
    from ralphtool.loop.workspace_choice import Choice, Findings
    from ralphtool.record.events import Event
    from ralphtool.settings import Settings
    from ralphtool.workspace.git import Repository
    from ralphtool.workspace.worktree import Worktree

_SESSION = "doctor"  # does not exist: gates have no session
_WHERE = {
    "outside": "in your own folder",
    "before-again": "once more, because it passed there",
    "same-files": "with the files that are not committed",
    "blind": "with broken code, to see whether it fails",
}


class TriedGates(Struct, frozen=True, kw_only=True):
    """The gates' results in one kind of workspace; `found` is None for the user's own folder, where nothing was run."""

    choice: Choice
    found: CheckResult | None = None


class GateTrial(Struct, frozen=True, kw_only=True):
    """Tries the gates of a project. Their output goes to `folder`; `tell` is called before each gate."""

    root: str
    repository: Repository
    settings: Settings
    commands: Sequence[str]
    folder: str
    tell: Callable[[str], None]

    def run(self, known: Findings) -> Iterator[TriedGates]:
        """One for each workspace that a run would try; the last is the one that it would use. The results are
        remembered, as in a run."""
        for choice in workspace_choice.list_choices(self.settings, self.repository, known):
            if choice.kind == "here":
                yield TriedGates(choice=choice)
                return
            found = self._try_in(choice)
            is_final = found.trouble is not None or found.is_final(gate_commands.find_commands(self.root).tests)
            if is_final and not choice.is_settled:  # a run must know that, too
                known.remember(choice.kind, found.trouble)
            is_used = found.trouble is None or choice.is_settled
            if found.trouble and not is_used:
                self._refuse(choice, found.trouble)
            yield TriedGates(choice=choice, found=found)
            if is_used:
                return

    def _refuse(self, choice: Choice, trouble: Trouble) -> None:
        """If the settings allow no other workspace, no run can begin."""
        if refusal := workspace_choice.explain_refusal(self.settings, choice.kind, trouble):
            raise InvalidValue(refusal)

    def _try_in(self, choice: Choice) -> CheckResult:
        folder = os.path.join(self.folder, f"{choice.kind}-settled" if choice.is_settled else choice.kind)
        os.makedirs(folder)
        with (
            open_trial(self.repository, self.root, choice.kind) as place,
            closing(_TellingLog(os.path.join(folder, "events.jsonl"), self.tell, choice.kind)) as log,
            self._confine(place, choice.kind, folder, log) as confine,
            Supervisor(confine=confine) as supervisor,
            Supervisor() as free,
        ):
            inside = self._build_series(place, supervisor, folder, log)
            outside = structs.replace(inside, root=self.root, supervisor=free, shown_root="")
            place.begin(None)
            inside.set_up_all(self.settings.run.setup)
            place.mark_set_up(self.settings.run.setup)
            place.mark_dirty()
            suggest = partial(workspace_choice.suggest, choice.kind, self.root, self.settings.sandbox, log.path)
            return check_workspace(place, inside, outside, self.commands, suggest)

    def _build_series(self, place: Worktree, supervisor: Supervisor, folder: str, log: Log) -> GateSeries:
        return GateSeries(
            supervisor=supervisor,
            root=place.root,
            log=log,
            timeout=self.settings.verify.timeout,
            secrets=secrets.list_values(),
            directory=folder,
            iteration=0,
            story="",
            stop=lambda: False,
            shown_root=place.shown_root,
        )

    @contextmanager
    def _confine(self, place: Worktree, kind: str, folder: str, log: Log) -> Iterator[Confine | None]:
        runners = self._find_runners(is_boxed=kind == "box")
        with confining.confine(place, self.root, _SESSION, self.settings, runners, log) as confine:
            if confine is None or kind != "box":
                yield confine
                return
            shown = os.path.join(folder, "git")
            os.makedirs(shown)
            yield git_identity.add_identity(_show_also(confine, shown), self.repository, shown)

    def _find_runners(self, *, is_boxed: bool) -> list[Runner]:
        """Gates get the same files in a box as agents."""
        try:
            return make_runners(self.settings, is_boxed=is_boxed)
        except RalphError:
            return []  # none is configured yet, which is reported elsewhere


def _show_also(confine: Confine, folder: str) -> Confine:
    """Like `confine`, with one more folder visible."""

    def start(
        argv: Sequence[str], cwd: str, env: Mapping[str, str], writable: Sequence[str], purpose: str = "agent"
    ) -> tuple[Sequence[str], str, Mapping[str, str]]:
        return confine(argv, cwd, env, (*writable, folder), purpose)

    return start


class _TellingLog(Log):
    """Reports which gate runs, and where."""

    def __init__(self, path: str, tell: Callable[[str], None], kind: str) -> None:
        super().__init__(path)
        self._tell = tell
        self._where = f"in a {kind}"

    def note(self, event: Event, at: str = "") -> None:
        if isinstance(event, events.GateStarted):
            self._tell(f"running {event.command} {_WHERE.get(event.when, self._where)}")
        super().note(event)
