"""JSON for the agent's hot path.

`import json` costs as much as starting Python: it imports `re` and everything that `re` needs. The parts
that do the work are in the C module `_json`, which loads in a tenth of a millisecond. If an interpreter
has no `_json`, or a different one, the standard package does the same work, only slower.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    # (text, index of a value's first character) -> (value, index after its last character)
    Scanner = Callable[[str, int], tuple[Any, int]]

_SPACE = " \t\n\r"


def _refuse_constant(name: str) -> "Any":
    raise ValueError(f"{name} is not JSON")


class _ScannerOptions:
    strict = True
    object_hook = None
    object_pairs_hook = None
    array_hook = None
    parse_float = float
    parse_int = int
    parse_constant = staticmethod(_refuse_constant)


def _reject_value(value: object) -> "Any":
    raise TypeError(f"{type(value).__name__} can't be written as JSON")


def _make_scanner() -> "Scanner":
    try:
        from _json import make_scanner

        settings: Any = _ScannerOptions
        scan: Scanner = make_scanner(settings)
        scan("{}", 0)
    except (ImportError, AttributeError, TypeError):
        from json import JSONDecoder

        decoder: Any = JSONDecoder(parse_constant=_refuse_constant)
        scan = decoder.scan_once
    return scan


def _make_dumps() -> "Callable[[object], str]":
    try:
        from _json import encode_basestring_ascii, make_encoder

        encode = make_encoder(None, _reject_value, encode_basestring_ascii, None, ": ", ", ", False, False, False)
        "".join(encode({}, 0))
    except (ImportError, AttributeError, TypeError):
        import json

        return lambda value: json.dumps(value, allow_nan=False)
    return lambda value: "".join(encode(value, 0))


# Reads one value that starts at an index; used to edit `prd.json`.
scan_value = _make_scanner()
_dumps = _make_dumps()


def skip_space(text: str, index: int) -> int:
    while index < len(text) and text[index] in _SPACE:
        index += 1
    return index


def loads(text: str) -> "Any":
    """Reads one JSON document; raises ValueError for anything else."""
    try:
        value, end = _scan(text, skip_space(text, 0))
    except StopIteration as stop:
        raise ValueError(f"a value is missing at {describe_position(text, stop.value)}") from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if skip_space(text, end) != len(text):
        raise ValueError(f"unexpected text after the end at {describe_position(text, end)}")
    return value


def _scan(text: str, index: int) -> "tuple[Any, int]":
    try:
        return scan_value(text, index)
    except SystemError:
        # In Python 3.11 the C part can't raise its error unless the package that defines that error is loaded.
        import json.decoder  # noqa: F401

        return scan_value(text, index)


def dumps(value: object) -> str:
    """One line of ASCII, which is safe for every terminal, locale and log."""
    return _dumps(value).replace("\x7f", "\\u007f")


def describe_position(text: str, index: int) -> str:
    line = text.count("\n", 0, index) + 1
    column = index - text.rfind("\n", 0, index)
    return f"line {line}, column {column}"
