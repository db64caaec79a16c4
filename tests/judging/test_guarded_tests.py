"""Tests that an earlier story changed: what is kept of them, which versions run, and what the runs show."""

from __future__ import annotations

import pytest
from msgspec import structs

from ralphtool.judging.guard.model import FileChange
from ralphtool.judging.guarded_tests import GuardedTests, list_versions
from ralphtool.judging.lost_tests import find_lost_guarded
from ralphtool.judging.plain_additions import are_plain_additions
from ralphtool.judging.proof import prove
from ralphtool.judging.proof_evidence import GuardedRun, ProofEvidence, SuiteRun
from ralphtool.judging.receipt import Suspicion

GATE = "pytest -q"


def run(passed: str = "", failed: str = "", ok: bool | None = None) -> SuiteRun:
    names, red = frozenset(passed.split()), frozenset(failed.split())
    return SuiteRun(
        command=GATE,
        ok=not red if ok is None else ok,
        passed=names,
        failed=red,
        count_passed=len(names),
        count_failed=len(red),
    )


GREEN = run("t.py::test_total t.py::test_count")
RED = run("t.py::test_count", "t.py::test_total")
GONE = run("t.py::test_count")
BARE, BARE_RED = SuiteRun(command=GATE, ok=True), SuiteRun(command=GATE, ok=False)


def guard(work: SuiteRun, before: SuiteRun | None = None, passed: int | None = 2, excused: str = "") -> GuardedRun:
    seen = (before,) if before else ()
    return GuardedRun(stories=("1",), passed=passed, excused=frozenset(excused.split()), work=(work,), before=seen)


def judge(guarded: GuardedRun, **more: object) -> ProofEvidence:
    made = ProofEvidence(before=(GREEN,), after=(GREEN,), guarded=(guarded,))
    return structs.replace(made, **more)


@pytest.mark.parametrize(
    ("guarded", "lost"),
    [
        (guard(GREEN), ()),
        (guard(RED, GREEN), ("t.py::test_total",)),
        (guard(GONE, GREEN), ("t.py::test_total",)),
        (guard(RED, RED), ()),  # it failed without the work, too
        (guard(GONE, GONE), ()),  # it can't run any more
        (guard(RED, GREEN, None), ("t.py::test_total",)),
        (guard(RED, excused="t.py::test_total"), ()),  # an earlier story was allowed to break it
        (guard(BARE_RED, BARE, None), (f"`{GATE}` as a whole",)),
        (guard(BARE_RED, BARE_RED, None), ()),
    ],
)
def test_only_what_the_work_breaks_is_lost(guarded: GuardedRun, lost: tuple[str, ...]) -> None:
    assert find_lost_guarded(judge(guarded)) == ({("1",): lost} if lost else {})


def test_a_loss_fails_then_asks_and_is_allowed_by_the_story() -> None:
    evidence = judge(guard(RED, GREEN))
    failed = prove(evidence, lambda names: "")
    assert failed.receipt is None
    assert failed.lost == ("t.py::test_total",)
    assert "before story 1 changed them fail on the new code: t.py::test_total; keep" in failed.against[0]
    asked = prove(structs.replace(evidence, was_accused=True, explanation="as asked"), lambda names: "")
    assert asked.receipt is not None
    assert (asked.receipt.state, asked.receipt.lost) == ("unproven", ("t.py::test_total",))
    allowed = prove(evidence, lambda names: f"asked for: {', '.join(names)}")
    assert allowed.receipt is not None
    assert (allowed.receipt.state, allowed.receipt.allowed) == ("held", "asked for: t.py::test_total")


def test_if_the_work_renames_what_they_use_a_person_must_look() -> None:
    evidence = judge(guard(RED, GREEN), is_same_by_reading=True)
    result = prove(evidence, lambda names: "")
    assert result.receipt is not None
    assert result.receipt.state == "unproven"
    assert result.receipt.why.endswith("because this story renames what they use: t.py::test_total")


def test_tests_that_could_not_run_leave_a_doubt_or_a_note() -> None:
    gone = GuardedRun(stories=("1", "2"), trouble="no such commit")
    doubted = prove(judge(gone), lambda names: "").receipt
    assert doubted is not None
    assert doubted.why == "the tests that stories 1, 2 changed could not run as they were: no such commit"
    noted = prove(judge(guard(BARE_RED, BARE_RED)), lambda names: "").receipt
    assert noted is not None
    assert (noted.state, noted.told) == ("held", ("the tests that story 1 changed can no longer run as they were",))


# --- what is kept for the later stories -------------------------------------------------------------

SIDE = GuardedTests(story="1", base="abc", files=("t.py", "conftest.py"))
WEAK = Suspicion(kind="assertion-weakened", path="t.py", detail="test_total: fewer assertions")
CONFIG = Suspicion(kind="test-config", path="conftest.py", detail="tests are left out")


def change_tests(**more: object) -> ProofEvidence:
    made = ProofEvidence(before=(GREEN,), after=(GREEN,), replay=(GREEN,), to_guard=SIDE)
    return structs.replace(made, **more)


