"""Finds the project, and checks the names that are used in it."""

import os

from ralphtool.errors import InvalidName, shorten

# Every place of a prd.json.
PRD_FILES = (
    *("prd.json", "feature_list.json", "scripts/ralph/prd.json", "scripts/ralph/feature_list.json"),
    *("ralph/prd.json", "ralph/feature_list.json", "tasks/prd.json", "tasks/feature_list.json"),
    *(".ralph/prd.json", ".ralph/feature_list.json", "plans/prd.json", "plans/feature_list.json"),
)

# The built-in spec formats: the module of each, and the mark that makes a folder a project that uses it.
# It is here and not in ralphtool.specs because agent commands that read no spec look for the project too.
# Formats of other packages have no marks: every command must find the same project, whichever packages it loads.
# Their project is the repository, or a folder in it with a `.ralph`, which `ralphtool init --here` creates.
# The last element: if none of these paths exists, and no setting names the format, it has no change here, and its
# adapter is not even loaded.
FORMATS: "dict[str, tuple[str, str, tuple[str, ...]]]" = {
    "openspec": ("ralphtool.specs.openspec", "openspec", ()),
    "prd": ("ralphtool.specs.prd", "prd.json", PRD_FILES),
    "speckit": ("ralphtool.specs.speckit", "specs", ("specs", ".specify")),
    "checklist": ("ralphtool.specs.checklist", "fix_plan.md", ()),
    "kiro": ("ralphtool.specs.kiro", ".kiro/specs", (".kiro",)),
    "taskmaster": ("ralphtool.specs.taskmaster", ".taskmaster", (".taskmaster", "tasks/tasks.json")),
    "backlog": ("ralphtool.specs.backlog", "backlog/config.yml", ("backlog", ".backlog")),
    "beads": ("ralphtool.specs.beads", ".beads/issues.jsonl", (".beads", ".ralph-issues")),  # `~/.beads`: its settings
    "github": ("ralphtool.specs.github", ".ralph-issues", (".ralph-issues",)),
}
_MARKS = (".ralph", *(mark for _, mark, _ in FORMATS.values()))
_OUR_WORKTREES = os.path.join("", ".git", "ralph", "worktrees", "")
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
_LONGEST_NAME = 128


def find(start: str | None = None) -> str:
    """The nearest folder, going up inside the git repository, that looks like a project; else its root; else here."""
    here = os.path.abspath(start or os.getcwd())
    for folder in list_parents(here):
        if any(os.path.lexists(os.path.join(folder, mark)) for mark in _list_marks(folder)):
            return folder
        # `.git` is a file in a linked worktree and in a submodule. A run's own worktree is part of its project.
        if os.path.lexists(os.path.join(folder, ".git")) and _OUR_WORKTREES not in folder:
            return folder
    return here


def _list_marks(folder: str) -> tuple[str, ...]:
    # OpenSpec's own folders contain a `specs`, but are not projects.
    return tuple(mark for mark in _MARKS if mark != "specs") if "openspec" in folder.split(os.sep) else _MARKS


def list_parents(folder: str) -> list[str]:
    folders = [folder]
    while (parent := os.path.dirname(folder)) != folder:
        folder = parent
        folders.append(folder)
    return folders


def is_name(text: str) -> bool:
    return (
        0 < len(text) <= _LONGEST_NAME
        and text[0] in _LETTERS
        and all(character in _LETTERS or character in "._-" for character in text)
    )


def can_be_branch(change: str) -> bool:
    """Whether git accepts the branch of a change of this name."""
    return ".." not in change and not change.endswith((".", ".lock"))


def check_name(text: str, what: str) -> str:
    """Refuses a name that could lead out of its folder, before any file is touched."""
    if not is_name(text):
        raise InvalidName(
            f"{shorten(text)} is not {what}: use letters, digits, '.', '_' and '-', "
            f"beginning with a letter or a digit, at most {_LONGEST_NAME} characters"
        )
    return text


def make_name(text: str) -> str:
    """Turns a title into a name: `add login` becomes add-login. Empty if that is impossible, or for a hidden file."""
    if is_name(text):
        return text
    joined = "-".join(text.split())
    return "" if text[:1] in "._" else joined if is_name(joined) else build_slug(text)[:_LONGEST_NAME]


def build_slug(text: str) -> str:
    """Lower case, with every run of other characters replaced by one '-'."""
    lower = text.lower()
    kept = "".join(character if character in _LETTERS else " " for character in lower)
    return "-".join(kept.split())
