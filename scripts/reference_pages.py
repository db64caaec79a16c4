"""Generates `docs/files.md` and `docs/exit-codes.md` from the code's own tables: `core/layout.py` and `errors.py`.

Paths, refs, codes and numbers come from there. Their descriptions are here, and a missing one is an error.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping

from ralphtool import errors
from ralphtool.cli import detect, run
from ralphtool.core import layout

SAMPLE = {"root": "", "change": "CHANGE", "id": "RUN", "git_folder": ".git", "slot": 0}
PROJECT: dict[Callable[..., str], str] = {
    layout.config: "the settings: [settings.md](settings.md)",
    layout.prompts: "your own texts for prompts: [running.md](running.md#the-prompt)",
    layout.history: "the history, one entry for each attempt: [progress-json.md](progress-json.md)",
    layout.history_apart: "the history, if another program has its own `progress.json`",
    layout.events: "the record of a run: [events.md](events.md)",
    layout.processes: "the processes of a run in progress",
    layout.questions: "questions that need your answer; in `answered/`, those that have one",
    layout.steering: "steering commands that a run has not applied yet",
    layout.change_state: "attempts used, work kept and decisions made for a change",
    layout.published: "what was written to an issue tracker, and from which commit",
    layout.locks: "which session or run has locked which change",
    layout.memory_index: "a cache of the memory; it can be deleted at any time: [memory.md](memory.md)",
    layout.usefulness: "which learnings an attempt was shown, and how it ended",
}
GIT_FOLDER: dict[Callable[..., str], str] = {
    layout.in_git: "the worktrees and boxes that agents work in, and your files while they are set aside",
    layout.stash_note: "which of your files are set aside, and how to put them back",
}
NOT_LISTED = {
    *(layout.folder, layout.change_states, layout.runs, layout.run),  # parent folders of listed files
    *(layout.list_processes, layout.list_slots, layout.list_working_trees, layout.slot_name, layout.branch),  # no paths
}
REFS = {
    "BRANCHES": ("CHANGE", "the branch of a change: one commit for each story that is done"),
    "ATTEMPTS": ("ENTRY", "the work of every attempt; `ralphtool attempts` lists them"),
    "BASE": ("CHANGE", "the commit that the branch started from"),
    "START": ("CHANGE", "your plan, as it was when a run last read it"),
    "FINISHED": ("CHANGE", "the branch of a change after `ralphtool finish`"),
    "FINISHED_BEFORE": ("CHANGE", "the same, for an earlier change of that name"),
    "INTERRUPTED": (
        "RUN-N",
        "the work of iterations that were interrupted, and what changed in your own folder while no agent worked",
    ),
    "PROVING": ("…", "the work of an iteration while its proof runs"),
    "STAGED": ("", "your index, while your files are set aside"),
    "GUARDED": ("CHANGE/…", "your branches, tags and stash, while an agent works outside of a box"),
    "MOVED": (
        "COMMIT",
        "a commit that a branch, a tag or the stash lost while an agent worked outside of a box, or when that was "
        "reverted",
    ),
    "ORDERS": ("…", "work for other machines: [many-machines.md](many-machines.md)"),
    "RESULTS": ("…", "the results of that work"),
    "SENT": ("…", "work that was sent and has no result yet"),
    "UNSENT": ("…", "on a worker, results that could not be pushed yet"),
    "CLAIMS": ("…", "on a shared remote, which run works on a change"),
    "TRIALS": ("…", "working trees without a change, for example to try the gates"),
}
CODES = {
    0: "Success. For `ralphtool run`: every story is done and [proven, held or accepted](proof.md), and the gates are "
    "green at the end.",
    1: "The command failed, with a message. For `ralphtool run`: stories are unfinished or unproven, or the gates "
    "are red. For `ralphtool doctor`: something is wrong. For `ralphtool run --dry-run`: a run could not start.",
    2: "The command line or a setting is wrong. Nothing was done.",
    3: "A bug in ralphtool. The message names a log to report it with.",
    130: "Interrupted, for example by Ctrl-C. Run the same command again to continue.",
}
FILES_PAGE = """\
# Files and git refs

The files and refs that ralphtool creates. CHANGE is the name of a change, RUN that of a run, and
ENTRY that of an attempt, such as `add-login-3-1`.

## In your project

| path | what it is |
|---|---|
PROJECT

