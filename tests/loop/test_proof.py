"""Proof through the whole loop, with a real test program: what a story may claim when it is done."""

from __future__ import annotations

import sys

import pytest
from lab import Lab, wait_until
from loop.shop import (
    CART,
    DISCOUNT,
    GATE,
    OWN_TEST,
    TASKS,
    TESTS,
    UNITTEST_GATE,
    UNITTEST_OWN,
    UNITTESTS,
    attempt,
    make_shop,
    receipts,
    state_of,
)


@pytest.fixture
def shop(lab: Lab) -> Lab:
    return make_shop(lab)


@pytest.fixture
def plain(lab: Lab) -> Lab:
    """The same with unittest, which starts faster: for tests that need many runs of the gates."""
    return make_shop(lab, UNITTEST_GATE)


def test_a_story_is_proven_by_its_own_tests(shop: Lab) -> None:
    shop.play(default=attempt({"cart.py": CART + DISCOUNT, "tests/test_discount.py": OWN_TEST}))
    assert state_of(shop) == "proven"
    told = receipts(shop)[0]
    assert told["own_count"] == 1
    assert "test_discount" in told["own_tests"][0]
    assert (told["passed_before"], told["passed_after"]) == (2, 3)
    assert shop.git("show", "ralph/add-login:tests/test_discount.py") == OWN_TEST.rstrip()


@pytest.mark.parametrize("workspace", ["here", "worktree"])
def test_every_gate_on_record_is_part_of_the_time(lab: Lab, workspace: str) -> None:
    make_shop(lab, UNITTEST_GATE).configure(tests=[UNITTEST_GATE], workspace=workspace)
    lab.play(default=attempt({"cart.py": CART + DISCOUNT, "tests/test_discount.py": UNITTEST_OWN}))
    assert state_of(lab) == "proven"
    gates = [one for one in lab.events() if one["type"] == "gate"]
    [verdict] = [one for one in lab.events() if one["type"] == "verdict"]
    ended = lab.events()[-1]
    own = [one for one in gates if one["iteration"]]
    assert {"after", "replay", "own-tests"} <= {one["when"] for one in own}
    trial = {"before", "blind"} if workspace == "worktree" else set()
    assert {one["when"] for one in gates if one not in own} == trial
    assert verdict["seconds"]["gates"] == pytest.approx(sum(one["seconds"] for one in own), abs=0.01)
    assert ended["stories"][0]["gate_seconds"] == pytest.approx(verdict["seconds"]["gates"], abs=0.01)
    assert ended["spent"]["gate_seconds"] == pytest.approx(sum(one["seconds"] for one in gates), abs=0.01)
    assert ended["spent"]["seconds"] >= ended["spent"]["gate_seconds"] + ended["spent"]["agent_seconds"]


def test_a_story_without_tests_is_held(plain: Lab) -> None:
    plain.play(default=attempt({"cart.py": CART + DISCOUNT}))
    assert state_of(plain) == "held"
    assert [run["kind"] for run in receipts(plain)[0]["runs"]] == ["gates"]


LAYOUT = """\
import pathlib
import unittest

ROOT = pathlib.Path(__file__).parent.parent


class TestLayout(unittest.TestCase):
    def test_every_module_has_tests(self):
        for path in ROOT.glob("*.py"):
            if path.name != "conftest.py":
                self.assertTrue((ROOT / "tests" / f"test_{path.name}").exists(), path)
"""
OWN_OF_MODULE = UNITTEST_OWN.replace("from cart", "from discount")


def test_a_test_about_the_test_folder_sees_the_added_test_files(plain: Lab) -> None:
    plain.write("tests/test_layout.py", LAYOUT)
    plain.git("add", "tests")
    plain.git("commit", "--quiet", "--message=layout")
    plain.play(default=attempt({"discount.py": DISCOUNT, "tests/test_discount.py": OWN_OF_MODULE}))
    assert state_of(plain) == "proven"
    assert receipts(plain)[0]["told"] == [
        "failed without the added test files (tests/test_discount.py), and passed beside copies that do nothing: "
        "test_every_module_has_tests (test_layout.TestLayout.test_every_module_has_tests)"
    ]


