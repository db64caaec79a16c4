"""The actions on the change that is chosen on a page: run it, show its attempts, finish it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding

from ralphtool.core import layout
from ralphtool.core.amounts import pluralize
from ralphtool.core.text import make_lines_printable
from ralphtool.errors import ChangeNotFound, GitError, RalphError
from ralphtool.views import project_data as data
from ralphtool.views.screen.base import ChoiceDialog, MessageDialog, Navigate, Page, StartRun
from ralphtool.views.screen.diff import DiffTarget
from ralphtool.views.terminal.phrases import flatten
from ralphtool.workspace.git import Repository

if TYPE_CHECKING:
    from textual.binding import BindingType

_WAYS = {
    "merge": ("m", "Merge", "merges it into your branch, a commit for each story"),
    "squash": ("s", "Squash", "puts its work into your tree, uncommitted"),
    "pr": ("p", "Pull request", "pushes the branch, and opens a pull request with gh"),
}


class ChosenPage(Page, inherit_bindings=False):
    """A page on which one change is chosen."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("r", "run", "Run", tooltip="run the selected change in the background"),
        Binding("d", "diff", "Diff", tooltip="what each attempt at the selected change did"),
        Binding("F", "finish", "Finish", key_display="F", tooltip="merge or squash the work, or open a pull request"),
    ]

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.starting: set[str] = set()  # changes whose runs are about to start
        self._finishing: set[str] = set()

    @property
    def chosen(self) -> data.ChangeItem | None:
        """The change that the keys act on."""
        return None

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        one = self.chosen
        if action == "run":
            return one is not None and not one.is_alive and one.name not in self.starting
        if action == "diff":
            return one is not None and one.run is not None
        if action == "finish":
            return one is not None and one.run is not None and not one.is_alive and one.name not in self._finishing
        return True

    def action_diff(self) -> None:
        if one := self.chosen:
            self.post_message(Navigate("diff", DiffTarget(one.name, one.ref)))

    # --- running

    def action_run(self) -> None:
        self.try_action(self._ask_to_run)

    def _ask_to_run(self) -> None:
        if (one := self.chosen) is None:
            return
        agent = flatten(data.find_agent(self.root), 60)
        text = f"The run continues by itself: closing this screen does not end it.\n`ralphtool stop {one.name}` does."
        answers = [("y", "Run it", "yes"), ("n", "Not now", None)]
        self.open_dialog(ChoiceDialog(f"Run {one.name} with {agent}?", text, answers), lambda _: self._start(one))

    def _start(self, one: data.ChangeItem) -> None:
        self.set_starting(one.name, True)
        self.post_message(StartRun(one.name, one.ref))

    def set_starting(self, change: str, is_starting: bool) -> None:
        """Sets whether a run of this change is about to start."""
        self.starting = self.starting | {change} if is_starting else self.starting - {change}
        if self.is_mounted:
            self.show_starting()
            self.refresh_bindings()

    def show_starting(self) -> None:
        """Shows which runs are about to start."""

    # --- finishing

    def action_finish(self) -> None:
        self.try_action(self._ask_to_finish)

    def _ask_to_finish(self) -> None:
        if (one := self.chosen) is None:
            return
        _check_branch(self.root, one.name)
        ways = {way: told for way, told in _WAYS.items() if way != "pr" or shutil.which("gh")}
        lines = [f"{label}: {told}." for _, label, told in ways.values()]
        answers = [*((key, label, way) for way, (key, label, _) in ways.items()), ("n", "Not now", None)]
        text = "\n".join(filter(None, [_describe_open(one), *lines]))
        dialog = ChoiceDialog(f"Finish {one.name}?", text, answers, careful=True)
        self.open_dialog(dialog, lambda way: self._begin_finish(one.name, way))

    def _begin_finish(self, change: str, way: str) -> None:
        self._finishing.add(change)
        self.refresh_bindings()
        self.show_message(f"finishing {change}")
        self.run_worker(self._finish(change, way))

    async def _finish(self, change: str, way: str) -> None:
        told = await self.run_in_thread(lambda: _run_command(self.root, "finish", change, f"--{way}"))
        self._finishing.discard(change)
        title = f"{change} was not finished" if isinstance(told, RalphError) else f"{change}: {_WAYS[way][1].lower()}"
        self.app.push_screen(MessageDialog(title, str(told)))
        self.refresh_bindings()


def _check_branch(root: str, change: str) -> None:
    repository = Repository.find(root)
    if repository is None:
        raise GitError("this project is not in a git repository: the work is already in your files")
    if repository.resolve(layout.BRANCHES + change) is None:
        raise ChangeNotFound(f"there is no branch ralph/{change}: it is already finished, or was never run")


def _describe_open(one: data.ChangeItem) -> str:
    left = (one.overview.stories_total or 0) - (one.overview.stories_done or 0)
    return f"{pluralize(left, 'story is', 'stories are')} not done yet.\n" if left > 0 else ""


def _run_command(root: str, *arguments: str) -> str:
    """Runs a ralphtool command to its end, even if the screen is closed meanwhile. Returns its output."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "ralphtool", *arguments],  # -P: imports nothing from the project, as for a run
        cwd=root,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        check=False,
    )
    told = make_lines_printable(done.stdout.decode("utf-8", "replace").strip().removeprefix("Error: "))
    if done.returncode:
        raise RalphError(told or f"`ralphtool {arguments[0]}` ended with status {done.returncode}")
    return told
