"""Maps the turns of a scenario to the tools of the agent."""

from __future__ import annotations

import os
import shlex
from typing import Any

from ralphtool.testing.dialects import Answer, ToolCall
from ralphtool.testing.scenario import All, Call, Mcp, Request, Run, Say, Turn, Write

# The names of the arguments for the path and the content.
_WRITERS = {"Write": ("file_path", "content"), "write_file": ("file_path", "content"), "write": ("filePath", "content")}
# The name of the argument for the command, and further arguments: as much time as the agent allows, in milliseconds.
# By default codex continues after 10 seconds, the others after 2 minutes, with the command half done.
_SHELLS: dict[str, tuple[str, dict[str, Any]]] = {
    "Bash": ("command", {"description": "a command of the script", "timeout": 600_000}),
    "exec_command": ("cmd", {"yield_time_ms": 30_000}),
    "run_shell_command": ("command", {"description": "a command of the script"}),
    "bash": ("command", {"description": "a command of the script", "timeout": 600_000}),
}


# mini-swe-agent requires this output at the end; it accepts no answer without a command.
_SUBMITS = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"


def answer(turn: Turn, request: Request, root: str) -> Answer:
    match turn:
        case Say():
            text = turn.text.replace("{promise}", request.promise).replace("{token}", request.token)
            return Answer(text, _answer_run(f"echo {_SUBMITS}", request).call if _SUBMITS in request.prompt else None)
        case All():
            return _join_answers([answer(one, request, root) for one in turn.turns])
        case Call():
            return Answer(call=ToolCall(turn.tool, turn.arguments))
        case Mcp():
            return Answer(call=ToolCall(_find_mcp_name(turn.tool, request), turn.arguments))
        case Run():
            return _answer_run(turn.command, request)
        case Write():
            return _answer_write(turn, request, root)
    raise AssertionError(f"no answer to {turn}")


def _join_answers(answers: list[Answer]) -> Answer:
    calls = [one.call for one in answers if one.call]
    if len(calls) > 1:
        raise ValueError("an answer can call one tool only: take the turns one after the other")
    return Answer("\n".join(one.text for one in answers if one.text), calls[0] if calls else None)


def _find_mcp_name(tool: str, request: Request) -> str:
    """The best match: agents put the server's name before the tool's, with one or two underscores between them."""
    found = [name for end in (f"__{tool}", f"_{tool}") for name in request.tools if name.endswith(end)]
    return tool if tool in request.tools or not found else found[0]


def _answer_run(command: str, request: Request) -> Answer:
    name = next((one for one in _SHELLS if one in request.tools), None)
    if name is None:
        return Answer(text=f"```bash\n{command}\n```\n")
    argument, more = _SHELLS[name]
    return Answer(call=ToolCall(name, {argument: command, **more}))


def _answer_write(turn: Write, request: Request, root: str) -> Answer:
    path = os.path.join(root, turn.path)
    name = next((one for one in _WRITERS if one in request.tools), None)
    if name is not None:
        place, content = _WRITERS[name]
        return Answer(call=ToolCall(name, {place: path, content: turn.content}))
    if not request.tools and "SEARCH/REPLACE" in request.system:
        return Answer(_build_edit_block(turn, path))
    quoted = shlex.quote(path)
    return _answer_run(f'mkdir -p "$(dirname {quoted})" && printf %s {shlex.quote(turn.content)} > {quoted}', request)


def _build_edit_block(turn: Write, path: str) -> str:
    """In aider's format: the current content, and the new one."""
    before = ""
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            before = file.read()
    return (
        f"{turn.path}\n```\n<<<<<<< SEARCH\n{_end_line(before)}=======\n{_end_line(turn.content)}>>>>>>> REPLACE\n```\n"
    )


def _end_line(text: str) -> str:
    return text if not text or text.endswith("\n") else f"{text}\n"