def test_an_added_test_file_does_nothing_for_the_old_tests(plain: Lab) -> None:
    """It imports a new module of the source, which repairs what the story broke."""
    repair = "import cart\n\ncart.total = sum\n" + DISCOUNT
    plain.configure(tests=[UNITTEST_GATE], attempts=1)
    own = OWN_OF_MODULE.replace("import unittest", "import discount\nimport unittest")
    files = {"cart.py": BROKEN, "discount.py": repair, "tests/test_aaa.py": own}
    plain.write(
        "tests/test_cart.py",
        UNITTESTS.replace("from cart import count, total", "import cart")
        .replace("(total(", "(cart.total(")
        .replace("(count(", "(cart.count("),
    )
    plain.git("commit", "--quiet", "--all", "--message=late")
    plain.play(default=attempt(files))
    assert state_of(plain) == "failed"


LINTER = """\
import glob, re, sys
limit = int(re.search("= (.*)", open(".flake8").read())[1])
long = [path for path in glob.glob("tests/*.py") for line in open(path) if len(line) > limit]
print(*(f"{path}:1:1: E501 line too long" for path in long), sep=chr(10))
sys.exit(bool(long))
"""


def test_a_linter_with_its_old_rules_that_stops_the_command_proves_no_test(lab: Lab) -> None:
    lab.write("lint.py", LINTER)
    lab.write(".flake8", "[flake8]\nmax-line-length = 60\n")
    make_shop(lab, f"{sys.executable} lint.py && {UNITTEST_GATE}")
    old = UNITTEST_OWN.replace("discount([100], 20), 80)", "total([100, 20, 7]), 127)  # the order is not relevant")
    files = {".flake8": "[flake8]\nmax-line-length = 120\n", "tests/test_long.py": old.replace("discount\n", "total\n")}
    lab.play(default=attempt({"cart.py": f"{CART}# shipping\n", **files}))
    assert state_of(lab) == "held", receipts(lab)[0]
    assert receipts(lab)[0]["told"] == [
        "without the work, the command stopped before its new tests ran, which proves nothing"
    ]


def test_an_agent_that_only_ticks_has_done_nothing(plain: Lab) -> None:
    plain.play(default=attempt({}))
    assert state_of(plain) == "failed"
    assert "only the spec was changed" in plain.entries()[0]["summary"]


NEW_UNITTESTS = UNITTESTS.replace("3)", "4)")
BROKEN = CART.replace("return sum(prices)", "return 4") + DISCOUNT
CHEATS: dict[str, dict[str, str]] = {
    "expected values edited": {"tests/test_cart.py": TESTS.replace("== 3", "== 4")},
    "the test deleted": {"tests/test_cart.py": TESTS.partition("def test_count")[0].partition("\n\n")[0]},
    "a conftest that replaces runtest": {
        "conftest.py": "import pytest\npytest.Function.runtest = lambda self: None\n",
    },
    "a plugin that sets the exit status": {
        "conftest.py": "def pytest_sessionfinish(session):\n    session.exitstatus = 0\n",
    },
    "names narrowed": {"pytest.ini": "[pytest]\npython_functions = test_count\n"},
    "a package in place of pytest": {
        "pytest/__init__.py": "",
        "pytest/__main__.py": "print('2 passed in 0.01s')\n",
    },
    "a skip": {
        "tests/test_cart.py": TESTS.replace("def test_total", "import pytest\n@pytest.mark.skip\ndef test_total"),
    },
    "a new test file that patches the source": {
        "tests/test_aaa.py": "import cart\ncart.total = sum\n\n\ndef test_it():\n    assert cart.total([1]) == 1\n",
    },
}


@pytest.mark.parametrize("name", CHEATS)
def test_a_cheat_is_neither_proven_nor_held(shop: Lab, name: str) -> None:
    shop.configure(tests=[GATE], attempts=1)
    shop.play(default=attempt({"cart.py": BROKEN, **CHEATS[name]}))
    assert state_of(shop) in ("failed", "unproven")


def test_the_next_prompt_has_what_old_tests_printed(plain: Lab) -> None:
    plain.play(default=attempt({"cart.py": BROKEN, "tests/test_cart.py": NEW_UNITTESTS}))
    plain.loop("--attempts", "2")
    first, second = sorted(plain.root.glob(".ralph/runs/*/*/prompt.md"))
    assert "AssertionError: 4 != 3" not in first.read_text()
    assert "AssertionError: 4 != 3" in second.read_text()


