"""The scripted agent's program: plays a script of edits, commands, failures and messages, without a model.

    python -m ralphtool.agents.scripted_program SCRIPT <prompt

It does what an agent does, in the real working tree and as a real process: it reads the prompt from its standard
input, calls `ralphtool agent …`, and prints one JSON object per line. It imports only the standard library.

One file, although over 500 lines: it is started by its path for every iteration (see `scripted`), and imports none of
our modules.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time

TYPE_CHECKING = False  # importing `typing` would take an eighth of the time of a short turn
if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

    Step = dict[str, Any]

_USAGE = "usage: python -m ralphtool.agents.scripted_program SCRIPT <prompt\n"
_TROUBLES = ("rate-limit", "overload", "network", "login", "context", "other")
_LONGEST = 1e9  # seconds: the longest single sleep


class TurnFailed(Exception):
    """A step can't be played, or ends the turn as failed."""


class ScriptExit(Exception):
    """The script says `exit`: nothing more is printed."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


# --- the state of a turn ----------------------------------------------------------------------------


class ScriptTurn:
    """The inputs of a turn, and its state so far."""

    def __init__(self, prompt: str, environment: Mapping[str, str]) -> None:
        attempt = environment.get("RALPH_ATTEMPT", "")
        self.prompt = prompt
        self.token = _find_token(prompt)
        self.story = environment.get("RALPH_STORY", "")
        self.attempt = int(attempt) if attempt.isdecimal() else 1
        self.task = environment.get("RALPH_TASK", "")
        self.said = ""
        self.final: str | None = None
        self._is_mid_line = False

    def __str__(self) -> str:
        story = f"story {self.story}" if self.story else "no story"
        return f"{story}, attempt {self.attempt}" + (f", task {self.task}" if self.task else "")

    def raw(self, data: bytes) -> None:
        _write_all(1, data)
        self._is_mid_line = not data.endswith(b"\n") if data else self._is_mid_line

    def emit(self, type: str, **fields: Any) -> None:
        """Prints one event; ends an incomplete raw line first."""
        line = json.dumps({"type": type, **fields}).encode() + b"\n"
        self.raw(b"\n" + line if self._is_mid_line else line)

    def tool(self, name: str, detail: str) -> None:
        self.emit("tool", name=name, detail=detail)

    def fill_placeholders(self, text: str) -> str:
        # Not str.format: commands and messages contain many other braces.
        for name in ("token", "story", "attempt"):
            text = text.replace("{" + name + "}", str(getattr(self, name)))
        return text

    def promise(self, text: str) -> None:
        """The final message is the last message plus the promise."""
        if not self.token:
            raise TurnFailed("the prompt has no line `token: …` to promise with")
        line = f"<promise>{text}</promise>"
        self.final = f"{self.said}\n{line}" if self.said else line

    def end(self) -> None:
        self.emit("end", ok=True, message=self.said if self.final is None else self.final)

    def fail(self, why: str) -> None:
        self.emit("end", ok=False, message=why, reason=why)


def _find_token(prompt: str) -> str:
    """The last one: earlier ones may be quotations."""
    lines = [line.strip() for line in prompt.splitlines()]
    told = [line.removeprefix("token:").strip() for line in lines if line.startswith("token:")]
    return told[-1] if told else ""


def _write_all(fd: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]


# --- steps: files -----------------------------------------------------------------------------------


def _is_outside(path: str) -> bool:
    """Whether a path leads out of the working directory, or to that itself, judging by its text alone."""
    plain = os.path.normpath(path)
    return os.path.isabs(plain) or plain in (".", "..") or plain.startswith("../")


def _resolve_path(path: str, *, follow: bool) -> str:
    """Resolves a path of the script; it must be inside the working directory, unless it begins with `!`."""
    if path.startswith("!"):
        return path[1:]
    home = os.path.realpath(os.curdir)
    full = os.path.normpath(os.path.join(home, path))
    folder, name = os.path.split(full)
    real = os.path.realpath(full) if follow else os.path.join(os.path.realpath(folder), name)
    if real == home or os.path.commonpath([home, real]) != home:
        raise TurnFailed(f"{path} is outside the working directory: begin it with ! if that is intended")
    return real


def _put(path: str, text: str, mode: str) -> None:
    place = _resolve_path(path, follow=True)
    os.makedirs(os.path.dirname(place) or os.curdir, exist_ok=True)
    with open(place, mode) as file:
        file.write(text.encode())


def _write(turn: ScriptTurn, step: Step) -> None:
    turn.tool("write", step["write"])
    _put(step["write"], step["text"], "wb")


def _append(turn: ScriptTurn, step: Step) -> None:
    turn.tool("append", step["append"])
    _put(step["append"], step["text"], "ab")


def _replace(turn: ScriptTurn, step: Step) -> None:
    path, old = step["replace"], step["old"].encode()
    turn.tool("replace", path)
    with open(_resolve_path(path, follow=True), "r+b") as file:
        data = file.read()
        if old not in data:
            raise TurnFailed(f"{path} does not contain the text to replace")
        file.seek(0)
        file.write(data.replace(old, step["new"].encode()))
        file.truncate()


def _delete(turn: ScriptTurn, step: Step) -> None:
    turn.tool("delete", step["delete"])
    place = _resolve_path(step["delete"], follow=False)
    if os.path.isdir(place) and not os.path.islink(place):
        import shutil

        shutil.rmtree(place)
    else:
        os.unlink(place)


def _move(turn: ScriptTurn, step: Step) -> None:
    turn.tool("move", f"{step['move']} to {step['to']}")
    target = _resolve_path(step["to"], follow=False)
    os.makedirs(os.path.dirname(target) or os.curdir, exist_ok=True)
    os.replace(_resolve_path(step["move"], follow=False), target)


def _draft(turn: ScriptTurn, step: Step) -> None:
    turn.tool("draft", step["draft"])
    folder = os.environ.get("RALPH_DRAFT")
    if not folder:
        raise TurnFailed("this is not a draft: use this step with `ralphtool plan`, and `write` for a story")
    _put(f"!{os.path.join(folder, step['draft'])}", step["text"], "wb")


# --- steps: commands --------------------------------------------------------------------------------


def _run(turn: ScriptTurn, step: Step) -> None:
    import subprocess

    command = turn.fill_placeholders(step["run"])
    turn.tool("run", command)
    behind = step.get("background", False)
    # Its output goes to standard error: ours is for events.
    child = subprocess.Popen(
        ["/bin/sh", "-c", command], stdin=subprocess.DEVNULL, stdout=2, stderr=2, start_new_session=behind
    )
    if behind:
        child.returncode = 0  # it is not waited for: this keeps Popen from warning about that
        return
    status = child.wait()
    ending = f"exit status {status}" if status >= 0 else f"ended by signal {-status}"
    turn.tool("result", ending)
    if status and step.get("must", False):
        raise TurnFailed(f"{command}: {ending}")


def _call_agent(*arguments: str, text: str | None = None) -> dict[str, Any]:
    """Calls `ralphtool agent …` as any agent does; `text` is its standard input."""
    import subprocess

    done = subprocess.run(
        [*_ralphtool_command(), "agent", *arguments], input=(text or "").encode(), capture_output=True
    )
    if done.returncode:
        raise TurnFailed(f"ralphtool agent {' '.join(arguments)}: {_error_text(done)}")
    try:
        answer: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        raise TurnFailed(f"{done.args[0]} is another program called ralphtool: it did not print JSON") from None
    return answer


def _ralphtool_command() -> list[str]:
    for folder in os.get_exec_path():
        program = os.path.join(folder, "ralphtool")
        if os.path.isfile(program) and os.access(program, os.X_OK):
            return [program]
    return [sys.executable, "-P", "-m", "ralphtool"]


def _error_text(done: subprocess.CompletedProcess[bytes]) -> str:
    last = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
    try:
        told = json.loads(last)
        return f"{told['error']} ({told['code']})"
    except (ValueError, KeyError, TypeError):  # not our command, or it could not even start
        return last or f"exit status {done.returncode}"


def _build_options(step: Step, *names: str) -> list[str]:
    return [f"--{name}={step[name]}" for name in names if name in step]


def _tick(turn: ScriptTurn, step: Step) -> None:
    for task in _list_open_tasks(turn) if step["tick"] == "all" else [step["tick"]]:
        turn.tool("tick", task)
        _call_agent("task", "done", "--", task)


def _list_open_tasks(turn: ScriptTurn) -> list[str]:
    if turn.task:
        return [turn.task]
    return [task["id"] for task in _call_agent("context")["tasks"] if not task["done"]]


def _learn(turn: ScriptTurn, step: Step) -> None:
    turn.tool("learn", step["learn"])
    _call_agent("learn", *_build_options(step, "task", "type"), "-", text=step["learn"])


def _pattern(turn: ScriptTurn, step: Step) -> None:
    turn.tool("pattern", step["pattern"])
    _call_agent("pattern", *_build_options(step, "type"), "--", step["pattern"], "-", text=step["text"])


def _observe(turn: ScriptTurn, step: Step) -> None:
    turn.tool("observe", f"{step['observe']}: {step['title']}")
    options = _build_options(step, "description", "file", "category", "severity")
    _call_agent("observe", *options, "--", step["observe"], step["title"])


# --- steps: messages and endings --------------------------------------------------------------------


def _say(turn: ScriptTurn, step: Step) -> None:
    turn.said = turn.fill_placeholders(step["say"])
    turn.emit("message", text=turn.said)


def _sleep(turn: ScriptTurn, step: Step) -> None:
    time.sleep(step["sleep"])


def _flood(turn: ScriptTurn, step: Step) -> None:
    left = step["flood"]
    line = b"x" * 999 + (b"\n" if step.get("lines", True) else b"x")
    block = line * 64
    while left > len(block):
        turn.raw(block)
        left -= len(block)
    if left:
        turn.raw(block[: left - 1] + b"\n")


def _bytes(turn: ScriptTurn, step: Step) -> None:
    turn.raw(bytes.fromhex(step["bytes"]))


def _usage(turn: ScriptTurn, step: Step) -> None:
    turn.emit("usage", **step["usage"])


def _error(turn: ScriptTurn, step: Step) -> None:
    told = {"reset_in": step["reset_in"]} if "reset_in" in step else {}
    turn.emit("error", trouble=step["error"], text=step.get("text", step["error"]), **told)


def _hang(turn: ScriptTurn, step: Step) -> None:
    if step.get("ignore_term", False):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        signal.pause()


def _close(turn: ScriptTurn, step: Step) -> None:
    # Not os.close: the next file to be opened would get the free descriptor, and then our events.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, ("stdout", "stderr").index(step["close"]) + 1)
    os.close(nowhere)


def _kill(turn: ScriptTurn, step: Step) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _exit(turn: ScriptTurn, step: Step) -> None:
    raise ScriptExit(step["exit"])


def _complete(turn: ScriptTurn, step: Step) -> None:
    turn.promise(f"COMPLETE:{turn.token}")


def _blocked(turn: ScriptTurn, step: Step) -> None:
    turn.promise(f"BLOCKED:{turn.token}: {step['blocked']}")


def _forge(turn: ScriptTurn, step: Step) -> None:
    turn.final = turn.fill_placeholders(step["forge"])


# --- checking a script ------------------------------------------------------------------------------


class ValueRule:
    """The values that a key may have, in words and as a test."""

    def __init__(self, words: str, fits: Callable[[Any], bool]) -> None:
        self.words = words
        self.fits = fits


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and not any("\ud800" <= character <= "\udfff" for character in value)


def _is_word(value: Any) -> bool:
    return _is_text(value) and bool(value) and "\0" not in value


def _is_whole(value: Any, least: int = 0, most: float = float("inf")) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= _LONGEST


def _is_hex(value: Any) -> bool:
    try:
        return isinstance(value, str) and bool(bytes.fromhex(value))
    except ValueError:
        return False


def _are_attempts(value: Any) -> bool:
    several = value if isinstance(value, list) else [value]
    return bool(several) and all(_is_whole(one, 1) for one in several)


def _one_of(*words: str) -> ValueRule:
    return ValueRule(" or ".join(f'"{word}"' for word in words), lambda value: value in words)


_TEXT = ValueRule("a string", _is_text)
_WORD = ValueRule("a non-empty string", _is_word)
_PATH = ValueRule(
    "a path inside the working directory, or one that begins with !",
    lambda value: _is_word(value) and (value.startswith("!") or not _is_outside(value)),
)
_INSIDE = ValueRule("a path inside the project", lambda value: _is_word(value) and not _is_outside(value))
_WHOLE = ValueRule("a whole number, at least 0", _is_whole)
_NUMBER = ValueRule("a number, at least 0", _is_number)
_STATUS = ValueRule("a whole number from 0 to 255", lambda value: _is_whole(value, 0, 255))
_FLAG = ValueRule("true or false", lambda value: isinstance(value, bool))
_TRUE = ValueRule("true", lambda value: value is True)
_HEX = ValueRule('bytes as hexadecimal digits, as in "ff00"', _is_hex)
_TABLE = ValueRule("a table", lambda value: isinstance(value, dict))
_TABLES = ValueRule("a list of tables", lambda value: isinstance(value, list) and all(map(_TABLE.fits, value)))
_ATTEMPTS = ValueRule("a whole number, at least 1, or a list of them", _are_attempts)


class StepKind:
    """A kind of step: its function, the value of its own key, and the other keys that it needs or may have."""

    def __init__(
        self,
        play: Callable[[ScriptTurn, Step], None],
        value: ValueRule,
        needs: dict[str, ValueRule] | None = None,
        may: dict[str, ValueRule] | None = None,
    ) -> None:
        self.play = play
        self.value = value
        self.needs = needs or {}
        self.may = may or {}


STEP_KINDS: dict[str, StepKind] = {
    "write": StepKind(_write, _PATH, {"text": _TEXT}),
    "append": StepKind(_append, _PATH, {"text": _TEXT}),
    "replace": StepKind(_replace, _PATH, {"old": _WORD, "new": _TEXT}),
    "delete": StepKind(_delete, _PATH),
    "move": StepKind(_move, _PATH, {"to": _PATH}),
    "draft": StepKind(_draft, _INSIDE, {"text": _TEXT}),
    "run": StepKind(_run, _WORD, may={"must": _FLAG, "background": _FLAG}),
    "tick": StepKind(_tick, _WORD),
    "learn": StepKind(_learn, _TEXT, may={"type": _WORD, "task": _WORD}),
    "pattern": StepKind(_pattern, _WORD, {"text": _TEXT}, {"type": _WORD}),
    "observe": StepKind(
        _observe,
        _WORD,
        {"title": _WORD},
        {"description": _WORD, "file": _WORD, "category": _WORD, "severity": _WORD},
    ),
    "say": StepKind(_say, _TEXT),
    "sleep": StepKind(_sleep, _NUMBER),
    "flood": StepKind(_flood, _WHOLE, may={"lines": _FLAG}),
    "bytes": StepKind(_bytes, _HEX),
    "usage": StepKind(_usage, _TABLE),
    "error": StepKind(_error, _one_of(*_TROUBLES), may={"text": _TEXT, "reset_in": _NUMBER}),
    "hang": StepKind(_hang, _TRUE, may={"ignore_term": _FLAG}),
    "close": StepKind(_close, _one_of("stdout", "stderr")),
    "kill": StepKind(_kill, _one_of("self")),
    "exit": StepKind(_exit, _STATUS),
    "complete": StepKind(_complete, _TRUE),
    "blocked": StepKind(_blocked, _WORD),
    "forge": StepKind(_forge, _TEXT),
}
_SCRIPT = {"turn": _TABLES, "defaults": _TABLE}
_DEFAULTS = {"steps": _TABLES, "delay": _NUMBER}
_TURN = {"story": _WORD, "attempt": _ATTEMPTS, "task": _WORD, "told": _WORD, "steps": _TABLES}
_USED = {"input_tokens": _WHOLE, "output_tokens": _WHOLE, "cost": _NUMBER}


def find_problems(path: str) -> list[str]:
    """The problems of a script, for people: each names its turn and step. Empty if it can be played."""
    return _load(path)[1]


def _load(path: str) -> tuple[dict[str, Any], list[str]]:
    try:
        script = _parse_file(path)
    except OSError as error:
        return {}, [f"{path} can't be read: {error.strerror}"]
    except (ValueError, RecursionError) as error:
        return {}, [f"{path}: {error}"]
    if not isinstance(script, dict):
        return {}, [f"{path} must be one JSON object"]
    return script, [f"{path}: {problem}" for problem in _find_problems(script)]


def _parse_file(path: str) -> Any:
    with open(path, "rb") as file:
        text = file.read().decode("utf-8").removeprefix("\ufeff")
    if path.endswith(".json"):
        return json.loads(text)
    import tomllib

    return tomllib.loads(text)


def _find_problems(script: dict[str, Any]) -> Iterable[str]:
    found = _find_table_problems("the script", script, {}, _SCRIPT)
    if found:
        return found
    defaults = script.get("defaults", {})
    if not script.get("turn") and not defaults.get("steps"):
        return ["it has no [[turn]]: add one"]
    found = _find_part_problems("defaults", defaults, {}, _DEFAULTS)
    for number, turn in enumerate(script.get("turn", []), 1):
        found += _find_part_problems(f"turn {number}", turn, {"steps": _TABLES}, _TURN)
    return found


def _find_part_problems(where: str, part: Step, needs: dict[str, ValueRule], may: dict[str, ValueRule]) -> list[str]:
    """The problems of a turn, or of the defaults, including their steps."""
    if found := _find_table_problems(where, part, needs, may):
        return found
    for number, step in enumerate(part.get("steps", []), 1):
        found += _find_step_problems(f"{where}, step {number}", step)
    return found


def _find_step_problems(where: str, step: Step) -> list[str]:
    names = [key for key in step if key in STEP_KINDS]
    if len(names) > 1:
        return [f"{where}: {' and '.join(names)} are two steps: write them as separate steps"]
    if not names:
        return [_describe_unknown(f"{where}: unknown step", next(iter(step), ""), STEP_KINDS)]
    name = names[0]
    kind = STEP_KINDS[name]
    needs = {name: kind.value, **kind.needs}
    found = _find_table_problems(f"{where} ({name})", step, needs, {**needs, **kind.may})
    if name == "usage" and not found:
        found = _find_table_problems(f"{where} (usage)", step["usage"], {}, _USED)
    return found


def _find_table_problems(where: str, table: Step, needs: dict[str, ValueRule], may: dict[str, ValueRule]) -> list[str]:
    found = [f"{where}: {key} is missing: it must be {value.words}" for key, value in needs.items() if key not in table]
    for key, value in table.items():
        if key not in may:
            found.append(_describe_unknown(f"{where}: there is no", key, may))
        elif not may[key].fits(value):
            found.append(f"{where}: {key} must be {may[key].words}")
    return found


def _describe_unknown(what: str, word: str, known: Iterable[str]) -> str:
    import difflib

    near = difflib.get_close_matches(word.lower(), known, 1, 0.5)
    hint = f"did you mean {near[0]}?" if near else f"use one of {', '.join(known)}"
    return f"{what} {word[:60]!a}: {hint}"


# --- playing ----------------------------------------------------------------------------------------


def _find_steps(turn: ScriptTurn, script: dict[str, Any]) -> list[Step]:
    for one in script.get("turn", []):
        if _matches_turn(one, turn):
            return list(one["steps"])
    default = script.get("defaults", {}).get("steps")
    if default is None:
        raise TurnFailed(f"no turn of the script matches {turn}")
    return list(default)


def _matches_turn(one: dict[str, Any], turn: ScriptTurn) -> bool:
    attempts = one.get("attempt", turn.attempt)
    return (
        one.get("story", turn.story) == turn.story
        and one.get("task", turn.task) == turn.task
        and one.get("told", "") in turn.prompt
        and turn.attempt in (attempts if isinstance(attempts, list) else [attempts])
    )


def _play(turn: ScriptTurn, script: dict[str, Any]) -> None:
    steps = _find_steps(turn, script)
    delay = script.get("defaults", {}).get("delay", 0)
    for number, step in enumerate(steps, 1):
        time.sleep(delay)
        name = next(key for key in step if key in STEP_KINDS)
        try:
            STEP_KINDS[name].play(turn, step)
        except (TurnFailed, OSError) as error:
            raise TurnFailed(f"step {number} ({name}): {error}") from None
    if steps and "error" in steps[-1]:  # an error as the last step is how the turn ended
        raise TurnFailed(steps[-1].get("text", steps[-1]["error"]))


def _read_prompt() -> str:
    if sys.stdin is None or sys.stdin.isatty():
        return ""  # started by hand
    return sys.stdin.buffer.read().decode("utf-8", "replace")


def main(arguments: list[str]) -> int:
    for number in (signal.SIGINT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)  # die of them like other programs, without a traceback
    if len(arguments) != 1:
        _write_all(2, _USAGE.encode())
        return 2
    turn = ScriptTurn(_read_prompt(), os.environ)
    script, problems = _load(arguments[0])
    try:
        if problems:
            raise TurnFailed("\n".join(problems))
        _play(turn, script)
    except ScriptExit as left:
        return left.status
    except TurnFailed as failed:
        turn.emit("message", text=str(failed))
        turn.fail(str(failed))
        return 1
    turn.end()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
