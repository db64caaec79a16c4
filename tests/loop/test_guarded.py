"""Tests that one story changes still guard the stories after it, as they were."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import pytest
from lab import Lab, wait_until
from loop.lanes import NEEDS_BOXES
from loop.shop import (
    CART,
    DISCOUNT,
    GATE,
    TESTS,
    UNITTEST_GATE,
    UNITTEST_OWN,
    UNITTESTS,
    attempt,
    make_shop,
    receipts,
)

STORIES = "## 1. Add a discount\n\n- [ ] 1.1 Add discount(prices, percent)\n\n## 2. Speed\n\n- [ ] 2.1 Make it quick\n"
WEAKER = UNITTESTS.replace("self.assertEqual(total([1, 2]), 3)", "total([1, 2])")
WITHOUT = UNITTESTS.replace("    def test_total(self):\n        self.assertEqual(total([1, 2]), 3)\n\n", "")
BROKEN = CART.replace("return sum(prices)", "return 4") + DISCOUNT
TOLD = "tests as they were before story 1 changed them fail on the new code: test_total"
TOLD_BY_PYTEST = TOLD.replace("test_total", "tests/test_cart.py::test_total")


def make(lab: Lab, tasks: str = STORIES, gate: str = UNITTEST_GATE, **config: Any) -> Lab:
    make_shop(lab, gate).configure(tests=[gate], **{"attempts": 1, **config})
    lab.tasks_file.write_text(tasks)
    lab.git("commit", "-qam", "two stories")
    return lab


def work(lab: Lab, *stories: Mapping[str, str | None]) -> dict[str, str]:
    """Each story writes its files; returns the state of each, or what its last attempt was told."""
    lab.play(*({"story": str(number), "steps": attempt(files)} for number, files in enumerate(stories, 1)))
    lab.loop()
    proofs = {one["story"]: one["receipt"]["state"] for one in lab.events() if one["type"] == "proof"}
    failures = {one["prd_id"].rpartition("-")[2]: one["summary"] for one in lab.entries() if one["status"] == "failed"}
    return {**failures, **proofs}


def runs_of(lab: Lab, *kinds: str) -> list[str]:
    return [one["when"] for one in lab.events() if one["type"] == "gate" and one["when"] in kinds]


GUARDED = ("guarded", "guarded-before", "guarded-again")
FIRST = {
    "an assertion": {"tests/test_cart.py": WEAKER},
    "a test": {"tests/test_cart.py": WITHOUT},
    "a test, and a new one": {"tests/test_cart.py": WITHOUT, "tests/test_discount.py": UNITTEST_OWN},
    "a file": {"tests/test_cart.py": "import unittest\n\n\nclass TestCart(unittest.TestCase):\n    pass\n"},
}
FIRST_OF_PYTEST = {
    "an assertion": {"tests/test_cart.py": TESTS.replace("total([1, 2]) == 3", "total([1, 2])")},
    "a configuration that leaves it out": {
        "pytest.ini": "[pytest]\naddopts = --deselect tests/test_cart.py::test_total\n"
    },
    "a hook that leaves it out": {
        "conftest.py": "def pytest_collection_modifyitems(items):\n"
        "    items[:] = [one for one in items if 'total' not in one.name]\n"
    },
}


@pytest.mark.parametrize("name", FIRST)
def test_what_one_story_weakens_the_next_one_must_not_break(lab: Lab, name: str) -> None:
    told = work(make(lab), {"cart.py": CART + DISCOUNT, **FIRST[name]}, {"cart.py": BROKEN})
    assert told["1"] in ("held", "proven", "unproven")
    assert told["2"].startswith(TOLD)
    assert runs_of(lab, *GUARDED) == [*GUARDED]
    assert lab.git("show", "ralph/add-login:cart.py") == (CART + DISCOUNT).rstrip()
    shown = lab.run("explain", "2", COLUMNS="300").stdout
    assert "/gate-1-guarded-again.log\n" in shown
    assert "AssertionError: 4 != 3" in shown


@pytest.mark.parametrize("name", FIRST_OF_PYTEST)
def test_what_one_story_leaves_out_the_next_one_must_not_break(lab: Lab, name: str) -> None:
    told = work(make(lab, gate=GATE), {"cart.py": CART + DISCOUNT, **FIRST_OF_PYTEST[name]}, {"cart.py": BROKEN})
    assert told["1"] in ("held", "proven", "unproven")
    assert told["2"].startswith(TOLD_BY_PYTEST)
    assert runs_of(lab, *GUARDED) == [*GUARDED]


@pytest.mark.parametrize("workspace", ["here", "worktree"])
def test_it_does_so_in_every_workspace(lab: Lab, workspace: str) -> None:
    told = work(
        make(lab, workspace=workspace), {"cart.py": CART + DISCOUNT, **FIRST["an assertion"]}, {"cart.py": BROKEN}
    )
    assert told["2"].startswith(TOLD)
    assert lab.git("status", "--porcelain", "--", "cart.py", "tests") == ""


@pytest.mark.parametrize(
    "left", ["## 2. Speed\n\n- [ ] 2.1 Make it quick\n", "## 1. Speed\n\n- [ ] 1.1 Make it quick\n"]
)
def test_it_does_so_if_the_weakening_story_is_removed_from_the_plan(lab: Lab, left: str) -> None:
    made = make(lab, workspace="worktree")
    first = {"story": "1", "steps": attempt({"cart.py": CART + DISCOUNT, "tests/test_cart.py": WEAKER})}
    made.play(first).loop("--max-iterations", "1")
    lab.tasks_file.write_text(left)
    lab.play(default=attempt({"cart.py": BROKEN})).loop()
    [failure] = [one["summary"] for one in lab.entries() if one["status"] == "failed"]
    assert failure.startswith(TOLD.replace("story 1", "story 1 (removed)"))


def test_a_story_that_keeps_the_behaviour_needs_one_more_run(lab: Lab) -> None:
    quick = CART.replace("sum(prices)", "sum(list(prices))") + DISCOUNT
    told = work(make(lab), {"cart.py": CART + DISCOUNT, "tests/test_cart.py": WEAKER}, {"cart.py": quick})
    assert told == {"1": "held", "2": "held"}
    assert runs_of(lab, *GUARDED) == ["guarded"]
    assert [(one["kind"], one["ok"]) for one in receipts(lab)[1]["runs"]] == [("gates", True), ("guarded", True)]
    assert "tests that earlier stories changed, as they were" in lab.run("explain", "2", COLUMNS="200").stdout


def test_nothing_more_runs_if_nothing_was_weakened(lab: Lab) -> None:
    work(make(lab), {"cart.py": CART + DISCOUNT, "tests/test_discount.py": UNITTEST_OWN}, {"README.md": "# Shop\n"})
    assert runs_of(lab, *GUARDED) == []


@pytest.mark.parametrize("first", [True, False])
def test_a_story_that_asks_for_the_change_may_make_it(lab: Lab, first: bool) -> None:
    """Story 1 asks for other tests, so they guard nothing; or story 2 asks for another total."""
    asked = ("Add discount", "(may change tests) Add discount") if first else ("Make it quick", "Change the total to 4")
    tasks = STORIES.replace(*asked)
    told = work(make(lab, tasks), {"cart.py": CART + DISCOUNT, "tests/test_cart.py": WEAKER}, {"cart.py": BROKEN})
    assert told == {"1": "held", "2": "held"}
    assert bool(runs_of(lab, *GUARDED)) != first
    assert receipts(lab)[1]["allowed"] == ("" if first else "the story asks for it: Change the total to 4")


def test_two_versions_of_one_file_both_guard(lab: Lab) -> None:
    tasks = f"{STORIES}\n## 3. Order\n\n- [ ] 3.1 Tidy up\n"
    weakest = WEAKER.replace("self.assertEqual(count([1, 2]), 2)", "count([1, 2])")
    miscounted = CART.replace("len(prices)", "7") + DISCOUNT
    told = work(
        make(lab, tasks),
        {"cart.py": CART + DISCOUNT, "tests/test_cart.py": WEAKER},
        {"tests/test_cart.py": weakest},
        {"cart.py": miscounted},
    )
    assert told["3"].count("before stories 1, 2 changed them fail on the new code: test_count") == 1
    assert runs_of(lab, "guarded") == ["guarded"] * 2  # story 2 changes no source


def test_a_test_that_skips_itself_guards_as_well(lab: Lab) -> None:
    """Tests that another story adds must not hide in the numbers that it is missing."""
    skips = "        if not os.path.exists('tax.py'):\n            self.skipTest('no taxes')\n"
    case = "import os\nimport unittest\n\n\nclass TestTax(unittest.TestCase):\n    def test_tax(self):\n"
    lab.write("tax.py", "TAX = 19\n")
    lab.write("tests/test_tax.py", f"{case}{skips}        self.assertTrue(True)\n")
    told = work(
        make(lab, f"{STORIES}\n## 3. Order\n\n- [ ] 3.1 Tidy up\n"),
        {"cart.py": CART + DISCOUNT, "tests/test_tax.py": f"{case}        self.assertTrue(True)\n"},
        {"tests/test_discount.py": UNITTEST_OWN, "rate.py": "RATE = 1\n"},
        {"tax.py": None},
    )
    assert told["3"].startswith(TOLD.replace("test_total", "test_tax"))


def test_what_the_user_has_changed_meanwhile_is_no_fault_of_a_story(lab: Lab) -> None:
    make(lab)
    steps = attempt({"cart.py": CART + DISCOUNT, "tests/test_cart.py": WEAKER})
    lab.play({"story": "1", "steps": steps}, {"story": "2", "steps": attempt({"tax.py": "TAX = 19\n"})})
    lab.loop("--max-iterations", "1")
    lab.git("switch", "-q", "ralph/add-login")
    lab.write("cart.py", BROKEN)
    lab.git("commit", "-qam", "The total is four")
    lab.git("switch", "-q", "main")
    lab.loop()
    assert [one["state"] for one in receipts(lab)] == ["held", "held"]
    assert runs_of(lab, *GUARDED) == ["guarded", "guarded-before"]


def test_documents_that_the_source_reads_are_source(lab: Lab) -> None:
    make(lab).write("docs/factor.md", "1\n")
    source = CART.replace("sum(prices)", "sum(prices) * int(open('docs/factor.md').read())")
    lab.write("cart.py", source)
    lab.git("add", "-A")
    lab.git("commit", "-qm", "a factor")
    told = work(lab, {"cart.py": source + DISCOUNT, "tests/test_cart.py": WEAKER}, {"docs/factor.md": "7\n"})
    assert told["2"].startswith(TOLD)


def test_a_story_that_is_done_again_is_guarded_by_its_own_tests(lab: Lab) -> None:
    make(lab)
    steps = attempt({"cart.py": CART + DISCOUNT, "tests/test_cart.py": WEAKER})
    lab.play(default=steps).loop("--max-iterations", "1")
    lab.git("switch", "-q", "ralph/add-login")
    lab.tasks_file.write_text(STORIES)
    lab.git("commit", "-qam", "Do it again")
    lab.git("switch", "-q", "main")
    quick = attempt({"cart.py": CART + DISCOUNT + "\n"})
    lab.play({"story": "1", "steps": quick}, {"story": "2", "steps": attempt({"cart.py": BROKEN})}).loop()
    assert lab.checkpoints() == ["1", "1"]
    assert runs_of(lab, *GUARDED) == ["guarded", *GUARDED]
    assert lab.entries()[-1]["summary"].startswith(TOLD)


def test_a_story_that_was_rejected_guards_nothing(lab: Lab) -> None:
    make(lab)
    steps = attempt({"cart.py": CART + DISCOUNT, "tests/test_cart.py": WEAKER})
    lab.play(default=steps).loop("--max-iterations", "1")
    lab.run("reject", "1", "--why", "the test checks nothing")
    lab.play(default=attempt({"README.md": "# Shop\n"})).loop("--max-iterations", "1")
    assert set(lab.checkpoints()) == {"1"}
    lab.play(default=attempt({"cart.py": BROKEN})).loop()
    assert runs_of(lab, *GUARDED) == []


DOCTESTED = CART.replace("def total(prices):\n", 'def total(prices):\n    """\n    >>> total([1, 2])\n    3\n    """\n')


def test_tests_inside_the_source_guard_too(lab: Lab) -> None:
    make(lab, gate=GATE).configure(tests=[f"{GATE} --doctest-modules"], attempts=1)
    lab.write("cart.py", DOCTESTED)
    lab.write("tests/test_cart.py", "def test_nothing():\n    pass\n")
    lab.git("commit", "-qam", "a doctest")
    weaker = DOCTESTED.replace(">>> total([1, 2])\n    3", ">>> total([1, 2]) > 0\n    True")
    told = work(lab, {"cart.py": weaker + DISCOUNT}, {"cart.py": weaker.replace("sum(prices)", "4") + DISCOUNT})
    assert "before story 1 changed them fail" in told["2"]


@pytest.mark.parametrize("lost", ["a program", "a large file"])
def test_what_the_tests_need_is_restored_as_it_was(lab: Lab, lost: str) -> None:
    make(lab).configure(tests=["make test"], attempts=1)
    lab.write("tests/prices.txt", "1\n2\n" + "0\n" * (600_000 if lost == "a large file" else 1))
    check = "import cart; assert cart.total(map(int, open('tests/prices.txt'))) == 3"
    lab.write("tests/run.sh", f'#!/bin/sh\n{sys.executable} -B -c "{check}"\n')
    (lab.root / "tests/run.sh").chmod(0o755)
    lab.write("Makefile", "test:\n\ttests/run.sh\n")
    lab.git("add", "-A")
    lab.git("commit", "-qm", "a gate of shell")
    files = {"cart.py": CART + DISCOUNT, "Makefile": f"test:\n\t{sys.executable} -B -c 'import cart'\n"}
    gone = {"run": f"rm {'tests/run.sh' if lost == 'a program' else 'tests/prices.txt'}"}
    lab.play({"story": "1", "steps": [gone, *attempt(files)]}, {"story": "2", "steps": attempt({"cart.py": BROKEN})})
    lab.loop()
    assert [one["state"] for one in receipts(lab)] == ["held"]
    assert "before story 1 changed them fail on the new code" in lab.entries()[-1]["summary"]


@NEEDS_BOXES
def test_side_by_side_the_newest_weakened_tests_count(lab: Lab) -> None:
    """Story 2 began before story 1 had weakened anything, and is proven after it."""
    make(lab, workspace="box", side_by_side=2)
    place = lab.root.parent / "meet"
    place.mkdir()
    lab.write(".ralph/config.toml", lab.read(".ralph/config.toml") + f'[sandbox]\nwrite = ["{place}"]\n')
    meet = {"run": f"touch {place}/{{story}}; while [ $(ls {place} | wc -l) -lt 2 ]; do sleep 0.05; done"}
    last = {"run": f"while [ ! -e {place}/done ]; do sleep 0.05; done"}
    lab.play(
        {"story": "1", "steps": [meet, *attempt({"tests/test_cart.py": WEAKER})]},
        {"story": "2", "steps": [meet, last, *attempt({"cart.py": BROKEN})]},
    )
    run = lab.start()
    assert wait_until(lambda: run.poll() is not None or receipts(lab))
    (place / "done").touch()
    run.wait()
    [failed] = [one for one in lab.entries() if one["status"] == "failed"]
    assert failed["summary"].startswith(TOLD)


PRICES = "from cart import total\n\n\ndef test_prices():\n    assert total([3]) == 3\n"
WITHOUT_COUNT = CART.partition("\n\n\ndef count")[0] + "\n" + DISCOUNT
TESTS_WITHOUT_COUNT = "from cart import total\n\n\ndef test_total():\n    assert total([1, 2]) == 3\n"


@pytest.mark.parametrize("is_broken", [False, True])
def test_a_file_that_can_t_be_loaded_any_more_says_nothing_about_its_tests(lab: Lab, is_broken: bool) -> None:
    """Story 2 removes what the old tests import, as it was asked to. Tests in other files run."""
    make(lab, STORIES.replace("Make it quick", "Remove count"), GATE)
    lab.write("tests/test_prices.py", PRICES)
    lab.git("add", "-A")
    lab.git("commit", "-qm", "more tests")
    first = {"cart.py": CART + DISCOUNT, **FIRST_OF_PYTEST["an assertion"], "tests/test_prices.py": PRICES + "# done\n"}
    weaker = TESTS_WITHOUT_COUNT.replace(" == 3", "")
    second = {"cart.py": WITHOUT_COUNT, "tests/test_cart.py": weaker}
    if is_broken:
        second = {**second, "cart.py": WITHOUT_COUNT.replace("return sum(prices)\n\n", "return 4\n\n")}
        second["tests/test_prices.py"] = PRICES.replace(" == 3", "")
    told = work(lab, first, second)
    if is_broken:
        assert "fail on the new code: tests/test_prices.py::test_prices;" in told["2"]
    else:
        assert told["2"] == "unproven"
        assert receipts(lab)[1]["why"] == (
            "tests as they were before story 1 changed them did not run on the new code "
            "(tests/test_cart.py can't be loaded): tests/test_cart.py::test_total"
        )


def test_replay_does_not_stop_at_the_first_failed_test(lab: Lab) -> None:
    make(lab, gate=GATE)
    lab.write("pytest.ini", "[pytest]\naddopts = -x\n")
    lab.git("add", "-A")
    lab.git("commit", "-qm", "stop early")
    told = work(lab, {"cart.py": BROKEN, **FIRST_OF_PYTEST["an assertion"]}, {})
    assert "checkpoint fail on the new code: tests/test_cart.py::test_total; keep" in told["1"]
