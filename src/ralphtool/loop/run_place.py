"""Sets up and tears down the executor of one workspace of a run."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from msgspec import Struct

from ralphtool.core import layout
from ralphtool.loop import git_identity
from ralphtool.workspace.git import Repository
from ralphtool.workspace.protected_state import ProtectedState

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ralphtool.agents import Runner
    from ralphtool.executors import LaneExecutor
    from ralphtool.executors.local import LocalExecutor
    from ralphtool.executors.process import Confine, Supervisor
    from ralphtool.record.log import Log
    from ralphtool.settings import Settings
    from ralphtool.specs import Spec
    from ralphtool.workspace import Workspace


class RunPlace(Struct, frozen=True, kw_only=True):
    """One workspace of a run. `slot` is 0 for the first, and numbers the others."""

    root: str
    run: str
    spec: Spec
    prd_ids: Sequence[str]
    settings: Settings
    runners: Sequence[Runner]
    folder: str  # of the run's records
    log: Log
    workspace: Workspace
    is_boxed: bool
    slot: int = 0

    @contextmanager
    def open(self) -> Iterator[LaneExecutor]:
        ours = ProtectedState(self.root, self.spec.change, self.run, is_out_of_reach=self.is_boxed)
        from ralphtool.executors.process import Supervisor  # slow to import, and not needed for the first event
        from ralphtool.loop import confining

        try:
            with (
                confining.confine(
                    self.workspace, self.root, self.run, self.settings, self.runners, self.log, self.slot
                ) as confine,
                Supervisor(layout.processes(self.root, self.run, self.slot), self._name_user(confine)) as supervisor,
            ):
                yield self._build_executor(supervisor, ours)
        except BaseException:
            ours.restore_interrupted()
            raise
        finally:
            ours.forget()

    def _name_user(self, confine: Confine | None) -> Confine | None:
        repository = Repository.find(self.root) if self.is_boxed else None
        if confine is None or repository is None:
            return confine
        return git_identity.add_identity(confine, repository, self.folder)

    def _build_executor(self, supervisor: Supervisor, ours: ProtectedState) -> LocalExecutor:
        from ralphtool.executors.local import ExecutorContext, LocalExecutor

        return LocalExecutor(
            ExecutorContext(
                workspace=self.workspace,
                supervisor=supervisor,
                runners=self.runners,
                log=self.log,
                protected_state=ours,
                settings=self.settings,
                session_id=self.run,
                change=self.spec.change,
                ref=self.spec.ref,
                prd_ids=self.prd_ids,
                folder=self.folder,
                user_root=self.root,
                slot=self.slot,
            )
        )
