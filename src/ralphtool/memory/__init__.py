"""The memory: finds texts by their content, and texts that say the same.

    memory = Memory(".ralph/memory.index")
    memory.add("learning-0001", "The tests need `make db` first")
    memory.search("database missing in tests")

It needs only the standard library. With the extra `semantic` it also compares sentences by meaning.
"""

from __future__ import annotations

import math
from heapq import nlargest

from ralphtool.memory import word_frequency
from ralphtool.memory.cache import MemoryCache, index_words, merge_words, remove_words
from ralphtool.memory.profile import Profile, TextQuery, damp_count

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    import sqlite3
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from ralphtool.memory.semantic import SemanticIndex
    from ralphtool.memory.similarity import Match

    Row = tuple[bytes, str, str, Profile, bytes | None]

__all__ = ["Memory"]

_MOST_WORDS = 48  # the rarest words of a query
_MOST_OF_A_WORD = 800  # texts per word, the newest first
_MOST_READ = 8_000  # texts for all the words of a query
_CANDIDATES = 120  # texts that are compared word by word,
_BY_LETTERS = 40  # and the best of these, which are compared letter by letter
_WORD_SCORE_WEIGHT = 3.0
_REPEATS = 12  # the most similar texts that are compared closely
_MANY = 1_000  # texts that are added at once
_PRIOR = 250  # the background counts as much as this many texts


