"""Chooses where a run works: in a box, else in a worktree, else in the user's own folder.

The results of the gates in a workspace are kept next to the repository's own files, so that only the first run with
these gates and settings has to try them. Trouble applies only to the files that it was found with.
"""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from ralphtool import __version__, typed, workspace
from ralphtool.core import files, layout
from ralphtool.errors import InvalidValue
from ralphtool.judging.gate_trouble import Trouble
from ralphtool.record import events
from ralphtool.sandbox.trial import NoBox, Tools, try_box

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ralphtool.settings import SandboxSettings, Settings
    from ralphtool.workspace.git import Repository

AGAIN = "`ralphtool doctor --fix` makes the next run try a box again"
_FILE = "workspaces.json"


class Choice(Struct, frozen=True, kw_only=True):
    """A workspace to try, and why no better one was chosen."""

    kind: str
    why: tuple[str, ...] = ()
    help: tuple[str, ...] = ()
    is_settled: bool = False  # the gates' results there are known: they are not tried before the first story

    def describe(self) -> list[str]:
        """Lines for people: why it is not a better one, and how to fix it."""
        return [*(f"why: {one}" for one in self.why), *(f"to fix it: {one}" for one in self.help)]


class Unsuitable(Exception):
    """The gates can't be trusted in a workspace."""

    def __init__(self, trouble: Trouble) -> None:
        super().__init__(trouble.what)
        self.trouble = trouble


class Findings:
    """The known results of a project's gates in each kind of workspace."""

    def __init__(self, repository: Repository, settings: Settings, commands: Sequence[str], change: str = "") -> None:
        self._path = os.path.join(layout.in_git(repository.common), _FILE)
        sandbox = msgspec.json.encode(settings.sandbox).decode()
        self._about = [__version__, str(os.geteuid()), sandbox, *settings.run.setup, "", *commands]
        self._repository = repository
        self._find_files = partial(_identify_base, repository, change)

    def is_suitable(self, kind: str) -> bool:
        return self._read().get(self._build_key(kind)) == Trouble()

    def list_blind(self) -> frozenset[str]:
        """The gates that are known to stay green with broken code, wherever they run."""
        trouble = self.read_trouble("box")
        return frozenset(trouble.blind if trouble else ())

    def read_trouble(self, kind: str) -> Trouble | None:
        """The trouble there with the files that the change begins with."""
        known = self._read()
        return known.get(self._build_key(kind, self._find_files())) if known else None

    def list_other_changes(self) -> list[str]:
        """Changes that began with other files than the user's last commit, if trouble is known about that commit: it
        does not apply to them."""
        if not self.read_trouble("box") and not self.read_trouble("worktree"):
            return []
        begun, now = self._repository.refs(layout.BASE), self._find_files()
        return [ref.removeprefix(layout.BASE) for ref, at in begun.items() if _identify(self._repository, at) != now]

    def remember(self, kind: str, trouble: Trouble | None) -> None:
        key = self._build_key(kind, self._find_files()) if trouble else self._build_key(kind)
        os.makedirs(os.path.dirname(self._path), exist_ok=True)
        files.replace(self._path, msgspec.json.encode({**self._read(), key: trouble or Trouble()}))

    def forget(self) -> None:
        """Makes the next run try the gates again."""
        files.remove(self._path)

    def _read(self) -> dict[str, Trouble]:
        try:
            return typed.decode(files.read(self._path), dict[str, Trouble])
        except (OSError, msgspec.DecodeError, msgspec.ValidationError):
            return {}  # then the gates are tried again

    def _build_key(self, kind: str, tree: str = "") -> str:
        return "\n".join([kind, tree, *self._about])


def _identify_base(repository: Repository, change: str) -> str:
    found = (repository.resolve(layout.BASE + change) if change else None) or repository.resolve("HEAD")
    return _identify(repository, found) if found else "no commit"


def _identify(repository: Repository, commit: str) -> str:
    """Identifies the files of a commit as gates see them: without the settings, which are never checked out."""
    import hashlib  # loads OpenSSL

    rows = repository.list_items("ls-tree", "-z", "--full-tree", commit)
    seen = [row for row in rows if not row.endswith(f"\t{layout.FOLDER}")]
    return hashlib.sha256("\0".join(seen).encode("utf-8", "surrogateescape")).hexdigest()


def list_choices(settings: Settings, repository: Repository | None, found: Findings | None) -> Iterator[Choice]:
    """The workspaces that may be tried, the best first. Each is examined only if those before were unsuitable."""
    wanted = settings.run.workspace
    if repository is None or found is None or wanted not in ("auto", "box"):
        _check_not_required(settings, repository)
        yield Choice(kind="here" if repository is None else wanted)
        return
    tools, is_needed = try_box(), needs_box(settings)
    if isinstance(tools, NoBox):
        if is_needed:
            raise InvalidValue(f"no box is available here: {tools.why}. To fix it: {tools.help}")
        yield from _list_without_box(found, Choice(kind="worktree", why=(tools.why,), help=(tools.help,)))
        return
    if is_needed or found.read_trouble("box") is None:
        yield Choice(kind="box")
    if not is_needed and (trouble := found.read_trouble("box")):
        yield from _list_after_box(found, trouble)


