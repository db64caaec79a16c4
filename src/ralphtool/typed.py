"""Reads JSON into types, in any thread.

msgspec prepares a type when it is first used. If a second thread uses the same type at that moment, it finds it half
prepared, and the process crashes (SIGSEGV, seen with msgspec 0.22). So types are prepared under a lock, and only here:
`tests/test_layers.py` checks that no other module does it.
"""

from __future__ import annotations

from _thread import RLock
from typing import Any, TypeVar, overload

import msgspec
from msgspec import Raw
from msgspec.json import Decoder

_T = TypeVar("_T")
_preparing = RLock()
_decoders: dict[Any, Any] = {}


@overload
def build_decoder(kind: type[_T]) -> Decoder[_T]: ...
@overload
def build_decoder(kind: Any) -> Decoder[Any]: ...
def build_decoder(kind: Any) -> Decoder[Any]:
    """A decoder for many texts. Any thread may use it."""
    with _preparing:
        return Decoder(kind)


@overload
def decode(data: bytes | str | Raw, kind: type[_T]) -> _T: ...
@overload
def decode(data: bytes | str | Raw, kind: Any) -> Any: ...
def decode(data: bytes | str | Raw, kind: Any) -> Any:
    """Raises MsgspecError if the text is not JSON, or does not fit the type."""
    decoder = _decoders.get(kind)
    if decoder is None:
        decoder = _decoders.setdefault(kind, build_decoder(kind))
    return decoder.decode(data)


@overload
def convert(value: Any, kind: type[_T]) -> _T: ...
@overload
def convert(value: Any, kind: Any) -> Any: ...
def convert(value: Any, kind: Any) -> Any:
    """Like `decode`, for a value that is already decoded."""
    with _preparing:
        return msgspec.convert(value, kind)


def decode_msgpack(data: bytes, kind: type[_T]) -> _T:
    with _preparing:
        return msgspec.msgpack.decode(data, type=kind)
