"""An agent in its read-only mode checks a claimed blocker before a person is asked."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lab import DONE, Lab, processes_with

from ralphtool.judging import blockers
from ralphtool.judging.blockers import BlockerCheck
from ralphtool.settings import BlockerSettings

Steps = list[dict[str, Any]]

ONE = "## 1. First\n\n- [ ] 1.1 Make a\n"
TWO = f"{ONE}\n## 2. Second\n\n- [ ] 2.1 Make b\n"
TASKS = "openspec/changes/add-login/tasks.md"
BLOCKED: Steps = [{"blocked": "nobody told me the colour of the button"}]
REAL = {"forge": "I looked.\n<promise>REAL:{token}: no page names a colour</promise>\n"}
UNREAL = {"forge": "<promise>UNREAL:{token}: the style guide says blue</promise>"}


# --- checks without an agent -------------------------------------------------------------------------


@pytest.fixture
def port() -> Iterator[int]:
    """A local port that answers during the test."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def closed_port() -> int:
    with socket.socket() as own:
        own.bind(("127.0.0.1", 0))
        return int(own.getsockname()[1])


@pytest.mark.parametrize(
    "claim", ["nothing listens on port {}", "connect to localhost:{}: refused", "127.0.0.1:{} is down"]
)
def test_a_port_that_is_named_is_knocked_at(port: int, claim: str) -> None:
    assert blockers.check_claim(claim.format(port), "/", {}) == BlockerCheck(
        False, f"an answer on port {port} is available"
    )
    closed = closed_port()
    assert blockers.check_claim(claim.format(closed), "/", {}) == BlockerCheck(
        True, f"an answer on port {closed} is missing"
    )


def test_that_a_port_is_taken_is_not_disproved_by_its_answer(port: int) -> None:
    assert blockers.check_claim(f"port {port} is already in use", "/", {}).is_real is None


@pytest.mark.parametrize("claim", ["db.example.org:5432 is down", "port 99999 is closed", "at 10:30 nothing worked"])
def test_no_other_machine_is_asked_because_an_agent_names_it(claim: str) -> None:
    assert blockers.check_claim(claim, "/", {}).is_real is None


@pytest.mark.parametrize(
    ("claim", "is_real"),
    [
        ("The tests in tests/test_pay.py need a Stripe account", None),
        ("README.md says that a human has to approve migrations", None),
        ("package.json needs node 22", None),
        ("SET_KEY is set but the server turns the login down for all", None),
        ("pip install fails for package.json (no network)", None),
        ("which is meant: REST_API or GraphQL?", None),
        ("what should MAX_RETRIES be", None),
        ("401 from /api/v2/login.php", None),
        ("I need SHOP_KEY to go on", True),
        ("there is no SHOP_KEY", True),
        ("SHOP_KEY isn\u2019t set", True),
        ("SET_KEY isn't set", False),
        (".env does not exist", True),
        ("cannot find README.md", False),
    ],
)
def test_what_is_only_mentioned_is_not_what_is_missing(tmp_path: Path, claim: str, is_real: bool | None) -> None:
    (tmp_path / "tests").mkdir()
    for name in ("tests/test_pay.py", "README.md", "package.json"):
        (tmp_path / name).touch()
    assert blockers.check_claim(claim, str(tmp_path), {"SET_KEY": "x"}).is_real is is_real


