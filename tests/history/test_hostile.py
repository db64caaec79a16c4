"""Results of hostile reviews of the history: each of these once lost a record or gave a wrong answer, or could have."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from patience import PATIENCE
from project import TESTS, Ralph
from properties import sample

from ralphtool.core import files, secrets
from ralphtool.errors import InvalidValue, UnsafePath
from ralphtool.history import History, progresstxt
from ralphtool.history.records import Entry, Learning, Observation, Progress

MOMENT = "2026-01-31T09:30:00Z"


def entry(prd_id: str, iteration: int, summary: str = "") -> Entry:
    return Entry(
        id=f"{prd_id}-{iteration}",
        timestamp=MOMENT,
        prd_id=prd_id,
        iteration=iteration,
        status="completed",
        summary=summary,
        observations=(),
    )


def learning(number: int, content: str, created_at: str = MOMENT) -> Learning:
    id = f"learning-{number:04}"
    return Learning(id=id, type="tool-usage", content=content, source_prd_id="a", created_at=created_at)


def written(root: Path, *, learnings: tuple[Learning, ...] = (), entries: int = 1500) -> History:
    """A history large enough to have a journal and an index."""
    (root / ".ralph").mkdir()
    many = tuple(entry("base", number, "s" * 800) for number in range(1, entries + 1))
    progress = Progress(version="1.0", created_at=MOMENT, entries=many, learnings=learnings)
    (root / ".ralph/progress.json").write_bytes(msgspec.json.format(msgspec.json.encode(progress), indent=2) + b"\n")
    return History(str(root))


def ids(history: History, prd_id: str) -> list[str]:
    return [one.id for one in history.entries(prd_id=prd_id)]


def change_journal(history: History, change: Callable[[bytes], bytes]) -> None:
    path = Path(history.journal_path)
    path.write_bytes(change(path.read_bytes()))


# --- several at once --------------------------------------------------------------------------------


def test_one_asks_while_the_other_appends(tmp_path: Path) -> None:
    """The query puts the journal into the index while the other history is in use."""
    one, other = written(tmp_path), History(str(tmp_path))
    for number in range(1, 12, 2):
        one.append(entry("x", number))
        other.append(entry("x", number + 1))
        other.entries(last=1)
    assert ids(one, "x") == ids(other, "x") == [f"x-{number}" for number in range(1, 13)]
    assert one.problems() == []


WORKER = """
import sys
import threading
import time
from ralphtool.history.analyzer import look_back, record
from ralphtool.history import History
history, name = History(sys.argv[1]), sys.argv[2]
for number in range(60):
    prd_id = f"x{number % 3}"
    made = lambda iteration: record(look_back(history, prd_id), "completed", summary=f"{name} {number}")
    print(history.append_next(prd_id, made).summary, flush=True)
    if number % 7 == int(name):
        history.entries(last=1)
"""


def test_processes_that_ask_from_inside_of_an_append(tmp_path: Path) -> None:
    history = written(tmp_path)
    command = [sys.executable, "-c", WORKER, str(tmp_path)]
    workers = [subprocess.Popen([*command, str(number)], stdout=subprocess.PIPE, text=True) for number in range(4)]
    acknowledged = [line for worker in workers for line in worker.communicate(timeout=PATIENCE)[0].splitlines()]
    there = [one for number in range(3) for one in history.entries(prd_id=f"x{number}")]
    assert len(acknowledged) == 240
    assert sorted(str(one.summary) for one in there) == sorted(acknowledged)
    for number in range(3):
        assert [one.iteration for one in there if one.prd_id == f"x{number}"] == list(range(1, 81))
    assert not os.path.exists(history.damaged_path)


def test_a_document_replaced_right_after_our_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A `git checkout` in the middle of a fold: the next write must not mistake the other document for its own."""
    for name in ("here", "elsewhere"):
        (tmp_path / name).mkdir()
    history, branch = History(str(tmp_path / "here")), History(str(tmp_path / "elsewhere"))
    for number in range(1, 6):
        history.append(entry("a", number))
        branch.append(entry("b", number, "on another branch"))
    other = Path(branch.path).read_bytes()
    sync, path = files.sync_folder, Path(history.path)

    def sync_and_check_out(synced: str) -> None:
        sync(synced)
        if synced == history.path and path.read_bytes() != other:
            (tmp_path / "checked-out").write_bytes(other)
            (tmp_path / "checked-out").rename(path)

    monkeypatch.setattr(files, "sync_folder", sync_and_check_out)
    history.append(entry("a", 6))
    monkeypatch.undo()
    history.append(entry("b", 6))
    assert [one["id"] for one in json.loads(path.read_bytes())["entries"]] == [f"b-{number}" for number in range(1, 7)]


