"""The sentence model all-MiniLM-L6-v2: reads its weights from disk, and computes vectors from word pieces."""

from __future__ import annotations

import hashlib
import json
import math
import mmap
import os
from typing import TYPE_CHECKING

import numpy as np

from ralphtool.errors import CorruptState, from_os_error
from ralphtool.memory.wordpiece import WordPieces

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

_SIZE = 384
_LAYERS, _HEADS, _MOST_PIECES = 6, 12, 256
_EPSILON = 1e-12
_FAR_BELOW = np.float32(-1e9)  # added to padding before the softmax, so that it counts for nothing
_ROWS = 512  # pieces at once, including padding: more are not faster, but take more memory
_GELU_ROWS = 32  # few enough for all steps to stay in the processor's cache

_WEIGHTS = ("model.safetensors", "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db")
_VOCABULARY = ("vocab.txt", "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3")


class EmbeddingModel:
    def __init__(self, folder: str) -> None:
        vocabulary = bytes(_read_verified(folder, *_VOCABULARY)).decode("utf-8")
        self._pieces = WordPieces(vocabulary.rstrip("\n").split("\n"))
        tensors = _read_tensors(_read_verified(folder, *_WEIGHTS))
        self._words = tensors["embeddings.word_embeddings.weight"]
        kind = tensors["embeddings.token_type_embeddings.weight"][0]  # a text is always one segment
        self._places = tensors["embeddings.position_embeddings.weight"][:_MOST_PIECES] + kind
        self._norm = _Norm(tensors, "embeddings.LayerNorm")
        self._layers = [_Layer(tensors, f"encoder.layer.{number}.") for number in range(_LAYERS)]

    def of(self, texts: Sequence[str]) -> Floats:
        """One vector of length 1 for each text, whatever it contains; only its first 254 word pieces are read."""
        pieces = [self._pieces.of(text, _MOST_PIECES) for text in texts]
        vectors = np.zeros((len(texts), _SIZE), np.float32)
        for batch in _build_batches([len(piece) for piece in pieces]):
            vectors[batch] = self._embed_batch([pieces[index] for index in batch])
        return vectors

    def _embed_batch(self, texts: Sequence[Sequence[int]]) -> Floats:
        lengths = np.array([len(text) for text in texts])
        longest = int(lengths.max())
        there = np.arange(longest) < lengths[:, None]
        numbers = np.zeros(there.shape, np.intp)
        numbers[there] = np.concatenate(texts)
        hidden = self._norm((self._words[numbers] + self._places[:longest]).reshape(-1, _SIZE))
        unseen = None if there.all() else np.where(there, np.float32(0), _FAR_BELOW)[:, None, None, :]
        for layer in self._layers:
            hidden = layer(hidden, len(texts), unseen)
        means: Floats = np.einsum("tps,tp->ts", hidden.reshape(*there.shape, _SIZE), there.astype(np.float32))
        means /= np.linalg.norm(means, axis=1, keepdims=True)
        return means