def test_the_second_try_of_the_tests_as_they_were_is_told_apart(plain: Lab) -> None:
    plain.play(default=attempt({"cart.py": BROKEN, "tests/test_cart.py": NEW_UNITTESTS}))
    plain.loop("--attempts", "1")
    [entry] = plain.entries()
    gates = [one for one in plain.events() if one["type"] == "gate" and one["when"].startswith("replay")]
    assert [one["when"] for one in gates] == ["replay", "replay-again"]
    assert len({one["log"] for one in gates}) == 2
    shown = plain.run("explain", entry["id"], COLUMNS="300").stdout
    assert shown.count("red on the tests as they were: ") == 1
    assert shown.count("red on the tests as they were, run again: ") == 1
    assert shown.count("Last output of ") == 1, "its last run says why the old tests fail"
    assert "/gate-1-replay-again.log\n" in shown
    assert "AssertionError: 4 != 3" in shown


WEAKER = {
    "cart.py": CART + DISCOUNT,
    "tests/test_cart.py": UNITTESTS.replace("assertEqual(total([1, 2]), 3)", "assertTrue(total([1, 2]))"),
}
TOLD = "1 assertion that still passes was weakened: tests/test_cart.py"


def test_a_weakened_test_that_still_passes_is_told_at_the_end_of_the_run(plain: Lab) -> None:
    plain.play(default=attempt(WEAKER))
    assert state_of(plain) == "held"
    assert plain.events()[-1]["stories"][0]["weaker_tests"] == TOLD


@pytest.mark.parametrize(("change", "state"), [("strict", "failed"), ("strict, asked for", "held")])
def test_strict_fails_a_weakened_test_unless_the_story_asks_for_it(lab: Lab, change: str, state: str) -> None:
    make_shop(lab, UNITTEST_GATE).configure(tests=[UNITTEST_GATE], attempts=1, guard="strict")
    if "asked" in change:
        lab.tasks_file.write_text(lab.tasks_file.read_text().replace("Add a discount", "Add a (may change tests)"))
    lab.play(default=attempt(WEAKER))
    assert state_of(lab) == state
    assert (TOLD in lab.entries()[0]["summary"]) == (state == "failed")


MORE_TESTS = TESTS.replace("def test_total", "def test_sum_of_prices")
HONEST: dict[str, tuple[dict[str, str], str]] = {
    "a test renamed": ({"cart.py": CART + DISCOUNT, "tests/test_cart.py": MORE_TESTS}, "held"),
    "a test in another form": (
        {"cart.py": CART + DISCOUNT, "tests/test_cart.py": TESTS.replace("total([1, 2]) == 3", "3 == total([2, 1])")},
        "held",
    ),
    "a function renamed with its tests": (
        {
            "cart.py": CART.replace("def total", "def add_up") + DISCOUNT,
            "tests/test_cart.py": TESTS.replace("total", "add_up"),
            "tests/test_discount.py": OWN_TEST,
        },
        "proven",
    ),
    "documentation": ({"README.md": "# Shop\n\ndiscount(prices, percent)\n"}, "held"),
    "a conftest with a fixture": (
        {
            "cart.py": CART + DISCOUNT,
            "conftest.py": "import pytest\n\n\n@pytest.fixture\ndef prices():\n    return [100]\n",
            "tests/test_discount.py": OWN_TEST.replace("test_discount()", "test_discount(prices)"),
        },
        "proven",
    ),
    "coverage settings": ({"cart.py": CART + DISCOUNT, ".coveragerc": "[report]\nskip_empty = true\n"}, "held"),
}


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_change_is_done(shop: Lab, name: str) -> None:
    files, state = HONEST[name]
    shop.play(default=attempt(files))
    assert state_of(shop) == state
    assert len(shop.entries()) == 1


def test_a_test_file_may_be_moved(shop: Lab) -> None:
    move = {"run": "mkdir tests/unit; mv tests/test_cart.py tests/unit/test_prices.py"}
    shop.play(default=[move, *attempt({"cart.py": CART + DISCOUNT})])
    assert state_of(shop) == "held"


