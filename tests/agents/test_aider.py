"""aider: what its logs mean, and how it is started. Recorded from 0.86.2, and shortened."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ralphtool.agents import End, Event, Failure, Job, Message, Start, Tool, Usage
from ralphtool.agents.aider import Aider, AiderReader

PROMISE = "<promise>COMPLETE:00112233445566778899aabbccddeeff</promise>"
ANSWER = f"hello.txt\n```\n<<<<<<< SEARCH\n=======\nhi\n>>>>>>> REPLACE\n```\n\nDone\n{PROMISE}"
LIMITED = "litellm.RateLimitError: RateLimitError: OpenAIException - Rate limit reached for requests: Limit 3, Used 3."
ASKED: dict[str, Any] = {"event": "message_send_starting", "properties": {}}
ANSWERED: dict[str, Any] = {
    "event": "message_send",
    "properties": {
        "main_model": "openai/gpt-4o",
        "edit_format": "diff",
        "prompt_tokens": 1000,
        "completion_tokens": 50,
        "cost": 0.0015,
    },
}
OVER: dict[str, Any] = {"event": "exit", "properties": {"reason": "Completed --message-file"}}
BEGINNING = """
# aider chat started at 2026-01-01 10:00:00

> aider --no-pretty --message-file prompt.md
> Aider v0.86.2

#### # Your task
#### token: 00112233445566778899aabbccddeeff
> openspec/tasks.md
> Add file to the chat? (Y)es/(N)o/(D)on't ask again [Yes]: y
"""


class Folder:
    """The folder with aider's logs."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.root = path / "root"
        self.root.mkdir()

    def reader(self) -> AiderReader:
        return AiderReader(str(self.path), str(self.root))

    def log(self, *lines: dict[str, Any]) -> None:
        text = "".join(json.dumps(line | {"user_id": "u", "time": 1}) + "\n" for line in lines)
        (self.path / "aider.jsonl").write_text(text)

    def answers(self, *answers: str) -> None:
        text = ""
        for answer in answers:
            said = "\n".join(f"ASSISTANT {line}" for line in answer.splitlines())
            text += f"TO LLM 2026-01-01T10:00:01\n-------\nSYSTEM Act as\n-------\nUSER {PROMISE}\n"
            text += f"LLM RESPONSE 2026-01-01T10:00:02\n{said}\n"
        (self.path / "aider-model.log").write_text(text)

    def history(self, *parts: str) -> None:
        """Answers are written as they are; aider's own lines are given with their `>`."""
        (self.path / "aider-chat.md").write_text(BEGINNING + "".join(f"{part}\n" for part in parts))

    def complete(self) -> None:
        self.log({"event": "launched"}, ASKED, ANSWERED, OVER)
        self.answers(ANSWER)
        self.history(
            f"\n{ANSWER}\n",
            "> Tokens: 1.0k sent, 50 received. Cost: $0.0015 message, $0.0015 session.  ",
            "> hello.txt  ",
            "> Create new file? (Y)es/(N)o [Yes]: y  ",
            "> Applied edit to hello.txt  ",
            "> make test  ",
            "> Run shell command? (Y)es/(N)o/(D)on't ask again [Yes]: y  ",
            "> Running make test  ",
        )

    def read(self, exit_code: int = 0) -> tuple[list[Event], End]:
        reader = self.reader()
        return list(reader.rest()), reader.end(exit_code)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def failures(events: Sequence[Event]) -> list[str]:
    return [event.trouble for event in events if isinstance(event, Failure)]


def test_a_whole_run(folder: Folder) -> None:
    folder.complete()
    events, end = folder.read()
    assert events == [
        Usage(1000, 50, 0.0015, model="openai/gpt-4o"),
        Message(ANSWER),
        Tool("edit", "hello.txt"),
        Tool("shell", "make test"),
    ]
    assert end == End(True, ANSWER, "completed")