def test_an_index_that_is_held_by_a_stranger_does_not_double_anything(tmp_path: Path) -> None:
    history = written(tmp_path)
    history.append(entry("w", 1))
    history.entries(last=1)
    stranger = sqlite3.connect(history.index_path, isolation_level=None)
    stranger.execute("BEGIN")
    stranger.execute("SELECT * FROM facts").fetchall()
    made = []

    def make(iteration: int) -> Entry:
        made.append(iteration)
        return entry("x", iteration, "z" * 200_000)  # so long that it triggers a fold, which the stranger blocks

    assert history.append_next("x", make).id == "x-1"
    stranger.close()
    assert made == [1]
    assert ids(History(str(tmp_path)), "x") == ["x-1"]


# --- damage -----------------------------------------------------------------------------------------


def test_a_flipped_bit_costs_one_record(tmp_path: Path) -> None:
    """A bit that turns a space into a zero, which normally marks the end."""
    history = written(tmp_path)
    for number in range(1, 6):
        history.append(entry("x", number, "hello world" if number == 2 else ""))
    change_journal(history, lambda data: data.replace(b"hello world", b"hello\0world"))
    assert ids(History(str(tmp_path)), "x") == ["x-1", "x-3", "x-4", "x-5"]
    again = History(str(tmp_path))
    again.append(entry("y", 1))
    assert ids(again, "x") == ["x-1", "x-3", "x-4", "x-5"]
    assert b"hello\0world" in Path(history.damaged_path).read_bytes()
    assert "checksum" in again.notices[0]


def test_a_flipped_bit_in_what_is_indexed_already(tmp_path: Path) -> None:
    history = written(tmp_path)
    history.append(entry("x", 1, "pay 1000 euros"))
    assert ids(history, "x") == ["x-1"]
    change_journal(history, lambda data: data.replace(b"pay 1000", b"pay 9000"))
    assert ids(History(str(tmp_path)), "x") == []
    history.fold()
    assert "euros" not in Path(history.path).read_text()
    assert "pay 9000 euros" in Path(history.damaged_path).read_text()


def test_an_older_journal_put_back(tmp_path: Path) -> None:
    history = written(tmp_path)
    history.append(entry("x", 1))
    earlier = Path(history.journal_path).read_bytes()
    history.append(entry("x", 2))
    history.entries(last=1)
    change_journal(history, lambda data: earlier)
    assert ids(History(str(tmp_path)), "x") == ["x-1"]
    history.append(entry("y", 1))
    assert ids(History(str(tmp_path)), "x") + ids(History(str(tmp_path)), "y") == ["x-1", "y-1"]


def test_what_was_said_about_one_learning_never_hits_another(tmp_path: Path) -> None:
    """The journal says that learning-0001 is no longer valid; on the other branch, that is a different learning."""
    history = written(tmp_path, learnings=(learning(1, "use npm"),))
    history.invalidate("learning-0001", "we use yarn now")
    assert os.path.exists(history.journal_path)
    document = Path(history.path)
    document.write_bytes(document.read_bytes().replace(b"use npm", b"never touch the server"))
    history.count_references(["learning-0001"])
    [there] = history.learnings()
    assert (there.content, there.still_valid, there.times_referenced) == ("never touch the server", True, 1)
    assert "yarn" in Path(history.damaged_path).read_text()


def test_the_same_id_with_another_content_is_told(tmp_path: Path) -> None:
    history = History(str(tmp_path))
    history.append(entry("a", 1, "first"))
    assert not history.append(entry("a", 1, "first")).entries
    with pytest.raises(InvalidValue, match="entry a-1: another entry has the same id"):
        history.append(entry("a", 1, "second"))


