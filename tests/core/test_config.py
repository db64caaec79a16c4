"""Properties of the small TOML reader: it finds what the standard library finds."""

from __future__ import annotations

import json
import random
import tomllib

from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from properties import OURS, examples, folder

from ralphtool.core import config
from ralphtool.errors import InvalidValue

toml_texts = st.text(alphabet="ab #=[]{}',.\\\"verify\té", max_size=8)


def basic(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def literal(text: str) -> str:
    return f"'{text}'" if "'" not in text else basic(text)


@st.composite
def toml_strings(draw: st.DrawFn) -> str:
    text = draw(toml_texts)
    made = [basic(text), literal(text), f'"""\n{text.replace(chr(92), "").replace(chr(34), "")}"""']
    return draw(st.sampled_from([*made[:2], *made]))


@st.composite
def toml_arrays(draw: st.DrawFn) -> str:
    """A list of texts in one of the many ways to write it."""
    items = draw(st.lists(toml_strings(), max_size=3))
    gap = st.sampled_from(["", " ", "\n", "\n    ", "\n# a comment\n", " # why\n", "\r\n\t"])
    comma = draw(st.sampled_from(["", ","])) if items else ""
    body = ",".join(f"{draw(gap)}{item}{draw(gap)}" for item in items)
    return f"[{body}{comma}{draw(gap)}]"


toml_others = st.sampled_from(
    [
        "7",
        "true",
        "1.5",
        "2026-01-31",
        '"20m"',
        "[1, 2]",
        '[["a"], ["b"]]',
        '{ a = "b" }',
        "[{ a = 1 }]",
        "[]",
        "[\n[\n]\n]",
    ]
)
toml_keys = st.sampled_from(
    ["checks", "tests", "timeout", '"checks"', "'tests'", "checks.x", '"a = b"', "verify", "other"]
)
toml_headers = st.sampled_from(
    [
        "[run]",
        "[verify]",
        "[verify]",
        "[verify]",
        "[ verify ]",
        '["verify"]',
        "[verify] # why",
        "[verify.x]",
        "[x.verify]",
        "[[agents]]",
        "  [verify]  ",
    ]
)


@st.composite
def toml_lines(draw: st.DrawFn) -> str:
    kind = draw(st.integers(0, 6))
    if kind == 0:
        return draw(toml_headers)
    if kind == 1:
        return draw(st.sampled_from(["", "# a comment", "# [verify]", '# checks = ["x"]', "   # verify"]))
    value = draw(st.one_of(toml_arrays(), toml_arrays(), toml_strings(), toml_others))
    tail = draw(st.sampled_from(["", "", "  ", " # why", " # [verify]"]))
    equals = draw(st.sampled_from([" = ", "=", "\t=  "]))
    return f"{draw(st.sampled_from(['', '', '  ']))}{draw(toml_keys)}{equals}{value}{tail}"


@st.composite
def toml_files(draw: st.DrawFn) -> str:
    before = draw(st.lists(toml_lines(), max_size=2))
    after = draw(st.lists(toml_lines(), max_size=4))
    ending = draw(st.sampled_from(["\n", "\n", "\r\n"]))
    lines = [*before, draw(st.sampled_from(["[verify]", "[verify]", "[verify]", "[ verify ]", ""])), *after]
    return ending.join(lines) + draw(st.sampled_from(["", ending]))


def expected_commands(text: str) -> dict[str, list[str]] | str:
    """The commands that the standard library alone reads from the settings."""
    try:
        table = tomllib.loads(text).get("verify", {})
    except tomllib.TOMLDecodeError:
        return "refused"
    if not isinstance(table, dict):
        return "refused"
    commands = {key: table[key] for key in ("checks", "tests") if key in table}
    for value in commands.values():
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            return "refused"
    return commands


def read_commands(text: str) -> dict[str, list[str]] | str:
    with folder() as top:
        (top / ".ralph").mkdir()
        (top / ".ralph/config.toml").write_bytes(text.encode())
        try:
            return config.read_verify(str(top))
        except InvalidValue:
            return "refused"


@settings(OURS, max_examples=examples(400))
@given(text=toml_files())
@example('[verify]\nchecks = ["a", "b"]\ntests = [\n  "c",\n]\n')
@example('[verify]\n"checks" = ["a"]\n')
@example("[verify]\nchecks.x = 1\n")
@example('verify = { checks = ["a"] }\n')
@example('verify.checks = ["a"]\n')
@example('[run]\nx = """\n[verify]\nchecks = ["no"]\n"""\n')
@example('[[verify]]\nchecks = ["a"]\n')
@example('[verify]\nchecks = "make"\n')
def test_settings_are_read_as_the_standard_library_reads_them(text: str) -> None:
    expected = expected_commands(text)
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        assume(False)  # invalid TOML has a separate test
    assert read_commands(text) == expected


@settings(OURS, max_examples=examples(300))
@given(items=st.lists(toml_strings(), max_size=3), chance=st.randoms(use_true_random=False))
@example(items=['"a"', '"b"'], chance=random.Random(1))
def test_commands_that_are_no_toml_are_refused_not_guessed(items: list[str], chance: random.Random) -> None:
    """A comma too few or too many, a duplicate key: a guess would not be what the user meant."""
    text = (
        "[verify]\nchecks = ["
        + chance.choice([",", " ", "", ", ,"]).join(items)
        + chance.choice(["]", ",]", ",,]", "] x", "", "]]"])
        + "\n"
    )
    text += chance.choice(["", 'tests = ["t"]\n', 'checks = ["twice"]\n', "tests\n"])
    assert read_commands(text) == expected_commands(text)
