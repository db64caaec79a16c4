"""The paths and names of all our files and git refs. No other module spells them."""

import os

FOLDER = ".ralph"
EVENTS = "events.jsonl"
HISTORY = "progress.json"
TEST_REPORTS = "ralphtool-reports-"  # begins the name of the temporary folder for reports of test programs
HISTORY_APART = "progress.ralphtool.json"  # used if another program has its own progress.json there

# Branches that people see, and refs for work that they may want to restore.
BRANCH = "ralph/"
BRANCHES = "refs/heads/ralph/"
REFS = "refs/ralph/"  # everything except the branches
ATTEMPTS = "refs/ralph/attempts/"
BASE = "refs/ralph/base/"
START = "refs/ralph/start/"  # the user's version of the change when a run last looked
FINISHED_BEFORE = "refs/ralph/finished-before/"  # of earlier changes of the same name
FINISHED = "refs/ralph/finished/"
INTERRUPTED = "refs/ralph/interrupted/"
PROVING = "refs/ralph/proving/"  # the work of an iteration while the tree contains something else
STAGED = "refs/ralph/staged"
GUARDED = "refs/ralph/guarded/"  # the user's commits, by change: nothing prunes them while an agent works
MOVED = "refs/ralph/moved/"  # commits that a branch, tag or stash lost while an agent worked
ORDERS = "refs/ralph/orders/"  # for workers on other machines
RESULTS = "refs/ralph/results/"
SENT = "refs/ralph/sent/"  # on the run's machine: the order of an unfinished iteration, by change and entry
UNSENT = "refs/ralph/unsent/"  # on a worker: results that could not be pushed yet
CLAIMS = "refs/ralph/claims/"  # on a shared remote: which run works on a change
TRIALS = "refs/ralph/trials/"  # of working trees that belong to no change

HALF_REMOVED = "_removed-"  # a working tree that is being removed; no change can have this name


def folder(root: str) -> str:
    return os.path.join(root, FOLDER)


def config(root: str) -> str:
    return os.path.join(root, FOLDER, "config.toml")


def locks(root: str) -> str:
    return os.path.join(root, FOLDER, "locks")


def prompts(root: str) -> str:
    """The folder of a project's own texts for prompts."""
    return os.path.join(root, FOLDER, "prompts")


def questions(root: str) -> str:
    return os.path.join(root, FOLDER, "questions")


def steering(root: str, change: str) -> str:
    return os.path.join(root, FOLDER, "steering", change)


def change_states(root: str) -> str:
    return os.path.join(root, FOLDER, "standing")


def change_state(root: str, change: str) -> str:
    return os.path.join(root, FOLDER, "standing", f"{change}.json")


def published(root: str, change: str) -> str:
    return os.path.join(root, FOLDER, "published", f"{change}.json")


def history(root: str) -> str:
    """The history. Once it has been given the separate name, it keeps that name."""
    apart = history_apart(root)
    return apart if os.path.lexists(apart) else os.path.join(root, FOLDER, HISTORY)


def history_apart(root: str) -> str:
    return os.path.join(root, FOLDER, HISTORY_APART)


def memory_index(root: str) -> str:
    return os.path.join(root, FOLDER, "memory.index")


def usefulness(root: str) -> str:
    return os.path.join(root, FOLDER, "usefulness.jsonl")


# --- runs -------------------------------------------------------------------------------------------


def runs(root: str) -> str:
    return os.path.join(root, FOLDER, "runs")


def run(root: str, id: str) -> str:
    return os.path.join(root, FOLDER, "runs", id)


def events(root: str, id: str) -> str:
    """The record of a run."""
    return os.path.join(root, FOLDER, "runs", id, EVENTS)


def processes(root: str, id: str, slot: int = 0) -> str:
    """The processes of a run, one per line; touched every second while a program runs. Each slot has its own file."""
    return os.path.join(root, FOLDER, "runs", id, f"processes-{slot}" if slot else "processes")


def list_processes(root: str, id: str) -> list[str]:
    """The process files of all slots except the first."""
    try:
        names = os.listdir(run(root, id))
    except FileNotFoundError:
        return []
    return [os.path.join(run(root, id), name) for name in sorted(names) if name.startswith("processes-")]


# --- git --------------------------------------------------------------------------------------------


def branch(change: str) -> str:
    """The branch of a change."""
    return BRANCH + change


def slot_name(change: str, slot: int) -> str:
    """The name of a working tree of a change. All but the first contain '@', which no change's name can."""
    return f"{change}@{slot}" if slot else change


def list_slots(git_folder: str, change: str) -> list[str]:
    """The names of a change's working trees except the first, including those that are half removed."""
    return [name for name in list_working_trees(git_folder) if name.rpartition("@")[0] == change]


def list_working_trees(git_folder: str) -> list[str]:
    """The names of all working trees, including those that are half removed."""
    found: set[str] = set()
    for folder in ("worktrees", "boxes"):
        try:
            found.update(os.listdir(os.path.join(in_git(git_folder), folder)))
        except FileNotFoundError:
            pass
    return sorted({name.removeprefix(HALF_REMOVED) for name in found})


def in_git(git_folder: str) -> str:
    """Our folder inside `.git`: it contains the user's files that are set aside while a run uses the tree."""
    return os.path.join(git_folder, "ralph")


def stash_note(git_folder: str) -> str:
    """The note about the files that are set aside, in git's folder for the working tree."""
    return os.path.join(in_git(git_folder), "away.json")
