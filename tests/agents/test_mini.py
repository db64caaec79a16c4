"""mini-swe-agent: what its trajectory means, and how it is started. Recorded from 2.4.6, and shortened."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from ralphtool.agents import End, Event, Failure, Job, Message, Result, Start, Tool, Usage
from ralphtool.agents.mini import Mini, MiniReader
from ralphtool.errors import InvalidValue

PROMISE = "<promise>COMPLETE:00112233445566778899aabbccddeeff</promise>"
SUBMIT = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
RETRY = (
    b"Retrying <unknown> in 4 seconds as it raised RateLimitError: litellm.RateLimitError: RateLimitError: "
    b"OpenAIException - Rate limit reached for requests per min (RPM): Limit 3, Used 3..\n"
)


def said(content: str | None, command: str, **more: Any) -> dict[str, Any]:
    usage = {"prompt_tokens": 1000, "completion_tokens": 50, "prompt_tokens_details": {"cached_tokens": 400}}
    response = {"id": "chatcmpl-0", "model": "gpt-4o", "choices": [], "usage": usage}
    extra = {"actions": [{"command": command, "tool_call_id": "call_0"}], "response": response, "cost": 0.01}
    return {"role": "assistant", "content": content, "tool_calls": [{}], "extra": extra, **more}


def ended(status: str, submission: str = "", **more: str) -> dict[str, Any]:
    return {
        "role": "exit",
        "content": submission,
        "extra": {"exit_status": status, "submission": submission, **more},
    }


def failed(status: str, error: str) -> dict[str, Any]:
    return ended(status, exception_str=error, traceback="Traceback")


class Folder:
    """The folder with mini's trajectory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file = path / "mini.traj.json"

    def save(self, *messages: dict[str, Any], cost: Any = 0.02) -> None:
        extra = messages[-1].get("extra") or {}
        info = {
            "model_stats": {"instance_cost": cost, "api_calls": 2},
            "config": {"agent": {"mode": "yolo"}},
            "exit_status": extra.get("exit_status", ""),
            "submission": extra.get("submission", ""),
        }
        first = [{"role": "system", "content": "You are"}, {"role": "user", "content": f"Please solve this: {PROMISE}"}]
        document = {"info": info, "messages": [*first, *messages], "trajectory_format": "mini-swe-agent-1.1"}
        self.file.write_text(json.dumps(document, indent=2))

    def read(self, exit_code: int = 0) -> tuple[list[Event], End]:
        reader = MiniReader(str(self.path))
        return list(reader.rest()), reader.end(exit_code)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


RESULT = {"role": "tool", "content": f"<output>{PROMISE}", "extra": {"raw_output": PROMISE, "returncode": 0}}
NOT_RUN = {"role": "tool", "content": "", "extra": {"raw_output": "", "exception_info": "action was not executed"}}
DONE = (said(None, "make test\nls"), RESULT, said(f"Done.\n{PROMISE}", SUBMIT), NOT_RUN, ended("Submitted"))


def test_a_whole_run(folder: Folder) -> None:
    folder.save(*DONE)
    events, end = folder.read()
    assert events == [
        Tool("bash", "make test"),
        Result(PROMISE),
        Message(f"Done.\n{PROMISE}"),
        Tool("bash", SUBMIT),
        Usage(2000, 100, 0.02, 800, "gpt-4o"),
    ]
    assert end == End(True, f"Done.\n{PROMISE}", "Submitted")


@pytest.mark.parametrize(
    ("extra", "result"),
    [
        ({"raw_output": "oops\n", "returncode": 3, "exception_info": ""}, Result("oops\n", False)),
        ({"raw_output": "", "returncode": -1, "exception_info": "it took too long"}, Result("it took too long", False)),
        ({"raw_output": "fine", "returncode": None, "exception_info": 7}, Result("fine")),
    ],
)
def test_what_commands_gave_back(folder: Folder, extra: dict[str, Any], result: Result) -> None:
    folder.save(said(None, "make"), {"role": "user", "content": "<output>", "extra": extra}, ended("Submitted"))
    assert folder.read()[0][1] == result


def test_what_it_submits_is_not_its_final_message(folder: Folder) -> None:
    """It is only the output of a command, such as a file with another author."""
    folder.save(said("Done.", f"{SUBMIT} && cat notes.md"), ended("Submitted", f"{PROMISE}\n"))
    assert folder.read()[1] == End(True, "Done.", "Submitted")
    folder.save(said(None, f"{SUBMIT} && cat notes.md"), ended("Submitted", f"{PROMISE}\n"))
    assert folder.read()[1] == End(True, "", "Submitted")


