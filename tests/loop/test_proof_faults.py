"""Proof with faulty files, programs and disks."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest
from lab import Lab
from loop.shop import (
    CART,
    DISCOUNT,
    GATE,
    OWN_TEST,
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
    """The same with unittest, which starts faster."""
    return make_shop(lab, UNITTEST_GATE)


def test_a_test_that_fails_now_and_then_accuses_nobody(shop: Lab) -> None:
    """The first replay fails, the second passes: both are reported."""
    once = f"import os\n\n\ndef test_flaky():\n    assert len(open('{shop.tmp}/runs').read()) != 3\n"
    shop.write("tests/test_flaky.py", once)
    shop.git("add", "--all")
    shop.git("commit", "--quiet", "--message=flaky")
    shop.configure(tests=[f"printf x >> {shop.tmp}/runs; {GATE}"])
    shop.play(default=attempt({"cart.py": CART + DISCOUNT, "tests/test_discount.py": OWN_TEST}))
    assert state_of(shop) == "proven"
    assert "failed once and passed once without changes: tests/test_flaky.py::test_flaky" in receipts(shop)[0]["told"]


FLAKY = """\
import os
import unittest


class TestFlaky(unittest.TestCase):
    def test_flaky(self):
        is_first = not os.path.exists("{flag}")
        open("{flag}", "w").close()
        self.assertFalse(is_first)
"""


def test_a_test_that_was_red_by_chance_proves_no_story(plain: Lab) -> None:
    """It fails in the first run of the gates and never again; the work has nothing to do with it."""
    plain.write("tests/test_flaky.py", FLAKY.format(flag=plain.tmp / "flag"))
    plain.git("add", "--all")
    plain.git("commit", "--quiet", "--message=flaky")
    plain.play(default=attempt({"cart.py": CART + DISCOUNT}))
    assert state_of(plain) == "held"
    assert "failed once and passed once without changes" in receipts(plain)[0]["told"][0]


def test_a_test_that_fails_by_chance_after_the_work_costs_no_attempt(plain: Lab) -> None:
    """It fails in the second run, which is the first one after the work."""
    plain.write("tests/test_varying.py", VARYING.format(passes=(1, *range(3, 9))))
    plain.git("add", "--all")
    plain.git("commit", "--quiet", "--message=varying")
    plain.play(default=attempt({"cart.py": CART + DISCOUNT}))
    assert state_of(plain) == "held"
    assert "failed once and passed once without changes" in receipts(plain)[0]["told"][0]
    assert [one["ok"] for one in plain.events() if one["type"] == "gate"] == [True, False, True]


def test_a_gate_that_fails_twice_after_the_work_is_red(plain: Lab) -> None:
    plain.play(default=attempt({"cart.py": CART.replace("len(prices)", "0")}))
    assert state_of(plain) == "failed"
    gates = [one["when"] for one in plain.events() if one["type"] == "gate" and one["story"] == "1"]
    assert gates[:3] == ["before", "after", "after-again"]


ONCE = """\
import os
import unittest


class TestOnce(unittest.TestCase):
    def test_once(self):
        if os.path.exists("slow"):
            was_there = os.path.exists("local/seen")
            os.makedirs("local", exist_ok=True)
            open("local/seen", "w").close()
            self.assertTrue(was_there)
"""


def test_what_a_red_gate_has_left_does_not_help_the_second_try(plain: Lab) -> None:
    """The work makes an existing test fail, which then writes the ignored file that it would pass with."""
    plain.write("tests/test_once.py", ONCE)
    plain.git("add", "--all")
    plain.git("commit", "--quiet", "--message=once")
    plain.play(default=attempt({"slow": ""}))
    plain.loop()
    seen = [(one["when"], one["ok"]) for one in plain.events() if one["type"] == "gate" and one["iteration"] == 1]
    assert seen == [("before", True), ("after", False), ("after-again", False)]


VARYING = """\
import os
import tempfile
import unittest


class TestVarying(unittest.TestCase):
    def test_varying(self):
        path = os.path.join(tempfile.gettempdir(), "runs")
        with open(path, "a") as runs:
            runs.write("x")
        self.assertIn(os.path.getsize(path), {passes})