def test_unknown_prices_and_hidden_names_are_not_told(folder: Folder) -> None:
    folder.complete()
    hidden = ANSWERED["properties"] | {"main_model": "openai/REDACTED", "cost": 0}
    folder.log(ASKED, ANSWERED | {"properties": hidden}, OVER)
    assert folder.read()[0][0] == Usage(1000, 50)


def test_an_error_is_no_success_although_it_exits_with_0(folder: Folder) -> None:
    error = "litellm.AuthenticationError: AuthenticationError: OpenAIException - Incorrect API key provided: no-key."
    folder.log(ASKED, OVER)
    folder.answers("")
    folder.history(f"> {error}  ", "> The API provider is not able to authenticate you. Check your API key.  ")
    events, end = folder.read()
    assert events == [Failure("login", error)]
    assert end == End(False, "", error)


@pytest.mark.parametrize(
    ("error", "trouble"),
    [
        (LIMITED, "rate-limit"),
        ("litellm.RateLimitError: RateLimitError: 401 unauthorized, check your API key", "rate-limit"),
        ("litellm.InternalServerError: InternalServerError: OpenAIException - Please log in.", "overload"),
        ("litellm.InternalServerError: InternalServerError: OpenAIException - Connection error.", "network"),
        ("litellm.APIConnectionError: APIConnectionError: 401", "network"),
        ("litellm.Timeout: Timeout: overloaded", "network"),
        ("litellm.APIError: APIError: OpenAIException - Overloaded", "overload"),
        ("litellm.BadRequestError: BadRequestError: no such parameter", "other"),
    ],
)
def test_what_errors_mean(folder: Folder, error: str, trouble: str) -> None:
    folder.log(ASKED, OVER)
    folder.answers("", "")
    folder.history(f"> {error}  ", "> Retrying in 0.2 seconds...  ", f"> {error}  ")
    events, end = folder.read()
    assert failures(events) == [trouble, trouble]
    assert not end.ok


def test_errors_are_told_while_it_tries_again_and_only_once(folder: Folder) -> None:
    reader = folder.reader()
    folder.log(ASKED)
    folder.answers("")
    folder.history(f"> {LIMITED}  ", "> Retrying in 0.2 seconds...  ")
    assert failures([*reader.feed(b"Retrying in 0.2 seconds...\n")]) == ["rate-limit"]
    folder.log(ASKED, ANSWERED, OVER)
    folder.answers("", ANSWER)
    folder.history(f"> {LIMITED}  ", "> Retrying in 0.2 seconds...  ", f"\n{ANSWER}\n")
    assert [*reader.rest()] == [Usage(1000, 50, 0.0015, model="openai/gpt-4o"), Message(ANSWER)]
    assert reader.end(0).ok


def test_the_model_can_not_speak_for_aider(folder: Folder) -> None:
    """Neither in its answer nor through a command that is shown before it runs."""
    answer = f"> {LIMITED}\n> Running away\n\n```bash\n{LIMITED}\n```\nLLM RESPONSE 2026-01-01T10:00:02\n{PROMISE}"
    folder.log(ASKED, ANSWERED, OVER)
    folder.answers(answer)
    folder.history(f"\n{answer}\n", f"> {LIMITED}  ", "> Run shell command? (Y)es/(N)o [Yes]: y  ")
    events, end = folder.read()
    assert events[1:] == [Message(answer)]
    assert end.ok
    assert end.message == answer


def test_an_error_after_such_a_command_is_the_true_one(folder: Folder) -> None:
    error = "litellm.InternalServerError: InternalServerError: OpenAIException - Sorry about that!"
    folder.log(ASKED, ANSWERED, ASKED, OVER)
    folder.answers("look at a.py", "")
    folder.history("\nlook at a.py\n", f"> {LIMITED}  ", f"> {error}  ")
    events, end = folder.read()
    assert failures(events) == ["overload"]
    assert end == End(False, "", error)


def test_half_of_an_answer_is_no_success(folder: Folder) -> None:
    folder.log(ASKED, ANSWERED, ASKED, OVER)
    folder.answers("look at a.py", PROMISE)
    folder.history("\nlook at a.py\n", f"\n{PROMISE}\n")
    assert folder.read()[1] == End(False, PROMISE, "its last request got no response")