def test_unknown_prices_are_not_told(folder: Folder) -> None:
    folder.save(*DONE, cost=0.0)
    assert [event.cost for event in folder.read()[0] if isinstance(event, Usage)] == [None]


@pytest.mark.parametrize(
    ("status", "error", "trouble"),
    [
        ("AuthenticationError", "litellm.AuthenticationError: AuthenticationError: OpenAIException - No.", "login"),
        ("RateLimitError", "litellm.RateLimitError: RateLimitError: please log in to get more", "rate-limit"),
        ("InternalServerError", "litellm.InternalServerError: InternalServerError: Sorry about that!", "overload"),
        ("InternalServerError", "litellm.InternalServerError: OpenAIException - Connection error.", "network"),
        ("ContextWindowExceededError", "litellm.BadRequestError: ContextWindowExceededError: too much", "context"),
        ("RuntimeError", "something else", "other"),
    ],
)
def test_what_errors_mean(folder: Folder, status: str, error: str, trouble: str) -> None:
    folder.save(failed(status, error))
    events, end = folder.read(1)
    assert [event.trouble for event in events if isinstance(event, Failure)] == [trouble]
    assert not end.ok
    assert status in end.reason


@pytest.mark.parametrize("status", ["LimitsExceeded", "RepeatedFormatError", "TimeExceeded"])
def test_what_was_not_submitted_is_no_success_although_it_exits_with_0(folder: Folder, status: str) -> None:
    folder.save(said(f"Done.\n{PROMISE}", "ls"), ended(status))
    events, end = folder.read()
    assert not [event for event in events if isinstance(event, Failure)]
    assert end == End(False, f"Done.\n{PROMISE}", f"it did not submit its work (exit status 0): {status}")


def test_what_was_spent_is_told_of_a_run_that_was_ended(folder: Folder) -> None:
    folder.save(said("I look.", "ls"), RESULT)
    events, end = folder.read(-15)
    assert Usage(1000, 50, 0.02, 400, "gpt-4o") in events
    assert end == End(False, "I look.", "it did not submit its work (ended by signal 15)")


def test_an_exit_code_can_only_make_it_worse(folder: Folder) -> None:
    folder.save(*DONE)
    assert not folder.read(1)[1].ok


def test_no_trajectory(folder: Folder) -> None:
    reader = MiniReader(str(folder.path))
    reader.feed_errors(b"Traceback\nValueError: No default model set.\n")
    assert [*reader.rest()] == []
    assert reader.end(1) == End(
        False, "", "it did not submit its work (exit status 1): ValueError: No default model set."
    )


def test_half_of_a_trajectory_is_none(folder: Folder) -> None:
    folder.save(*DONE)
    whole = folder.file.read_bytes()
    ends = []
    for size in range(0, len(whole), 11):
        folder.file.write_bytes(whole[:size])
        ends.append(folder.read()[1])
    assert len(ends) > 50
    assert not [end for end in ends if end.ok]


@pytest.mark.parametrize("text", ["[]", "7", '{"info": 1}', '{"info": {"exit_status": ["Submitted"]}}', "[" * 100_000])
def test_what_is_no_trajectory(folder: Folder, text: str) -> None:
    folder.file.write_text(text)
    assert folder.read()[0] == []
    assert not folder.read()[1].ok


def test_a_link_in_its_place_is_not_followed(folder: Folder) -> None:
    folder.save(*DONE)
    folder.file.rename(folder.path / "elsewhere.json")
    folder.file.symlink_to("elsewhere.json")
    assert not folder.read()[1].ok


def test_a_pipe_in_its_place_is_not_waited_for(folder: Folder) -> None:
    os.mkfifo(folder.file)
    assert not folder.read()[1].ok


def test_odd_messages_do_not_lose_the_end(folder: Folder) -> None:
    odd: tuple[dict[str, Any], ...] = (
        {"role": "user", "content": [{"type": "text", "text": "hm"}]},
        {"role": "assistant", "content": "", "extra": {"actions": "none"}},
        {"role": "tool", "extra": {"response": "unserializable"}},
        {"object": "response", "output": []},
    )
    folder.save(*odd, *DONE)
    assert folder.read()[1] == End(True, f"Done.\n{PROMISE}", "Submitted")


def test_it_says_when_it_tries_again_line_by_line() -> None:
    reader = MiniReader("")
    events = [event for at in range(0, len(RETRY), 20) for event in reader.feed_errors(RETRY[at : at + 20])]
    assert [event.trouble for event in events if isinstance(event, Failure)] == ["rate-limit"]


