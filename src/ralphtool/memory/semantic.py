"""The texts of a memory by meaning: a vector for each, computed when it is added and stored with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ralphtool.memory.vector_store import VectorIndex, pack_vector
from ralphtool.memory.vectors import SIZE, Vectors

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from ralphtool.memory.cache import MemoryCache

_COMPARED = 4000  # characters: more than the model reads
_NEAREST = 60  # texts that are compared closely
_AT_ONCE = 64  # texts without a vector that get one at each query

vectors = Vectors()  # one model for the process


class VectorQuery:
    """A text to search for by meaning."""

    def __init__(self, shelf: VectorIndex[int], vector: NDArray[np.float32]) -> None:
        self._shelf = shelf
        self._vector = vector

    @property
    def nearest(self) -> list[int]:
        """The numbers of the texts that are nearest in meaning."""
        return [number for number, _ in self._shelf.nearest(self._vector, _NEAREST)]

    def cosines(self, numbers: Iterable[int]) -> dict[int, float]:
        """The cosines of these texts to it."""
        return self._shelf.cosines(self._vector, numbers)


class SemanticIndex:
    """The vectors of a cache's texts. They are read once; after that, only new ones."""

    def __init__(self, cache: MemoryCache) -> None:
        self._cache = cache
        self._shelf: VectorIndex[int] = VectorIndex()
        self._read_to = 0
        self._times_made = cache.times_made

    @staticmethod
    def encode_texts(texts: Sequence[str]) -> list[bytes]:
        """The stored form of each text's vector."""
        return [pack_vector(row) for row in vectors.of([text[:_COMPARED] for text in texts])] if texts else []

    def asked(self, text: str) -> VectorQuery | None:
        self._read_on()
        if not len(self._shelf):
            return None  # without loading the model
        asked = VectorQuery(self._shelf, vectors.of([text[:_COMPARED]])[0])
        self._drop_removed(asked)
        return asked

    def _drop_removed(self, asked: VectorQuery) -> None:
        """Texts that were removed meanwhile are not candidates."""
        while near := asked.nearest:
            there = {number for (number,) in self._cache.select("num", "texts", "num", near)}
            for number in near:
                if number not in there:
                    self._shelf.remove(number)
            if len(there) == len(near):
                return

    def _read_on(self) -> None:
        if self._times_made != self._cache.times_made:  # the texts are no longer those that were read
            self._shelf, self._read_to, self._times_made = VectorIndex(), 0, self._cache.times_made
        self._add_missing_vectors()
        rows = self._cache.ask(
            "SELECT num, vector FROM texts WHERE num > ? AND length(vector) = ? ORDER BY num", self._read_to, SIZE
        )
        if rows:
            self._shelf.extend([number for number, _ in rows], [vector for _, vector in rows])
            self._read_to = rows[-1][0]

    def _add_missing_vectors(self) -> None:
        """Adds vectors to some of the texts that were added without one."""
        rows = self._cache.ask("SELECT num, text FROM texts WHERE vector IS NULL ORDER BY num DESC LIMIT ?", _AT_ONCE)
        if not rows:
            return
        made = self.encode_texts([text.decode("utf-8", "surrogatepass") for _, text in rows])
        values = [(vector, number) for (number, _), vector in zip(rows, made, strict=True)]
        self._cache.change(lambda db: db.executemany("UPDATE texts SET vector = ? WHERE num = ?", values))
        self._shelf.extend([number for number, _ in rows], made)
