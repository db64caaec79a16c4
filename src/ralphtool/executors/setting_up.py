"""The `setup` commands: when they run, and what it means if one fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ralphtool.core import setup_inference
from ralphtool.errors import SetupFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ralphtool.executors.gate_series import GateSeries
    from ralphtool.workspace import Workspace

    Setup = Callable[[Workspace, Sequence[str], GateSeries], None]


def choose(place: Workspace, commands: Sequence[str], *, is_broken: bool = False) -> Setup | None:
    """What has to be done before a program can run on the last checkpoint."""
    if is_broken or place.needs_setup(commands):
        return _set_up
    return _install_changed if commands and place.has_other_packages() else None


def ensure(place: Workspace, commands: Sequence[str], series: GateSeries) -> None:
    if set_up := choose(place, commands):
        set_up(place, commands, series)


def _set_up(place: Workspace, commands: Sequence[str], series: GateSeries) -> None:
    """If a command fails, it raises: no agent can fix that."""
    if series.set_up_all(commands):
        _finish(place, commands)


def _install_changed(place: Workspace, commands: Sequence[str], series: GateSeries) -> None:
    """A story, or the user, has changed which packages the project needs. If they can't be installed, only what needs
    them is affected; it is tried again after the next change, and by the next run: the network may have been down."""
    try:
        _set_up(place, commands, series)
    except SetupFailed as error:
        series.log.note_texts([f"the packages of the project have changed, but {error}"])
        place.skip_packages()
        place.mark_dirty()


def rebuild(place: Workspace, commands: Sequence[str], series: GateSeries, environments: Sequence[str]) -> bool:
    """Installs an attempt's packages again, from what will be committed; returns whether that worked."""
    if not environments:
        return False
    if not commands:
        series.log.note_texts([_advise(place, environments)])
        return False
    place.set_environments_aside(environments)
    is_made = all(series.set_up(command, f"setup-proof-{number}.log").ok for number, command in enumerate(commands, 1))
    place.put_environments_back(keep_new=is_made)
    return is_made


def _advise(place: Workspace, environments: Sequence[str]) -> str:
    line = f"`{setup_inference.render(place.root)}`" if setup_inference.infer(place.root) else "`setup` commands"
    return (
        f"this attempt installs packages in {' and '.join(environments)}, which git ignores: in a box, the next "
        f"stories don't have them. Add {line} under [run], which installs them again"
    )


def _finish(place: Workspace, commands: Sequence[str]) -> None:
    place.mark_set_up(commands)
    place.mark_dirty()