def test_what_the_project_needs_is_looked_up_where_it_is_mentioned(tmp_path: Path, port: int) -> None:
    needs = BlockerSettings(variables=("TOKEN",), files=("Makefile",), commands=("sh",), ports=(f"127.0.0.1:{port}",))
    (tmp_path / "Makefile").touch()

    def found(claim: str, **environ: str) -> BlockerCheck:
        return blockers.check_claim(claim, str(tmp_path), environ, needs)

    assert found("there is no token") == BlockerCheck(True, "the variable TOKEN is missing")
    assert found("there is no token", TOKEN="x") == BlockerCheck(False, "the variable TOKEN is available")
    assert found("no makefile, and no sh") == BlockerCheck(False, "the file Makefile, the command sh are available")
    assert found(f"{port} does not answer") == BlockerCheck(False, f"an answer on port 127.0.0.1:{port} is available")
    assert found("I can't get any further") == BlockerCheck(True, "the variable TOKEN is missing"), (
        "nothing is mentioned"
    )
    assert found("I can't get any further", TOKEN="x").is_real is None, "nobody can tell"


def test_a_need_that_is_missing_asks_a_human_and_is_on_record(lab: Lab) -> None:
    lab.repository(ONE)
    config = lab.root / ".ralph/config.toml"
    config.write_text(f'{config.read_text()}[blockers]\nports = ["{closed_port()}"]\n')
    lab.play(default=[{"blocked": "the database does not answer"}])
    assert lab.loop().exit_code == 1
    [entry] = lab.entries()
    assert (entry["context"]["blocker_verified"], entry["context"]["blocker_valid"]) == (True, True)
    assert "an answer on port" in lab.question().read_text()


# --- answers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "is_real", "found"),
    [
        ("<promise>REAL:t0: no key</promise>", True, "no key"),
        ("<promise>UNREAL:t0: it is there</promise>", False, "it is there"),
        ("I looked.\n\n  <promise>REAL:t0:no key</promise>  \n\n", True, "no key"),
        ("<promise>REAL:t0: a: b </b></promise>", True, "a: b (/b)"),
        ("<promise>REAL:t0: a\x1b[2J\x1b]0;b\x07 \r<!--\u202e c</promise>", True, "a [2J ]0;b (!-- c"),
        (f"<promise>REAL:t0: {'long ' * 1000}</promise>", True, " ".join(["long"] * 100)),
        ("<promise>REAL:t0:</promise>", True, "it gave no reason"),
        ("<promise>UNREAL:t0: no</promise>\n<promise>REAL:t0: yes</promise>", True, "yes"),
    ],
)
def test_the_last_line_is_the_answer(message: str, is_real: bool, found: str) -> None:
    assert blockers.parse_answer(message, "t0") == BlockerCheck(is_real, f"an agent checked it: {found}")


@pytest.mark.parametrize(
    "message",
    [
        "",
        "\n \n",
        "REAL",
        "<promise>REAL:other: no key</promise>",
        "<promise>REAL: no key</promise>",
        "<promise>REAL:t0: no key",
        "<promise>REAL:t0: no key</promise> or so",
        "It is <promise>REAL:t0: no key</promise>",
        "<promise>real:t0: no key</promise>",
        "<promise>SURREAL:t0: no key</promise>",
        "<promise>REAL:t0: no key</promise>\nI hope that helps.",
        "<promise>BLOCKED:t0: no key</promise>",
        "<promise>COMPLETE:t0</promise>",
        "<promise>REAL:t00: no key</promise>",
    ],
)
def test_what_is_no_answer_says_nothing(message: str) -> None:
    assert blockers.parse_answer(message, "t0") is None


# --- in the loop ------------------------------------------------------------------------------------

# A scripted agent with a read-only mode, which has a separate script.
LOOKING = """
from ralphtool.agents import Traits
from ralphtool.agents.scripted import Scripted


class Looking(Scripted):
    traits = Traits(cost="told", read_only=True)

    def __init__(self, name, options):
        work, look = options["args"]
        super().__init__(name, {**options, "args": (work,)})
        self.looking = Scripted(name, {**options, "args": (look,)})

    def start(self, job):
        return self.looking.start(job) if job.read_only else super().start(job)
"""