@pytest.mark.parametrize(
    ("evidence", "is_weaker"),
    [
        (change_tests(), False),
        (change_tests(suspicions=(WEAK,)), True),
        (change_tests(suspicions=(CONFIG,)), True),
        (change_tests(after=(GONE,)), True),
    ],
)
def test_changed_tests_are_kept_as_they_were(evidence: ProofEvidence, is_weaker: bool) -> None:
    kept = prove(evidence, lambda names: "").to_guard
    assert kept == structs.replace(SIDE, passed=2, is_weaker=is_weaker)
    assert prove(evidence, lambda names: "the story asks for it").to_guard is None
    assert prove(structs.replace(evidence, replay=None), lambda names: "").to_guard is None


def test_what_a_story_was_allowed_to_break_is_no_fault_of_the_next_one() -> None:
    evidence = change_tests(replay=(RED,), suspicions=())
    kept = prove(evidence, lambda names: "asked for" if "t.py::test_total" in names else "").to_guard
    assert kept is not None
    assert (kept.lost, kept.passed) == (("t.py::test_total",), 1)


ONE = GuardedTests(story="1", base="a", files=("t.py", "new.py"), passed=3, lost=("x",))
OTHER = GuardedTests(story="2", base="b", files=("t.py",), configs=("pytest.ini",), passed=4)
WEAKER = GuardedTests(story="3", base="c", files=("new.py",), inline=("cart.py",), passed=5, is_weaker=True)


def test_the_oldest_version_of_each_file_guards() -> None:
    [version] = list_versions([ONE, OTHER])
    assert version.bases == {"t.py": "a", "new.py": "a", "pytest.ini": "b"}
    assert (version.stories, version.passed, version.lost) == (("1", "2"), 3, frozenset("x"))
    assert (version.configs, version.inline) == (frozenset(["pytest.ini"]), frozenset())
    assert list_versions([]) == []


def test_what_one_story_added_and_another_weakened_is_in_a_later_version() -> None:
    first, later = list_versions([ONE, OTHER, WEAKER])
    assert (first.stories, later.stories) == (("1", "2", "3"), ("3",))
    assert later.bases == {"new.py": "c", "cart.py": "c"}
    assert later.inline == {"cart.py"}


def test_the_number_of_versions_is_limited() -> None:
    weaker = [structs.replace(WEAKER, story=str(number), files=("t.py",)) for number in range(2, 10)]
    assert [one.stories[0] for one in list_versions([ONE, *weaker])] == ["1", "8", "9"]


# --- what needs no guard ----------------------------------------------------------------------------

OLD = "import pytest\n\nfrom cart import total\n\n\ndef test_total():\n    assert total([1]) == 1\n"
CLASS = "import unittest\n\n\nclass TotalTest(unittest.TestCase):\n    def test_a(self):\n        self.assertTrue(1)\n"
PLAIN = {
    "a test": f"{OLD}\n\ndef test_more():\n    assert total([]) == 0\n",
    "an import": OLD.replace("import total", "import total\nfrom cart import discount"),
    "a longer import": OLD.replace("import total", "import discount, total"),
    "a constant": OLD.replace("\n\n\n", "\n\nPRICES = [1, 2]\n\n\n", 1),
    "cases": f"{OLD}\n\n@pytest.mark.parametrize('one', [1, 2])\ndef test_more(one):\n    assert total([one]) == one\n",
    "a class": f"{OLD}\n\nclass TestMore:\n    def test_it(self):\n        assert total([2]) == 2\n",
}
FAR_REACHING = {
    "a changed test": OLD.replace("== 1", ">= 1"),
    "a removed test": OLD.partition("\n\n\n")[0],
    "a second test of that name": f"{OLD}\n\ndef test_total():\n    pass\n",
    "another total": OLD.replace("\n\n\n", "\nfrom fake import total\n\n\n", 1),
    "another total in a longer import": OLD.replace("import total", "import total, tax as pytest"),
    "a shorter import": OLD.replace("from cart import total", "from cart import tax"),
    "any name": OLD.replace("\n\n\n", "\nfrom fake import *\n\n\n", 1),
    "a fixture": f"{OLD}\n\n@pytest.fixture(autouse=True)\ndef calm():\n    yield\n",
    "a hook": f"{OLD}\n\ndef setup_module():\n    pass\n",
    "code that runs at once": f"{OLD}\nprint(total([]))\n",
    "an attribute of the source": f"{OLD}\n\ndef test_more():\n    cart.total = len\n",
    "a golden file": f"{OLD}\n\ndef test_more():\n    GOLDEN.write_text('')\n",
    "a module": f"{OLD}\n\ndef test_more():\n    sys.modules['cart'] = None\n",
    "a global name of the source": f"{OLD}\n\ndef test_more():\n    total.__globals__.update(sum=len)\n",
    "a dictionary of the source": f"{OLD}\n\ndef test_more():\n    getattr(cart, '__dict__').update(total=len)\n",
    "the other tests": f"{OLD}\n\ndef test_more(request):\n    request.session.items.clear()\n",
    "the results": f"{OLD}\n\nclass Last(TestCase):\n    def run(self, result):\n        result.failures.clear()\n",
    "marks": f"{OLD}\npytestmark = pytest.mark.skip\n",
    "no Python": f"{OLD}\ndef (\n",
}


