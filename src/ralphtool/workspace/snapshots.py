"""The saved state of a workspace."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from ralphtool.judging.guard.model import FileChange, GuardFinding
from ralphtool.workspace.paths import printable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ralphtool.workspace.git import ChangedFile


class WorkspaceSnapshot(Struct, frozen=True):
    """The contents of a workspace after an agent ended. `trouble` says why they could not be saved, if so."""

    tree: str | None
    paths: tuple[str, ...] = ()
    findings: tuple[GuardFinding, ...] = ()
    trouble: str = ""
    full_disk: str = ""  # a folder whose disk was full, so that they could not be saved


class ProtectedWork(Struct, frozen=True):
    """The work of an iteration that was killed while it was being proven."""

    story: str
    entry: str
    ref: str


def build_changes(changed: Sequence[ChangedFile], blobs: Mapping[str, bytes]) -> tuple[FileChange, ...]:
    """The changed files with the contents that were read; contents that were not read are empty."""

    def read(blob: str | None) -> bytes | None:
        return None if blob is None else blobs.get(blob, b"")

    def find_old_path(one: ChangedFile) -> str | None:
        return printable(one.old_path) if one.status == "R" else None

    return tuple(
        FileChange(printable(one.path), read(one.old_blob), read(one.new_blob), find_old_path(one)) for one in changed
    )