def test_links_follow_a_learning_that_got_another_number(tmp_path: Path) -> None:
    history = written(tmp_path, learnings=(learning(1, "known"),))
    found = Observation(type="finding", title="t", related_learning_id="learning-0001")
    linked = msgspec.structs.replace(entry("x", 1), observations=(found,))
    batch = history.append(linked, [learning(1, "new")])
    assert [one.id for one in batch.learnings] == ["learning-0002"]
    assert history.entries(prd_id="x")[0].observations[0].related_learning_id == "learning-0002"


@pytest.mark.parametrize("number", [999999999999999, 9999999999999999, 10**40])
def test_numbers_beyond_counting(tmp_path: Path, number: int) -> None:
    history = written(tmp_path, learnings=(learning(number, "far out"),), entries=1)
    for content in ("a", "b", "c"):
        history.add([learning(0, content)])
    there = [one.id for one in history.learnings()]
    assert len(there) == len(set(there)) == 4


# --- hostile repositories ---------------------------------------------------------------------------


def test_a_linked_progress_txt_is_not_taken_over(ralph: Ralph) -> None:
    (ralph.home / "credentials").write_text("hunter2 is the word")
    (ralph.root / "progress.txt").symlink_to(ralph.home / "credentials")
    before = ralph.snapshot()
    assert ralph.run("progress", "learnings", "--json").json == {"learnings": []}
    assert ralph.snapshot() == before


def test_a_linked_folder_is_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "victim").mkdir()
    (tmp_path / "project").mkdir()
    (tmp_path / "project/.ralph").symlink_to(tmp_path / "victim")
    history = History(str(tmp_path / "project"))
    for attempt in (lambda: history.append(entry("a", 1)), history.counts, history.load):
        with pytest.raises(UnsafePath):
            attempt()
    assert list((tmp_path / "victim").iterdir()) == []


@pytest.mark.parametrize(
    "line",
    ["-" + " " * 100_000, "## " + "a" * 100_000, "## " + "a-" * 50_000 + "!", "learnings " + "*" * 100_000 + "."],
    ids=["blanks", "letters", "dashes", "stars"],
)
def test_no_line_of_progress_txt_takes_for_ever(line: str) -> None:
    """Each of them once took many minutes."""
    text = f"# Log\n{line}\n## Codebase Patterns\n- after it\n"
    learnings, [pattern] = progresstxt.parse_text(text, MOMENT)
    assert (learnings[0].content, pattern.description) == (text, "after it")


def test_a_long_text_does_not_widen_every_line(ralph: Ralph) -> None:
    history = History(str(ralph.root))
    history.add([learning(0, "x " * 40_000), *(learning(0, f"learning {number}") for number in range(300))])
    shown = ralph.run("progress", "learnings").stdout
    assert len(shown) < 150_000
    assert "learning 299" in shown


# --- secrets ----------------------------------------------------------------------------------------


def test_which_values_are_secret() -> None:
    environ = {
        "API_KEY": "k" * 8,
        "my_token": "t" * 9,
        "DB_PASSWORD": "short",
        "CLIENT_SECRET_ID": 'with "quotes"\\',
        "RALPH_TOKEN": "n" * 12,
        "HOME": "/home/somebody",
    }
    in_json = r"with \"quotes\"\\"
    assert secrets.list_values(environ) == (in_json, 'with "quotes"\\', "t" * 9, "k" * 8)


def test_secrets_never_reach_the_history(project: Ralph) -> None:
    secret = 'sk-"12345678\\é'
    project.begin()
    project.agent("learn", f"The key is {secret}, really", MY_API_KEY=secret)
    project.agent("pattern", "Keys", f"as {secret}", MY_API_KEY=secret)
    assert project.agent("session", "flush", MY_API_KEY=secret).json["success"] is True
    [learnt] = project.run("progress", "learnings", "--json").json["learnings"]
    assert learnt["content"] == "The key is [redacted], really"
    assert project.run("progress", "patterns", "--json").json["patterns"][0]["description"] == "as [redacted]"
    assert "12345678" not in project.read(".ralph/progress.json")