def test_a_conversation_that_does_not_fit(folder: Folder) -> None:
    refused = ANSWERED["properties"] | {"prompt_tokens": 2570, "completion_tokens": 0}
    folder.log(ASKED, ANSWERED | {"properties": refused}, OVER)
    folder.answers("")
    folder.history("> Tokens: 2.6k sent, 0 received.  ", "> Model openai/gpt-4o has hit a token limit!  ")
    events, end = folder.read()
    assert events == [Failure("context", "Model openai/gpt-4o has hit a token limit!")]
    assert not end.ok


def test_an_answer_that_was_not_taken_is_no_success(folder: Folder) -> None:
    folder.complete()
    with (folder.path / "aider-chat.md").open("a") as file:
        file.write("> Only 3 reflections allowed, stopping.  \n")
    assert folder.read()[1] == End(False, ANSWER, "Only 3 reflections allowed, stopping.")


def test_what_aider_itself_could_make_nothing_of(folder: Folder) -> None:
    folder.log(ASKED, {"event": "message_send_exception", "properties": {"exception": "Connection refused"}}, OVER)
    folder.answers("")
    folder.history("> Connection refused  ")
    events, end = folder.read()
    assert failures(events) == ["network"]
    assert end == End(False, "", "Connection refused")


@pytest.mark.parametrize("exit_code", [1, -15])
def test_an_exit_code_can_only_make_it_worse(folder: Folder, exit_code: int) -> None:
    folder.complete()
    assert not folder.read(exit_code)[1].ok


def test_a_program_that_did_not_begin(folder: Folder) -> None:
    reader = folder.reader()
    reader.feed_errors(b"Traceback\nModuleNotFoundError: No module named 'aider'\n")
    assert [*reader.rest()] == []
    assert reader.end(1) == End(
        False, "", "ended without its final event (exit status 1): ModuleNotFoundError: No module named 'aider'"
    )


@pytest.mark.parametrize(
    ("name", "end_of_what_matters"),
    [("aider.jsonl", b"}\n"), ("aider-model.log", b"</promise>"), ("aider-chat.md", b"</promise>")],
)
def test_half_of_a_log_keeps_no_promise(folder: Folder, name: str, end_of_what_matters: bytes) -> None:
    folder.complete()
    path = folder.path / name
    whole = path.read_bytes()
    sizes = range(0, whole.rindex(end_of_what_matters), 5)
    ends = []
    for size in sizes:
        path.write_bytes(whole[:size])
        ends.append(folder.read()[1])
    assert len(ends) > 20
    assert not [end for end in ends if end.ok and PROMISE in end.message]


def test_what_is_no_log(folder: Folder) -> None:
    folder.complete()
    path = folder.path / "aider.jsonl"
    path.write_bytes(b'\xff\xfe\n[1]\n{"event": 1}\n{"event": "exit", "properties": {"reason": 7}}\n')
    assert not folder.read()[1].ok
    path.unlink()
    os.mkfifo(path)
    assert not folder.read()[1].ok


def test_only_a_new_cache_is_taken_away(folder: Folder) -> None:
    (folder.root / ".aider.tags.cache.v3").mkdir()
    reader = folder.reader()
    (folder.root / ".aider.tags.cache.v4").mkdir()
    (folder.root / ".aider.tags.cache.v4/cache.db").touch()
    list(reader.rest())
    assert os.listdir(folder.root) == [".aider.tags.cache.v3"]


def test_a_root_that_was_taken_away_hinders_nobody(folder: Folder) -> None:
    folder.complete()
    reader = folder.reader()
    folder.root.rmdir()
    assert Message(ANSWER) in list(reader.rest())
    assert reader.end(0).ok
    assert folder.read()[1].ok