def _build_batches(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Groups texts of similar length, so that there is little padding."""
    batch: list[int] = []
    for index in sorted(range(len(lengths)), key=lengths.__getitem__):
        if batch and (len(batch) + 1) * lengths[index] > _ROWS:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


class _Norm:
    def __init__(self, tensors: Mapping[str, Floats], name: str) -> None:
        self._weight, self._bias = tensors[f"{name}.weight"], tensors[f"{name}.bias"]

    def __call__(self, rows: Floats) -> Floats:
        """In place."""
        rows -= rows.mean(axis=1, keepdims=True)
        spread = np.einsum("ij,ij->i", rows, rows) / np.float32(_SIZE)
        rows /= np.sqrt(spread + np.float32(_EPSILON))[:, None]
        rows *= self._weight
        rows += self._bias
        return rows


class _Linear:
    def __init__(self, tensors: Mapping[str, Floats], *names: str) -> None:
        """Combines several with the same input, which is a little faster."""
        weights = [tensors[f"{name}.weight"] for name in names]
        biases = [tensors[f"{name}.bias"] for name in names]
        self._weight = (weights[0] if len(names) == 1 else np.concatenate(weights)).T
        self._bias = np.concatenate(biases)

    def __call__(self, rows: Floats) -> Floats:
        made: Floats = rows @ self._weight
        made += self._bias
        return made


class _Layer:
    def __init__(self, tensors: Mapping[str, Floats], name: str) -> None:
        attention = f"{name}attention."
        self._asked = _Linear(tensors, *(f"{attention}self.{part}" for part in ("query", "key", "value")))
        self._answered = _Linear(tensors, f"{attention}output.dense")
        self._first_norm = _Norm(tensors, f"{attention}output.LayerNorm")
        self._wide = _Linear(tensors, f"{name}intermediate.dense")
        self._narrow = _Linear(tensors, f"{name}output.dense")
        self._second_norm = _Norm(tensors, f"{name}output.LayerNorm")

    def __call__(self, hidden: Floats, texts: int, unseen: Floats | None) -> Floats:
        answer = self._answered(self._attention(hidden, texts, unseen))
        answer += hidden
        hidden = self._first_norm(answer)
        made = self._narrow(gelu(self._wide(hidden)))
        made += hidden
        return self._second_norm(made)

    def _attention(self, hidden: Floats, texts: int, unseen: Floats | None) -> Floats:
        asked = self._asked(hidden).reshape(texts, -1, 3, _HEADS, _SIZE // _HEADS)
        query, key, value = asked.transpose(2, 0, 3, 1, 4)
        scores: Floats = query @ key.transpose(0, 1, 3, 2)
        scores *= np.float32(1 / math.sqrt(_SIZE // _HEADS))
        if unseen is not None:
            scores += unseen
        scores -= scores.max(axis=-1, keepdims=True)
        np.exp(scores, out=scores)
        scores /= scores.sum(axis=-1, keepdims=True)
        return np.ascontiguousarray((scores @ value).transpose(0, 2, 1, 3)).reshape(-1, _SIZE)


# Abramowitz and Stegun, 7.1.26: the tail of the normal distribution, less than 1.5e-7 off. Lowest power first.
_TAIL = (0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429)
_TAIL_P = 0.3275911


def gelu(rows: Floats) -> Floats:
    """x·Φ(x), in place. With a = |x| that is max(x, 0) - a·(1 - Φ(a)), which needs no case for the sign."""
    for start in range(0, len(rows), _GELU_ROWS):
        part = rows[start : start + _GELU_ROWS]
        size = np.abs(part)
        t = 1 / (size * np.float32(_TAIL_P / math.sqrt(2)) + np.float32(1))
        tail = np.full_like(t, _TAIL[-1] / 2)
        for factor in _TAIL[-2::-1]:
            tail *= t
            tail += np.float32(factor / 2)
        tail *= t
        tail *= size
        size *= size
        size *= np.float32(-0.5)
        tail *= np.exp(size, out=size)
        np.maximum(part, 0, out=part)
        part -= tail
    return rows


def _read_verified(folder: str, name: str, digest: str) -> memoryview:
    """The file's bytes, mapped from disk, if they are as published. Other bytes would give other vectors, and that
    would go unnoticed; so all of them are checked, each time: 0.08 s of CPU time for the weights."""
    path = os.path.join(folder, name)
    try:
        with open(path, "rb") as file:
            data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except OSError as error:
        raise from_os_error(error) from None
    except ValueError:
        data = memoryview(b"")  # an empty file can't be mapped
    if hashlib.sha256(data).hexdigest() != digest:
        raise CorruptState(f"{path} differs from the published file: uninstall its package, and install it again")
    return data


def _read_tensors(data: memoryview) -> dict[str, Floats]:
    """A safetensors file: the length of a header, a JSON header, numbers. Nothing is copied."""
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(bytes(data[8:start]))
    return {
        name: _read_tensor(data[start:], about["data_offsets"], about["shape"])
        for name, about in header.items()
        if about.get("dtype") == "F32"
    }


def _read_tensor(data: memoryview, offsets: Sequence[int], shape: Sequence[int]) -> Floats:
    begin, end = offsets
    return np.frombuffer(data[begin:end], dtype="<f4").reshape(shape)