def test_configuration_may_follow_files_that_were_moved(shop: Lab) -> None:
    shop.write("pytest.ini", "[pytest]\npythonpath = .\n")
    shop.git("add", "pytest.ini")
    shop.git("commit", "--quiet", "--message=where the code lies")
    move = {"run": "mkdir src; git mv cart.py src/cart.py"}
    shop.play(default=[move, *attempt({"pytest.ini": "[pytest]\npythonpath = src\n"})])
    assert state_of(shop) == "held"
    assert any("which was adapted to moved files" in one for one in receipts(shop)[0]["told"])


def test_a_test_that_rewrites_its_golden_file_when_it_fails_does_not_pass_the_second_time(shop: Lab) -> None:
    golden = """\
from pathlib import Path

from cart import total

GOLDEN = Path(__file__).with_name("golden.txt")


def test_golden():
    known, now = GOLDEN.read_text(), str(total([1, 2]))
    GOLDEN.write_text(now)
    assert now == known
"""
    shop.write("tests/test_golden.py", golden)
    shop.write("tests/golden.txt", "3")
    shop.git("add", "tests")
    shop.git("commit", "--quiet", "--message=golden")
    shop.configure(tests=[GATE], attempts=1)
    tests = TESTS.replace("== 3", "== 4")
    shop.play(default=attempt({"cart.py": BROKEN, "tests/golden.txt": "4", "tests/test_cart.py": tests}))
    assert state_of(shop) == "failed"
    assert "test_golden" in shop.entries()[0]["summary"]


def test_a_red_test_that_becomes_green_is_proof(plain: Lab) -> None:
    plain.write("cart.py", BROKEN)
    plain.git("commit", "--quiet", "--all", "--message=broken")
    plain.play(default=attempt({"cart.py": CART + DISCOUNT}))
    assert state_of(plain) == "proven"
    assert "test_total" in receipts(plain)[0]["own_tests"][0]


def test_a_red_test_that_is_changed_until_it_is_green_is_no_proof(plain: Lab) -> None:
    plain.write("cart.py", BROKEN)
    plain.git("commit", "--quiet", "--all", "--message=broken")
    plain.configure(tests=[UNITTEST_GATE], attempts=1)
    plain.play(default=attempt({"README.md": "x", "tests/test_cart.py": NEW_UNITTESTS}))
    assert state_of(plain) == "failed"


NEW_TOTAL = CART.replace("return sum(prices)", "return sum(prices) + 1") + DISCOUNT


@pytest.mark.parametrize(
    "story",
    [
        "## 1. Add a discount (may change tests)\n\n- [ ] 1.1 It\n",
        "## 1. Totals\n\n- [ ] 1.1 Change total so that it adds a fee of 1\n",
    ],
)
def test_a_story_may_ask_for_changed_tests(plain: Lab, story: str) -> None:
    plain.openspec(story)
    plain.git("commit", "--quiet", "--all", "--message=story")
    plain.play(default=attempt({"cart.py": NEW_TOTAL, "tests/test_cart.py": NEW_UNITTESTS}))
    assert state_of(plain) == "proven"
    told = receipts(plain)[0]
    assert told["allowed"]
    assert "test_total" in told["lost"][0]
    [row] = plain.events()[-1]["stories"]
    assert (
        row["weaker_tests"] == f"1 test as it was fails on the new code: {told['lost'][0]}; allowed: {told['allowed']}"
    )


@pytest.mark.parametrize(
    ("story", "name"),
    [
        (
            "Remove prices from the total\n\n- [ ] 1.1 Add remove(prices, one), which takes one out of the total\n",
            "remove",
        ),
        ("Add shipping\n\n- [ ] 1.1 Add shipping(prices): it must return 5 if the total is below 50, else 0\n", "ship"),
    ],
)
def test_a_story_that_only_mentions_what_a_test_is_about_may_not_break_it(plain: Lab, story: str, name: str) -> None:
    plain.openspec(f"## 1. {story}")
    plain.git("commit", "--quiet", "--all", "--message=story")
    plain.configure(tests=[UNITTEST_GATE], attempts=1)
    own = UNITTEST_OWN.replace("discount", name)
    source = NEW_TOTAL.replace("discount", name)
    plain.play(default=attempt({"cart.py": source, "tests/test_cart.py": NEW_UNITTESTS, f"tests/test_{name}.py": own}))
    assert state_of(plain) == "failed"
    assert "tests as they were at the checkpoint fail on the new code: test_total" in plain.entries()[0]["summary"]


