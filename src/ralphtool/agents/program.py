"""The common part of the runners of known programs: options, and whether the program is installed and new enough."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

from msgspec import structs

from ralphtool.agents import Traits, read_list
from ralphtool.core import files, programs
from ralphtool.errors import InvalidValue, shorten

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ralphtool.agents import Runner

__all__ = ["Program"]

# Compiled when first used: every run imports this before its first event.
_VERSION = r"(\d+)\.(\d+)\.(\d+)"
_PATIENCE = 60.0  # seconds for a program to print its version, even on a busy machine
_OR_ELSE = r"\$\{(\w+):-([^}]*)\}"
# Of the most popular providers, for programs that support any.
KEYS = (
    *("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "GOOGLE_GENERATIVE_AI_API_KEY", "OPENROUTER_API_KEY"),
    *("DEEPSEEK_API_KEY", "GROQ_API_KEY", "MISTRAL_API_KEY", "XAI_API_KEY", "AZURE_API_KEY"),
)
# The hosts of these providers. Azure has one host per customer, which is in a variable.
HOSTS = (
    *("api.anthropic.com", "api.openai.com", "generativelanguage.googleapis.com", "openrouter.ai"),
    *("api.deepseek.com", "api.groq.com", "api.mistral.ai", "api.x.ai"),
)


class Login(NamedTuple):
    """Whether an agent's user is logged in, and the evidence."""

    answer: Literal["yes", "no", "unknown"]
    because: str


class Program:
    """A third-party program. A subclass defines its name, and how to install it."""

    program: ClassVar[str]
    package: ClassVar[str]  # the command that installs it
    oldest: ClassVar[tuple[int, int, int]]
    asks_version: ClassVar[str] = "--version"
    when_asked: ClassVar[dict[str, str]] = {}  # variables that it needs to print its version
    skips: ClassVar[str]  # what it does without asking if everything is permitted
    kept_to: ClassVar[str]  # what it can do otherwise
    needs_all: ClassVar[bool] = False  # otherwise it can do nothing
    title: ClassVar[str] = ""  # its official name, if that differs from the program's
    patience: float = _PATIENCE
    tells: ClassVar[Traits] = Traits()  # its traits, except those that depend on the options

    def __init__(self, name: str, options: Mapping[str, Any]) -> None:
        self.name = name
        self.command = tuple(read_list(options, "command")) or (self.program,)
        self.model: str = options.get("model") or ""
        self.args = tuple(read_list(options, "args"))
        self.env = dict(options.get("env") or {})
        self.may_do_all = options.get("permissions") == "all"
        self.is_boxed = bool(options.get("is_boxed"))
        self._told: tuple[int, int, int] | None = None
        self.traits = structs.replace(self.tells, is_kept=not self.may_do_all, notices=self.notices())

    def notices(self) -> tuple[str, ...]:
        """What the user has permitted, in plain words."""
        if self.is_boxed and self.may_do_all:
            return (f'{self.name} runs without asking, restricted by its box (permissions = "edit" changes that)',)
        if self.may_do_all:
            return (f'{self.name} runs without asking: {self.skips} (permissions = "all" in [agents.{self.name}])',)
        return (
            f'{self.name} {self.kept_to}; to let it do everything without asking, set permissions = "all" in '
            f"[agents.{self.name}]",
        )

    def check(self) -> None:
        if programs.find(self.command[0], path=self.env.get("PATH")) is None:
            raise InvalidValue(
                f"the program {shorten(self.command[0])} of the agent {self.name} was not found: install it with "
                f'`{self.package}`, or set its path in .ralph/config.toml as [agents.{self.name}] with command = ["…"]'
            )
        told = self.version()
        if told < self.oldest:
            raise InvalidValue(
                f"{self.command[0]} {format_version(told)} is too old; the oldest supported version is "
                f"{format_version(self.oldest)}: update it with `{self.package}`"
            )

    def version(self) -> tuple[int, int, int]:
        """The version that the program prints, read once; InvalidValue if it prints none."""
        if self._told is None:
            self._told = self._read_version()
        return self._told

    def _read_version(self) -> tuple[int, int, int]:
        done = self._run_program(self.asks_version)
        text = done.stdout.decode("utf-8", "replace")
        found = re.search(_VERSION, text)
        if done.returncode or not found:
            lines = (
                done.stderr.decode("utf-8", "replace").strip() or text.strip() or ("it printed nothing")
            ).splitlines()
            raise self._version_error(lines[-1])
        major, minor, patch = map(int, found.groups())
        return major, minor, patch

    def login(self, root: str) -> Login:
        """Whether its user is logged in, as far as can be seen without calling a model or the network."""
        known, env = self.traits.credentials, os.environ | self.env
        if name := next((name for name in known.variables if env.get(name)), None):
            return Login("yes", f"{name} is set")
        if path := next((path for path in known.files if os.path.isfile(_expand_path(path, env, root))), None):
            return Login("yes", f"{_expand_path(path, env, root)} exists")
        answer = self._check_own_login()
        if answer == "yes":
            return Login("yes", f"`{self.command[0]} {' '.join(known.asks)}` says so")
        if any(_has_word(_expand_path(path, env, root), word) for path, word in known.elsewhere):
            return Login("unknown", "its own configuration may define another login")
        return Login(answer, "" if answer == "unknown" else "no login was found")

    def _check_own_login(self) -> Literal["yes", "no", "unknown"]:
        known = self.traits.credentials
        if not known.asks:
            return "no" if known.is_all else "unknown"
        try:
            if self.version() < known.asks_since:
                return "unknown"
            code = self._run_program(*known.asks).returncode
        except InvalidValue:
            return "unknown"
        return "yes" if code == 0 else "no" if code == 1 else "unknown"

    def _run_program(self, *arguments: str) -> subprocess.CompletedProcess[bytes]:
        """Its response; if it gives none in time, all its processes are killed."""
        command, pipe = [*self.command, *arguments], subprocess.PIPE
        try:
            process = subprocess.Popen(
                command,
                env=os.environ | self.env | self.when_asked,
                stdin=subprocess.DEVNULL,
                stdout=pipe,
                stderr=pipe,
                start_new_session=True,
            )
        except OSError as error:
            raise self._version_error(error.strerror or str(error)) from None
        try:
            out, err = process.communicate(timeout=self.patience)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            for each in (process.stdout, process.stderr):
                each.close() if each else None  # another process may still hold the other end
            raise self._version_error(f"no response within {self.patience:.3g} seconds") from None
        return subprocess.CompletedProcess(command, process.returncode, out, err)

    def _version_error(self, why: str) -> InvalidValue:
        return InvalidValue(
            f"`{' '.join(self.command)} {self.asks_version}` printed no version ({shorten(why)}): check that it "
            f"works, or reinstall it with `{self.package}`"
        )