def test_a_secret_that_is_a_word_of_the_format_breaks_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SILLY_PASSWORD", "completed")
    history = History(str(tmp_path))
    history.append(entry("a", 1, "it completed"))
    [there] = history.entries()
    assert (there.status, there.summary) == ("completed", "it [redacted]")


# --- strange places ---------------------------------------------------------------------------------


def test_a_folder_whose_name_is_no_utf8(ralph: Ralph) -> None:
    strange = Path(os.fsdecode(os.fsencode(ralph.root) + b"/caf\xe9"))
    strange.mkdir()
    History(str(strange)).append(entry("a", 1))
    assert json.loads((strange / ".ralph/progress.json").read_bytes())["project_name"] == "caf\ufffd"


@pytest.mark.parametrize(
    "arguments",
    [["entries", "--prd", "\udcff"], ["attempts", "\udcff"], ["learnings", "invalidate", "\udcff", "--why", "x"]],
)
def test_arguments_that_are_no_utf8(ralph: Ralph, arguments: list[str]) -> None:
    assert ralph.run("progress", *arguments).exit_code == 2


def test_more_entries_than_anybody_has(ralph: Ralph) -> None:
    assert ralph.run("progress", "entries", "--last", "9" * 30, "--json").json == {"entries": []}


def test_json_is_ascii(ralph: Ralph) -> None:
    History(str(ralph.root)).add([learning(0, "\x9b31m é")])
    shown = ralph.run("progress", "learnings", "--json").stdout
    assert shown.isascii()
    assert json.loads(shown)["learnings"][0]["content"] == "\x9b31m é"


# --- found by a second review -----------------------------------------------------------------------


def test_a_new_project_is_begun_by_many_at_once(tmp_path: Path) -> None:
    code = "import sys; from ralphtool.history import History; from history.test_hostile import entry\n"
    code += "for number in range(1, 6): History(sys.argv[1]).append(entry(sys.argv[2], number))"
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    for round in sample(range(3), 3):
        root = tmp_path / str(round)
        root.mkdir()
        command = [sys.executable, "-c", code, str(root)]
        workers = [subprocess.Popen([*command, f"x{number}"], env=environment) for number in range(6)]
        assert [worker.wait(60) for worker in workers] == [0] * 6
        assert History(str(root)).counts()["entries"] == 30


def test_a_progress_txt_is_only_put_away_by_whoever_took_it_over(tmp_path: Path) -> None:
    history = History(str(tmp_path))
    history.append(entry("a", 1))
    (tmp_path / "progress.txt").write_text("## Codebase Patterns\n- one\n")
    assert History(str(tmp_path)).learnings() == []
    assert History(str(tmp_path)).migrate() is None
    assert (tmp_path / "progress.txt").exists()


