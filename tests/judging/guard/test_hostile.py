"""The diff guard on hostile and random input: nothing makes it crash."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from judging.guard.samples import (
    CPP,
    DELETED,
    ELIXIR,
    FILES,
    GO,
    JS,
    PEST,
    PYTHON,
    RUBY,
    RUST,
    SKIPPED,
    WEAKER,
    edit,
    kinds,
)
from properties import examples

from ralphtool.judging.guard import diff
from ralphtool.judging.guard.model import FileChange
from ralphtool.judging.guard.spec import inspect_spec
from ralphtool.specs import Story, Task

OURS = settings(
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
    max_examples=examples(100),
)

# --- hostile input ----------------------------------------------------------------------------------


LONG = 20_000_000
HOSTILE = {
    "one line": b"x" * LONG,
    "one line of brackets": b"(" * LONG,
    "one line of quotes": b"'" * 1_000_000,
    "deep": b"(" * 100_000,
    "deep and closed": b"(" * 5_000 + b")" * 5_000,
    "deep operators": b"x = " + b"-" * 50_000 + b"1\n",
    "a long sum": b"def test_a():\n    assert " + b"1 + " * 20_000 + b"1 == 2\n",
    "a sum": b"def test_a():\n    assert x == 1\n    assert " + b"1 + " * 900 + b"x == 2\n",
    "deep blocks": b"".join(b" " * depth + b"if x:\n" for depth in range(2_000)),
    "deep calls": b"it('a', () => {" * 20_000,
    "deep functions": b"void testA() {" * 20_000,
    "unclosed comments": b"/*" * 200_000,
    "unclosed strings": b'"""' * 100_000 + b"`" * 100_001,
    "blanks": b"it" + b" " * 400_000 + b"x",
    "chains": b"expect(a)" + b".a" * 200_000,
    "dead blocks": b"if (false) { a }\n" * 20_000,
    "annotations": b"fn a " * 80_000,
    "many tests": b"".join(b"def test_%d(): assert f(%d) == 1\n" % (n, n) for n in range(8_000)),
    "many assertions": b"def test_a():\n" + b"".join(b"    assert f(%d) == %d\n" % (n, n) for n in range(8_000)),
    "zeros": b"\0" * 100_000,
    "not UTF-8": b"def test_a():\n    assert '\xff\xfe' == caf\xe9\n",
    "lines": b"\n" * 400_000,
    "returns": b"\r" * 400_000,
}
HOSTILE_PATHS = [*(path for path, _ in FILES.values()), "test_a.py", "conftest.py", "package.json", "pyproject.toml"]
HOSTILE_PATHS += ["setup.cfg", "Makefile", "jest.config.js"]


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_survived(name: str) -> None:
    """In time proportional to their size, or this test would not end."""
    data = HOSTILE[name]
    paths = ["test_a.py"] if len(data) == LONG else ["test_a.py", "a.test.js", "ATest.java", "a_spec.rb", "Makefile"]
    for path in HOSTILE_PATHS if len(data) < 60_000 else paths:
        assert isinstance(diff.inspect_changes([FileChange(path, data, data[: len(data) // 2] + b"\n")]), list)


def test_what_is_too_long_is_still_looked_at() -> None:
    padding = b"\n# " + b"x" * 600_000 + b"\n"
    old = b"def test_a():\n    assert f() == 1\n\ndef test_b():\n    assert g() == 1\n" + padding
    assert kinds(FileChange("test_a.py", old, old + b"\ndef test_c():\n    assert h()\n")) == []
    assert kinds(FileChange("test_a.py", old, old.replace(b"def test_b():\n    assert g() == 1\n", b""))) == [
        WEAKER,
        DELETED,
    ]
    assert kinds(FileChange("test_a.py", old, old.replace(b"assert g()", b"print(1)"))) == [WEAKER]
    assert kinds(FileChange("test_a.py", old, old.replace(b"def test_b", b"@pytest.mark.skip\ndef test_b"))) == [
        SKIPPED
    ]
    # Made long on purpose, to escape the guard.
    assert kinds(FileChange("test_a.py", old[:40], b"def test_z(): pass" + padding)) == [WEAKER, DELETED]


def test_what_is_too_deep_is_still_looked_at() -> None:
    deep = b"\nX = " + b"-" * 50_000 + b"1\n"
    old = b"def test_a():\n    assert f() == 1\n\ndef test_b():\n    assert g() == 1\n"
    assert kinds(FileChange("test_a.py", old, old[: old.index(b"def test_b")] + deep)) == [WEAKER, DELETED]
    assert kinds(FileChange("test_a.py", old, old + deep)) == []


def test_depth_is_no_hiding_place() -> None:
    old = b"def test_a():\n    assert f() == 1\n"
    deep = b"    assert " + b"1 + " * 900 + b"x == 2\n"
    assert kinds(FileChange("test_a.py", old, old.replace(b" == 1", b"") + deep)) == [WEAKER]
    assert kinds(FileChange("test_a.py", old + deep, old)) == []


def test_a_spec_of_any_size_is_survived() -> None:
    old = "".join(f"- [ ] {n} do it\n" for n in range(50_000))
    new = old.replace("[ ]", "[x]")
    before = [Story("1", "A", [Task(f"1.{n}", "do it", False) for n in range(50_000)])]
    after = [Story("1", "A", [Task(f"1.{n}", "do it", True) for n in range(50_000)])]
    assert inspect_spec({"a.md": old.encode()}, {"a.md": new.encode()}, before, after, "1") == []
    binary = {"a.md": b"\xff" * 1_000_000}
    assert len(inspect_spec(binary, {"a.md": b"\xfe" * 1_000_000}, [], [], "1")) == 1


# --- properties -------------------------------------------------------------------------------------


WORDS = """
    def_test_a(): assert_x==1 @pytest.mark.skip class_TestA: it('a', describe( { } ( ) [ ] ' " ` // /* */ # \\ fn_a
    #[test] expect(x).toBe(3) @Test void_a() func_TestA(t) t.Error( end do it_"a" assert_eq!( return if_False:
    TEST(A,_B) test: RSpec.describe - [x] || true --ignore=a "scripts": [pytest] addopts_=
"""
PIECES = st.sampled_from([*WORDS.split(), "\n", "\n    ", "    ", " ", "\t", "\0", "é", "\ud7ff"])
SOUP = st.lists(PIECES.map(lambda piece: piece.replace("_", " ")), max_size=40).map("".join)
PATHS = st.sampled_from(HOSTILE_PATHS)


@OURS
@given(PATHS, st.none() | st.binary(max_size=200) | SOUP.map(str.encode), st.none() | SOUP.map(str.encode))
@example("tox.ini", b"[pytest]\n", b"[pytest]\naddopts\n   x = 1\n")
def test_nothing_makes_it_fall_over(path: str, old: bytes | None, new: bytes | None) -> None:
    for finding in diff.inspect_changes([FileChange(path, old, new)]):
        assert finding.path == path
        assert "\n" not in finding.detail


@OURS
@given(PATHS, SOUP)
def test_what_did_not_change_is_silent(path: str, text: str) -> None:
    assert diff.inspect_changes([FileChange(path, text.encode(), text.encode())]) == []


@OURS
@given(st.binary(max_size=200), st.binary(max_size=200), SOUP)
def test_no_spec_makes_it_fall_over(old: bytes, new: bytes, text: str) -> None:
    for name in ("a.md", "prd.json"):
        for one, other in ((old, new), (text.encode(), new), (text.encode(), text.encode() + b"\n")):
            found = inspect_spec({name: one}, {name: other}, [], [], "1", done_key="passes")
            assert bool(found) == (one != other)


APPENDED = {
    "python": ("test_cart.py", PYTHON, "\n\n    def test_{name}():\n        assert {subject}() == {value}\n"),
    "js": ("a.test.js", JS, "\n    it('{name}', () => {{\n      expect({subject}).toBe({value})\n    }})\n"),
    "go": (
        "a_test.go",
        GO,
        "\n    func TestNew{name}(t *testing.T) {{\n    \tassert.Equal(t, {value}, {subject})\n    }}\n",
    ),
    "rust": ("src/a.rs", RUST, "\n    #[test]\n    fn new_{name}() {{ assert_eq!({subject}, {value}); }}\n"),
    "ruby": ("a_spec.rb", RUBY, '\n    it "{name}" do\n      expect({subject}).to eq({value})\n    end\n'),
    "elixir": ("a_test.exs", ELIXIR, '\n    test "{name}" do\n      assert {subject} == {value}\n    end\n'),
    "cpp": ("a_test.cc", CPP, "\n    TEST(New, N{name}) {{\n      EXPECT_EQ({subject}, {value});\n    }}\n"),
    "php": (
        "tests/A.php",
        PEST,
        "\n    it('{name}', function () {{\n        expect({subject})->toBe({value});\n    }});\n",
    ),
}
NAME = st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True).filter(lambda name: name not in ("total", "parse_refuses"))


@OURS
@given(st.sampled_from(sorted(APPENDED)), st.lists(st.tuples(NAME, NAME, st.integers(0, 9)), min_size=1, max_size=4))
def test_appending_a_test_is_never_a_finding(language: str, tests: list[tuple[str, str, int]]) -> None:
    path, text, template = APPENDED[language]
    named = {name: (subject, value) for name, subject, value in tests}
    more = "".join(template.format(name=n, subject=f"f_{s}", value=v) for n, (s, v) in named.items())
    assert diff.inspect_changes([edit(path, text, text + more)]) == []
