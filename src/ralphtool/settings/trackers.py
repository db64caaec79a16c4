"""The settings of specs in an issue tracker: `[specs.NAME]`."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Struct

from ralphtool.settings.values import Switch, Text, Texts, describe_list, describe_text

BeadsProgram = Literal["bd", "br"]
Listed = Annotated[Texts, describe_list("issues, milestones and labels", '["12", "milestone:v1", "label:ralph"]')]


class GithubSettings(Struct, frozen=True, kw_only=True):
    """`[specs.github]`: GitHub issues as changes."""

    write: Switch = False
    """Whether a run ticks boxes, adds comments and closes issues on GitHub when a story is proven."""
    changes: Listed = ()
    """What `ralphtool list` shows: issue numbers, `milestone:NAME` and `label:NAME`."""
    repository: Annotated[Text, describe_text("owner/name")] | None = None
    """The repository of the issues; by default the one that `gh` finds from the project's remotes."""


class BeadsSettings(Struct, frozen=True, kw_only=True):
    """`[specs.beads]`: beads epics as changes."""

    write: Switch = True
    """Whether a run closes issues when a story is proven."""
    program: BeadsProgram | None = None
    """The program to call; by default the installed one that fits the project's database."""


class SpecsSettings(Struct, frozen=True, kw_only=True):
    """`[specs.NAME]`: specs in an issue tracker."""

    github: GithubSettings = GithubSettings()
    beads: BeadsSettings = BeadsSettings()