def test_threads_that_share_a_first_use(tmp_path: Path) -> None:
    for number in range(10):
        root = tmp_path / str(number)
        root.mkdir()
        (root / "progress.txt").write_text("what was known")
        history = History(str(root))
        threads = [threading.Thread(target=history.append, args=(entry(f"x{name}", 1),)) for name in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [one.content for one in history.learnings()] == ["what was known"]
        assert len(history.entries()) == 3


@pytest.mark.parametrize("entries", [1, 1500])
def test_a_learning_with_a_field_twice_can_be_invalidated(tmp_path: Path, entries: int) -> None:
    """A merge can leave such a document."""
    history = written(tmp_path, learnings=(learning(1, "a"), learning(2, "b")), entries=entries)
    path = Path(history.path)
    twice = b'"times_referenced": 0,\n      "times_referenced": 3'
    path.write_bytes(path.read_bytes().replace(b'"times_referenced": 0', twice, 1))
    history.invalidate("learning-0001", "gone")
    history.fold()
    first, second = json.loads(path.read_bytes())["learnings"]
    assert (first["still_valid"], first["context"], first["times_referenced"]) == (False, "gone", 3)
    assert second["still_valid"] is True


def test_of_two_learnings_with_the_same_words_the_one_that_is_named_is_meant(tmp_path: Path) -> None:
    history = written(tmp_path, learnings=(learning(1, "same"), learning(2, "same")), entries=1)
    assert history.invalidate("learning-0002", "gone").id == "learning-0002"
    history.count_references(["learning-0001"])
    first, second = history.learnings(valid_only=False)
    assert (first.still_valid, first.times_referenced, second.still_valid) == (True, 1, False)


def test_a_record_whose_end_became_a_zero_is_still_there(tmp_path: Path) -> None:
    history = written(tmp_path)
    history.append(entry("x", 1))
    history.append(entry("x", 2))
    change_journal(history, lambda data: data.rstrip(b"\0")[:-1] + b"\0" * 100)
    assert ids(History(str(tmp_path)), "x") == ["x-1", "x-2"]


def test_zeros_over_a_record_and_a_half_are_said(tmp_path: Path) -> None:
    history = written(tmp_path)
    for number in (1, 2, 3):
        history.append(entry("x", number))

    def wipe(data: bytes) -> bytes:
        head, one, two, three, *_ = data.split(b"\n")
        return b"\n".join([head, one, bytes(len(two) + 1) + bytes(20) + three[20:], b""])

    change_journal(history, wipe)
    again = History(str(tmp_path))
    assert ids(again, "x") == ["x-1"]
    assert again.problems()
    again.append(entry("y", 1))
    assert os.path.getsize(history.damaged_path) > 100


def test_a_secret_that_is_no_utf8(ralph: Ralph) -> None:
    assert ralph.run("progress", "show", MY_TOKEN="\udcff\udcfe12345678").exit_code == 0


def test_a_deleted_index_is_made_again(tmp_path: Path) -> None:
    history = written(tmp_path)
    for number in range(1, 4):
        history.append(entry("x", number))
        os.unlink(history.index_path)
        assert len(ids(history, "x")) == number
    history.fold()
    assert ids(History(str(tmp_path)), "x") == ["x-1", "x-2", "x-3"]
    assert os.path.exists(history.index_path)


def test_what_a_private_document_holds_stays_private(tmp_path: Path) -> None:
    history = written(tmp_path)
    os.chmod(history.path, 0o600)
    history.append(entry("x", 1))
    history.entries(last=1)
    modes = {name: os.stat(tmp_path / ".ralph" / name).st_mode & 0o777 for name in os.listdir(tmp_path / ".ralph")}
    assert modes == {"progress.json": 0o600, "progress.journal": 0o600, "progress.index": 0o600}


def test_options_before_a_subcommand_are_refused(ralph: Ralph) -> None:
    arguments = ("learnings", "--json", "invalidate", "learning-0001", "--why", "x")
    assert ralph.run("progress", *arguments).exit_code == 2


@pytest.mark.parametrize("code", [errno.EBADF, errno.ENOLCK])
def test_where_folders_can_not_be_locked_a_file_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    lock, locked = fcntl.flock, []

    def flock(fd: int, operation: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{fd}"):
            raise OSError(code, os.strerror(code))
        locked.append(fd)
        lock(fd, operation)

    monkeypatch.setattr(fcntl, "flock", flock)
    history = History(str(tmp_path))
    history.append(entry("a", 1))
    assert ids(History(str(tmp_path)), "a") == ["a-1"]
    assert locked
    assert (tmp_path / ".ralph/progress.lock").exists()


def test_git_checks_out_beside_a_writer(tmp_path: Path) -> None:
    """git removes the file and writes it again: for a moment it is missing or incomplete."""
    history = History(str(tmp_path))
    history.append(entry("a", 1))
    path = Path(history.path)
    data, done = path.read_bytes(), threading.Event()

    def check_out() -> None:
        for _ in range(30):
            path.unlink(missing_ok=True)
            time.sleep(0.002)
            with path.open("wb") as file:
                file.write(data[:200])
                file.flush()
                time.sleep(0.002)
                file.write(data[200:])
            time.sleep(0.01)
        done.set()

    thread = threading.Thread(target=check_out)
    thread.start()
    while not done.is_set():
        history.counts()
        assert ids(history, "a")[:1] == ["a-1"]
    thread.join()