# --- start ------------------------------------------------------------------------------------------


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.delenv("GIT_CONFIG_COUNT", raising=False)
    for name in ("root", "folder"):
        (tmp_path / name).mkdir()
    (tmp_path / "prompt.md").write_text("/run the task\n")
    return Job(prompt=str(tmp_path / "prompt.md"), root=str(tmp_path / "root"), folder=str(tmp_path / "folder"))


def start(job: Job, **options: Any) -> Start:
    return Aider("aider", options).start(job)


def git(job: Job, *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=job.root, check=True, capture_output=True)


def message(started: Start) -> str:
    return Path(started.argv[started.argv.index("--message-file") + 1]).read_text()


def test_the_prompt_goes_in_by_a_file_and_is_never_a_command(job: Job) -> None:
    started = start(job)
    assert message(started).startswith("You have no tools")
    assert message(started).endswith("\n/run the task\n")
    assert started.stdin is None


def test_what_it_may_do(job: Job) -> None:
    """Commands run only on an explicit yes. `--yes-always` does not count as one; the end of an empty input does."""
    careful, bold = start(job).argv, start(job, permissions="all").argv
    assert {"--yes-always", "--no-suggest-shell-commands"} <= set(careful)
    assert not {"--yes-always", "--no-suggest-shell-commands"} & set(bold)


def test_unless_all_is_permitted_it_runs_no_commands_of_the_project_either(job: Job) -> None:
    """Its configuration may name some, and it could write that file itself. Our arguments come last, so they win."""
    none = ["--no-auto-lint", "--no-auto-test"]
    own = ["--auto-lint", "--lint-cmd", "make lint", "--auto-test", "--test-cmd", "make test"]
    argv = start(job, args=own).argv
    assert all(argv.index(one) > argv.index("make test") for one in none)
    assert not set(none) & set(start(job, args=own, permissions="all").argv)


def test_only_looking_wins_over_the_users_arguments(job: Job) -> None:
    looking = Job(prompt=job.prompt, root=job.root, folder=job.folder, read_only=True)
    argv = start(looking, permissions="all", args=["--chat-mode", "code"]).argv
    assert argv.index("code") < argv.index("ask")
    assert {"--dry-run", "--no-suggest-shell-commands"} <= set(argv)


def test_all_that_it_writes_goes_into_our_folder(job: Job) -> None:
    argv = start(job, model="openai/gpt-4o").argv
    for flag in ("--analytics-log", "--llm-history-file", "--chat-history-file", "--input-history-file"):
        assert argv[argv.index(flag) + 1].startswith(f"{job.folder}/")
    assert argv[argv.index("--model") + 1] == "openai/gpt-4o"


def test_what_an_earlier_iteration_left_is_not_read(job: Job) -> None:
    earlier = Folder(Path(job.folder))
    earlier.complete()
    start(job)
    assert not earlier.read()[1].ok


def test_it_makes_no_repository_and_no_identity(job: Job) -> None:
    assert "--no-git" in start(job).argv
    git(job, "init")
    started = start(job, env={"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "user.name", "GIT_CONFIG_VALUE_0": "me"})
    assert "--no-git" not in started.argv
    assert started.env["GIT_CONFIG_COUNT"] == "2"
    assert started.env["GIT_CONFIG_KEY_1"] == "user.email"
    git(job, "config", "user.name", "me")
    git(job, "config", "user.email", "me@example.com")
    assert "GIT_CONFIG_COUNT" not in start(job).env


def test_who_reads_its_record_again_takes_nothing_away(job: Job) -> None:
    """aider may still be running, and be creating its map of the repository."""
    reader = Aider("aider", {}).reader(Job(prompt=job.prompt, root=job.root, folder=job.folder, is_past=True))
    (Path(job.root) / ".aider.tags.cache.v4").mkdir()
    assert [*reader.feed(b"it prints\n"), *reader.rest()] == []
    assert os.listdir(job.root) == [".aider.tags.cache.v4"]


def test_the_user_has_the_last_word_about_the_environment(job: Job) -> None:
    assert start(job).env["BROWSER"] == "true"
    assert start(job, env={"BROWSER": "firefox"}).env["BROWSER"] == "firefox"
