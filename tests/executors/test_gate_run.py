"""Gates with real test programs: how they are called, what counts, and what changes nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from battery.place import has_toolchain
from patience import PATIENCE

from ralphtool.executors import asked_reports, gate_run
from ralphtool.executors.asked_reports import AskedReports
from ralphtool.executors.process import Supervisor
from ralphtool.judging.gates import GateResult
from ralphtool.judging.testresults.model import Counts

PYTEST = f"{sys.executable} -m pytest -p no:cacheprovider"
GREEN = "def test_one(): pass\ndef test_two(): pass\n"
RED = "def test_one(): pass\ndef test_bad(): assert 0\n"
Run = Callable[..., GateResult]


def test_the_last_lines_of_a_gate_have_no_colours_which_need_no_room(tmp_path: Path) -> None:
    log = tmp_path / "gate.log"
    lines = [f"\x1b[31m\x1b[1mline {number}\x1b[22m\x1b[39m" for number in range(200)]
    log.write_text("\n\n".join(lines))
    found = gate_run.read_excerpt(str(log)).splitlines()
    assert found[-1] == "line 199"
    assert "\x1b" not in "".join(found)
    assert len(found) > 100


def need(program: str) -> pytest.MarkDecorator:
    is_there = shutil.which(program) and has_toolchain(program)
    return pytest.mark.skipif(not is_there, reason=f"{program} is not installed")


@pytest.fixture
def gate(tmp_path: Path) -> Run:
    """Writes files, and runs a command in their folder; its log is elsewhere."""

    def run(command: str, files: dict[str, str], timeout: float = PATIENCE, **env: str) -> GateResult:
        root = tmp_path / "project"
        for name, text in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text, encoding="utf-8")
        root.mkdir(exist_ok=True)
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        with Supervisor() as supervisor:
            place = gate_run.CommandContext(supervisor, str(root), {**kept, **env}, (), lambda: False)
            return gate_run.run(command, place, str(tmp_path / "gate.log"), timeout)

    return run


def read_log(tmp_path: Path) -> str:
    return (tmp_path / "gate.log").read_text(encoding="utf-8")


def passed(result: GateResult) -> set[str] | None:
    assert result.tests
    return None if result.tests.passed is None else set(result.tests.passed)


# --- pytest -----------------------------------------------------------------------------------------


def test_the_end_of_the_output_names_no_report_of_ours(gate: Run) -> None:
    found = gate_run.read_last_output([gate(PYTEST, {"test_a.py": RED})])
    assert "test_bad" in found
    assert "generated xml file" not in found


ALL_KINDS = """\
import unittest, pytest
class TestCart:
    class TestInner:
        def test_deep(self): pass
    @pytest.mark.parametrize("text", ["a\\nb", "é", pytest.param(1, id="x" * 10000), "a::b", "a.B", "[x] - y"])
    def test_text(self, text): pass
class Case(unittest.TestCase):
    def test_case(self): pass