def test_an_attempt_that_insists_and_explains_is_a_question(plain: Lab) -> None:
    why = [{"observe": "finding", "title": "The old total forgot the fee"}]
    steps = attempt({"cart.py": NEW_TOTAL, "tests/test_cart.py": NEW_UNITTESTS})
    plain.play({"attempt": 1, "steps": steps}, default=[*why, *steps])
    assert state_of(plain) == "unproven"
    assert [status for _, status in plain.endings()] == ["failed", "completed"]
    assert "The old total forgot the fee" in plain.question().read_text()
    assert plain.checkpoints() == ["1"]


def test_without_gates_nothing_is_proven_and_the_exit_code_says_so(shop: Lab) -> None:
    shop.configure(tests=[], accept="held")
    shop.play(default=attempt({"cart.py": CART + DISCOUNT}))
    result = shop.loop()
    assert result.exit_code == 1
    assert receipts(shop)[0]["state"] == "unproven"
    assert receipts(shop)[0]["why"] == "there is no gate"
    assert shop.loop().exit_code == 1  # the next run reports the same
    shop.configure(tests=[], accept="unproven")
    assert shop.loop().exit_code == 0


@pytest.mark.parametrize("gate", ["no-such-program-at-all", f"{GATE} nowhere"])
def test_gates_that_are_red_from_start_to_end_prove_nothing(shop: Lab, gate: str) -> None:
    shop.configure(tests=[gate], accept="held")
    shop.play(default=attempt({"cart.py": CART + DISCOUNT}))
    assert shop.loop().exit_code == 1
    assert receipts(shop)[0]["state"] == "unproven"


def test_a_gate_that_collects_no_test_proves_nothing(shop: Lab) -> None:
    shop.configure(tests=[f"{GATE} -k nothing_at_all || true"], accept="held")
    shop.play(default=attempt({"cart.py": CART + DISCOUNT}))
    assert shop.loop().exit_code == 1
    assert receipts(shop)[0]["why"] == "the gates ran no tests"


def test_boxes_that_were_ticked_by_hand_over_red_tests(plain: Lab) -> None:
    plain.write("cart.py", BROKEN)
    plain.openspec(TASKS.replace("[ ]", "[x]"))
    plain.git("commit", "--quiet", "--all", "--message=ticked")
    plain.play(default=attempt({}))
    result = plain.loop()
    assert result.exit_code == 1
    end = plain.events(result)[-1]
    assert end["stories"][0]["proof"] == "ticked"
    assert end["tip"]["ok"] is False
    assert "red" in end["reason"]


def test_a_story_without_test_files_costs_one_run_of_the_gates(plain: Lab) -> None:
    plain.configure(tests=[f"echo x >> {plain.tmp}/runs; {UNITTEST_GATE}"])
    plain.play(default=attempt({"cart.py": CART + DISCOUNT}))
    assert state_of(plain) == "held"
    assert (plain.tmp / "runs").read_text().count("x") == 2  # before and after


def test_a_story_with_tests_costs_two_more(plain: Lab) -> None:
    plain.configure(tests=[f"echo x >> {plain.tmp}/runs; {UNITTEST_GATE}"])
    plain.play(default=attempt({"cart.py": CART + DISCOUNT, "tests/test_discount.py": UNITTEST_OWN}))
    assert state_of(plain) == "proven"
    assert (plain.tmp / "runs").read_text().count("x") == 4


LINT = "import sys\n\nsys.exit(any(len(line) > 80 for line in open('cart.py')))\n"


def test_a_check_whose_script_was_changed_runs_once_more_as_it_was(shop: Lab) -> None:
    shop.write("lint.py", LINT)
    shop.git("add", "lint.py")
    shop.git("commit", "--quiet", "--message=lint")
    check = f"{sys.executable} lint.py"
    shop.configure(checks=[check], tests=[GATE], attempts=1)
    long = CART + DISCOUNT + f"\n\nNAMES = '{80 * 'x'}'\n"
    weaker = {"lint.py": LINT.replace("80", "800"), "tests/test_discount.py": OWN_TEST}
    shop.play(default=attempt({"cart.py": long, **weaker}))
    assert state_of(shop) == "failed"
    assert "checks as they were at the checkpoint fail on the new code" in shop.entries()[0]["summary"]
    gates = [one for one in shop.events() if one["type"] == "gate" and one["iteration"]]
    assert [one["when"] for one in gates if one["command"] == check] == ["before", "after", "replay"]
    assert [one["when"] for one in gates if one["command"] == GATE] == ["before", "after", "replay", "own-tests"]