def changed(path: str, old: str | None, new: str | None) -> FileChange:
    return FileChange(path, None if old is None else old.encode(), None if new is None else new.encode())


@pytest.mark.parametrize("name", PLAIN)
def test_a_plain_addition_needs_no_guard(name: str) -> None:
    assert are_plain_additions([changed("tests/test_cart.py", OLD, PLAIN[name])])
    assert are_plain_additions([changed("tests/test_more.py", None, PLAIN[name])])


@pytest.mark.parametrize("name", FAR_REACHING)
def test_everything_else_does(name: str) -> None:
    assert not are_plain_additions([changed("tests/test_cart.py", OLD, FAR_REACHING[name])])


def test_a_new_method_is_plain_and_a_new_set_up_is_not() -> None:
    test, set_up = (f"{CLASS}\n    def {name}(self):\n        self.assertTrue(2)\n" for name in ("test_b", "setUp"))
    assert are_plain_additions([changed("test_cart.py", CLASS, test)])
    assert not are_plain_additions([changed("test_cart.py", CLASS, set_up)])
    renamed = test.replace("(unittest.TestCase)", "")
    assert not are_plain_additions([changed("test_cart.py", CLASS, renamed)])


def test_a_new_method_may_replace_an_inherited_one() -> None:
    silent = f"{CLASS}\n    def _baseAssertEqual(self, first, second, msg=None):\n        pass\n"
    assert not are_plain_additions([changed("test_cart.py", CLASS, silent)])
    inherited = CLASS.replace("unittest.TestCase", "TotalCases")
    test = f"{inherited}\n    def test_total(self):\n        self.assertTrue(2)\n"
    assert not are_plain_additions([changed("test_cart.py", inherited, test)])
    assert are_plain_additions([changed("test_cart.py", inherited, f"{inherited}\n\ndef test_b():\n    assert 2\n")])


def test_a_new_test_may_replace_one_that_an_import_of_all_names_brings() -> None:
    old = OLD.replace("\n\n\n", "\nfrom cases import *\n\n\n", 1)
    assert not are_plain_additions([changed("tests/test_cart.py", old, f"{old}\n\ndef test_b():\n    assert 2\n")])


RUST = "#[test]\nfn it_adds() {\n    assert_eq!(total(&[1]), 1);\n}\n"
VITEST = """\
import { expect, it } from "vitest";
import { total } from "../cart.js";

it("adds", () => {
  const prices = [1, 2];
  expect(total(prices) === 3 && prices.length <= 2).toBe(true);
});
"""
GO = """\
package cart

import "testing"

func TestMore(t *testing.T) {
	got := Total([]int{1})
	if got != 1 {
		t.Errorf("got %d", got)
	}
}
"""


@pytest.mark.parametrize(
    ("path", "text", "is_plain"),
    [
        ("tests/cart.rs", RUST, True),
        ("src/cart.rs", RUST, False),
        ("tests/cart.rs", f"{RUST}// fs::write", False),
        ("tests/cart.test.js", VITEST, True),
        ("tests/helpers.js", VITEST, False),
        ("tests/cart.test.ts", f"{VITEST}vi.mock('../cart.js');\n", False),
        ("tests/cart.test.ts", f"{VITEST}cart.total = () => 3;\n", False),
        ("tests/cart.test.ts", f"{VITEST}table['a'] += 3;\n", False),
        ("tests/cart.test.ts", f"{VITEST}({{ a: assert.equal }} = {{ a() {{}} }});\n", False),
        ("tests/cart.test.ts", f"{VITEST}for (assert.equal of [skip]) {{}}\n", False),
        ("tests/cart.test.ts", f"{VITEST}({{}}).constructor.assign(cart, {{ total }});\n", False),
        ("tests/cart.test.ts", f"{VITEST}beforeEach(function () {{ this.skip(); }});\n", False),
        ("cart_test.go", GO, True),
        ("cart_test.go", f"{GO}\nfunc (c Cart) Total() int {{ return 3 }}\n", False),
        ("cart_test.go", f"{GO}\nfunc init() {{}}\n", False),
        ("cart_test.go", f"{GO}\nfunc TestX(t *testing.T) {{ total = nil }}\n", False),
    ],
)
def test_of_other_languages_only_new_files_are_plain(path: str, text: str, is_plain: bool) -> None:
    assert are_plain_additions([changed(path, None, text)]) == is_plain
    assert not are_plain_additions([changed(path, text, f"{text}\n")])


OTHERS = ["tests/conftest.py", "tests/helpers.py", "pytest/__init__.py", "spec/cart_spec.rb", "tests/CartTest.php"]


@pytest.mark.parametrize("path", OTHERS)
def test_helpers_and_unknown_languages_are_not(path: str) -> None:
    assert not are_plain_additions([changed(path, None, "")])
