"""Properties of the small JSON reader: it reads what the standard library reads, and refuses the rest."""

from __future__ import annotations

import json
import math
import random
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from properties import OURS, examples
from specs.documents import json_values, spaced

from ralphtool.core import quickjson


def refuse(constant: str) -> Any:
    raise ValueError(constant)


def standard(text: str) -> tuple[str, Any]:
    try:
        return "value", json.loads(text, parse_constant=refuse)
    except (ValueError, RecursionError):
        return "refused", None


def ours(text: str) -> tuple[str, Any]:
    try:
        return "value", quickjson.loads(text)
    except ValueError:
        return "refused", None


def same(one: Any, other: Any) -> bool:
    """Equal in type too: 1, 1.0 and True are different, and so are -0.0 and 0.0."""
    return repr(one) == repr(other)


@settings(OURS, max_examples=examples(300))
@given(value=json_values, chance=st.randoms(use_true_random=False))
def test_quickjson_reads_what_the_standard_package_reads(value: Any, chance: random.Random) -> None:
    text = spaced(value, chance)
    assert same(quickjson.loads(text), json.loads(text))


@settings(OURS, max_examples=examples(300))
@given(value=json_values)
@example(value={"\x7f": "\x00\x1b\x7f\x9b\u2028é😀\ud800"})
def test_quickjson_writes_what_the_standard_package_writes(value: Any) -> None:
    text = quickjson.dumps(value)
    assert text.isascii()
    assert text.isprintable()
    assert text == json.dumps(value).replace("\x7f", "\\u007f")
    assert same(json.loads(text), json.loads(json.dumps(value)))


@settings(OURS, max_examples=examples(600))
@given(value=json_values, chance=st.randoms(use_true_random=False))
def test_quickjson_refuses_what_the_standard_package_refuses(value: Any, chance: random.Random) -> None:
    """Texts that were damaged in one place: some are still JSON, most are not."""
    text = spaced(value, chance)
    at = chance.randrange(len(text) + 1)
    damage = chance.choice(
        ["", ",", "]", "}", "{", "[", '"', "\\", "\x01", "/", "#", "NaN", "-", "0", ".", "e", "\ufeff", "\x00"]
    )
    broken = text[:at] + damage + text[at + chance.randrange(3) :]
    assert repr(ours(broken)) == repr(standard(broken))


@settings(OURS, max_examples=examples(600))
@given(text=st.text(alphabet='[]{}",:\\ntrufalse01-.eE \t/*u', max_size=12))
@example("NaN")
@example("-Infinity")
@example("[1,]")
@example('{"a":1,}')
@example('"\\ud800"')
@example("01")
@example("1 2")
@example("")
@example(" ")
@example('{"a":1,"a":2}')
@example("\u00a01")
@example('"\t"')
def test_quickjson_agrees_on_texts_that_are_hardly_json(text: str) -> None:
    assert repr(ours(text)) == repr(standard(text))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, [math.nan], {"a": math.inf}])
def test_quickjson_writes_no_number_that_json_has_not(value: Any) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        quickjson.dumps(value)


@pytest.mark.parametrize("value", [{1, 2}, b"x", object(), {"a": {1}}])
def test_quickjson_refuses_what_json_can_not_say(value: Any) -> None:
    with pytest.raises(TypeError):
        quickjson.dumps(value)


@pytest.mark.parametrize("opening", ["[", '{"a":', '[{"a":'])
def test_quickjson_refuses_what_is_nested_too_deeply(opening: str) -> None:
    with pytest.raises(ValueError, match="nested too deeply"):
        quickjson.loads(opening * 200_000)
