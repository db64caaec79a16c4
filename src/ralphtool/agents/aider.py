"""aider. It has no tools, prints for people, and exits with 0 whatever happens; its logs show what happened.

Three of its files are read. Its analytics log (which is not sent) says which requests were answered, and whether it
reached the end. The log of the model has the model's exact words, and the chat history has aider's own lines in
between. Only both together show what aider itself said: neither the model nor a command can fake it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from typing import TYPE_CHECKING

from msgspec import DecodeError, Struct

from ralphtool.agents import (
    Credentials,
    End,
    Event,
    Failure,
    Job,
    Message,
    Start,
    Tool,
    Traits,
    Usage,
    describe_exit,
    failures,
    log_files,
    program,
)
from ralphtool.agents.program import HOSTS, KEYS, Program
from ralphtool.typed import build_decoder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_EVENTS, _MODEL_LOG, _HISTORY = "aider.jsonl", "aider-model.log", "aider-chat.md"

# It runs without a person or a terminal: no prompts, no news; and it sends no analytics and commits nothing.
_UNATTENDED = (
    *("--no-pretty", "--no-fancy-input", "--no-show-release-notes", "--no-show-model-warnings"),
    *("--no-check-update", "--no-analytics", "--no-detect-urls", "--disable-playwright"),
    *("--no-gitignore", "--no-auto-commits", "--no-dirty-commits"),
)

_ALL = """\
You have no tools here. Put everything that the text below asks for into one answer: the edits, and the commands (such
as `ralphtool agent …`) in ```bash blocks. The commands are run once, after your edits are applied, and you will not see
their output.
"""
_EDITS = """\
You have no tools here and can't run commands. Where the text below asks for `ralphtool agent task done ID`, tick the
box of that task in the spec's own file instead: `[ ]` becomes `[x]`. Put anything else that
you would record into your answer.
"""
_LOOKS = """\
You have no tools here and can't change anything: only your answer matters.
"""


class Aider(Program):
    program = "aider"
    package = "python -m pip install aider-chat"
    oldest = (0, 86, 0)
    skips = "it can change any file in the project, and runs every command that its model suggests"
    kept_to = "edits files in the project, and ticks tasks in the spec file, but runs no commands"
    tells = Traits(
        cost="told",
        read_only=True,
        needs=("~/.aider", "~/.aider.conf.yml", "~/.aider.model.settings.yml", "~/.aider.model.metadata.json"),
        config_paths=(".aider*",),
        hosts=HOSTS,
        login_hint="set the API key of your model's provider, such as OPENAI_API_KEY",
        credentials=Credentials(variables=KEYS),
    )

    def start(self, job: Job) -> Start:
        for name in (_EVENTS, _MODEL_LOG, _HISTORY):
            _remove(os.path.join(job.folder, name))  # it would append to the files of an earlier iteration
        argv = [*self.command, *_UNATTENDED, *_build_log_flags(job.folder), "--message-file", self._build_message(job)]
        if self.model:
            argv += ["--model", self.model]
        # Without streaming, token counts are exact, and answers are never cut in half.
        argv += [*self.args, "--no-stream", *self._permissions(job)]
        env = {"BROWSER": "true"} | self.env  # it opens the addresses in error messages
        if _find_repository_top(job.root) and not job.draft:
            env |= _build_identity(job.root, os.environ | self.env)
        else:
            argv.append("--no-git")  # it would create a repository, and does not edit ignored files, such as drafts
        return Start(argv=tuple(argv), env=env)

    def reader(self, job: Job) -> AiderReader:
        if job.is_past:
            return AiderReader(job.folder, "", shows=False)
        return AiderReader(job.folder, _find_repository_top(job.root) or job.root)

    def _permissions(self, job: Job) -> list[str]:
        """A command needs an explicit yes. `--yes-always` does not count as one; the end of standard input does."""
        if job.read_only:
            return ["--chat-mode", "ask", "--dry-run", "--no-suggest-shell-commands", "--yes-always"]
        no_commands = ["--yes-always", "--no-suggest-shell-commands", "--no-auto-lint", "--no-auto-test"]
        return [] if self.may_do_all else no_commands

    def _build_message(self, job: Job) -> str:
        """The prompt, after a note for an agent without tools. It must not begin with `/`, which means a command."""
        path = os.path.join(job.folder, f"{os.path.basename(job.prompt)}.aider")
        with open(job.prompt, encoding="utf-8", errors="replace") as file:
            text = file.read()
        note = _LOOKS if job.read_only else _ALL if self.may_do_all else _EDITS
        return program.write_file(path, f"{note}\n{text}")


def _build_log_flags(folder: str) -> list[str]:
    return [
        *("--analytics-log", os.path.join(folder, _EVENTS)),
        *("--llm-history-file", os.path.join(folder, _MODEL_LOG)),
        *("--chat-history-file", os.path.join(folder, _HISTORY)),
        *("--input-history-file", os.path.join(folder, "aider-input.log")),
    ]


def _remove(path: str) -> None:
    if os.path.lexists(path):
        os.remove(path)


def _find_repository_top(root: str) -> str:
    """The top of the repository that contains the folder; empty if there is none."""
    return _run_git(root, os.environ, "rev-parse", "--show-toplevel")


def _run_git(root: str, env: Mapping[str, str], *arguments: str) -> str:
    command = ["git", "-C", root, *arguments]
    try:
        done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    except OSError:
        return ""
    return os.fsdecode(done.stdout).strip() if done.returncode == 0 else ""


def _build_identity(root: str, env: Mapping[str, str]) -> dict[str, str]:
    """Without a git identity it would write one into the project's configuration; so it gets a temporary one."""
    wanted = {"user.name": "aider", "user.email": "aider@localhost"}
    missing = [item for item in wanted.items() if not _run_git(root, env, "config", "--get", item[0])]
    before = env.get("GIT_CONFIG_COUNT", "")
    first = int(before) if before.isdecimal() else 0
    found = {"GIT_CONFIG_COUNT": str(first + len(missing))} if missing else {}
    for number, (key, value) in enumerate(missing, first):
        found |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return found


class _Caches:
    """The folders of its repository map, among the user's files. Those created during the iteration are removed."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._known = self._names()

    def _names(self) -> set[str]:
        if not os.path.isdir(self._root):
            return set()
        return {name for name in os.listdir(self._root) if name.startswith(".aider.tags.cache")}

    def remove_new(self) -> None:
        for name in self._names() - self._known:
            shutil.rmtree(os.path.join(self._root, name), ignore_errors=True)


# --- its logs ---------------------------------------------------------------------------------------


class EventProperties(Struct, frozen=True):
    reason: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cost: float | None = None
    main_model: str | None = None
    exception: str | None = None


class AiderEvent(Struct, frozen=True):
    event: str
    properties: EventProperties = EventProperties()


_LOGGED = build_decoder(AiderEvent)
_HEAD = re.compile(r"(?:TO LLM|LLM RESPONSE) \d{4}-\d\d-\d\dT[\d:]+")
_COMPLETED = "Completed --message-file"
_GAVE_UP = re.compile(r"Only \d+ reflections allowed, stopping\.")
_TOO_LONG = re.compile(r"Model .{0,300} has hit a token limit!")


class AiderReader(log_files.LogFileReader):
    def __init__(self, folder: str, root: str, *, shows: bool = True) -> None:
        super().__init__(shows=shows)
        self._folder = folder
        self._caches = _Caches(root)
        self._logged: list[AiderEvent] = []
        self._answers: list[str] = []
        self._spent: list[Usage] = []
        self._told: list[Event] = []

    def feed(self, chunk: bytes) -> Iterable[Event]:
        """It prints little, and logs before it prints: so after output the logs are read."""
        shown = super().feed(chunk)
        return [*shown, *self._read_new_events()] if shown else ()

    def rest(self) -> Iterable[Event]:
        self._caches.remove_new()
        return self._read_new_events()

    def _read_new_events(self) -> list[Event]:
        """The events in its files since the last read."""
        spent, told = len(self._spent), len(self._told)
        self._logged = list(_parse_events(self._read_log(_EVENTS)))
        self._answers = _parse_answers(self._read_log(_MODEL_LOG).decode("utf-8", "replace"))
        history = "\n".join([*self._read_log(_HISTORY).decode("utf-8", "replace").splitlines(), ""])
        self._spent = list(_read_usage(self._logged))
        self._told = [*_parse_history(history, self._answers), *_find_failures(self._logged)]
        return [*self._spent[spent:], *self._told[told:]]

    def end(self, exit_code: int) -> End:
        problem = self._find_problem(exit_code)
        message = self._answers[-1] if self._answers else ""
        return End(not problem, message[-log_files.TAIL :], problem or "completed")

    def _read_log(self, name: str) -> bytes:
        return log_files.read_log(os.path.join(self._folder, name))

    def _find_problem(self, exit_code: int) -> str:
        """Why it did not succeed. Only a complete answer that was fully processed counts as success."""
        last = self._told[-1] if self._told else None
        wrong = last.text if isinstance(last, Failure) else ""
        if exit_code or not self._logged or self._logged[-1].properties.reason != _COMPLETED:
            said = wrong or self.last_error()
            how = describe_exit(exit_code)
            return f"ended without its final event ({how}){': ' if said else ''}{said[:300]}"
        names = [one.event for one in self._logged if one.event.startswith("message_send")]
        if wrong or names[-2:] != ["message_send_starting", "message_send"] or not "".join(self._answers[-1:]):
            return wrong[:300] or "its last request got no response"
        if sum(isinstance(event, Message) for event in self._told) != sum(map(bool, self._answers)):
            return "its history does not contain the model's answer"
        return ""


def _parse_events(data: bytes) -> Iterator[AiderEvent]:
    for line in data.splitlines():
        try:
            yield _LOGGED.decode(line)
        except (DecodeError, UnicodeDecodeError):
            continue  # an incomplete line, or one with other properties


def _read_usage(logged: list[AiderEvent]) -> Iterator[Usage]:
    for told in (one.properties for one in logged if one.event == "message_send"):
        model = told.main_model or ""
        if told.completion_tokens:  # it also counts requests that were refused for their length
            yield Usage(
                told.prompt_tokens or 0,
                told.completion_tokens,
                told.cost or None,  # 0 if it does not know the prices
                model="" if model == "None" or model.endswith("/REDACTED") else model,
            )


def _find_failures(logged: list[AiderEvent]) -> Iterator[Failure]:
    """Errors that it could not handle: it sends nothing more after one."""
    for one in logged:
        if one.event == "message_send_exception":
            yield failures.failure(one.properties.exception or "a request failed")


def _parse_answers(log: str) -> list[str]:
    """The model's answer to each request; empty if there was an error instead.

    Every line begins with its speaker.
    """
    answers: list[list[str]] = []
    is_answer = False
    for line in log.split("\n"):
        if _HEAD.fullmatch(line):
            is_answer = line.startswith("LLM RESPONSE")
            answers += [[]] if is_answer else []
        elif is_answer and line.startswith("ASSISTANT "):
            answers[-1].append(line.removeprefix("ASSISTANT "))
    return ["\n".join(lines).strip() for lines in answers]


def _parse_history(history: str, answers: list[str]) -> Iterator[Event]:
    """The events of the history in order: the model's messages, and aider's own lines between them."""
    place = errors = 0
    for answer in answers:
        if not answer:
            errors += 1
            continue
        start = history.find(f"\n{answer}\n\n", place)
        if start < 0:
            return  # it has not been written yet
        yield from _parse_own_lines(history[place:start], errors)
        yield Message(answer)
        place, errors = start + len(answer) + 1, 0
    yield from _parse_own_lines(history[place:], errors)


def _parse_own_lines(text: str, errors: int) -> Iterator[Event]:
    """`errors` requests failed here. Only that many last error lines are real: the model can fake earlier ones, since
    its commands are shown before they run."""
    lines = [line[2:].strip() for line in text.split("\n") if line.startswith("> ")]
    places = [place for place, line in enumerate(lines) if line.startswith("litellm.")]
    true_errors = places[len(places) - errors :] if errors < len(places) else places if errors else []
    for place, line in enumerate(lines):
        yield from (log_files.failure(line),) if place in true_errors else _parse_own_line(line)


def _parse_own_line(line: str) -> Iterator[Event]:
    if _TOO_LONG.fullmatch(line):
        yield Failure("context", line)
    elif _GAVE_UP.fullmatch(line):
        yield Failure("other", line)
    elif line.startswith("Applied edit to "):
        yield Tool("edit", line.removeprefix("Applied edit to ")[:200])
    elif line.startswith("Running "):
        yield Tool("shell", line.removeprefix("Running ")[:200])