def hang_at(lab: Lab, number: int) -> str:
    """A gate that hangs in its nth run, while the file `hang` exists."""
    count = f"echo x >> {lab.tmp}/runs; [ $(wc -l < {lab.tmp}/runs) -ne {number} ] || [ ! -e {lab.tmp}/hang ]"
    return f"{{ {count}; }} || {{ touch {lab.tmp}/hangs; sleep 3600; }}; {UNITTEST_GATE}"


@pytest.mark.parametrize("number", [2, 3, 4], ids=["gates", "replay", "own tests"])
def test_a_kill_while_a_story_is_proven_loses_no_work(plain: Lab, number: int) -> None:
    plain.configure(tests=[hang_at(plain, number)])
    (plain.tmp / "hang").touch()
    before = {**plain.users_state(), "files": None}
    plain.play(default=attempt({"cart.py": CART + DISCOUNT, "tests/test_discount.py": UNITTEST_OWN}))
    process = plain.start()
    assert wait_until((plain.tmp / "hangs").exists)
    process.kill()
    process.wait()
    (plain.tmp / "hang").unlink()
    plain.play(default=[{"tick": "all"}, {"complete": True}])  # its work is already there
    assert state_of(plain) == "proven"
    assert plain.git("show", "ralph/add-login:tests/test_discount.py") == UNITTEST_OWN.rstrip()
    assert [status for _, status in plain.endings()] == ["completed"]
    assert {**plain.users_state(), "files": None} == before  # except for the caches of the tests
    assert plain.git("for-each-ref", "refs/ralph/proving") == ""


def test_files_that_git_ignores_are_set_aside_for_the_gates_and_put_back(plain: Lab) -> None:
    plain.play(
        default=attempt({"cart.py": CART + DISCOUNT, "local/notes.txt": "mine", "tests/test_discount.py": UNITTEST_OWN})
    )
    assert state_of(plain) == "proven"
    assert "local/notes.txt" in receipts(plain)[0]["told"][0]
    assert plain.read("local/notes.txt") == "mine"


def test_gates_that_pass_only_with_ignored_files_prove_nothing(shop: Lab) -> None:
    tests = OWN_TEST + "\n\ndef test_data():\n    assert open('local/data.txt').read() == 'x'\n"
    shop.play(default=attempt({"cart.py": CART + DISCOUNT, "local/data.txt": "x", "tests/test_discount.py": tests}))
    assert state_of(shop) == "unproven"
    assert "local/data.txt" in receipts(shop)[0]["why"]


FEE = '"""All special cases/edge cases."""\nimport json\nfrom pathlib import Path\n\n\ndef fee(env):\n    found = {}\n'
FEE += '    for name in ("base", env):\n        found |= json.loads((Path("config") / f"{name}.json").read_text())\n'
FEE += '    return found["fee"]\n'
FEE_TESTS = "import json\nimport unittest\nfrom pathlib import Path\n\nfrom fee import fee\n\n\n"
FEE_TESTS += (
    "class TestFee(unittest.TestCase):\n    def test_cases(self):\n        for path in Path('cases').iterdir():\n"
)
FEE_TESTS += "            self.assertEqual(fee('test'), json.loads(path.read_text()))\n"


@pytest.mark.parametrize(
    ("edited", "state"), [({"cases/a.json": "9"}, "failed"), ({"config/test.json": '{"fee": 5}'}, "unproven")]
)
def test_what_only_tests_read_can_not_hide_broken_source(plain: Lab, edited: dict[str, str], state: str) -> None:
    """Expected values whose folder a docstring of the source mentions, and settings of the test environment."""
    files = {"fee.py": FEE, "tests/test_fee.py": FEE_TESTS, "cases/a.json": "5", "config/test.json": "{}"}
    for path, text in {**files, "config/base.json": '{"fee": 5}'}.items():
        plain.write(path, text)
    plain.git("add", "--all")
    plain.git("commit", "--quiet", "--message=fee")
    plain.configure(tests=[UNITTEST_GATE], attempts=1)
    plain.play(default=attempt({"cart.py": CART + DISCOUNT, "config/base.json": '{"fee": 9}', **edited}))
    assert state_of(plain) == state
