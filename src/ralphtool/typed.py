"""Reads JSON into types, in any thread.

msgspec learns a type when it meets it for the first time. A second thread that meets the same type meanwhile finds it
half learnt, and the whole process dies (seen with msgspec 0.22). So a type is learnt under a
lock, and nobody else asks msgspec for one: `tests/test_layers.py` looks after that.
"""

from __future__ import annotations

from _thread import RLock
from typing import Any, TypeVar, overload

import msgspec
from msgspec import Raw
from msgspec.json import Decoder

_T = TypeVar("_T")
_learning = RLock()
_known: dict[Any, Any] = {}


@overload
def build_decoder(kind: type[_T]) -> Decoder[_T]: ...
@overload
def build_decoder(kind: Any) -> Decoder[Any]: ...
def build_decoder(kind: Any) -> Decoder[Any]:
    """One for many texts. Once it is made, any thread may use it."""
    with _learning:
        return Decoder(kind)


@overload
def decode(data: bytes | str | Raw, kind: type[_T]) -> _T: ...
@overload
def decode(data: bytes | str | Raw, kind: Any) -> Any: ...
def decode(data: bytes | str | Raw, kind: Any) -> Any:
    """Raises MsgspecError if it is no JSON, or of another type."""
    decoder = _known.get(kind)
    if decoder is None:
        decoder = _known.setdefault(kind, build_decoder(kind))
    return decoder.decode(data)


@overload
def convert(value: Any, kind: type[_T]) -> _T: ...
@overload
def convert(value: Any, kind: Any) -> Any: ...
def convert(value: Any, kind: Any) -> Any:
    """What was read already, as that type."""
    with _learning:
        return msgspec.convert(value, kind)


def decode_msgpack(data: bytes, kind: type[_T]) -> _T:
    with _learning:
        return msgspec.msgpack.decode(data, type=kind)