@pytest.fixture
def looking(lab: Lab, tmp_path: Path) -> Lab:
    """A lab in which the agent `looking` is installed."""
    info = tmp_path / "looking/looking-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: looking\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[ralphtool.agents]\nlooking = looking_agent:Looking\n")
    (info.parent / "looking_agent.py").write_text(LOOKING)
    lab.env |= {"PYTHONPATH": str(info.parent), "PYTHONDONTWRITEBYTECODE": "1"}
    return lab


def run(lab: Lab, *steps: dict[str, Any], work: Steps = BLOCKED, tasks: str = ONE, **settings: Any) -> None:
    """Story 1 is blocked at first; the agent that checks this plays these steps."""
    lab.repository(tasks, **{"agent": "looking", "check_blockers": True, **settings})
    play(lab, *steps, work=work)
    lab.loop()


def play(lab: Lab, *steps: dict[str, Any], work: Steps = BLOCKED) -> None:
    look = lab.script.with_name("look.json")
    look.write_text(json.dumps({"turn": [{"steps": list(steps)}]}))
    with (lab.root / ".ralph/config.toml").open("a") as config:
        config.write(f"[agents.looking]\nargs = {json.dumps([str(lab.script), str(look)])}\n")
    lab.play({"story": "1", "attempt": 1, "steps": work}, default=DONE)


def told(lab: Lab, kind: str, field: str) -> list[Any]:
    return [event[field] for event in lab.events() if event["type"] == kind]


def row(lab: Lab, story: str = "1") -> dict[str, Any]:
    stories = told(lab, "run_ended", "stories")[-1]
    found: dict[str, Any] = next(one for one in stories if one["id"] == story)
    return found


def looked(lab: Lab) -> tuple[Any, Any]:
    """What the first entry says about its blocker."""
    context = lab.entries()[0]["context"]
    return context.get("blocker_verified"), context.get("blocker_valid")


def test_a_blocker_that_is_real_is_a_question(looking: Lab) -> None:
    run(looking, REAL, tasks=TWO)
    assert looking.endings() == [("add-login-1-1", "blocked"), ("add-login-2-1", "completed")]
    assert told(looking, "decision", "action")[0] == "manual"
    assert told(looking, "blocker_checked", "real") == [True]
    assert told(looking, "blocker_checked", "found") == ["an agent checked it: no page names a colour"]
    assert "no page names a colour" in looking.question().read_text()
    assert looked(looking) == (True, True)
    explained = looking.run("explain", "add-login-1-1").stdout
    assert "the blocker was checked: an agent checked it: no page names a colour" in explained


def test_a_blocker_that_is_none_is_tried_again_with_the_reason(looking: Lab) -> None:
    run(looking, UNREAL)
    assert [status for _, status in looking.endings()] == ["blocked", "completed"]
    assert told(looking, "blocker_checked", "real") == [False]
    assert looked(looking) == (True, False)
    assert not looking.question().exists()
    [prompt] = looking.root.glob(".ralph/runs/*/*-add-login-1-2/prompt.md")
    assert "You are not blocked: an agent checked it: the style guide says blue" in prompt.read_text()


def test_what_is_asked_holds_the_story_and_the_claim(looking: Lab) -> None:
    run(looking, REAL)
    [folder] = looking.root.glob(".ralph/runs/*/*-add-login-1-1")
    asked, given = (folder / "check/prompt.md").read_text(), (folder / "prompt.md").read_text()
    assert "nobody told me the colour of the button" in asked
    assert "Make a" in asked
    token = asked.rstrip().rpartition("token: ")[2]
    assert len(token) == 32
    assert token not in given, "the answer can't be promised by whoever is asked about"