def _list_after_box(found: Findings, trouble: Trouble) -> Iterator[Choice]:
    why, helps = ("; ".join((trouble.what, *trouble.causes)),), (trouble.help or AGAIN,)
    if trouble.blind:  # at the project's own path: no other place is better
        yield Choice(kind="box", why=why, help=helps, is_settled=True)
        return
    for choice in _list_without_box(found, Choice(kind="worktree", why=why, help=helps)):
        if choice.kind == "here" and trouble.is_partial:
            # A box in which some tests fail before and after is better than the user's own files without a sandbox.
            yield Choice(kind="box", why=why, help=helps, is_settled=True)
        else:
            yield choice


def _list_without_box(found: Findings, worktree: Choice) -> Iterator[Choice]:
    if found.read_trouble("worktree") is None:
        yield worktree
    other = found.read_trouble("worktree")
    why = (*worktree.why, *([f"in a worktree: {other.what}"] if other else []))
    yield Choice(kind="here", why=why, help=worktree.help)


def find_next(tools: Tools | NoBox, found: Findings, settings: Settings) -> Choice:
    """The workspace that a run would use, as far as is known, if the settings allow a box."""
    if isinstance(tools, NoBox):
        return next(_list_without_box(found, Choice(kind="worktree", why=(tools.why,), help=(tools.help,))))
    trouble = None if needs_box(settings) else found.read_trouble("box")
    return next(_list_after_box(found, trouble)) if trouble else Choice(kind="box")


def find_expected(
    settings: Settings, repository: Repository | None, commands: Sequence[str], change: str = ""
) -> Choice:
    """The workspace that the next run would begin in, as far as is known before its gates are tried."""
    if repository is None or settings.run.workspace in ("here", "worktree"):
        return Choice(kind="here" if repository is None else settings.run.workspace)
    return find_next(try_box(), Findings(repository, settings, commands, change), settings)


def preview(settings: Settings, repository: Repository | None, commands: Sequence[str], change: str = "") -> list[str]:
    """Where the next run would work, as far as is known before its gates are tried, in lines for people."""
    choice = find_expected(settings, repository, commands, change)
    if repository is None or settings.run.workspace in ("here", "worktree"):
        return [workspace.describe(choice.kind)]
    found = Findings(repository, settings, commands, change)
    is_tried = not commands or choice.is_settled or choice.kind == "here" or found.is_suitable(choice.kind)
    doubt = [] if is_tried else ["the first run tries your gates there, and reports if they can't be used"]
    return [workspace.describe(choice.kind), *doubt, *choice.describe()]


def needs_box(settings: Settings) -> bool:
    return settings.run.workspace == "box" or settings.sandbox.mode == "require"


def _check_not_required(settings: Settings, repository: Repository | None) -> None:
    if settings.sandbox.mode != "require":
        return
    if repository is None:
        why, helps = "there is no git repository", "`git init`, and commit your files"
    else:
        why = f'workspace = "{settings.run.workspace}"'
        helps = 'set workspace = "auto" under [run], or remove mode = "require" from [sandbox]'
    raise InvalidValue(f'[sandbox] mode = "require" needs a box, but {why}: {helps}')


def explain_refusal(settings: Settings, kind: str, trouble: Trouble) -> str:
    """Why no other workspace is tried after an unsuitable one; empty if others may be."""
    if settings.run.workspace == "auto" and settings.sandbox.mode != "require":
        return ""
    asked = 'mode = "require" under [sandbox]' if needs_box(settings) else f'workspace = "{kind}" under [run]'
    asked = f'workspace = "{kind}" under [run]' if settings.run.workspace == kind else asked
    said = "; ".join((trouble.what, *trouble.causes))
    helps = trouble.help or "make the gates pass there"
    return f"work in a {kind} would prove nothing: {said}. To fix it: {helps}; or remove {asked}"


def suggest(kind: str, root: str, sandbox: SandboxSettings, record: str, said: str) -> str:
    """The setting that may fix the failure of a gate in a workspace. `record` has the connections that were denied."""
    from ralphtool.sandbox import advice

    if kind != "box":
        return 'set the commands that prepare a worktree as `setup` under [run], for example ["npm ci"]'
    home = os.path.realpath(os.path.expanduser("~"))
    present = advice.Present(sandbox.read, sandbox.ports)
    return advice.suggest(said, root, home, [event.allow for event in list_denied(record)], present=present)


def list_denied(record: str) -> list[events.Denied]:
    return [event for event in read_marked(record, b'"type":"denied"') if isinstance(event, events.Denied)]


def read_marked(record: str, *marks: bytes) -> list[events.Event]:
    """The events whose lines have one of these marks: the others, which may be many, are not decoded."""
    try:
        lines = files.read(record).splitlines()
    except OSError:
        return []
    found = (events.decode(line) for line in lines if any(mark in line for mark in marks))
    return [event for event in found if event is not None]
