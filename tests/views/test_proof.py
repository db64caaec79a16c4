"""The proof of a "done" story, in every view: never "proven" for anything that was not proven."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from project import Ralph
from record.run_records import Terminal
from textual.pilot import Pilot
from views import proof_records as made
from views.run_events import clock, drawn, gate, told
from views.test_screen import drive, seen

from ralphtool.judging import proof_words
from ralphtool.judging.receipt import Receipt
from ralphtool.record import events, runs
from ralphtool.views import receipts
from ralphtool.views.report import from_record
from ralphtool.views.terminal.picture import RunDisplay


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Ralph:
    """Five stories, done in five ways."""
    return made.write(Ralph(tmp_path_factory.mktemp("proof")), made.record())


@pytest.fixture
def other(tmp_path: Path) -> Ralph:
    return Ralph(tmp_path)


# --- words ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("proofs", "whys", "words"),
    [
        ((), (), ""),
        (("", ""), (), ""),
        (("proven",), (), "1 proven by its own tests"),
        (("proven", "held", "proven"), (), "2 proven by their own tests, 1 held by the existing tests"),
        (("unproven", "ticked"), ("there is no gate",), "1 ticked by you, 1 done, not proven: there is no gate"),
        (("unproven", "unproven"), ("a", "a"), "2 done, not proven: a"),
        (("unproven", "unproven"), ("a", "b"), "2 done, not proven"),
        (("accepted", "sure", ""), (), "1 accepted by you, 2 without a receipt"),
    ],
)
def test_claims_are_counted(proofs: tuple[str, ...], whys: tuple[str, ...], words: str) -> None:
    assert proof_words.describe_counts(proofs, whys) == words


@pytest.mark.parametrize("state", ["held", "unproven", "accepted", "ticked", "", "Proven", "else"])
def test_only_one_state_is_called_proven(state: str) -> None:
    words = proof_words.describe_proof(state, "there is no gate")
    assert "proven" not in words.replace("not proven", "")
    assert "proven" not in proof_words.SHORT_WORDS.get(state, "").replace("not proven", "")


def test_a_receipt_names_a_few_tests_and_counts_the_rest() -> None:
    names = tuple(f"test_{number}" for number in range(50))
    found = Receipt(state="proven", own_tests=names, own_count=70, lost=names, removed=names[:1], allowed="the title")
    rows = dict(receipts.list_rows(found))
    assert rows["own tests"].endswith("test_0, test_1, test_2 and 67 more")
    assert rows["lost"].endswith("test_0, test_1, test_2 and 47 more; allowed: the title")
    assert rows["removed"] == "1 test that still passes was removed: test_0"
    assert receipts.list_rows(Receipt()) == []


# --- the terminal -----------------------------------------------------------------------------------


DOUBTED = "           1 story is done, not proven: `ralphtool questions`"


def test_a_list_counts_the_claims(project: Ralph) -> None:
    shown = project.run("list", NO_COLOR="1").stdout
    assert shown.splitlines()[-2].endswith("stories 5/5: 1 proven, 1 held, 1 not proven, 1 accepted")
    assert shown.splitlines()[-1] == DOUBTED


def test_a_list_breaks_its_lines_where_there_is_no_room(project: Ralph) -> None:
    with Terminal(project, "list", columns=80, NO_COLOR="1") as screen:
        lines = screen.rest()[0].splitlines()
    assert lines[-3].endswith("stories 5/5")
    assert lines[-2:] == ["           1 proven, 1 held, 1 not proven, 1 accepted", DOUBTED]


def test_a_change_shows_each_receipt(project: Ralph) -> None:
    shown = project.run("show", "add-login")
    lines = [line.strip() for line in shown.stdout.splitlines()]
    assert lines.count("proven by its own tests (60 tests fail without it)") == 1
    assert "own tests 60 fail without the work and pass with it: " + ", ".join(made.OWN[:3]) + " and 57 more" in lines
    for line in (
        "passing   210 before, 212 now",
        "removed   1 test that still passes was removed: tests/test_old.py::test_twice",
        "suspected assertion-weakened tests/test_form.py test_form compares less",
        "weakened  1 assertion that still passes was weakened: tests/test_form.py",
        "cleared   the tests as they were pass on the new code",
        "ran       pytest -q: green, 210 passed (the tests as they were, on the new code)",
        "ran       pytest -q: red, as it should be, 210 passed, 60 failed (the new tests, without the work)",
        "commit    19f2c1b7d0",
        "held by the existing tests (212 tests pass)",
        "note      pytest/ was set aside: git ignores it, and the attempt made it",
        f"done, not proven: {made.WHY}",
        "accepted by you: the colours are as I want them",
        "accepted  by Ann on 2026-03-02 07:30",
    ):
        assert line in lines
    stories = project.run("show", "add-login", "--json").json["stories"]
    assert [one["proof"] and one["proof"]["state"] for one in stories] == [
        "proven",
        "held",
        "unproven",
        "accepted",
        None,
    ]


def test_a_story_that_is_open_again_has_no_receipt(other: Ralph) -> None:
    made.write(other, made.record())
    tasks = other.tasks_file
    tasks.write_text(tasks.read_text().replace("- [x] 1.1", "- [ ] 1.1"))
    assert "proven by its own tests" not in other.run("show", "add-login").stdout
    assert "stories 4/5: 1 held, 1 not proven, 1 accepted\n" in other.run("list").stdout


@pytest.mark.parametrize("state", ["{", '{"stories": {"1": {"proof": 7}, "2": {"proof": {"state": 3, "lost": "x"}}}}'])
def test_a_damaged_state_claims_nothing(other: Ralph, state: str) -> None:
    made.write(other, made.record())
    other.write(".ralph/standing/add-login.json", state)
    assert "proven by" not in other.run("show", "add-login").stdout
    assert other.run("list").stdout.rstrip().endswith("stories 5/5")


def test_a_report_says_at_the_story_which_tests_guard_less(project: Ralph) -> None:
    shown = project.run("report").stdout
    done = shown.partition("\n## Done\n")[2].partition("\n## ")[0]
    [line] = [line for line in done.splitlines() if line.startswith("- **1. Set up**")]
    assert made.WEAKER in line.replace("\\", "")


def test_the_end_of_a_run_counts_and_names_what_is_not_proven(project: Ralph) -> None:
    lines = project.run("watch").stdout.splitlines()
    assert lines[1] == made.HEADLINE
    at = lines.index("Done, not proven")
    assert lines[at + 1 : at + 3] == ["  ! 3. Sign out  (commit 39f2c1b7d0)", f"      {made.WHY}"]
    at = lines.index("  ✓ 1. Set up  (proven by its own tests, commit 19f2c1b7d0)")
    assert lines[at + 1] == f"      {made.WEAKER}"
    assert "  ✓ 5. Read me  (ticked by you, commit 59f2c1b7d0)" in lines
    assert [line for line in lines if line.endswith("ralphtool accept 3")]


@pytest.mark.parametrize(
    ("proof", "why", "headline"),
    [
        ("proven", "", "The story is done: proven by its own tests."),
        ("held", "", "The story is done: held by the existing tests."),
        ("unproven", "there is no gate", "The story is done, not proven: there is no gate."),
        ("unproven", "", "The story is done, not proven."),
        ("accepted", "", "The story is done: accepted by you."),
        ("ticked", "", "The story is done: ticked by you."),
        ("", "", "The story is done."),
        ("surely", "", "The story is done."),
    ],
)
def test_one_story_alone(other: Ralph, proof: str, why: str, headline: str) -> None:
    row = {"id": "1", "title": "Set up", "state": "done", "proof": proof, "proof_why": why}
    made.put(other.root, [made.start(1), made.end("done", stories=[row])])
    assert other.run("watch").stdout.splitlines()[1] == headline
    assert other.run("report", "--json").json["verdict"] == headline


RED: dict[str, Any] = {
    "ok": False,
    "runs": [
        {"command": "ruff check .", "ok": True},
        {"command": "pytest -q", "ok": False, "tally": "4 passed, 2 failed"},
    ],
}


def test_red_gates_at_the_end_come_first(other: Ralph) -> None:
    rows = [{"id": id, "state": "done", "proof": "proven"} for id in "12"]
    made.put(other.root, [made.start(2), made.end(stories=rows, tip=RED)])
    headline = "he gates are red at the end of the run: pytest -q (4 passed, 2 failed). 2 of 2 stories are done: "
    assert other.run("watch").stdout.splitlines()[1].startswith(f"T{headline}")
    assert other.run("report").stdout.splitlines()[0].startswith(f"# add-login: t{headline}")
    [suite] = ET.fromstring(other.run("report", "--format", "junit").stdout)
    assert (suite.get("failures"), suite.get("tests")) == ("1", "3")
    assert [one.get("name") for one in suite.iter("testcase") if one.find("failure") is not None] == [
        "last check of the branch"
    ]


def test_green_gates_at_the_end_need_no_word(other: Ralph) -> None:
    made.put(other.root, [made.start(), made.end(tip={"ok": True, "runs": []})])
    assert "red" not in other.run("watch").stdout.splitlines()[1].split(": `pytest", 1)[0]


def test_old_records_never_say_proven(other: Ralph) -> None:
    rows = [{"id": str(number), "title": name, "state": "done"} for number, name in enumerate(made.NAMES, 1)]
    old = [made.line("checkpoint", 1, story="1", commit="abc", subject="x"), made.end("done", stories=rows)]
    made.put(other.root, [made.start(), *old])
    for arguments in (("watch",), ("watch", "--replay", "--speed", "0"), ("report",), ("report", "--format", "junit")):
        shown = other.run(*arguments).stdout
        assert "5 of 5 stories are done." in shown
        assert "prove" not in shown
    assert other.run("runs", "--json").json["runs"][0]["proofs"] == {}


def test_each_proof_is_a_line(project: Ralph) -> None:
    lines = [line[8:] for line in project.run("watch", "--replay", "--speed", "0").stdout.splitlines()]
    own = "✓ 1. Set up: proven by its own tests (60 tests fail without it); "
    assert own + made.WEAKER in lines
    assert "✓ 2. Login form: held by the existing tests (212 tests pass)" in lines
    assert f"! 3. Sign out: done, not proven: {made.WHY}" in lines
    assert "✓ 4. Colours: accepted by you: the colours are as I want them" in lines
    plain = project.run("watch", "--replay", "--speed", "0", PYTHONIOENCODING="ascii", LC_ALL="C").stdout
    assert plain.isascii()
    assert "+ 1. Set up: proven by its own tests" in plain


def test_an_old_test_that_a_story_was_allowed_to_break_is_named_wherever_its_proof_is_shown(other: Ralph) -> None:
    asked, names = "the story asks for it: Change the total", ("t.py::test_total", "t.py::test_tax", "a", "b")
    found = made.receipt("proven", 1, own_tests=["t.py::test_fee"], own_count=1, lost=names[:1], allowed=asked)
    broken = f"1 test as it was fails on the new code: t.py::test_total; allowed: {asked}"
    assert proof_words.describe_allowed(names[:1], asked) == broken
    assert "t.py::test_total, t.py::test_tax, a and 1 more; allowed" in proof_words.describe_allowed(names, asked)
    assert proof_words.describe_allowed(names, "") == proof_words.describe_allowed((), asked) == ""
    lines = [made.start(1), *made.work(1, found), made.end("done", stories=[made.story_row(1, weaker_tests=broken)])]
    made.write(other, lines, {"1": found})
    told = "✓ 1. Set up: proven by its own tests (1 test fails without it); "
    assert told + broken in other.run("watch", "--replay", "--speed", "0", COLUMNS="300").stdout
    assert f"\n      {broken}\n" in other.run("watch", COLUMNS="300").stdout
    assert broken in other.run("show", "add-login", COLUMNS="300").stdout
    done = other.run("report").stdout.partition("\n## Done\n")[2]
    assert broken in done.splitlines()[1].replace("\\", "")


def test_what_people_say_about_a_story_is_a_line() -> None:
    said = [
        {"at": "", "type": "steered", "action": action, "story": "2", "text": "why"} for action in ("accept", "reject")
    ]
    assert told(*said) == ["you accepted 2: why", "you rejected 2: why"]


def test_the_picture_has_a_word_for_each_story() -> None:
    view = RunDisplay(clock(0))
    for line in made.record()[:-1]:
        if event := events.decode(line):
            view.feed(event)
    lines = drawn(view, 79, 24)
    ends = [line.split()[-2] if line.endswith("0/1") else "" for line in lines[2:6]]
    assert ends == ["proven", "held", "proven", "accepted"]
    assert lines[4].startswith("! 3. Sign out")
    assert "not proven" in lines[4]
    assert "proven" not in "\n".join(drawn(view, 50, 24))


def test_it_fits_a_terminal_without_colours(project: Ralph) -> None:
    with Terminal(project, "watch", columns=80, NO_COLOR="1") as screen:
        shown, code = screen.rest()
    assert code == 0
    assert max(map(len, shown.splitlines())) <= 80
    assert "\x1b[3" not in shown
    assert " ".join(made.HEADLINE.split()) in " ".join(shown.split())


def test_an_attempt_is_explained_with_its_receipt(project: Ralph) -> None:
    shown = project.run("explain", "add-login-3-1").stdout
    assert f"Proof\n  done, not proven: {made.WHY}\n" in shown
    assert "accept it as it is: ralphtool accept add-login-3-1" in shown
    assert 'reject it: ralphtool reject 3 --change add-login --why "…"' in shown
    assert "ralphtool accept" not in project.run("explain", "add-login-1-1").stdout
    assert project.run("explain", "add-login-1-1", "--json").json["proof"]["own_count"] == 60


def test_a_wrapped_proof_is_indented_like_its_story(project: Ralph) -> None:
    with Terminal(project, "show", "add-login", columns=40, NO_COLOR="1") as screen:
        shown, _ = screen.rest()
    lines = shown.splitlines()
    [below] = [lines[at + 1] for at, line in enumerate(lines) if line.startswith("    proven by its own tests (")]
    assert len(below) - len(below.lstrip()) == 6, below


def test_what_was_accepted_since_is_explained_so(other: Ralph) -> None:
    made.write(other, made.record(), {**made.RECEIPTS, "3": made.receipt("accepted", 3, why="fine", by="Ann")})
    shown = other.run("explain", "add-login-3-1").stdout
    assert "accepted by you: fine" in shown
    assert "done, not proven" not in shown


def test_logs_end_with_the_claim(project: Ralph) -> None:
    assert (
        "\ncompleted: It is there.\nheld by the existing tests (212 tests pass)\n"
        in project.run("logs", "add-login-2-1").stdout
    )


def test_runs_tell_it_apart(project: Ralph) -> None:
    assert "  unproven  5/5" in project.run("runs").stdout
    [run] = project.run("runs", "--json").json["runs"]
    assert (run["state"], run["proofs"]["unproven"]) == ("unproven", 1)


# --- the report -------------------------------------------------------------------------------------


def test_markdown_asks_first_and_shows_each_receipt(project: Ralph) -> None:
    lines = project.run("report").stdout.splitlines()
    assert lines[0] == f"# add-login: {made.HEADLINE}"
    assert lines.index("## Done, not proven") < lines.index("## Next steps") < lines.index("## Done")
    assert "- Accept it: `ralphtool accept 3 --change add-login`" in lines
    assert '- Reject it: `ralphtool reject 3 --change add-login --why "…"`' in lines
    assert "- **2. Login form** (held by the existing tests, commit 29f2c1b7d0, 1 attempt)" in lines
    assert "  - passing: 210 before, 212 now" in lines
    assert next(line for line in lines if "3. Sign out" in line) == "### 3. Sign out"


def test_json_has_all_of_it(project: Ralph) -> None:
    facts = project.run("report", "--json").json
    assert [one["proof"] for one in facts["stories"]] == list(made.STATES)
    assert facts["stories"][0]["receipt"]["own_tests"] == list(made.OWN)
    assert facts["stories"][2]["proof_why"] == made.WHY
    assert facts["state"] == "unproven"


@pytest.mark.parametrize(("result", "failures", "skipped"), [("unproven", "1", "0"), ("done", "0", "1")])
def test_junit_fails_what_is_not_proven_unless_the_settings_accept_it(
    other: Ralph, result: str, failures: str, skipped: str
) -> None:
    made.put(other.root, made.record(result=result))
    [suite] = ET.fromstring(other.run("report", "--format", "junit").stdout)
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("5", failures, skipped)
    [case] = [one for one in suite.iter("testcase") if one.get("name") == "3. Sign out"]
    ending = case.find("failure") if result == "unproven" else case.find("skipped")
    assert ending is not None
    assert ending.get("message") == f"done, not proven: {made.WHY}"
    assert "proof: unproven" in (case.findtext("system-out") or "").split("\n")


def test_the_page_shows_it(project: Ralph, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    assert project.run("report", "--output", str(path)).exit_code == 0
    page = path.read_text()
    assert '<span class="chip is-done">proven by its own tests</span>' in page
    assert '<span class="chip is-unproven">done, not proven</span>' in page
    assert "60 fail without the work and pass with it" in page
    assert 'aria-label="5 stories: 4 done, 1 done, not proven"' in page


# --- bad input --------------------------------------------------------------------------------------

HOSTILE = made.receipt(
    "proven",
    why=made.EVIL,
    own_tests=[made.EVIL] * 50,
    own_count=50,
    lost=[made.EVIL] * 50,
    removed=[made.EVIL] * 50,
    suspicions=[{"kind": made.EVIL, "path": made.EVIL, "detail": made.EVIL}] * 50,
    cleared=made.EVIL,
    allowed=made.EVIL,
    told=[made.EVIL] * 50,
    by=made.EVIL,
    runs=[{"kind": made.EVIL, "command": made.EVIL, "ok": True, "tally": made.EVIL}] * 50,
)


@pytest.mark.parametrize("state", ["proven", "unproven", "accepted"])
def test_hostile_names_stay_text(other: Ralph, state: str, tmp_path: Path) -> None:
    evil = {**HOSTILE, "state": state}
    rows = [made.story_row(1, proof=state, proof_why=made.EVIL)]
    tip = {"ok": False, "runs": [{"command": made.EVIL, "ok": False, "tally": made.EVIL}] * 9}
    made.write(other, [made.start(), *made.work(1, evil), made.end(stories=rows, tip=tip)], {"1": evil})
    commands = (("list",), ("show", "add-login"), ("watch",), ("explain", "add-login-1-1"), ("logs", "add-login-1-1"))
    for arguments in (*commands, ("watch", "--replay", "--speed", "0"), ("report",), ("report", "--format", "junit")):
        shown = other.run(*arguments)
        assert shown.exit_code == 0, shown.stderr
        assert not set("\x1b\x00\u202e") & set(shown.stdout)
        assert len(shown.stdout) < 60_000
        assert max(map(len, shown.stdout.splitlines())) < 3000 or "junit" in arguments
    path = tmp_path / "page.html"
    assert other.run("report", "--output", str(path)).exit_code == 0
    assert "<script" not in path.read_text()
    assert ET.fromstring(other.run("report", "--format", "junit").stdout) is not None


@pytest.mark.parametrize(
    "event",
    [
        {"receipt": 7},
        {"receipt": {"state": ["proven"], "own_count": -1, "passed_before": 1e99, "runs": {}, "lost": [1, None, "x"]}},
        {"receipt": {"own_tests": "test_a", "suspicions": ["x", {"kind": 3}]}, "story": 9},
        {},
    ],
)
def test_a_proof_that_fits_no_type_claims_nothing(event: dict[str, Any]) -> None:
    line = {"at": "2026-03-01T22:00:00.000000Z", "type": "proof", "story": "1", **event}
    [shown] = told(line)
    assert "proven by" not in shown
    assert events.decode(json.dumps(line).encode()) is not None


def test_facts_of_a_run_that_goes_on_know_what_is_done(other: Ralph) -> None:
    made.put(other.root, made.record()[:-1])
    facts = from_record.read_facts(runs.read_summary(str(other.root), made.RUN))
    assert [one.proof for one in facts.stories] == ["proven", "held", "unproven", "accepted", ""]


# --- the full screen --------------------------------------------------------------------------------


def test_the_full_screen_tells_it_on_each_page(project: Ralph, monkeypatch: pytest.MonkeyPatch) -> None:
    async def look(pilot: Pilot[None]) -> None:
        await seen(pilot, "! add-login", "done, not all proven", "1 not proven")
        await pilot.press("enter")
        await seen(pilot, "✓ 1. Set up", "! 3. Sign out")
        await pilot.press("down", "down", "down")
        await seen(pilot, "done, not proven: `pytest -q`", "lost      1 test as it was")
        await pilot.press("o")
        await seen(pilot, "5 of 5 stories are done: 1 proven", "! 3. Sign out  done, not proven", "ralphtool accept 3")
        await pilot.press("l")
        await seen(pilot, "1 proven, 1 held, 1 not proven, 1 accepted, 1", "e shows the result")

    monkeypatch.setenv("NO_COLOR", "1")
    drive(project.root, look)


# --- gates that ran for a proof ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("when", "ok", "line"),
    [
        ("after", True, "gate passed after the work: pytest -q: 2 passed (12 s)"),
        ("replay", True, "gate passed on the tests as they were: pytest -q: 2 passed (12 s)"),
        ("replay", False, "gate failed on the tests as they were: pytest -q: 2 passed (12 s) /log"),
        ("own-tests", False, "gate failed on the new tests without the work, as it should: pytest -q: 2 passed (12 s)"),
        ("own-tests", True, "gate passed on the new tests without the work: pytest -q: 2 passed (12 s)"),
        ("tip", False, "gate failed at the end of the run: pytest -q: 2 passed (12 s) /log"),
        ("", True, "gate passed: pytest -q: 2 passed (12 s)"),
    ],
)
def test_a_gate_says_what_it_was_run_on(when: str, ok: bool, line: str) -> None:
    assert told(gate("pytest -q", ok, when, tally="2 passed", log="/log")) == [line]


@pytest.mark.parametrize(
    ("when", "more", "line"),
    [
        (
            "after",
            {"new": ["pytest -q"], "why": "wall-clock"},
            "after the work: pytest -q: stopped, 1 newly red",
        ),
        (
            "after",
            {"tally": "2 passed", "why": "stopped"},
            "after the work: pytest -q: 2 passed, stopped",
        ),
        ("own-tests", {"why": "stopped"}, "on the new tests without the work: pytest -q: stopped"),
    ],
)
def test_a_gate_that_was_stopped_did_not_fail(when: str, more: dict[str, Any], line: str) -> None:
    """It took too long, or another story changed what it would have to run on."""
    assert told(gate("pytest -q", False, when, exit_code=-15, **more))[0].startswith(f"gate did not end {line} (12 s)")


def test_a_gate_that_something_else_killed_failed() -> None:
    """Such as the kernel, because the machine has no memory left."""
    assert told(gate("pytest -q", False, "after", exit_code=-9))[0].startswith(
        "gate failed after the work: pytest -q: exit code -9"
    )


def test_a_test_that_has_to_fail_is_no_trouble(other: Ralph) -> None:
    ran = [
        made.line("gate", 2, when=when, command="pytest -q", ok=False, iteration=1, story="1", seconds=1.0)
        for when in ("own-tests", "replay")
    ]
    begun, *rest = made.work(1, made.RECEIPTS["1"])
    made.write(other, [made.start(1), begun, *ran, *rest, made.end(stories=[made.story_row(1)])])
    page = other.run("report", "--format", "html", "--output", "-").stdout
    assert '<span class="chip gate-green">red, as it should be</span>' in page
    assert '<span class="chip gate-red">red</span>' in page
    shown = other.run("explain", "add-login-1-1").stdout
    assert "red, as expected, on the new tests without the work: pytest -q" in shown
    assert "red on the tests as they were: pytest -q" in shown