@pytest.mark.parametrize(
    "steps",
    [
        [{"say": "Hard to tell."}],
        [{"forge": "<promise>REAL:0123: I guess</promise>"}],
        [REAL, {"exit": 3}],
        [{"error": "rate-limit", "text": "slow down"}],
        [{"complete": True}],
    ],
    ids=["talk", "another token", "it fails", "a limit", "another promise"],
)
def test_without_an_answer_all_is_as_before(looking: Lab, steps: Steps) -> None:
    run(looking, *steps)
    assert [status for _, status in looking.endings()] == ["blocked", "completed"]
    assert told(looking, "blocker_checked", "real") == [None]
    assert told(looking, "decision", "action") == ["retry", "next"]
    assert "You are not blocked" not in "".join(told(looking, "decision", "guidance"))
    assert looked(looking) == (False, None)
    assert told(looking, "waiting", "why") == []


def test_who_hangs_while_looking_is_ended(looking: Lab) -> None:
    run(looking, {"hang": True}, timeout="12s")
    assert told(looking, "blocker_checked", "real") == [None]
    assert [status for _, status in looking.endings()] == ["blocked", "completed"]
    assert processes_with(str(looking.home)) == []


def test_who_hangs_while_looking_is_ended_with_the_runs_time(looking: Lab) -> None:
    run(looking, {"hang": True}, max_time="15s", timeout="120s")
    [end] = [event for event in looking.events() if event["type"] == "run_ended"]
    assert "--max-time" in end["reason"]
    assert end["spent"]["seconds"] < 90


# --- a read-only agent leaves nothing behind --------------------------------------------------------

MEDDLES: Steps = [
    {"write": "stray.txt", "text": "mine"},
    {"append": "README.md", "text": "mine"},
    {"write": "2.txt", "text": "mine"},
    {"run": f"sed -i 's/\\[ \\]/[x]/' {TASKS}"},
    {"run": "echo '[run]' > .ralph/config.toml"},
    {"run": "for id in 1.1 2.1; do ralphtool agent task done $id; done >> $HOME/told 2>&1"},
    {"run": "ralphtool agent learn 'I was here' >> $HOME/told 2>&1"},
    {"run": "ralphtool agent observe blocker 'I am blocked' >> $HOME/told 2>&1"},
    {"run": "ralphtool agent session flush >> $HOME/told 2>&1"},
    REAL,
]


@pytest.fixture
def meddled(looking: Lab) -> Lab:
    looking.repository(TWO, agent="looking", check_blockers=True)
    before = looking.users_state()
    play(looking, *MEDDLES)
    config = looking.read(".ralph/config.toml")
    assert looking.loop().exit_code == 1
    assert looking.users_state() == before
    assert looking.read(".ralph/config.toml") == config
    return looking


def test_whoever_looks_can_record_nothing(meddled: Lab) -> None:
    assert meddled.endings() == [("add-login-1-1", "blocked"), ("add-login-2-1", "completed")]
    assert row(meddled)["state"] == "waiting"
    answers = [json.loads(line) for line in (meddled.home / "told").read_text().splitlines()]
    assert [one["code"] for one in answers] == ["SESSION_NOT_FOUND"] * 5
    assert "I was here" not in meddled.run("progress", "learnings", "--json").stdout
    assert "I am blocked" not in json.dumps(meddled.entries())
    kept = meddled.git("ls-tree", "-r", "--name-only", "refs/ralph/attempts/add-login-1-1").split()
    assert "stray.txt" not in kept


def test_whoever_looks_can_change_nothing(meddled: Lab) -> None:
    on_branch = meddled.git("ls-tree", "-r", "--name-only", "ralph/add-login").split()
    assert "stray.txt" not in on_branch
    assert meddled.git("show", "ralph/add-login:2.txt") == "work"
    assert meddled.git("show", "ralph/add-login:README.md") == "hello"
    assert "- [ ] 1.1" in meddled.git("show", f"ralph/add-login:{TASKS}")