def test_models_can_not_speak_for_it() -> None:
    """Their text goes to standard output, or is in the middle of a warning."""
    reader = MiniReader("")
    events = [*reader.feed(RETRY), *reader.feed_errors(b"  Expected `Message` (input_value='" + RETRY)]
    assert not [event for event in events if isinstance(event, Failure)]


# --- start ------------------------------------------------------------------------------------------


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    for name in [name for name in os.environ if name.startswith("MSWEA_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    (tmp_path / "prompt.md").write_text('Do it: ä 😀 \x7f \x85 {{x}} \\ "\n')
    return Job(prompt=str(tmp_path / "prompt.md"), root=str(tmp_path), folder=str(tmp_path))


def start(job: Job, **options: Any) -> Start:
    return Mini("mini", {"permissions": "all", **options}).start(job)


def configs(started: Start) -> list[str]:
    return [value for flag, value in zip(started.argv, started.argv[1:], strict=False) if flag in ("-c", "--config")]


def test_the_prompt_goes_in_by_a_file(job: Job) -> None:
    started = start(job)
    text = Path(configs(started)[-1]).read_bytes().decode("ascii")
    task = json.loads(re.sub(r"\\U([0-9a-f]{8})", lambda found: chr(int(found[1], 16)), text))["run"]["task"]
    assert task.endswith('\nDo it: ä 😀 \x7f \x85 {{x}} \\ "\n')
    assert not [argument for argument in started.argv if "Do it" in argument]


def test_its_own_configuration_is_kept(job: Job, tmp_path: Path) -> None:
    assert configs(start(job))[:-1] == ["mini.yaml"]
    assert configs(start(job, args=["-c", "mine.yaml"]))[:-1] == ["mine.yaml"]
    settings = tmp_path / ".config/mini-swe-agent/.env"
    settings.parent.mkdir(parents=True)
    settings.write_text("OTHER=1\nMSWEA_MINI_CONFIG_PATH='/my/own.yaml'\nexport MSWEA_COST_TRACKING=default\n")
    assert configs(start(job))[:-1] == ["/my/own.yaml"]
    assert "MSWEA_COST_TRACKING" not in start(job).env
    assert configs(start(job, env={"MSWEA_MINI_CONFIG_PATH": "other.yaml"}))[:-1] == ["other.yaml"]


def test_it_asks_nothing_when_it_is_first_started(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    assert start(job).env["MSWEA_CONFIGURED"] == "true"
    assert start(job).env["MSWEA_COST_TRACKING"] == "ignore_errors"
    monkeypatch.setenv("MSWEA_COST_TRACKING", "default")
    assert "MSWEA_COST_TRACKING" not in start(job).env


def test_model_and_budget(job: Job) -> None:
    limited = Job(prompt=job.prompt, root=job.root, folder=job.folder, cost=1.5)
    argv = start(limited, model="openai/gpt-4o").argv
    assert argv[argv.index("--model") + 1] == "openai/gpt-4o"
    assert float(argv[argv.index("--cost-limit") + 1]) == 1.5
    assert "--cost-limit" not in start(job).argv


def test_what_an_earlier_iteration_left_is_not_read(job: Job, tmp_path: Path) -> None:
    earlier = Folder(tmp_path)
    earlier.save(*DONE)
    start(job)
    assert not earlier.read()[1].ok


def test_it_needs_all_permissions() -> None:
    with pytest.raises(InvalidValue, match=r'set permissions = "all" in \[agents\.mini\]'):
        Mini("mini", {}).check()


@pytest.mark.parametrize(
    ("says", "error"),
    [
        ("This is mini-swe-agent version 2.4.6.", None),
        ("This is mini-swe-agent version 1.9.1.", "too old"),
        ("mini", "printed no version"),
    ],
)
def test_its_version_stands_at_the_top_of_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str, error: str | None
) -> None:
    monkeypatch.setenv("MSWEA_SILENT_STARTUP", "1")
    program = tmp_path / "mini"
    program.write_text(f'#!/bin/sh\n[ "$1" = --help ] && [ -z "$MSWEA_SILENT_STARTUP" ] && echo "{says}"\n')
    program.chmod(0o755)
    runner = Mini("mini", {"permissions": "all", "command": [str(program)]})
    if error is None:
        runner.check()
        assert runner.traits.notices
    else:
        with pytest.raises(InvalidValue, match=error):
            runner.check()
