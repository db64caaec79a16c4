"""The history's store: any order of additions, reads, overwrites and kills gives the plain answers."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from history.store.histories import overwrite
from history.store.plain import Content, answers, applied, batches, change, counted, invalid, number, on_disk
from history.store.samples import STATUSES, Value, entry, ids, learning, observation, pattern, set_sizes
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from ralphtool.errors import InvalidValue
from ralphtool.history import History
from ralphtool.history.journal import Batch
from ralphtool.history.records import EntryStatus, Learning

PRDS = ("a", "a-1", "b")
WORDS = ("make", "ruff", "pip", "tox")
WHICH = st.sampled_from([0, 1])


class Life(RuleBasedStateMachine):
    """Two users of one project, whose caches become stale, and outside changes to its files.

    After every step the files, read plainly, have the expected content. The users are not queried then, so that
    their caches can become stale.
    """

    top: Path

    @initialize()
    def begin(self) -> None:
        self.root = self.top / "project"
        shutil.rmtree(self.root, ignore_errors=True)
        self.root.mkdir()
        self.users = [History(str(self.root)), History(str(self.root))]
        self.expected = Content()
        self.copies: list[bytes] = []
        self.moments = 0

    def teardown(self) -> None:
        for user in getattr(self, "users", []):
            user.close()

    @property
    def one(self) -> History:
        return self.users[0]

    def now(self) -> str:
        self.moments += 1
        return f"2026-01-31T09:{self.moments // 60:02}:{self.moments % 60:02}Z"

    def last(self, prd: str) -> int:
        return max((one.iteration for one in self.expected.entries if one.prd_id == prd), default=0)

    def does(self, batch: Batch) -> None:
        self.expected = applied(self.expected, [batch])

    def changes(self, wanted: Sequence[str], how: Callable[[Learning, Value], Learning], by: Value) -> None:
        learnings = list(self.expected.learnings)
        for id in wanted:
            change(learnings, id, how, by)
        self.expected = self.expected._replace(learnings=tuple(learnings))

    # --- actions of users

    @rule(which=WHICH, prd=st.sampled_from(PRDS), status=st.sampled_from(STATUSES), blocked=st.booleans())
    def append_next(self, which: int, prd: str, status: EntryStatus, blocked: bool) -> None:
        seen = (observation("stuck", "blocker", "tooling-friction"),) if blocked else ()
        at = self.now()
        made = self.users[which].append_next(prd, lambda iteration: entry(iteration, prd, status, *seen, at=at))
        assert made == entry(self.last(prd) + 1, prd, status, *seen, at=at)
        self.does(Batch(entries=(made,)))

    @rule(which=WHICH, prd=st.sampled_from(PRDS), word=st.sampled_from(WORDS), number=st.integers(1, 4))
    def append_with_a_learning(self, which: int, prd: str, word: str, number: int) -> None:
        at = self.now()
        seen = observation(word, "finding", "architecture", f"learning-{number:04}")
        batch = Batch(
            entries=(entry(self.last(prd) + 1, prd, "failed", seen, at=at),),
            learnings=(learning(word, number, prd=prd, at=at),),
        )
        self.users[which].append(batch.entries[0], batch.learnings)
        self.does(batch)

    @rule(which=WHICH, prd=st.sampled_from(PRDS), step=st.sampled_from([-2, -1, 0, 2, 3]))
    def append_what_does_not_follow(self, which: int, prd: str, step: int) -> None:
        wrong = self.last(prd) + step
        with pytest.raises(InvalidValue):
            self.users[which].append(entry(wrong if wrong > 0 else 9, prd, at=self.now()))

    @precondition(lambda self: self.expected.entries)
    @rule(which=WHICH, data=st.data())
    def append_again(self, which: int, data: st.DataObject) -> None:
        assert not self.users[which].append(data.draw(st.sampled_from(self.expected.entries)))

    @rule(
        which=WHICH,
        words=st.lists(st.sampled_from(WORDS), max_size=3),
        names=st.lists(st.sampled_from(WORDS), max_size=2),
    )
    def add(self, which: int, words: list[str], names: list[str]) -> None:
        at = self.now()
        got = self.users[which].add([learning(word, at=at) for word in words], [pattern(name) for name in names])
        before = self.expected
        highest = [max(map(number, known), default=0) for known in before[1:]]
        self.does(
            Batch(
                learnings=tuple(learning(word, highest[0] + 1, at=at) for word in words),
                patterns=tuple(pattern(name, highest[1] + 1) for name in names),
            )
        )
        assert got.learnings == self.expected.learnings[len(before.learnings) :]
        assert got.patterns == self.expected.patterns[len(before.patterns) :]

    @rule(which=WHICH, number=st.integers(1, 6))
    def invalidate(self, which: int, number: int) -> None:
        id = f"learning-{number:04}"
        if id not in ids(self.expected.learnings):
            with pytest.raises(InvalidValue):
                self.users[which].invalidate(id, "why")
            return
        got = self.users[which].invalidate(id, "why")
        self.changes([id], invalid, "why")
        assert got in self.expected.learnings

    @rule(which=WHICH, numbers=st.sets(st.integers(1, 5), max_size=3))
    def count_references(self, which: int, numbers: set[int]) -> None:
        wanted = [f"learning-{one:04}" for one in sorted(numbers)]
        self.users[which].count_references(wanted)
        self.changes(wanted, lambda known, by: counted(known, known.times_referenced + by), 1)

    @rule(which=WHICH)
    def fold(self, which: int) -> None:
        assert self.users[which].fold() or not os.path.exists(self.one.journal_path)
        assert not os.path.exists(self.one.journal_path)
        assert on_disk(self.one) == self.expected

    @rule(which=WHICH)
    def ask_everything(self, which: int) -> None:
        assert answers(self.users[which]) == self.expected

    @rule(which=WHICH, prd=st.sampled_from(PRDS))
    def ask_something(self, which: int, prd: str) -> None:
        assert self.users[which].next_iteration(prd) == self.last(prd) + 1
        assert self.users[which].learnings(valid_only=False) == list(self.expected.learnings)

    @rule(which=WHICH, close=st.booleans())
    def begin_anew(self, which: int, close: bool) -> None:
        if close:
            self.users[which].close()
        self.users[which] = History(str(self.root))

    # --- changes to the files

    @rule()
    def delete_the_index(self) -> None:
        Path(self.one.index_path).unlink(missing_ok=True)

    @precondition(lambda self: os.path.exists(self.one.index_path))
    @rule(start=st.integers(0, 4000), data=st.binary(min_size=1, max_size=4000))
    def write_into_the_index(self, start: int, data: bytes) -> None:
        """Other bytes at its beginning, which SQLite reads first."""
        with open(self.one.index_path, "r+b") as file:
            file.write(data if start % 2 else b"\0" * 200)

    @precondition(lambda self: os.path.exists(self.one.path))
    @rule()
    def keep_a_copy(self) -> None:
        self.copies.append(Path(self.one.path).read_bytes())

    @precondition(lambda self: self.copies)
    @rule(data=st.data(), how=st.sampled_from(["anew", "in place", "over it"]))
    def put_back_a_copy(self, data: st.DataObject, how: str) -> None:
        overwrite(Path(self.one.path), data.draw(st.sampled_from(self.copies)), how)
        self.read_files()

    @rule()
    def delete_the_document(self) -> None:
        Path(self.one.path).unlink(missing_ok=True)
        self.read_files()

    @precondition(lambda self: os.path.exists(self.one.journal_path))
    @rule(share=st.floats(0, 1))
    def cut_the_journal(self, share: float) -> None:
        """As after a power cut: the index, a separate file, may be ahead."""
        path = Path(self.one.journal_path)
        data = path.read_bytes().rstrip(b"\0")
        os.truncate(path, int(share * len(data)))
        self.users = [History(str(self.root)), History(str(self.root))]
        self.read_files()

    @precondition(lambda self: os.path.exists(self.one.journal_path))
    @rule(which=WHICH)
    def kill_a_fold(self, which: int) -> None:
        """After the document was replaced, before the journal is removed."""
        data = Path(self.one.journal_path).read_bytes()
        self.fold(which)
        Path(self.one.journal_path).write_bytes(data)

    def read_files(self) -> None:
        self.expected = self.plainly()

    def plainly(self) -> Content:
        return applied(on_disk(self.one), batches(self.one))

    @invariant()
    def files_hold_what_they_should(self) -> None:
        if hasattr(self, "users"):
            assert self.plainly() == self.expected


@pytest.mark.parametrize(
    ("small", "share", "unsettled", "examples"),
    [(1500, 1, 300, 20), (900, 0, 1 << 20, 20), (300, 3, 1, 6)],
    ids=["usual", "late", "early"],
)
def test_whatever_happens_in_any_order_the_history_is_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small: int, share: int, unsettled: int, examples: int
) -> None:
    set_sizes(monkeypatch, small=small, share=share, unsettled=unsettled)
    monkeypatch.setattr(Life, "top", tmp_path, raising=False)
    bounds = settings(
        max_examples=examples,
        stateful_step_count=30,
        deadline=None,
        derandomize=True,
        database=None,
        print_blob=False,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(Life, settings=bounds)