def test_skipped(): pytest.skip("not now")
@pytest.mark.xfail
def test_expected_to_fail(): assert 0
"""
ALL_NAMES = {
    "tests/test_a.py::TestCart::TestInner::test_deep",
    "tests/test_a.py::TestCart::test_text[a\\nb]",
    "tests/test_a.py::TestCart::test_text[\\xe9]",
    "tests/test_a.py::TestCart::test_text[a::b]",
    "tests/test_a.py::TestCart::test_text[a.B]",
    "tests/test_a.py::TestCart::test_text[[x] - y]",
    "tests/test_a.py::Case::test_case",
}


@pytest.mark.parametrize("options", ["-q", "-n 2", "-qq", "-v --color=yes"])
def test_pytest_names_what_passed_in_its_own_ids(gate: Run, options: str) -> None:
    done = gate(f"{PYTEST} {options}", {"tests/test_a.py": ALL_KINDS})
    assert done.ok
    assert done.ran_tests
    assert done.tests
    assert done.tests.counts == Counts(8, 0, 2)
    names = {name for name in passed(done) or () if "xxx" not in name}
    assert names == ALL_NAMES
    assert all(len(name) < 500 for name in passed(done) or ())
    assert done.tests.skipped == {"tests/test_a.py::test_skipped", "tests/test_a.py::test_expected_to_fail"}


def test_a_test_of_a_base_class_belongs_to_the_module_that_runs_it(gate: Run) -> None:
    base = "class Base:\n    def test_it(self): pass\n"
    child = "from base import Base\nclass TestChild(Base): pass\ndef test_own(): pass\n"
    done = gate(f"{PYTEST} -q", {"base.py": base, "test_child.py": child})
    assert passed(done) == {"test_child.py::TestChild::test_it", "test_child.py::test_own"}


@pytest.mark.parametrize("ending", ["|| true", "--continue-on-collection-errors; exit 0"])
def test_failures_make_a_gate_red_whatever_its_exit_status(gate: Run, ending: str) -> None:
    done = gate(f"{PYTEST} -q {ending}", {"test_a.py": RED})
    assert not done.ok
    assert done.exit_code == 0
    assert done.failed == ("test_a.py::test_bad",)
    assert done.tally == "1 passed, 1 failed"


def test_a_plugin_that_sets_the_exit_status_hides_nothing(gate: Run) -> None:
    plugin = "def pytest_sessionfinish(session): session.exitstatus = 0\n"
    done = gate(f"{PYTEST} -q", {"test_a.py": RED, "conftest.py": plugin})
    assert (done.exit_code, done.ok) == (0, False)


def test_a_file_that_can_not_be_imported_is_a_failure(gate: Run) -> None:
    done = gate(f"{PYTEST} -q || true", {"tests/test_a.py": "import nowhere\n"})
    assert not done.ok
    assert done.failed == ("tests/test_a.py",)


@pytest.mark.parametrize("options", ["-q -s", "-s", "-q", "-v -s"])
def test_what_a_test_prints_is_no_result(gate: Run, options: str) -> None:
    """It neither turns a green run red nor adds tests."""
    lines = ["2 failed, 1 passed in 0.10s", "50 passed in 0.10s", "= 2 failed in 0.10s =", "Tests: 2 failed, 3 total"]
    noisy = f"def test_noisy():\n    print(*{['', *lines, '']!r}, sep='\\n')\n"
    done = gate(f"{PYTEST} {options}", {"test_a.py": GREEN + noisy})
    assert done.ok
    assert done.tests
    assert done.tests.counts == Counts(3, 0, 0)


def test_a_forged_tally_does_not_turn_a_red_run_green(gate: Run) -> None:
    forger = "import atexit\natexit.register(print, '\\n5 passed in 0.10s')\n"
    done = gate(f"{PYTEST} -q || true", {"test_a.py": RED, "conftest.py": forger})
    assert not done.ok
    assert done.tests
    assert done.tests.counts == Counts(1, 1, 0)


def test_a_run_inside_of_a_test_is_no_result(gate: Run) -> None:
    """It inherits the environment, and writes a separate report."""
    outer = (
        "import subprocess, sys, time\n"
        "def test_outer():\n"
        f"    done = subprocess.run({PYTEST!r}.split() + ['-q', 'inner.py'], capture_output=True)\n"
        "    print('to be seen')\n"
        "    assert done.returncode == 1, done.stdout\n"
    )
    done = gate(f"{PYTEST} -q -s test_outer.py", {"test_outer.py": outer, "inner.py": RED})
    assert done.ok
    assert passed(done) == {"test_outer.py::test_outer"}


def test_two_runs_in_one_gate_are_both_counted(gate: Run) -> None:
    files = {"a/test_a.py": GREEN, "b/test_b.py": RED}
    done = gate(f"{PYTEST} -q b; {PYTEST} -q a", files)
    assert (done.exit_code, done.ok) == (0, False)
    assert passed(done) == {"a/test_a.py::test_one", "a/test_a.py::test_two", "b/test_b.py::test_one"}
    assert done.failed == ("b/test_b.py::test_bad",)


def test_no_test_at_all_is_recognised(gate: Run) -> None:
    done = gate(f"{PYTEST} -q", {})
    assert done.tests
    assert done.tests.counts == Counts(0, 0, 0)
    assert (done.exit_code, done.ok, done.ran_tests, done.tally) == (5, False, False, "no tests")


@pytest.mark.parametrize(
    "config",
    [
        {"pytest.ini": "[pytest]\naddopts = --junitxml=own.xml\n"},
        {"pyproject.toml": '[tool.pytest.ini_options]\naddopts = "-p no:junitxml"\n'},
    ],
    ids=["a report of its own", "no reports"],
)
def test_the_users_own_settings_stay(gate: Run, tmp_path: Path, config: dict[str, str]) -> None:
    done = gate(f"{PYTEST} -q", {"test_a.py": GREEN, **config})
    assert done.ok
    assert done.tests
    assert done.tests.counts == Counts(2, 0, 0)
    assert (tmp_path / "project/own.xml").exists() == ("pytest.ini" in config)


def test_a_program_that_refuses_to_report_runs_without(gate: Run) -> None:
    done = gate("sh run.sh", {"test_a.py": GREEN, "run.sh": f"{PYTEST} -q -p no:junitxml\n"})
    assert done.ok
    assert done.tests
    assert done.tests.counts == Counts(2, 0, 0)
    assert passed(done) is None


def test_a_report_that_the_command_asks_for_is_read(gate: Run) -> None:
    done = gate(f"{PYTEST} -q --junitxml=own.xml", {"test_a.py": ALL_KINDS})
    assert done.ok
    assert "test_a.py::TestCart::TestInner::test_deep" in (passed(done) or ())


def test_what_the_user_has_set_is_kept(gate: Run) -> None:
    done = gate(f"{PYTEST} -q", {"test_a.py": GREEN}, PYTEST_ADDOPTS="-k one")
    assert passed(done) == {"test_a.py::test_one"}


# --- bad input --------------------------------------------------------------------------------------


def test_a_run_that_ends_in_the_middle_has_no_result(gate: Run) -> None:
    done = gate(f"{PYTEST} -v", {"test_a.py": GREEN + "import os\ndef test_out(): os._exit(0)\n"})
    assert done.tests is None
    assert not done.ran_tests


def test_a_gate_that_hangs_is_red(gate: Run) -> None:
    done = gate(f"{PYTEST} -q -s", {"test_a.py": "import time\ndef test_a():\n    time.sleep(3600)\n"}, timeout=3)
    assert (done.ok, done.why, done.failed, done.tests) == (False, "wall-clock", None, None)


def test_a_gate_that_is_killed_is_red(gate: Run) -> None:
    done = gate("kill -9 $$", {})
    assert (done.ok, done.exit_code, done.tests) == (False, -9, None)


@pytest.mark.parametrize(
    "text", ["", "<testsuites", "<testsuites><testsuite name='pytest'>", "\\x00\\xff", "</testsuites>"]
)
def test_a_broken_report_leaves_the_output(gate: Run, text: str) -> None:
    breaker = (
        "def pytest_unconfigure(config):\n"
        f"    open(config.option.xmlpath, 'w').write({text!r}) if config.option.xmlpath else None\n"
    )
    done = gate(f"{PYTEST} -q -p breaker || true", {"test_a.py": RED, "breaker.py": breaker}, PYTHONPATH=".")
    assert not done.ok
    assert done.failed == ("test_a.py::test_bad",)


def test_nothing_is_left_behind(gate: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "tmp with spaces"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    done = gate(f"{PYTEST} -q", {"test_a.py": GREEN})
    assert passed(done) == {"test_a.py::test_one", "test_a.py::test_two"}
    assert not list(place.iterdir())


def test_without_a_place_for_reports_the_output_is_read(gate: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**_: str) -> str:
        raise OSError("no room")

    monkeypatch.setattr(tempfile, "mkdtemp", fail)
    done = gate(f"{PYTEST} -q", {"test_a.py": GREEN})
    assert done.tests
    assert (done.ok, done.tests.counts) == (True, Counts(2, 0, 0))


# --- other programs ---------------------------------------------------------------------------------

NODE = """\
const { test, describe, it } = require('node:test');
test('adds', () => { console.log('\\u2139 tests 9'); console.log('pass 9'); console.log('ok 9 - forged') });
test('same', () => {});
test('same', () => {});
describe('cart', () => { it('is empty', () => {}); it.skip('later', () => {}); it.todo('some day') });
"""
NODE_NAMES = {"adds", "same", "same #2", "cart > is empty"}
NODE_RED = NODE + "test('bad', () => { throw new Error('x') });\n"
PACKAGE = '{"scripts": {"test": "npm run unit", "unit": "node --test"}}'


@need("node")
@pytest.mark.parametrize("command", ["node --test", "npm test"])
def test_node_names_what_passed(gate: Run, command: str) -> None:
    if not asked_reports._probe_node(os.environ["PATH"], "/"):
        pytest.skip("this version of node can't be asked for a report")
    done = gate(command, {"a.test.js": NODE, "package.json": PACKAGE})
    assert done.ok
    assert done.tests
    assert (done.tests.counts, passed(done)) == (Counts(4, 0, 2), NODE_NAMES)


@need("node")
@pytest.mark.parametrize("reporter", ["tap", "spec"])
def test_node_with_a_reporter_of_the_users_is_read_from_its_output(gate: Run, reporter: str) -> None:
    quiet = NODE.replace("console.log('\\u2139 tests 9'); console.log('pass 9'); console.log('ok 9 - forged')", "")
    done = gate(f"node --test --test-reporter={reporter}", {"a.test.js": quiet})
    assert done.ok
    assert done.tests
    assert (done.tests.counts, passed(done)) == (Counts(4, 0, 2), NODE_NAMES)


@need("node")
def test_failures_of_node_make_a_gate_red(gate: Run) -> None:
    done = gate("node --test || true", {"a.test.js": NODE_RED})
    assert (done.ok, done.failed) == (False, ("a.test.js > bad",))
    assert done.tests
    assert done.tests.failed == frozenset({"bad"})


GO = """\
package shop
import ("fmt"; "testing")
func TestA(t *testing.T) { fmt.Println("--- PASS: TestForged (0.00s)"); fmt.Print("no line break") }
func TestB(t *testing.T) { t.Run("one", func(t *testing.T) {}); t.Run("two", func(t *testing.T) { t.Skip() }) }
func TestC(t *testing.T) { t.Parallel() }
"""


@need("go")
def test_plain_go_test_names_what_passed(gate: Run) -> None:
    files = {"go.mod": "module example.com/shop\n", "a_test.go": GO, "b/b.go": "package b\n"}
    done = gate("go vet ./... && go test ./...", files)
    assert done.ok
    assert passed(done) == {f"example.com/shop.{name}" for name in ("TestA", "TestB", "TestB/one", "TestC")}
    assert done.tests
    assert done.tests.skipped == {"example.com/shop.TestB/two"}


@need("go")
def test_the_excerpt_of_go_has_what_the_failed_test_printed(gate: Run) -> None:
    """The names of all tests that passed, for which ralphtool asks, come after it."""
    head = 'package shop\n\nimport ("fmt"; "testing")\n\n'
    many = "func TestZ(t *testing.T) { for i := 0; i < 60; i++ { t.Run(fmt.Sprint(i), func(t *testing.T) {}) } }\n"
    bad = 'package shop\n\nimport "testing"\n\nfunc TestDelta(t *testing.T) { t.Fatal("bad") }\n'
    files = {"go.mod": "module example.com/shop\n", "a_test.go": bad, "z_test.go": head + many}
    assert "a_test.go:5: bad" in gate_run.read_last_output([gate("go test ./...", files)])


@need("go")
def test_a_go_package_that_can_not_be_built_is_a_failure(gate: Run) -> None:
    broken = 'package shop\nimport "testing"\nfunc TestA(t *testing.T) { nowhere() }\n'
    done = gate("go test ./... || true", {"go.mod": "module example.com/shop\n", "a_test.go": broken})
    assert (done.ok, done.failed) == (False, ("example.com/shop [build failed]",))


@need("cargo")
def test_cargo_names_what_passed(gate: Run) -> None:
    source = (
        "/// ```\n/// assert_eq!(shop::two(), 2);\n/// ```\npub fn two() -> i32 { 2 }\n"
        "#[cfg(test)] mod tests {\n    #[test] fn same() {}\n    #[test] #[should_panic] fn panics() { panic!() }\n"
        "    #[test] #[ignore] fn slow() {}\n}\n"
    )
    manifest = '[package]\nname = "shop"\nversion = "0.1.0"\nedition = "2021"\n'
    env = {"CARGO_HOME": os.environ.get("CARGO_HOME", os.path.expanduser("~/.cargo"))}
    done = gate("cargo test --offline", {"Cargo.toml": manifest, "src/lib.rs": source}, **env)
    assert done.ok, read_log(Path(done.log).parent)
    assert passed(done) == {"shop src/lib.rs tests::same", "shop src/lib.rs tests::panics", "shop src/lib.rs - two"}
    assert done.tests
    assert done.tests.skipped == {"shop src/lib.rs tests::slow"}


UNITTEST = """\
import unittest
class Cart(unittest.TestCase):
    def test_one(self): pass
    def test_two(self):
        \"\"\"It has a docstring.\"\"\"
        print("ok, printed")
    @unittest.skip("not now")
    def test_later(self): pass
    @unittest.expectedFailure
    def test_expected(self): self.fail()
