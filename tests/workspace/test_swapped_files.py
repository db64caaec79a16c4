"""Changed files that are put back to their old version, and then forward again."""

from __future__ import annotations

import os
from pathlib import Path

from ralphtool.workspace.git import ChangedFile
from ralphtool.workspace.swapped_files import GONE, FileState, SwappedFiles, is_written_as_it_is, list_states

STATES = {
    "same/changed.py": (FileState("100644", b"old"), FileState("100644", b"new")),
    "added.py": (GONE, FileState("100755", b"added")),
    "folder/removed.py": (FileState("100644", b"removed"), GONE),
    "link": (FileState("100644", b"was a file"), FileState("120000", b"added.py")),
    "thing": (FileState("100644", b"a file"), GONE),
    "thing/inside.py": (GONE, FileState("100644", b"a folder now")),
}


def write_work(top: Path) -> SwappedFiles:
    """The finished work, as an attempt leaves it."""
    (top / "same").mkdir()
    (top / "same/changed.py").write_text("new")
    (top / "added.py").write_text("added")
    (top / "added.py").chmod(0o755)
    (top / "link").symlink_to("added.py")
    (top / "thing").mkdir()
    (top / "thing/inside.py").write_text("a folder now")
    return SwappedFiles(str(top), STATES)


def read(top: Path) -> dict[str, tuple[str, str]]:
    found = {}
    for path in sorted(top.rglob("*")):
        if path.is_symlink():
            found[str(path.relative_to(top))] = ("link", os.readlink(path))
        elif path.is_file():
            kind = "program" if os.access(path, os.X_OK) and path.stat().st_mode & 0o100 else "file"
            found[str(path.relative_to(top))] = (kind, path.read_text())
    return found


def test_all_as_it_was_and_back(tmp_path: Path) -> None:
    swapped = write_work(tmp_path)
    before = read(tmp_path)
    swapped.show(lambda path: True, {}, 1_700_000_000)
    assert read(tmp_path) == {
        "same/changed.py": ("file", "old"),
        "folder/removed.py": ("file", "removed"),
        "link": ("file", "was a file"),
        "thing": ("file", "a file"),
    }
    assert (tmp_path / "same/changed.py").stat().st_mtime == 1_700_000_000
    assert {path for path in STATES if swapped.has_swapped(path)} == set(STATES)
    swapped.show(lambda path: False, {}, 1_700_000_001)
    assert read(tmp_path) == before
    assert not any(map(swapped.has_swapped, STATES))


def test_what_a_gate_wrote_meanwhile_is_not_there_the_next_time(tmp_path: Path) -> None:
    swapped = write_work(tmp_path)
    swapped.show(lambda path: True, {}, 1)
    before = read(tmp_path)
    (tmp_path / "same/changed.py").write_text("rewritten")
    (tmp_path / "added.py").write_text("rewritten")
    swapped.show(lambda path: True, {}, 2)
    assert read(tmp_path) == before


def test_some_as_they_were_and_some_with_other_contents(tmp_path: Path) -> None:
    swapped = write_work(tmp_path)
    swapped.show(lambda path: path == "folder/removed.py", {"added.py": b"mixed"}, 1)
    seen = read(tmp_path)
    assert (seen["added.py"], seen["folder/removed.py"]) == (("program", "mixed"), ("file", "removed"))
    assert seen["same/changed.py"] == ("file", "new")


def test_a_link_does_not_lead_out(tmp_path: Path) -> None:
    (tmp_path / "top").mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/a.py").write_text("theirs")
    (tmp_path / "top/folder").symlink_to(tmp_path / "outside")
    swapped = SwappedFiles(str(tmp_path / "top"), {"folder/a.py": (FileState("100644", b"old"), GONE)})
    swapped.show(lambda path: True, {}, 1)
    assert (tmp_path / "outside/a.py").read_text() == "theirs"
    assert not (tmp_path / "top/folder").is_symlink()
    assert (tmp_path / "top/folder/a.py").read_text() == "old"


def test_a_pipe_in_the_place_of_a_file_gives_way(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.py")
    swapped = SwappedFiles(str(tmp_path), {"a.py": (FileState("100644", b"old"), GONE)})
    swapped.show(lambda path: True, {}, 1)
    assert (tmp_path / "a.py").read_text() == "old"


def test_what_only_git_can_write(tmp_path: Path) -> None:
    plain = ChangedFile("M", "a.py", "a.py", "1", "2", False, "100644", "100644")
    moved = ChangedFile("R", "b.py", "a.py", "1", "1", False, "100644", "100644")
    blobs = {"1": b"old", "2": b"new"}
    assert list_states([moved], blobs) == {
        "a.py": (FileState("100644", b"old"), GONE),
        "b.py": (GONE, FileState("100644", b"old")),
    }
    assert list_states([plain], {"1": b"old"}) is None, "too large to be read"
    assert list_states([ChangedFile("M", "m", "m", "1", "2", True, "160000", "160000")], blobs) is None
    top, common = str(tmp_path), str(tmp_path / "git")
    assert is_written_as_it_is(top, common, ["x/y/a.py"])
    assert not is_written_as_it_is(top, common, ["x/y/a.py", "z/.gitattributes"])
    (tmp_path / "x").mkdir()
    (tmp_path / "x/.gitattributes").write_text("*.py text eol=crlf\n")
    assert not is_written_as_it_is(top, common, ["x/y/a.py"])
    (tmp_path / "git/info").mkdir(parents=True)
    (tmp_path / "git/info/attributes").write_text("*.py text eol=crlf\n")
    assert not is_written_as_it_is(top, common, ["y/a.py"])
