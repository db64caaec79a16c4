"""`ralphtool agent …`: the commands that an agent, or another orchestrator, calls.

For programs: stdout is one JSON object, and so is stderr when something fails. An agent calls it
dozens of times in an iteration, so it parses its own command line and imports no more than a command
needs; `tests/test_hot_path.py` has the list.

One file of over 500 lines: every additional module would make each of these calls slower.
"""

import gc
import os
import sys

from ralphtool.cli import end_at_once
from ralphtool.core import quickjson, session
from ralphtool.errors import (
    ChangeLocked,
    ChangeNotFound,
    InvalidValue,
    RalphError,
    SessionRequired,
    StoryRequired,
    TaskNotFound,
    TaskOutOfScope,
    UsageError,
    from_os_error,
    shorten,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ralphtool.core.session import SessionState
    from ralphtool.history import History
    from ralphtool.specs import Spec, Story

HELP = """\
Usage: ralphtool agent COMMAND …

The agent's commands, for programs. Each prints one JSON object: on stdout if it
succeeds, on stderr if it fails ({"success": false,
"error": …, "code": …}; exit 1, or 2 for a wrong command line). All of them need
RALPH_SESSION; `ralphtool run` sets it for the agent that it starts. RALPH_STORY
overrides the current story.

For the orchestrator:
  session init --change NAME [--spec FORMAT]
                        start a session and lock the change
  session next-story    select the next open story
  session flush         write the learnings, end the session, release the
                        change

For the agent:
  context               the story, its tasks, proposal, design, scenarios,
                        learnings
  status                progress of the story and of the change
  recall TEXT           search all learnings and patterns; up to 10 matches
  task done ID          tick a task of the story
  learn TEXT [--task ID] [--type TYPE]
                        record what the next iteration should know
  pattern NAME DESCRIPTION [--type TYPE]
                        record a pattern of the code base
  observe TYPE TITLE [--description TEXT] [--file PATH] [--category NAME]
          [--severity NAME]
                        record a blocker, a finding or a completion

If TEXT or DESCRIPTION is `-`, it is read from stdin. `--` ends the options.

Example:
  export RALPH_SESSION=s1
  ralphtool agent session init --change add-login
  ralphtool agent session next-story
  ralphtool agent recall "database missing in tests"
  ralphtool agent learn "Run the migrations before the tests" --task 1.2
  ralphtool agent task done 1.2
  ralphtool agent session flush
"""


# --- from the command line to the answer ------------------------------------------------------------


def start() -> int:
    """Runs the command line of this process."""
    gc.disable()  # the process ends before there is anything worth collecting
    return end_at_once(main(sys.argv[2:]))


def main(arguments: "Sequence[str]") -> int:
    """Runs one command line; returns the exit code."""
    arguments = [_decode_argument(argument) for argument in arguments]
    answer, exit_code = _run_safely(lambda: _run_and_print(arguments), arguments)
    if exit_code:
        _print_error(answer)
    return exit_code


def perform(name: str, words: "Sequence[str]", options: "dict[str, str]") -> "tuple[SessionState, int]":
    """Runs one command in this process, with literal words and options. Returns its answer or error, and the exit code.

    The caller must check that there are as many `words` as the command takes.
    """
    command = _COMMANDS[name]
    return _run_safely(lambda: command.run(_session_id(), CommandLine(command, list(words), options)), [name])


def _run_safely(run: "Callable[[], SessionState]", told: "Sequence[str]") -> "tuple[SessionState, int]":
    """Turns every ending of a command into one object and an exit code."""
    try:
        return run(), 0
    except RalphError as error:
        return build_error(str(error), error.code), error.exit_code
    except OSError as error:
        wrapped = from_os_error(error)
        return build_error(str(wrapped), wrapped.code), wrapped.exit_code
    except KeyboardInterrupt:
        return build_error("interrupted: run the command again", "INTERRUPTED"), 130
    except Exception as error:
        from ralphtool.core import crashlog

        return build_error(crashlog.report(error, ["agent", *told]), "INTERNAL"), 3


def _run_and_print(arguments: "Sequence[str]") -> "SessionState":
    if any(argument in ("--help", "-h") for argument in _before_dashes(arguments)):
        _write(1, HELP)
        return {}
    answer = _run(arguments)
    _write(1, quickjson.dumps(answer) + "\n")
    return answer


def _decode_argument(argument: str) -> str:
    """The argument decoded as UTF-8, whatever the locale is."""
    try:
        return os.fsencode(argument).decode("utf-8")
    except UnicodeError:
        return argument


def _before_dashes(arguments: "Sequence[str]") -> "Sequence[str]":
    return arguments[: arguments.index("--")] if "--" in arguments else arguments


def _write(fd: int, text: str) -> None:
    rest = memoryview(text.encode("utf-8"))
    while rest:
        rest = rest[os.write(fd, rest) :]


def build_error(message: str, code: str) -> "SessionState":
    return {"success": False, "error": message, "code": code}


def _print_error(error: "SessionState") -> None:
    try:
        _write(2, quickjson.dumps(error) + "\n")
    except OSError:
        pass  # stderr is closed: only the exit code is left


class CommandLine:
    """A parsed command line."""

    def __init__(self, command: "AgentCommand", words: list[str], options: dict[str, str]) -> None:
        self.command = command
        self.words = words
        self.options = options


class AgentCommand:
    """A command: its name, its arguments, and the function that runs it."""

    __slots__ = ("name", "options", "required", "run", "words")

    def __init__(
        self,
        name: str,
        run: "Callable[[str, CommandLine], SessionState]",
        words: tuple[str, ...] = (),
        options: tuple[str, ...] = (),
        required: tuple[str, ...] = (),
    ) -> None:
        self.name = name
        self.run = run
        self.words = words
        self.options = options
        self.required = required

    def usage(self) -> str:
        needed = [f"--{name} …" for name in self.required]
        free = [f"[--{name} …]" for name in self.options if name not in self.required]
        return " ".join(["ralphtool agent", self.name, *self.words, *needed, *free])


def _run(arguments: "Sequence[str]") -> "SessionState":
    call = _parse(arguments)
    session_id = _session_id()
    named = zip(call.command.words, call.words, strict=True)
    call.words = [_read_stdin() if word == "-" and name in _TEXTS else word for name, word in named]
    return call.command.run(session_id, call)


def _parse(arguments: "Sequence[str]") -> CommandLine:
    for length in (2, 1):
        words = arguments[:length]
        command = _COMMANDS.get(" ".join(words))
        if command and len(words) == length and not any(" " in word for word in words):
            return _parse_arguments(command, list(arguments[length:]))
    given = shorten(" ".join(arguments[:2])) if arguments else "nothing"
    from ralphtool.core import spelling  # only needed for errors

    known = f"it is one of {', '.join(_COMMANDS)}"
    near = [spelling.suggest(" ".join(arguments[:length]), _COMMANDS) for length in (2, 1)]
    raise UsageError(f"unknown command {given}: {near[0] or near[1] or known}; see `ralphtool agent --help`")


def _parse_arguments(command: AgentCommand, arguments: list[str]) -> CommandLine:
    words: list[str] = []
    options: dict[str, str] = {}
    while arguments:
        argument = arguments.pop(0)
        if argument == "--":
            words += arguments
            break
        if _is_option(argument, command):
            _take_option(command, argument, arguments, options)
        else:
            words.append(argument)
    if len(words) != len(command.words) or not all(name in options for name in command.required):
        raise UsageError(f"wrong number of arguments; usage: {command.usage()}")
    return CommandLine(command, words, options)


def _is_option(argument: str, command: AgentCommand) -> bool:
    """A text that begins with a dash and contains spaces is an agent's message, not an option."""
    if argument[2:].partition("=")[0] in command.options and argument.startswith("--"):
        return True
    return argument.startswith("-") and argument != "-" and not any(character.isspace() for character in argument)


def _take_option(command: AgentCommand, argument: str, arguments: list[str], options: dict[str, str]) -> None:
    name, equals, value = argument[2:].partition("=")
    if not argument.startswith("--") or name not in command.options:
        hint = "put `--` before a text that begins with a dash"
        raise UsageError(f"unknown option {shorten(argument)} ({hint}); usage: {command.usage()}")
    if name in options:
        raise UsageError(f"--{name} is given twice; usage: {command.usage()}")
    if not equals and not arguments:
        raise UsageError(f"--{name} needs a value; usage: {command.usage()}")
    options[name] = value if equals else arguments.pop(0)


def _session_id() -> str:
    session_id = os.environ.get("RALPH_SESSION", "")
    if not session_id:
        raise SessionRequired(
            "RALPH_SESSION is not set, and every agent command needs a session: `ralphtool run` creates one and "
            "starts the agent in it. To create one yourself, set RALPH_SESSION and call `ralphtool agent session "
            "init --change NAME`"
        )
    return session_id


def _read_stdin() -> str:
    from ralphtool.core import files

    try:
        return files.read_fd(0).decode("utf-8").rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise InvalidValue(f"stdin is not UTF-8 (byte {error.start}): send UTF-8") from None


# --- shared by the commands -------------------------------------------------------------------------


def _open_session(state: "SessionState") -> "tuple[str, Spec, bool]":
    """The session's project and spec, and whether a `run` owns the session."""
    from ralphtool import specs
    from ralphtool.core import locks

    root, lock = locks.find_project(state)
    # A run may work in another tree than the user's; its agents get the path.
    place = os.environ.get("RALPH_WORKSPACE") or root
    spec = specs.open(place, state["change_name"], lock.spec if lock else None)
    return root, spec, bool(lock and lock.owner)


def _find_scope(state: "SessionState") -> str | None:
    if told := os.environ.get("RALPH_STORY"):
        session.check_label(told, "RALPH_STORY")
        return told
    story: str | None = state["current_story_id"]
    return story


def _find_story(state: "SessionState", stories: "Sequence[Story]") -> "Story":
    from ralphtool import specs

    id = _find_scope(state)
    if id is None:
        raise StoryRequired("no story is selected: call `ralphtool agent session next-story`, or set RALPH_STORY")
    return specs.find_story(stories, id)


# --- session ----------------------------------------------------------------------------------------


def _session_init(session_id: str, call: CommandLine) -> "SessionState":
    from ralphtool import specs
    from ralphtool.core import lifecycle, locks, project

    session.path_of(session_id)
    root = project.find()
    locks.check_folders(root)
    spec = specs.open(root, call.options["change"], specs.parse_ref(root, call.options.get("spec")))
    lifecycle.find_abandoned_lock(root, spec.change)
    stories = spec.stories(locks.list_completed_tasks(root, spec.change))
    state = lifecycle.begin(root, session_id, spec.change, spec.ref)
    return {
        "session_id": state["session_id"],
        "change_name": state["change_name"],
        "created_at": state["created_at"],
        "stories": [
            {"id": story.id, "title": story.title, "tasks_total": len(story.tasks), "tasks_done": story.tasks_done}
            for story in stories
        ],
    }


def _session_next_story(session_id: str, call: CommandLine) -> "SessionState":
    from ralphtool import specs

    with session.LockedSession(session_id) as held:
        _, spec, run_owns = _open_session(held.state)
        _refuse_agents_of_run(run_owns, session_id)
        stories = spec.stories(held.state["completed_tasks"])
        story = specs.next_story(stories)
        if story is None:
            from ralphtool.specs import remaining

            remaining.check_complete(spec, stories)
            return {"complete": True}
        held.state["current_story_id"] = story.id
        held.state["iteration"] += 1
        held.save()
        iteration = held.state["iteration"]
    return {"complete": False, "story_id": story.id, "story_title": story.title, "iteration": iteration}


def _refuse_agents_of_run(run_owns: bool, session_id: str) -> None:
    """Only the agents of a run have a token. They must neither select stories nor end sessions."""
    if run_owns and os.environ.get("RALPH_TOKEN"):
        raise ChangeLocked(
            f"the session {session_id} belongs to a `ralphtool run`, which selects stories and flushes by itself: "
            "finish the story in your prompt, then exit"
        )


def _session_flush(session_id: str, call: CommandLine) -> "SessionState":
    from ralphtool.core import lifecycle, locks

    root, lock = locks.find_project(session.load(session_id))
    _refuse_agents_of_run(bool(lock and lock.owner and not lock.is_abandoned), session_id)
    written = lifecycle.end(session_id, root, _write_out)
    return {
        "success": True,
        "learnings_written": sum(learnings for learnings, _ in written),
        "patterns_written": sum(patterns for _, patterns in written),
    }


def _write_out(state: "SessionState") -> tuple[int, int]:
    """Writes a session's buffers to spec and history. Returns the numbers of new learnings and patterns in the spec."""
    root, spec = _open_for_writing(state)
    history = _open_history(root) if state["learnings"] or state["patterns"] else None
    learnings = spec.write_learnings(state["learnings"]) if state["learnings"] else 0
    patterns = spec.write_patterns(state["patterns"]) if state["patterns"] else 0
    if state["observations"]:
        spec.write_observations(state["observations"])
    if history:
        _write_history(history, state, spec)
    return learnings, patterns


def _open_history(root: str) -> "History":
    """The history, checked first: if it is broken, the error comes before anything is written."""
    from ralphtool.history import History

    history = History(root)
    history.check()
    return history


def _write_history(history: "History", state: "SessionState", spec: "Spec") -> None:
    from ralphtool import specs
    from ralphtool.history import from_session

    from_session.write(history, state, lambda story: specs.prd_id(spec, story))
    for notice in history.notices:
        _write(2, quickjson.dumps({"warning": notice}) + "\n")


def _open_for_writing(state: "SessionState") -> "tuple[str, Spec]":
    try:
        return _open_session(state)[:2]
    except ChangeNotFound as error:
        path = session.path_of(state["session_id"])
        raise ChangeNotFound(
            f"{error}; restore the change and flush again. Nothing is lost: the session's records are in {path}"
        ) from None


# --- the agent --------------------------------------------------------------------------------------


def _context(session_id: str, call: CommandLine) -> "SessionState":
    from ralphtool.core import gate_commands

    state = session.load(session_id)
    root, spec, _ = _open_session(state)
    story = _find_story(state, spec.stories(state["completed_tasks"]))
    commands = gate_commands.find_commands(root)
    return {
        "story": {"id": story.id, "title": story.title, "description": story.description},
        "tasks": [{"id": task.id, "description": task.text, "done": task.done} for task in story.tasks],
        "proposal": spec.proposal(),
        "design": spec.design(),
        "scenarios": [scenario.as_dict() for scenario in spec.scenarios(story)],
        "learnings": state["learnings"],
        "patterns": state["patterns"],
        "verify": {"checks": commands.checks, "tests": commands.tests},
    }


def _recall(session_id: str, call: CommandLine) -> "SessionState":
    from ralphtool.core import locks
    from ralphtool.memory import labels, recall

    [text] = call.words
    state = session.load(session_id)
    root, _ = locks.find_project(state)
    answer = recall.answer_query(root, session_id, labels.list_notes(state), text)
    if answer["learnings"] and os.environ.get("RALPH_TOKEN"):
        with session.LockedSession(session_id) as held:  # shown learnings are later compared with the attempt's result
            held.state["recalled"] = [*held.state.get("recalled", []), *(one["id"] for one in answer["learnings"])]
            held.save()
    return answer


def _status(session_id: str, call: CommandLine) -> "SessionState":
    from ralphtool import specs

    state = session.load(session_id)
    _, spec, _ = _open_session(state)
    stories = spec.stories(state["completed_tasks"])
    story = _find_story(state, stories)
    return {
        "story": {"id": story.id, "tasks_done": story.tasks_done, "tasks_total": len(story.tasks)},
        "change": {"stories_done": sum(one.done for one in stories), "stories_total": len(stories)},
        "story_complete": story.done,
        "change_complete": specs.is_complete(stories),
    }


def _task_done(session_id: str, call: CommandLine) -> "SessionState":
    [task_id] = call.words
    with session.LockedSession(session_id) as held:
        completed: list[str] = held.state["completed_tasks"]
        _, spec, run_owns = _open_session(held.state)
        stories = spec.stories(completed)
        story = _find_story(held.state, stories)
        _check_in_scope(task_id, story, stories)
        remaining = [task.id for task in story.required if not task.done and task.id != task_id]
        # Read first: an error must come before anything is written.
        scenarios = None if remaining else [scenario.as_dict() for scenario in spec.scenarios(story)]
        # The spec first: after a kill here, the same call finds the box ticked and completes.
        spec.tick(task_id, completed, proven=not run_owns)
        if task_id not in completed:
            completed.append(task_id)
            held.save()
    return {
        "success": True,
        "task_id": task_id,
        "remaining": remaining,
        "story_complete": not remaining,
        "scenarios": scenarios,
    }


def _check_in_scope(task_id: str, story: "Story", stories: "Sequence[Story]") -> None:
    if task_id in [task.id for task in story.tasks]:
        return
    for other in stories:
        if task_id in [task.id for task in other.tasks]:
            raise TaskOutOfScope(f"task {task_id} belongs to story {other.id}; the current story is {story.id}")
    known = ", ".join(task.id for task in story.tasks)
    raise TaskNotFound(f"the change has no task {shorten(task_id)}: story {story.id} has {known or 'none'}")


def _learn(session_id: str, call: CommandLine) -> "SessionState":
    [text] = call.words
    with session.LockedSession(session_id) as held:
        state = held.state
        learning = session.build_learning(
            text, call.options.get("task"), _find_scope(state), state["iteration"], call.options.get("type")
        )
        total = held.add_learning(learning)
    shown = {name: value for name, value in learning.items() if name != "type"}
    return {"success": True, "learning": shown, "total_learnings": total}


def _pattern(session_id: str, call: CommandLine) -> "SessionState":
    name, description = call.words
    with session.LockedSession(session_id) as held:
        pattern = session.build_pattern(name, description, call.options.get("type"))
        held.state["patterns"].append(pattern)
        held.save()
        total = len(held.state["patterns"])
    shown = {name: value for name, value in pattern.items() if name != "type"}
    return {"success": True, "pattern": shown, "total_patterns": total}


def _observe(session_id: str, call: CommandLine) -> "SessionState":
    kind, title = call.words
    with session.LockedSession(session_id) as held:
        state = held.state
        observation = session.build_observation(kind, title, _find_scope(state), state["iteration"], call.options)
        state["observations"].append(observation)
        held.save()
        total = len(state["observations"])
    return {"success": True, "observation": observation, "total_observations": total}


_TEXTS = ("TEXT", "DESCRIPTION")  # may be long, so on a command line `-` means stdin
_COMMANDS = {
    command.name: command
    for command in (
        AgentCommand("session init", _session_init, options=("change", "spec"), required=("change",)),
        AgentCommand("session next-story", _session_next_story),
        AgentCommand("session flush", _session_flush),
        AgentCommand("context", _context),
        AgentCommand("status", _status),
        AgentCommand("recall", _recall, words=("TEXT",)),
        AgentCommand("task done", _task_done, words=("ID",)),
        AgentCommand("learn", _learn, words=("TEXT",), options=("task", "type")),
        AgentCommand("pattern", _pattern, words=("NAME", "DESCRIPTION"), options=("type",)),
        AgentCommand(
            "observe", _observe, words=("TYPE", "TITLE"), options=("description", "file", "category", "severity")
        ),
    )
}