@pytest.mark.parametrize(
    "command",
    [
        "git add --all && git commit --quiet --message=mine",
        "git checkout --quiet -B elsewhere && git commit --quiet --allow-empty --message=mine",
        "git branch --force ralph/add-login main && git reset --quiet --hard",
    ],
    ids=["a commit", "another branch", "the branch moved"],
)
def test_whoever_looks_moves_no_branch(looking: Lab, command: str) -> None:
    run(looking, {"write": "stray.txt", "text": "mine"}, {"run": command}, UNREAL, tasks=TWO)
    assert [status for _, status in looking.endings()] == ["blocked", "completed", "completed"]
    assert looking.checkpoints() == ["1", "2"]
    assert looking.git("rev-list", "--count", "main..ralph/add-login") == "2"
    assert "stray.txt" not in looking.git("ls-tree", "--name-only", "ralph/add-login").split()
    assert looking.git("rev-parse", "--abbrev-ref", "HEAD") == "main"


def test_without_git_ticks_of_whoever_looks_do_not_count(looking: Lab) -> None:
    looking.openspec(TWO)
    looking.configure(agent="looking", check_blockers=True, attempts=1)
    play(looking, {"run": f"sed -i 's/\\[ \\] 1.1/[x] 1.1/' {TASKS}"}, UNREAL)
    looking.loop()
    assert "- [ ] 1.1" in looking.read(TASKS)
    assert row(looking)["state"] != "done"


# --- cost -------------------------------------------------------------------------------------------


def spends(cost: float) -> dict[str, Any]:
    return {"usage": {"input_tokens": 1000, "output_tokens": 10, "cost": cost}}


def test_looking_is_paid_for_by_the_story(looking: Lab) -> None:
    run(looking, spends(0.25), REAL, work=[spends(0.5), *BLOCKED])
    assert row(looking)["cost"] == pytest.approx(0.75)
    assert row(looking)["input_tokens"] == 2000
    assert told(looking, "run_ended", "spent")[0]["cost"] == pytest.approx(0.75)


def test_looking_can_use_up_the_runs_budget(looking: Lab) -> None:
    run(looking, spends(0.6), UNREAL, work=[spends(0.5), *BLOCKED], max_cost=1.0, tasks=TWO)
    assert looking.endings() == [("add-login-1-1", "blocked")]
    assert "--max-cost" in told(looking, "run_ended", "reason")[0]


def test_looking_may_only_use_what_is_left(looking: Lab) -> None:
    """0.2 is left at the start, so it is ended after its first report."""
    run(looking, spends(0.3), {"sleep": 60}, spends(0.3), UNREAL,
        work=[spends(0.8), *BLOCKED], max_cost=1.0)  # fmt: skip
    assert told(looking, "run_ended", "spent")[0]["cost"] == pytest.approx(1.1)


# --- when no agent is asked -------------------------------------------------------------------------


def test_an_agent_without_a_read_only_mode_is_not_asked(lab: Lab) -> None:
    lab.repository(ONE, check_blockers=True)
    lab.play({"story": "1", "attempt": 1, "steps": BLOCKED}, default=DONE)
    assert lab.loop().exit_code == 0
    [found] = told(lab, "blocker_checked", "found")
    assert "scripted has no read-only mode" in found
    assert list(lab.root.glob(".ralph/runs/*/*/check*")) == []
    assert looked(lab) == (False, None)


@pytest.mark.parametrize(
    ("settings", "claim", "expected"),
    [
        ({"check_blockers": False}, "nobody told me the colour", (False, None)),
        ({}, "STRIPE_API_KEY is not set", (True, True)),
        ({}, "the file `./README.md` is missing", (True, False)),
    ],
    ids=["not wanted", "missing, as we see", "there, as we see"],
)
def test_nobody_is_asked_what_we_see_or_do_not_want_to_know(
    looking: Lab, settings: dict[str, Any], claim: str, expected: tuple[Any, Any]
) -> None:
    run(looking, UNREAL, work=[{"blocked": claim}], **settings)
    assert told(looking, "blocker_checked", "real") == []
    assert list(looking.root.glob(".ralph/runs/*/*/check*")) == []
    assert looked(looking) == expected