Next to the record of a run, each iteration has a folder `NUMBER-ENTRY/` with `prompt.md`,
`transcript.log` and the output of the gates, such as `gate-1-after.log`:
[running.md](running.md#what-is-on-record).

`ralphtool init` offers these lines for `.gitignore`. They keep in git what others need:

```text
IGNORED
```

## In git's folder

| path | what it is |
|---|---|
GIT_FOLDER

## In the temporary directory

Below `TMPDIR` (else `/tmp`), readable by you alone:

| path | what it is |
|---|---|
| `ralph/sessions/SESSION.json` | a session of the [agent's commands](agent-commands.md) |
| `ralph/projects/SESSION@TIME` | the project that a session began in: agents change folders |
| `ralph/kept-SESSION/` | copies of ralphtool's own files, while an agent works |
| `ralph/screen/CHANGE-….log` | the output of a run that the screen or the web page started |
| `ralph/web/PROJECTS.token` | the key of the [web page](web.md) |
| `ralph/gemini/…` | links to your settings, for Gemini CLI |
| `ralph/logs/bug-PID.log` | details for a bug report: [exit code 3](exit-codes.md#exit-codes) |
| `ralphtool/CHANGE-learnings.md` | free-form notes of agents; `ralphtool learnings` shows them |

## Branches and refs

| ref | what it is |
|---|---|
REFS
"""
EXIT_CODES_PAGE = """\
# Exit codes and error codes

## Exit codes

| exit code | meaning |
|---|---|
CODES

`ralphtool run --all` exits with the highest code of its runs. The code of a run follows from the
`result` in its last [event](events.md#run_ended):

| `result` | exit code |
|---|---|
RESULTS

## Error codes

With `--json`, and for every command of `ralphtool agent`, an error is one JSON object on stderr:

```json
{"success": false, "error": "what happened and what to do", "code": "CHANGE_LOCKED"}
```

Programs compare `code`; the text may change.

| code | exit code | what happened |
|---|---|---|
ERRORS
| `INTERNAL` | 3 | a bug in ralphtool |
| `INTERRUPTED` | 130 | a command of `ralphtool agent` was interrupted: run it again |
"""


def files_page() -> str:
    check_complete()
    refs = [f"| `{getattr(layout, name)}{last}` | {about} |" for name, (last, about) in REFS.items()]
    parts = {"PROJECT": table(PROJECT), "IGNORED": detect.IGNORED, "GIT_FOLDER": table(GIT_FOLDER), "REFS": refs}
    return fill(FILES_PAGE, parts)


def fill(page: str, parts: Mapping[str, Iterable[str]]) -> str:
    """Replaces each line that is a name by its lines."""
    for name, lines in parts.items():
        page = page.replace(f"\n{name}\n", "\n{}\n".format("\n".join(lines)))
    return page


def table(rows: Mapping[Callable[..., str], str]) -> list[str]:
    return [f"| `{path_of(find)}` | {about} |" for find, about in rows.items()]


def path_of(find: Callable[..., str]) -> str:
    """The path that a function of the layout returns for the sample."""
    wanted = inspect.signature(find).parameters
    path = find(**{name: SAMPLE[name] for name in wanted})
    return path if find is not layout.in_git else f"{path}/"


def check_complete() -> None:
    """Every path and ref of the layout must be described here."""
    functions = {one for _, one in inspect.getmembers(layout, inspect.isfunction)}
    if missing := functions - PROJECT.keys() - GIT_FOLDER.keys() - NOT_LISTED:
        raise SystemExit(f"scripts/reference_pages.py does not say what these are: {missing}")
    refs = {name for name, value in vars(layout).items() if str(value).startswith("refs/")} - {"REFS"}
    if refs != REFS.keys():
        raise SystemExit(f"scripts/reference_pages.py and core/layout.py differ about {refs ^ REFS.keys()}")


def exit_codes_page() -> str:
    codes = [f"| {code} | {about} |" for code, about in CODES.items()]
    results = [f"| `{result}` | {code} |" for result, code in run._EXIT_CODES.items()]
    return fill(EXIT_CODES_PAGE, {"CODES": codes, "RESULTS": results, "ERRORS": error_rows()})


def error_rows() -> Iterable[str]:
    """The tree at the top of errors.py, with the codes of its classes."""
    told = dict(re.findall(r"─ (\w+) +(?:[A-Z_]+ +)?(.*)", errors.__doc__ or ""))
    kinds = {
        name: kind
        for name, kind in vars(errors).items()
        if inspect.isclass(kind) and issubclass(kind, errors.RalphError)
    }
    if unknown := kinds.keys() - told.keys() - {"RalphError"}:
        raise SystemExit(f"the tree at the top of errors.py lacks {unknown}")
    for name, about in told.items():
        about = re.sub(r" \(exit \d\)", "", about)
        yield f"| `{kinds[name].code}` | {kinds[name].exit_code} | {about} |"