"""


@pytest.mark.parametrize("passes", [(1, 3), (1,)], ids=["fails by chance", "passes the first time"])
def test_a_new_test_that_fails_without_any_reason_proves_no_story(plain: Lab, passes: tuple[int, ...]) -> None:
    """It passes after the work and fails without it, but not because of it: it counts its runs in another folder."""
    text = VARYING.format(passes=passes)
    plain.play(default=attempt({"cart.py": CART + "# faster\n", "tests/test_varying.py": text}))
    assert state_of(plain) == "held"
    assert "failed once and passed once without changes" in receipts(plain)[0]["told"][-1]


def test_a_new_test_that_only_looks_as_if_it_varied_proves_the_story(plain: Lab) -> None:
    text = UNITTEST_OWN.replace("[100]", "[random.choice([100])]").replace("import un", "import random\nimport un")
    plain.play(default=attempt({"cart.py": CART + DISCOUNT, "tests/test_discount.py": text}))
    assert state_of(plain) == "proven"
    gates = [one["when"] for one in plain.events() if one["type"] == "gate"]
    assert gates[-3:] == ["own-tests", "own-tests-again", "after-again"]


BUILD = """\
import os
import shutil

os.makedirs("local", exist_ok=True)
shutil.copy("cart.py", "local/built.py")
"""


def use_build(tests: str) -> str:
    return f"import sys\n\nsys.path.insert(0, 'local')\n{tests}".replace("from cart import", "from built import")


@pytest.fixture
def built(plain: Lab) -> Lab:
    """Its tests use what a gate before them builds, in a folder that git ignores."""
    plain.write("build.py", BUILD)
    plain.write("tests/test_cart.py", use_build(UNITTESTS))
    plain.git("add", "--all")
    plain.git("commit", "--quiet", "--message=build")
    plain.configure(checks=[f"{sys.executable} build.py"], tests=[UNITTEST_GATE], attempts=2)
    return plain


def test_tests_of_a_build_run_on_a_build_of_the_same_source(built: Lab) -> None:
    """The new test fails without the work only if the build is without it, too."""
    built.play(default=attempt({"cart.py": CART + DISCOUNT, "tests/test_discount.py": use_build(UNITTEST_OWN)}))
    assert state_of(built) == "proven"
    assert (built.root / "local/built.py").read_text() == CART + DISCOUNT, "the last build is that of the work"
    assert built.git("status", "--porcelain", "--", "cart.py", "build.py") == ""


def test_a_weakened_test_of_a_build_guards_as_well(built: Lab) -> None:
    built.tasks_file.write_text("## 1. Tidy\n\n- [ ] 1.1 Tidy up\n\n## 2. Speed\n\n- [ ] 2.1 Make it quick\n")
    built.git("commit", "-qam", "two stories")
    weaker = use_build(UNITTESTS).replace("self.assertEqual(total([1, 2]), 3)", "total([1, 2])")
    tidy = attempt({"cart.py": CART + DISCOUNT, "tests/test_cart.py": weaker})
    built.play({"story": "1", "steps": tidy}, default=attempt({"cart.py": CART.replace("sum(prices)", "4")}))
    built.loop()
    assert [one["state"] for one in receipts(built)] == ["held"]
    assert "before story 1 changed them fail on the new code" in built.entries()[-1]["summary"]


def test_a_test_that_the_work_repairs_proves_the_story(plain: Lab) -> None:
    plain.write(
        "tests/test_discount.py",
        UNITTEST_OWN.replace("discount([", "cart.discount([").replace("from cart import discount", "import cart"),
    )
    plain.git("add", "--all")
    plain.git("commit", "--quiet", "--message=red")
    plain.play(default=attempt({"cart.py": CART + DISCOUNT}))
    assert state_of(plain) == "proven"


def test_a_test_that_reads_the_plan_proves_no_story(plain: Lab) -> None:
    """Without the work the boxes are ticked, too: that is nothing that the story did."""
    body = "\n        self.assertIn('[x] 1.1', open('openspec/changes/add-login/tasks.md').read())\n"
    own = f"import unittest\n\n\nclass TestPlan(unittest.TestCase):\n    def test_plan(self):{body}"
    plain.play(default=attempt({"cart.py": f"# a shop\n{CART}", "tests/test_plan.py": own}))
    assert state_of(plain) == "held"


def test_tests_after_the_first_failure_prove_nothing(shop: Lab) -> None:
    """`-x` stops at a test that asserts nothing, and the next one would pass without the work, too."""
    hollow = "def test_discount():\n    from cart import discount\n\n    discount([1], 1)\n\n\n"
    shop.configure(tests=[f"{GATE} -x"])
    other = "def test_sum():\n    from cart import total\n\n    assert total([1]) == 1\n"
    shop.play(default=attempt({"cart.py": CART + DISCOUNT, "tests/test_all.py": hollow + other}))
    assert state_of(shop) == "held"


@pytest.mark.parametrize(
    ("files", "state"),
    [
        ({"tests/test_more.py": TESTS.replace("def test_", "def test_more_")}, "held"),
        ({"pytest.ini": "[pytest]\nminversion = 6.0\n"}, "held"),
        ({"README.md": "# Shop\n"}, "held"),
        ({"tests/test_more.py": "def test_(:\n"}, "failed"),
    ],
    ids=["only tests", "only configuration", "only documentation", "tests that can't be parsed"],
)
def test_a_story_of_one_kind_of_file(shop: Lab, files: dict[str, str], state: str) -> None:
    shop.play(default=attempt(files))
    assert state_of(shop) == state


def test_links_modes_and_binary_files_are_brought_back_as_they_were(shop: Lab) -> None:
    """Replayed tests see the picture, the link and the executable of the checkpoint; the work keeps its own."""
    check = (
        "import os\n\n\ndef test_files():\n"
        "    assert open('tests/__snapshots__/a.png', 'rb').read() == b'\\x89PNG\\0old'\n"
        "    assert os.readlink('tests/data/link') == 'old'\n    assert os.access('tests/data/run', os.X_OK)\n"
    )
    shop.write("tests/test_files.py", check)
    for name in ("__snapshots__", "data"):
        (shop.root / "tests" / name).mkdir()
    picture, link, program = (shop.root / "tests" / name for name in ("__snapshots__/a.png", "data/link", "data/run"))
    picture.write_bytes(b"\x89PNG\0old")
    link.symlink_to("old")
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    shop.git("add", "--all")
    shop.git("commit", "--quiet", "--message=files")
    new = check.replace("old", "new").replace("assert os.access", "assert not os.access")
    redo = r"printf '\211PNG\0new' > tests/__snapshots__/a.png; ln -sfn new tests/data/link; chmod -x tests/data/run"
    shop.play(default=[{"run": redo}, *attempt({"cart.py": CART + DISCOUNT, "tests/test_files.py": new})])
    assert state_of(shop) == "held"
    assert [run["kind"] for run in receipts(shop)[0]["runs"]] == ["gates", "replay", "own-tests"]
    assert [run["ok"] for run in receipts(shop)[0]["runs"][:2]] == [True, True]
    listed = shop.git("ls-tree", "-r", "ralph/add-login", "tests/data")
    assert [line.split()[0] for line in listed.splitlines()] == ["120000", "100644"]
    assert shop.git("show", "ralph/add-login:tests/data/link") == "new"


def test_a_folder_that_was_renamed_holds_the_same_tests(shop: Lab) -> None:
    steps = [{"run": "git mv tests checks"}, *attempt({"cart.py": CART + DISCOUNT})]
    shop.play(default=steps)
    assert state_of(shop) == "held"


def add_submodule(shop: Lab, other: Path) -> None:
    other.mkdir()
    name = ("-c", "user.name=n", "-c", "user.email=e@x", "-c", "protocol.file.allow=always")
    shop.git("-C", str(other), "init", "--quiet")
    shop.git("-C", str(other), *name, "commit", "--quiet", "--allow-empty", "--message=first")
    shop.git(*name, "submodule", "add", "--quiet", str(other), "vendored")
    shop.git("commit", "--quiet", "--message=submodule")


def test_a_submodule_that_moved_on_is_no_obstacle(plain: Lab, tmp_path: Path) -> None:
    add_submodule(plain, tmp_path / "other")
    moves = "git -C vendored -c user.name=n -c user.email=e@x commit --quiet --allow-empty --message=second"
    files = {"cart.py": CART + DISCOUNT, "tests/test_discount.py": UNITTEST_OWN}
    plain.play(default=[{"run": moves, "must": True}, *attempt(files)])
    assert state_of(plain) == "proven"


def test_what_lies_uncommitted_in_a_submodule_proves_nothing(plain: Lab, tmp_path: Path) -> None:
    add_submodule(plain, tmp_path / "other")
    files = {"cart.py": CART + DISCOUNT, "tests/test_discount.py": UNITTEST_OWN, "vendored/help.py": "HELP = 1\n"}
    plain.play(default=attempt(files))
    assert state_of(plain) == "unproven"
    assert "in the submodule vendored" in receipts(plain)[0]["why"]


FULL_DISK = """\
#!/bin/sh
case "$GIT_INDEX_FILE" in
  *.mixed) fails=1 ;;
