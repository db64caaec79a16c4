"""The history of a read-only project."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from history.store.histories import with_big
from history.store.plain import answers, on_disk
from history.store.samples import PRD, entry, learning
from patience import PATIENCE

from ralphtool.errors import CorruptState, UnsafePath
from ralphtool.history import History

READER = """\
import sys
from ralphtool.history import History
from ralphtool.history.records import Entry
history = History(sys.argv[1])
print(len(history.entries()), len(history.load().entries), history.export().count(b'"iteration"'))
print(history.entries(last=1)[0].id, history.attempts("add-login-1"), history.counts()["learnings"])
print(len(history.learnings(valid_only=False)), len(history.patterns()), history.next_iteration("add-login-1"))
print(history.problems() + history.notices)
for act in (lambda: history.append(Entry(id="new-1", timestamp="2026-01-31T09:30:00Z", prd_id="new", iteration=1,
                                         status="failed", observations=())), history.fold):
    try:
        act()
        print("done")
    except OSError as error:
        print(type(error).__name__)
print(len(history.entries()))
"""


def read_as_nobody_special(root: str) -> list[str]:
    """Runs the reader bound by permissions: root drops the capabilities that bypass them."""
    drop = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] if os.geteuid() == 0 else []
    probe = [*drop, "sh", "-c", f"! touch '{root}/.ralph/probe'"]
    if (drop and not shutil.which("setpriv")) or subprocess.run(probe, capture_output=True).returncode:
        pytest.skip("root can't give up its rights here")
    done = subprocess.run([*drop, sys.executable, "-c", READER, root], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()


@pytest.fixture
def sealed() -> Iterator[Callable[[History], None]]:
    """Makes a history's files and their folder read-only; restores the folder at the end."""
    folders = []

    def seal(history: History) -> None:
        folders.append(Path(history.folder))
        for path in Path(history.folder).iterdir():
            path.chmod(0o444)
        Path(history.folder).chmod(0o555)

    yield seal
    for folder in folders:
        folder.chmod(0o755)


@pytest.mark.parametrize("left", ["everything", "only the document", "document and journal"])
@pytest.mark.parametrize("size", ["small", "big"])
def test_a_project_that_may_only_be_read_is_read(
    tmp_path: Path, big: bytes, sealed: Callable[[History], None], size: str, left: str
) -> None:
    history = with_big(tmp_path, big) if size == "big" else History(str(tmp_path))
    if size == "small":
        history.append(entry(1), [learning("a")])
        history.append(entry(2))
        history.append(entry(3))
    has_journal = size == "big" and left != "only the document"
    expected = answers(history)
    if has_journal:  # with a line that no index has
        history.append(entry(4))
        expected = expected._replace(entries=(*expected.entries, entry(4)))
    if left != "everything":
        Path(history.index_path).unlink(missing_ok=True)
    if left == "only the document" and size == "big":
        Path(history.journal_path).unlink()
        expected = on_disk(history)
    sealed(history)
    files = {path: path.read_bytes() for path in Path(history.folder).iterdir()}
    total = len(expected.entries)
    attempts = sum(one.prd_id == PRD for one in expected.entries)
    told = read_as_nobody_special(history.root)
    assert told[0] == f"{total} {total} {total}"
    assert told[1] == f"{expected.entries[-1].id} {attempts} {len(expected.learnings)}"
    assert told[2] == f"{len(expected.learnings)} {len(expected.patterns)} {attempts + 1}"
    assert told[3:] == ["[]", "PermissionError", "PermissionError" if has_journal else "done", str(total)]
    assert files == {path: path.read_bytes() for path in Path(history.folder).iterdir()}


def test_a_document_that_may_not_be_read_is_told(tmp_path: Path) -> None:
    """A folder in its place can't be read by any user."""
    (tmp_path / ".ralph/progress.json").mkdir(parents=True)
    history = History(str(tmp_path))
    for act in (history.load, history.entries, lambda: history.append(entry(1))):
        with pytest.raises((UnsafePath, CorruptState), match=r"progress\.json"):
            act()
