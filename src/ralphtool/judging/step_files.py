"""Files that run scenarios in Gherkin: the steps and hooks beside `*.feature`, which no name of a test shows."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ralphtool.judging.guard.test_files import find_language
from ralphtool.judging.naming import list_importers
from ralphtool.judging.roles import find_role

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ralphtool.judging.guard.model import FileChange

    Grep = Callable[[str], Sequence[str]]

_FEATURE = ".feature"
_PLACES = ("steps/", "step_definitions/", "support/")
_HOOKS = ("environment.py",)
_LONGEST = 200_000
_FRAMEWORK = re.compile(
    r"^[ \t]*(?:from|import)[ \t]+(?:behave|pytest_bdd|radish|lettuce|aloe)\b|\bio\.cucumber\b|\buse[ \t]+cucumber::"
    r"|^[ \t]*using[ \t]+(?:TechTalk\.SpecFlow|Reqnroll)\b"
    r"|[\"'](?:@cucumber/cucumber|cucumber|jest-cucumber|playwright-bdd|@badeball/cypress-cucumber-preprocessor)[\"']",
    re.MULTILINE,
)


def find_step_files(changes: Sequence[FileChange], files: Iterable[str], grep: Grep) -> frozenset[str]:
    """The changed files that run scenarios. `files` are those of the project.

    A file is one of them by its place, or by what it imports. One that source imports is part of the product, unless
    both say that it is a step.
    """
    old = [change.old_path or change.path for change in changes]
    scenarios = [path for path in (*files, *old) if path.endswith(_FEATURE)]
    places = _list_places(scenarios) if scenarios else ()
    found = [one for one in changes if places and _runs_scenarios(one, places, grep)]
    return frozenset(path for one in found for path in (one.path, one.old_path or one.path))


def _list_places(scenarios: Iterable[str]) -> tuple[str, ...]:
    """Where steps are: beside scenarios, or in the folder `features` above them."""
    roots = set[str]()
    for path in scenarios:
        folders = path.split("/")[:-1]
        ends = [end for end, name in enumerate(folders, 1) if name == "features" or end == len(folders)]
        roots |= {"/".join(folders[:end]) + "/" for end in ends}
    return tuple(f"{root}{one}" for root in sorted(roots) for one in (*_PLACES, *_HOOKS))


def _runs_scenarios(change: FileChange, places: tuple[str, ...], grep: Grep) -> bool:
    path, data = change.old_path or change.path, change.old if change.old is not None else change.new
    if not find_language(path):
        return False
    is_step = _FRAMEWORK.search((data or b"")[:_LONGEST].decode("utf-8", "replace")) is not None
    is_beside = path.startswith(places)
    if is_step and is_beside:
        return True
    importers = list_importers(path, grep) if is_step or is_beside else []
    return (is_step or is_beside) and not any(
        find_role(one) == "source" and not one.startswith(places) for one in importers
    )