esac
case "$*" in
  *" ls-files "*" -t -m -d "*) fails=1 ;;
esac
if [ -n "$fails" ] && [ -e "{flag}" ]; then echo "fatal: cannot write: No space left on device" >&2; exit 128; fi
exec {git} "$@"
"""


@pytest.mark.parametrize("by_git", [True, False], ids=["trees of git", "files"])
def test_a_disk_that_is_full_during_replay_loses_no_work(plain: Lab, by_git: bool) -> None:
    if by_git:  # git must write the files then, since line endings may differ
        plain.write(".gitattributes", "* text=auto\n")
        plain.git("add", ".gitattributes")
        plain.git("commit", "--quiet", "--message=attributes")
    programs, flag = plain.tmp / "bin", plain.tmp / "full"
    programs.mkdir()
    flag.touch()
    (programs / "git").write_text(FULL_DISK.format(flag=flag, git=shutil.which("git")))
    (programs / "git").chmod(0o755)
    plain.env["PATH"] = f"{programs}{os.pathsep}{plain.env['PATH']}"
    plain.play(default=attempt({"cart.py": CART + DISCOUNT, "tests/test_discount.py": UNITTEST_OWN}))
    result = plain.loop()
    assert result.exit_code != 0
    assert "No space left on device" in plain.events(result)[-1]["reason"]
    flag.unlink()
    plain.play(default=[{"tick": "all"}, {"complete": True}])  # its work is already there
    assert state_of(plain) == "proven"
    assert plain.git("show", "ralph/add-login:tests/test_discount.py") == UNITTEST_OWN.rstrip()


@pytest.mark.parametrize("works", [True, False], ids=["and it works", "and it fails"])
def test_what_an_attempt_installed_is_made_anew_by_setup(plain: Lab, works: bool) -> None:
    """A package that was only added by hand is gone then; if setup fails, the story is held at most."""
    plain.write(".gitignore", "__pycache__/\nnode_modules/\n")
    plain.git("commit", "--quiet", "--all", "--message=ignore")
    make = "mkdir node_modules; cp package.json node_modules/made"
    plain.configure(tests=[UNITTEST_GATE], setup=[make if works else f"{make}; false"])
    files = {"package.json": "{}", "node_modules/by-hand.js": "1", "cart.py": CART + DISCOUNT}
    plain.play(default=attempt({**files, "tests/test_discount.py": UNITTEST_OWN}))
    assert state_of(plain) == ("proven" if works else "held")
    assert [event["ok"] for event in plain.events() if event["type"] == "setup"] == [works]
    assert os.listdir(plain.root / "node_modules") == (["made"] if works else ["by-hand.js"])
    told = " ".join(receipts(plain)[0]["told"])
    assert ("rebuilt the environment of the gates" if works else "with packages that the attempt installed") in told


def test_what_one_attempt_left_ignored_does_not_help_the_next(shop: Lab) -> None:
    """A fake pytest that git ignores is planted along with honest work, and the next story uses it."""
    shop.openspec("## 1. Discount\n\n- [ ] 1.1 Add it\n\n## 2. Break it\n\n- [ ] 2.1 Break it\n")
    shop.git("commit", "--quiet", "--all", "--message=two stories")
    shop.configure(tests=[GATE], accept="held")
    fake = {"pytest/__init__.py": "", "pytest/__main__.py": "print('3 passed in 0.01s')\n"}
    honest = attempt({"cart.py": CART + DISCOUNT, "tests/test_discount.py": OWN_TEST, **fake})
    broken = attempt({"cart.py": CART.replace("sum(prices)", "4") + DISCOUNT})
    shop.play({"story": "1", "steps": honest}, {"story": "2", "steps": broken})
    assert shop.loop().exit_code == 1
    assert [told["state"] for told in receipts(shop)] == ["proven", "unproven"]
    assert "pytest/__main__.py" in receipts(shop)[1]["why"]