class Memory:
    """Texts by id. With a path they persist; the file is a cache that can be rebuilt."""

    def __init__(self, path: str | os.PathLike[str] | None = None, *, by_meaning: bool | None = None) -> None:
        """`by_meaning`: whether to compare sentences by meaning too; by default, if that is installed."""
        self.cache = MemoryCache(path)
        self._meaning = _build_semantic_index(self.cache) if by_meaning or by_meaning is None else None

    def close(self) -> None:
        self.cache.close()

    def __enter__(self) -> Memory:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # --- adding -----------------------------------------------------------------------------------

    def add(self, id: str, text: str, label: str = "") -> None:
        """Adds a text, or replaces the one with this id. A label is stored with it, but not searched."""
        self.add_all([(id, text)], [label])

    def add_all(self, texts: Iterable[tuple[str, str]], labels: Iterable[str] = ()) -> None:
        """Adds texts in one step."""
        texts = list(texts)
        rows = self._made(texts, list(labels) or [""] * len(texts))
        self.cache.change(lambda db: _replace(db, rows))

    def update(
        self, texts: Mapping[str, tuple[str, str]], gone: Iterable[str] = (), *, since: str = "", mark: str = ""
    ) -> bool:
        """Adds texts with their labels, and removes others, in one step, if the fact `mark` still equals `since`.

        It then gets the new value. Otherwise another process was faster, and nothing is changed.
        """
        rows = self._made([(id, text) for id, (text, _) in texts.items()], [label for _, label in texts.values()])
        keys = [_encode_key(id) for id in gone]
        is_done: list[bool] = []

        def work(db: sqlite3.Connection) -> None:
            found = db.execute("SELECT value FROM facts WHERE name = 'mark'").fetchone()
            is_done.append((found[0] if found else b"") == _encode_key(since))
            if is_done[-1]:
                for key in keys:
                    _remove(db, key)
                _replace(db, rows)
                db.execute("INSERT OR REPLACE INTO facts VALUES ('mark', ?)", (_encode_key(mark),))

        self.cache.change(work)
        return is_done[-1]

    def _made(self, texts: Sequence[tuple[str, str]], labels: Sequence[str]) -> list[Row]:
        """The rows to store. Building them takes a while, so it happens outside the transaction."""
        vectors = self._meaning.encode_texts([text for _, text in texts]) if self._meaning else [None] * len(texts)
        return [
            (_encode_key(id), text, label, Profile.of(text), vector)
            for (id, text), label, vector in zip(texts, labels, vectors, strict=True)
        ]

    def remove(self, *ids: str) -> None:
        """Removes texts; missing ones are ignored."""

        def work(db: sqlite3.Connection) -> None:
            for id in ids:
                _remove(db, _encode_key(id))

        self.cache.change(work)

    def __len__(self) -> int:
        return self._totals()[0]

    def _totals(self) -> tuple[int, int]:
        """The number of texts, and their total length."""
        found: tuple[int, int] = self.cache.ask("SELECT count, length FROM totals", read=_read_totals)
        return found

    def held(self, prefix: str = "") -> dict[str, tuple[str, str]]:
        """Every id with this prefix, with its text and its label."""
        start = _encode_key(prefix)
        question = "SELECT id, text, label FROM texts WHERE id >= ? AND id < ?"
        return dict(self.cache.ask(question, start, start + b"\xff", read=_read_texts))

    def get(self, ids: Iterable[str]) -> dict[str, tuple[str, str]]:
        """Those of these texts that exist, with their labels."""
        return dict(self.cache.select("id, text, label", "texts", "id", [_encode_key(id) for id in ids], _read_texts))

    def fact(self, name: str) -> str:
        """A stored fact about the texts; empty if the cache was rebuilt since."""
        values: list[str] = self.cache.ask("SELECT value FROM facts WHERE name = ?", name, read=_read_values)
        return values[0] if values else ""

    # --- queries ----------------------------------------------------------------------------------

    def search(self, text: str, limit: int = 10) -> list[tuple[str, float]]:
        """The texts most similar to this one, with a score from 0 to 1, the best first."""
        meant = self._meaning.asked(text) if self._meaning else None
        found = self._score_by_words(text, meant.nearest if meant else ())
        if meant and found:
            found = _mix_scores(found, meant.cosines(found))
        ranked = sorted(found.items(), key=lambda one: (-one[1], one[0]))[: max(0, limit)]
        ids = dict(self.cache.select("num, id", "texts", "num", [number for number, _ in ranked], _read_ids))
        # Another process may have removed some meanwhile.
        return [(ids[number], min(1.0, score)) for number, score in ranked if number in ids]

    def _score_by_words(self, text: str, near: Iterable[int]) -> dict[int, float]:
        """Scores of the texts that share words with this one, and of those in `near`."""
        profile = Profile.of(text)
        count, length = self._totals()
        weights, candidates = self._candidates(profile, count)
        query = TextQuery(profile, weights, length / count if count else 0.0)
        profiles = self._profiles([*dict.fromkeys([*candidates, *near])])
        scores = {number: query.score_by_words(other) for number, other in profiles.items()}
        for number in nlargest(_BY_LETTERS, scores, key=scores.__getitem__):
            scores[number] += query.score_by_letters(profiles[number])
        return scores

    def fingerprint(self, text: str) -> str:
        """Equal for two error messages that differ only in volatile parts: paths, ids, times."""
        from ralphtool.memory.fingerprint import fingerprint  # searching needs neither this nor `similarity`

        return fingerprint(text)

    def same(self, one: str, other: str) -> Match:
        """Whether two texts say the same: `same`, `likely`, `related` or `new`, and a score from 0 to 1."""
        from ralphtool.memory import similarity
        from ralphtool.memory.fingerprint import fingerprint

        is_one = fingerprint(one) == fingerprint(other)
        return similarity.match_texts(one, other, word_frequency.find_weight, same_fingerprint=is_one)

    def repeat_of(self, text: str) -> str | None:
        """The id of an existing text that says the same."""
        found = self.get(id for id, _ in self.search(text, _REPEATS))
        matches = {id: self.same(text, other) for id, (other, _) in found.items()}
        same = [id for id, match in matches.items() if match.level == "same"]
        return max(same, key=lambda one: matches[one].score, default=None)

    def _candidates(self, profile: Profile, count: int) -> tuple[dict[str, float], list[int]]:
        """The most important words with their weights, and the texts that share most of them."""
        by_weight = nlargest(
            _MOST_WORDS,
            profile.counts,
            key=lambda word: damp_count(profile.counts[word]) * word_frequency.find_weight(word),
        )
        each = min(_MOST_OF_A_WORD, _MOST_READ // max(1, len(by_weight)))  # so that no common word uses up the limit
        weights: dict[str, float] = {}
        scores: dict[int, float] = {}
        rare: dict[int, float] = {}  # scores by words whose texts were all read
        for word in by_weight:
            texts = self.cache.find_texts(word, each)
            weights[word] = _weigh_word(word, texts, count, each)
            worth = weights[word] * damp_count(profile.counts[word])
            for number in texts:
                scores[number] = scores.get(number, 0.0) + worth
                if len(texts) < each:
                    rare[number] = rare.get(number, 0.0) + worth
        best = nlargest(_CANDIDATES // 2, rare, key=rare.__getitem__)
        more = nlargest(_CANDIDATES, scores, key=scores.__getitem__)
        return weights, [*dict.fromkeys([*best, *more])][:_CANDIDATES]

    def _profiles(self, numbers: Sequence[int]) -> dict[int, Profile]:
        columns = "num, text, terms, times, length, norm"
        return dict(self.cache.select(columns, "texts", "num", numbers, _read_profiles))


# --- decoding rows: an error here means that the file is damaged --------------------------------------


def _read_texts(rows: list[Any]) -> list[tuple[str, tuple[str, str]]]:
    return [(_decode_text(key), (_decode_text(text), _decode_text(label))) for key, text, label in rows]


def _read_ids(rows: list[Any]) -> list[tuple[int, str]]:
    return [(number, _decode_text(key)) for number, key in rows]


def _read_values(rows: list[Any]) -> list[str]:
    return [_decode_text(value) for (value,) in rows]


def _read_totals(rows: list[Any]) -> tuple[int, int]:
    [(count, length)] = rows
    if int(count) < 0 or int(length) < 0:
        raise ValueError("the limit can't be negative")
    return int(count), int(length)


def _read_profiles(rows: list[Any]) -> list[tuple[int, Profile]]:
    return [
        (
            number,
            Profile(
                _decode_text(text), dict(zip(terms.split(), times, strict=True)), abs(int(length)), abs(float(norm))
            ),
        )
        for number, text, terms, times, length, norm in rows
    ]


# --- scores -----------------------------------------------------------------------------------------


def _mix_scores(by_words: dict[int, float], near: dict[int, float]) -> dict[int, float]:
    """Half by words, half by meaning: the same problem in other words has only about a third as its word score."""
    return {
        number: (_WORD_SCORE_WEIGHT * score + max(0.0, near.get(number, 0.0))) / (_WORD_SCORE_WEIGHT + 1)
        for number, score in by_words.items()
    }


def _weigh_word(word: str, texts: Sequence[int], count: int, limit: int) -> float:
    """The weight of a word in this memory; while that is small, the background dominates.

    For a word in very many texts only the newest were read: their density is an estimate for the others.
    """
    having = float(len(texts))
    if len(texts) >= limit:
        having = count * len(texts) / max(1, texts[0] - texts[-1] + 1)
    having = min(having, count) + _PRIOR * word_frequency.find_share(word)
    return math.log(1 + (count + _PRIOR - having + 0.5) / (having + 0.5))


# --- storing ----------------------------------------------------------------------------------------


def _replace(db: sqlite3.Connection, rows: Sequence[Row]) -> None:
    for key, text, label, profile, vector in rows:
        _remove(db, key)
        _insert(db, key, text, label, profile, vector)
    if len(rows) >= _MANY:
        merge_words(db)


def _insert(db: sqlite3.Connection, key: bytes, text: str, label: str, profile: Profile, vector: bytes | None) -> None:
    terms = " ".join(profile.counts)
    times = bytes(min(255, count) for count in profile.counts.values())
    values = (key, _encode_key(text), _encode_key(label), terms, times, profile.length, profile.norm, vector)
    made = db.execute("INSERT INTO texts VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?)", values)
    index_words(db, made.lastrowid or 0, terms)
    db.execute("UPDATE totals SET count = count + 1, length = length + ?", (profile.length,))


def _remove(db: sqlite3.Connection, key: bytes) -> None:
    found = db.execute("SELECT num, terms, length FROM texts WHERE id = ?", (key,)).fetchone()
    if found is None:
        return
    number, terms, length = found
    db.execute("DELETE FROM texts WHERE num = ?", (number,))
    remove_words(db, number, terms)
    db.execute("UPDATE totals SET count = count - 1, length = length - ?", (length,))


def _build_semantic_index(cache: MemoryCache) -> SemanticIndex | None:
    from ralphtool.memory import vectors

    if not vectors.is_installed():
        return None
    from ralphtool.memory.semantic import SemanticIndex

    return SemanticIndex(cache)


def _encode_key(text: str) -> bytes:
    """The stored form of a text or an id, whatever it contains."""
    return text.encode("utf-8", "surrogatepass")


def _decode_text(stored: bytes) -> str:
    return bytes(stored).decode("utf-8", "surrogatepass")
