"""Output of `ralphtool run` for programs: the object of `--format json`, and the files of --junit and --report."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from lab import DONE, Lab, ignores_term, kill, wait_until
from msgspec import structs
from patience import PATIENCE
from project import COMMAND

from ralphtool.cli.run_output import RunOutput, Wanted
from ralphtool.errors import UsageError
from ralphtool.views.report.final import FinalCounts, FinalPaths, FinalResult, FinalResults, FinalStory

ENDINGS = {"failure", "error", "skipped"}
HANG = [{"hang": True}]


def names_of(kind: Any) -> list[str]:
    return [field.encode_name for field in structs.fields(kind)]


def only_object(text: str) -> dict[str, Any]:
    """Standard output is one line with one object."""
    [line] = text.splitlines()
    found = json.loads(line)
    assert isinstance(found, dict)
    return found


def start(lab: Lab, stderr: int, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [COMMAND, "run", "--format", "json", *arguments],
        cwd=lab.root,
        env=lab.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=stderr,
    )


def cases_of(path: Path) -> dict[str, list[str]]:
    """The tags inside each case, except its output."""
    root = ET.parse(path).getroot()
    assert root.tag == "testsuites"
    assert set(root.attrib) == {"name", "tests", "failures", "errors", "time"}  # all that Jenkins' schema allows
    assert {child.tag for case in root.iter("testcase") for child in case} <= ENDINGS | {"system-out"}
    suites = root.findall("testsuite")
    for name in ("tests", "failures", "errors"):
        assert int(root.attrib[name]) == sum(int(one.attrib[name]) for one in suites)
    for suite in suites:
        cases = suite.findall("testcase")
        assert int(suite.attrib["tests"]) == len(cases)
        for name, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            assert int(suite.attrib[name]) == sum(one.find(tag) is not None for one in cases)
    return {
        one.attrib["name"]: [child.tag for child in one if child.tag != "system-out"] for one in root.iter("testcase")
    }


def test_a_run_that_is_done_is_one_object(lab: Lab) -> None:
    lab.repository(tests=["true"]).play(default=DONE)
    result = lab.run("run", "--format", "json", "--junit", "stories.xml", "--report", "report.md")
    told = only_object(result.stdout)
    assert (result.exit_code, result.stderr) == (0, "")
    assert list(told) == names_of(FinalResult)
    assert [list(told[name]) for name in ("counts", "paths")] == [names_of(FinalCounts), names_of(FinalPaths)]
    assert [list(one) for one in told["stories"]] == [names_of(FinalStory)] * 2
    assert (told["version"], told["change"], told["result"], told["exit_code"]) == (1, "add-login", "done", 0)
    assert [(one["id"], one["state"], one["attempts"]) for one in told["stories"]] == [
        ("1", "done", 1),
        ("2", "done", 1),
    ]
    assert (told["counts"]["stories"], told["counts"]["done"]) == (2, 2)
    commits = lab.git("log", "--reverse", "--format=%H", f"main..{told['branch']}").split("\n")
    assert [one["commit"] for one in told["commits"]] == [one["commit"] for one in told["stories"]] == commits[:2]
    assert told["error"] is None
    record = Path(told["paths"]["record"])
    assert record == lab.root / ".ralph/runs" / told["run"] / "events.jsonl"
    assert record.exists()
    assert told["paths"]["junit"] == str(lab.root / "stories.xml")
    assert Path(told["paths"]["report"]).read_text().startswith("# ")


def test_what_is_not_proven_is_a_failure_and_exit_1(lab: Lab) -> None:
    lab.repository(accept="held").play(default=DONE)
    result = lab.run("run", "--format", "json", "--junit", "stories.xml")
    told = only_object(result.stdout)
    assert (result.exit_code, told["exit_code"], told["result"], told["counts"]["unproven"]) == (1, 1, "unproven", 2)
    assert [one["proof"] for one in told["stories"]] == ["unproven", "unproven"]
    assert cases_of(lab.root / "stories.xml") == {"1. First": ["failure"], "2. Second": ["failure"]}


def test_a_story_that_fails_waits_for_you_with_its_question(lab: Lab) -> None:
    lab.repository(attempts=1).play({"story": "1", "steps": [{"run": "true"}]}, default=DONE)
    result = lab.run("run", "--format", "json", "--junit", "stories.xml")
    told = only_object(result.stdout)
    assert (result.exit_code, told["result"]) == (1, "unfinished")
    first, second = told["stories"]
    assert (first["state"], first["commit"], first["attempts"]) == ("waiting", None, 1)
    assert (lab.root / first["question"]).exists()
    assert (second["state"], second["question"]) == ("done", None)
    assert any(step["run"] and step["run"].startswith("ralphtool answer 1") for step in told["next"])
    assert cases_of(lab.root / "stories.xml")["1. First"] == ["error"]


@pytest.mark.parametrize(
    ("arguments", "code", "exit_code"),
    [
        (("--timout", "5m"), "USAGE", 2),
        (("--format",), "USAGE", 2),
        (("--timeout", "soon"), "INVALID_VALUE", 2),
        (("--json",), "USAGE", 2),
        (("--junit", "no/such/folder/x.xml"), "USAGE", 2),
        (("--junit", "."), "USAGE", 2),
        (("--junit", "/dev/null"), "USAGE", 2),
        (("--junit", "out.md", "--report", "./out.md"), "USAGE", 2),
        (("--report", "report.pdf"), "USAGE", 2),
        (("--dry-run", "--junit", "x.xml"), "USAGE", 2),
        (("--all", "--report", "x.md"), "USAGE", 2),
        (("no-such-change",), "CHANGE_NOT_FOUND", 1),
        (("--agent", "claud"), "INVALID_VALUE", 2),
    ],
)
def test_what_is_refused_is_one_object_too(lab: Lab, arguments: tuple[str, ...], code: str, exit_code: int) -> None:
    lab.repository().play(default=DONE)
    before = lab.snapshot()
    result = lab.run("run", "--format=json", *arguments)
    told = only_object(result.stdout)
    assert (result.exit_code, told["exit_code"], told["error"]["code"]) == (exit_code, exit_code, code)
    assert "--all" in arguments or (told["result"], told["run"]) == ("refused", None)
    assert "Error: " in result.stderr or json.loads(result.stderr)["error"]
    assert lab.snapshot() == before


def test_a_folder_that_can_not_be_written_is_refused_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: path != str(tmp_path))  # root may write everywhere
    output = RunOutput(Wanted(report=str(tmp_path / "report.md")))
    with pytest.raises(UsageError, match="can't be written to"):
        output.check(None, as_json=False, is_dry=False)


def test_a_file_that_can_not_be_written_at_the_end_does_not_keep_the_other_from_it(lab: Lab) -> None:
    block = {"run": f"mkdir '{lab.root}/stories.xml'"}
    lab.repository().play(default=[block | {"must": False}, *DONE])
    result = lab.run("run", "--format", "json", "--junit", "stories.xml", "--report", "report.md")
    told = only_object(result.stdout)
    assert (result.exit_code, told["exit_code"], told["error"]["code"]) == (1, 1, "IO_ERROR")
    assert (told["paths"]["junit"], told["paths"]["report"]) == (None, str(lab.root / "report.md"))
    assert (lab.root / "report.md").exists()


def test_a_link_that_leads_nowhere_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "stories.xml").symlink_to(tmp_path / "gone.xml")
    output = RunOutput(Wanted(junit=str(tmp_path / "stories.xml")))
    with pytest.raises(UsageError, match="not a regular file"):
        output.check(None, as_json=False, is_dry=False)


def test_a_refusal_replaces_the_junit_file_of_an_earlier_job(lab: Lab) -> None:
    lab.repository().play(default=DONE)
    lab.write("stories.xml", '<testsuites><testsuite><testcase name="1. First"/></testsuite></testsuites>')
    assert lab.run("run", "no-such-change", "--junit", "stories.xml").exit_code == 1
    assert cases_of(lab.root / "stories.xml") == {"ralphtool run": ["error"]}


def test_an_error_that_ends_the_run_is_an_error_in_the_junit_file(lab: Lab) -> None:
    lab.repository(setup=["false"], workspace="worktree").play(default=DONE)
    result = lab.run("run", "--format", "json", "--junit", "stories.xml")
    told = only_object(result.stdout)
    assert (result.exit_code, told["result"], told["error"]["code"]) == (1, "unfinished", "SETUP_FAILED")
    cases = cases_of(lab.root / "stories.xml")
    assert cases == {"1. First": ["skipped"], "2. Second": ["skipped"], "ralphtool run": ["error"]}
    assert "the setup command `false` failed" in (lab.root / "stories.xml").read_text()
    assert lab.run("report", "--format", "junit").stdout == (lab.root / "stories.xml").read_text()


def test_nothing_to_do_is_exit_0_and_never_a_passed_test(lab: Lab) -> None:
    lab.repository().play(default=DONE)
    assert lab.loop().exit_code == 0
    assert lab.run("finish", "--merge").exit_code == 0
    result = lab.run("run", "--format", "json", "--junit", "stories.xml")
    told = only_object(result.stdout)
    assert (result.exit_code, told["result"], told["run"]) == (0, "nothing-to-do", None)
    assert cases_of(lab.root / "stories.xml") == {"ralphtool run": ["skipped"]}
    assert lab.loop().stdout == ""  # no event, so nothing on stdout


def test_the_plan_of_a_finished_change_is_an_object_too(lab: Lab) -> None:
    lab.repository().play(default=DONE)
    assert lab.loop().exit_code == 0
    assert lab.run("finish", "--merge").exit_code == 0
    result = lab.run("run", "--dry-run", "--format", "json")
    told = only_object(result.stdout)
    assert (result.exit_code, told["first"], told["trouble"]) == (0, None, None)
    assert [one["state"] for one in told["steps"]] == ["done", "done"]
    assert "nothing left to run" in result.stderr


@pytest.mark.parametrize("signals", [[signal.SIGTERM], [signal.SIGINT, signal.SIGTERM]], ids=["once", "twice"])
def test_a_signal_ends_it_with_the_object(lab: Lab, signals: list[signal.Signals]) -> None:
    lab.repository().play(default=HANG)
    lab.env["MARK"] = marker = f"output-{os.getpid()}-{len(signals)}"
    process = start(lab, subprocess.PIPE, "--junit", "stories.xml")
    try:
        assert wait_until(lambda: ignores_term(marker))
        for number in signals:
            process.send_signal(number)
        stdout, _ = process.communicate(timeout=PATIENCE)
    finally:
        kill(process)
    told = only_object(stdout.decode())
    assert (process.returncode, told["exit_code"], told["result"]) == (130, 130, "interrupted")
    assert told["counts"]["open"] == 2
    assert set(map(tuple, cases_of(lab.root / "stories.xml").values())) == {("skipped",)}


def test_all_changes_are_one_object(lab: Lab) -> None:
    lab.repository("## 1. One\n\n- [ ] 1.1 a\n").play(default=DONE)
    lab.openspec("## 1. Two\n\n- [ ] 1.1 b\n", "second")
    lab.git("add", "--all", "--", ":!.ralph")
    lab.git("commit", "--quiet", "--message=second")
    result = lab.run("run", "--all", "--format", "json", "--junit", "stories.xml")
    told = only_object(result.stdout)
    assert list(told) == names_of(FinalResults)
    assert (result.exit_code, told["exit_code"], told["error"]) == (0, 0, None)
    assert [(one["change"], one["result"]) for one in told["changes"]] == [("add-login", "done"), ("second", "done")]
    assert [list(one) for one in told["changes"]] == [names_of(FinalResult)] * 2
    suites = ET.parse(lab.root / "stories.xml").getroot().findall("testsuite")
    assert [one.attrib["name"] for one in suites] == ["add-login", "second"]


def test_progress_goes_to_standard_error_only_if_that_is_a_terminal(lab: Lab) -> None:
    lab.repository().play(default=DONE)
    ours, theirs = pty.openpty()
    process = start(lab, theirs)
    os.close(theirs)
    stdout, _ = process.communicate(timeout=PATIENCE)
    seen = os.read(ours, 65536)
    os.close(ours)
    assert only_object(stdout.decode())["exit_code"] == process.returncode == 0
    assert b"First" in seen


def test_events_are_what_json_prints(lab: Lab) -> None:
    lab.repository("## 1. One\n\n- [ ] 1.1 a\n").play(default=DONE)
    result = lab.run("run", "--format", "events")
    kinds = [event["type"] for event in lab.events(result)]
    assert (kinds[0], kinds[-1]) == ("run_started", "run_ended")


def test_hostile_texts_leave_the_junit_file_well_formed(lab: Lab) -> None:
    title = "]]> <b>&amp; \x1b[31mred\x07 \u202e " + "long " * 5000
    lab.repository(f"## 1. {title}\n\n- [ ] 1.1 a ]]>\n", attempts=1)
    lab.play(default=[{"blocked": "]]>\x0b\x1b[2J <![CDATA[ \x01" + "x" * 50_000}])
    result = lab.run("run", "--format", "json", "--junit", "stories.xml")
    told = only_object(result.stdout)
    assert (result.exit_code, told["counts"]["stories"]) == (1, 1)
    [name] = cases_of(lab.root / "stories.xml")
    assert name.startswith("1. ]]> <b>")
    assert name.isprintable()
    assert len(name) < 300