"""


def test_unittest_names_what_passed_when_it_is_verbose(gate: Run) -> None:
    done = gate(f"{sys.executable} -m unittest -v", {"test_a.py": UNITTEST})
    assert done.ok
    ids = {"test_one (test_a.Cart.test_one)", "test_two (test_a.Cart.test_two)"}
    assert passed(done) == ids
    quiet = gate(f"{sys.executable} -m unittest", {})
    assert quiet.tests
    assert (quiet.tests.counts, passed(quiet)) == (Counts(2, 0, 2), None)


def test_unittest_without_tests_ran_none(gate: Run) -> None:
    done = gate(f"{sys.executable} -m unittest discover -s .", {"readme.txt": ""})
    assert done.tests is not None
    assert not done.ran_tests


# --- programs that are not test programs ------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        f"{sys.executable} -c 'print(1)'",
        "make build",
        pytest.param("node x.js", marks=need("node")),
        pytest.param("npm run build", marks=need("npm")),
        pytest.param("go build ./... && go vet ./... && go env GOFLAGS >&2 && go list ./... >&2", marks=need("go")),
    ],
)
def test_other_programs_print_the_same(gate: Run, tmp_path: Path, command: str) -> None:
    files = {
        "Makefile": "build:\n\t@echo built\n",
        "x.js": "console.log('ran')\n",
        "package.json": '{"name": "x", "scripts": {"build": "node x.js", "test": "node --test"}}',
        "go.mod": "module example.com/shop\n",
        "shop.go": "package shop\n",
    }
    done = gate(command, files)
    assert (done.ok, done.tests) == (True, None), read_log(tmp_path)
    plain = subprocess.run(
        command, shell=True, cwd=tmp_path / "project", capture_output=True, text=True, timeout=PATIENCE
    )
    assert read_log(tmp_path) == plain.stdout


# --- the environment --------------------------------------------------------------------------------


def build(command: str, root: Path, **env: str) -> dict[str, str]:
    with AskedReports(command, str(root), env) as asked:
        return asked.build_environment()


def test_flags_of_go_are_added_to_those_that_are_set_or_saved(tmp_path: Path) -> None:
    assert build("go test", tmp_path)["GOFLAGS"] == "-test.v"
    assert build("go test", tmp_path, GOFLAGS="-mod=mod")["GOFLAGS"] == "-mod=mod -test.v"
    assert build("go test", tmp_path, GOFLAGS="-json")["GOFLAGS"] == "-json"
    (tmp_path / "go").mkdir()
    (tmp_path / "go/env").write_text("GOPROXY=off\nGOFLAGS=-tags=slow\n")
    assert build("go test", tmp_path, XDG_CONFIG_HOME=str(tmp_path))["GOFLAGS"] == "-tags=slow -test.v"


@pytest.mark.parametrize(
    ("command", "asked"),
    [
        ("node --test", True),
        ("node --import tsx --test 'src/**/*.test.ts'", True),
        ("npm test", True),
        ("npm run --silent test -- --watch=false", True),
        ("node --test --test-reporter=dot", False),
        ("npm run dots", False),
        ("npm run build", False),
        ("node --test-only x.js", False),
        ("pytest", False),
    ],
)
def test_node_is_asked_only_where_it_runs_tests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, asked: bool
) -> None:
    scripts = '{"test": "node --test", "build": "node x.js", "dots": "node --test --test-reporter=dot"}'
    (tmp_path / "package.json").write_text(f'{{"scripts": {scripts}}}')
    monkeypatch.setattr(asked_reports, "_probe_node", lambda *_: "20.20.2")
    options = build(command, tmp_path, NODE_OPTIONS="--no-warnings").get("NODE_OPTIONS", "")
    assert options.startswith("--no-warnings")
    assert ("--test-reporter=tap --test-reporter-destination=stdout" in options) == asked


def test_a_node_that_can_not_be_asked_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asked_reports, "_probe_node", lambda *_: "")
    assert "NODE_OPTIONS" not in build("node --test", tmp_path)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"scripts": 3}', '{"scripts": {"test": 3}}'])
def test_a_strange_package_json_is_no_obstacle(tmp_path: Path, text: str) -> None:
    (tmp_path / "package.json").write_text(text)
    assert "NODE_OPTIONS" not in build("npm test", tmp_path)