def write_file(path: str, text: str) -> str:
    """Writes a file for the program; returns its path."""
    with open(path, "w", encoding="utf-8", errors="replace") as file:
        file.write(text)
    return path


def format_version(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def _expand_path(path: str, env: Mapping[str, str], root: str) -> str:
    """Expands a path as in Credentials, with the agent's own environment."""
    chosen = re.sub(_OR_ELSE, lambda found: env.get(found[1]) or found[2], path)
    home = env.get("HOME") or os.path.expanduser("~")
    return os.path.join(root, home + chosen[1:] if chosen.startswith("~") else chosen)


def list_needs(runner: Runner, root: str) -> list[str]:
    """Those of the files and folders in an agent's `needs` that exist."""
    return _find_own(runner, runner.traits.needs, root)


def list_logins(runner: Runner, root: str) -> list[str]:
    """Those of its credentials files that exist."""
    return _find_own(runner, runner.traits.credentials.files, root)


def _find_own(runner: Runner, named: Sequence[str], root: str) -> list[str]:
    env = os.environ | getattr(runner, "env", {})
    paths = [_expand_path(path, env, root) for path in named]
    # A path that is itself a link keeps the name that the program uses.
    return [
        os.path.join(os.path.realpath(os.path.dirname(one)), os.path.basename(one))
        for one in paths
        if os.path.exists(one)
    ]


def _has_word(path: str, word: str) -> bool:
    try:
        return word.encode() in files.read(path)
    except OSError:
        return False
