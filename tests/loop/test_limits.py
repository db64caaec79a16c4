"""Limits and money in the real loop: rate limits, budgets, prices, quotas, and which agent takes over."""

from __future__ import annotations

import io
import json
import re
import signal
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from lab import DONE, Lab, processes_with, wait_until
from patience import PATIENCE
from rich.console import Console

from ralphtool.loop.runners import make_runners
from ralphtool.record import events
from ralphtool.settings import AgentSettings, Permissions, RunSettings, Settings
from ralphtool.views.terminal.picture import RunDisplay

Steps = list[dict[str, Any]]

ONE = "## 1. First\n\n- [ ] 1.1 Make a\n"
TWO = f"{ONE}\n## 2. Second\n\n- [ ] 2.1 Make b\n"
LIMITED: dict[str, Any] = {"error": "rate-limit", "text": "slow down"}
HANG: dict[str, Any] = {"hang": True}
SPENDS: dict[str, Any] = {"usage": {"input_tokens": 60_000, "output_tokens": 40_000, "cost": 0.6}}
COUNTS: dict[str, Any] = {"usage": {"input_tokens": 1_000_000}}
FIRST_WAIT = 30.0


def turn(story: str, steps: Steps, **more: Any) -> dict[str, Any]:
    return {"story": story, "steps": steps, **more}


def told(lab: Lab, kind: str, field: str) -> list[Any]:
    return [event[field] for event in lab.events() if event["type"] == kind]


def notices(lab: Lab) -> str:
    return "\n".join(told(lab, "notice", "text"))


def ended(lab: Lab) -> dict[str, Any]:
    return [event for event in lab.events() if event["type"] == "run_ended"][-1]


def row(lab: Lab, story: str = "1") -> dict[str, Any]:
    found: dict[str, Any] = next(one for one in ended(lab)["stories"] if one["id"] == story)
    return found


def configure(lab: Lab, text: str) -> None:
    with (lab.root / ".ralph/config.toml").open("a") as config:
        config.write(f"{text}\n")


def second(lab: Lab, *turns: dict[str, Any], default: Steps | None = None) -> None:
    """Another scripted agent, with a script of its own."""
    script = lab.script.with_name("second.json")
    script.write_text(json.dumps({"turn": list(turns), "defaults": {"steps": DONE if default is None else default}}))
    configure(lab, f'[agents.second]\nkind = "scripted"\nargs = ["{script}"]')


def is_gone(lab: Lab) -> bool:
    """Whether no process of the lab is left: all of them have its home in their environment."""
    return processes_with(str(lab.home)) == []


# --- handing over -----------------------------------------------------------------------------------


def test_work_is_handed_over_and_back(lab: Lab) -> None:
    lab.repository(TWO, agents=["scripted", "second"], max_time="5m")
    second(lab, turn("1", [{"sleep": 10}, *DONE]))
    lab.play(turn("1", [{**LIMITED, "reset_in": 9}]), turn("2", DONE))
    assert lab.loop().exit_code == 0
    assert told(lab, "iteration_started", "agent") == ["scripted", "second", "scripted"]
    assert told(lab, "iteration_started", "attempt") == [1, 1, 1]
    handed = [(one["from"], one["to"], one["why"]) for one in lab.events() if one["type"] == "handed_over"]
    assert handed == [
        ("scripted", "second", "rate-limit: slow down"),
        ("second", "scripted", "it can continue"),
    ]
    assert told(lab, "waiting", "seconds") == [], "somebody could work all the time"
    assert lab.endings() == [("add-login-1-1", "completed"), ("add-login-2-1", "completed")]


@pytest.fixture(scope="module")
def resting(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """Both agents have reported when they can continue, the second one sooner. The run was stopped while it waited."""
    lab = Lab(tmp_path_factory.mktemp("resting")).repository(ONE, agents=["scripted", "second"])
    second(lab, default=[{"error": "overload", "text": "too many people", "reset_in": 1500}])
    lab.play(default=[{**LIMITED, "reset_in": 3600}])
    assert stopped_while_waiting(lab) == 130
    return lab


def stopped_while_waiting(lab: Lab) -> int:
    """The exit status of a run that gets a Ctrl-C while it waits."""
    process = lab.start()
    try:
        assert wait_until(lambda: told(lab, "waiting", "why"))
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
        process.wait(120)
    return process.returncode


def test_if_all_rest_the_soonest_is_waited_for(resting: Lab) -> None:
    assert told(resting, "handed_over", "to") == ["second"]
    assert told(resting, "verdict", "status") == ["transient", "transient"]
    [waiting] = [event for event in resting.events() if event["type"] == "waiting"]
    assert waiting["why"] == "overload: too many people"
    assert 1400 < waiting["seconds"] <= 1500
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", waiting["until"])
    seconds = (datetime.fromisoformat(waiting["until"]) - datetime.fromisoformat(waiting["at"])).total_seconds()
    assert seconds == pytest.approx(waiting["seconds"], abs=2)
    assert resting.entries() == []
    assert row(resting)["attempts"] == 0


def test_a_wait_that_the_run_has_no_time_for_ends_it_at_once(lab: Lab) -> None:
    lab.repository(ONE, agents=["scripted", "second"], max_time="10m")
    second(lab, default=[{"error": "overload", "text": "too many people", "reset_in": 1500}])
    lab.play(default=[{**LIMITED, "reset_in": 3600}])
    assert lab.loop().exit_code == 1
    assert told(lab, "verdict", "status") == ["transient", "transient"]
    assert told(lab, "waiting", "seconds") == []
    over = "overload: too many people: waiting would exceed the time limit (--max-time)"
    assert ended(lab)["reason"] == over
    assert ended(lab)["spent"]["seconds"] < 300
    assert lab.entries() == []
    assert row(lab)["attempts"] == 0


def test_the_live_view_counts_down(resting: Lab) -> None:
    happened = resting.events()
    last = next(number for number, event in enumerate(happened) if event["type"] == "waiting")
    until = datetime.fromisoformat(happened[last]["until"]).timestamp()
    view = RunDisplay(lambda: until - 90.5)
    for event in happened[: last + 1]:
        if known := events.decode_fields(event):
            view.feed(known)
    screen = Console(width=80, file=io.StringIO(), record=True, color_system=None)
    screen.print(view.render(80, 24))
    assert screen.export_text().rstrip().endswith("waiting 01:30 more: overload: too many people")


def test_backing_off_ends_with_the_runs_time(lab: Lab) -> None:
    lab.repository(ONE, max_time="28s").play(default=[{"error": "network", "text": "no route"}])
    assert lab.loop().exit_code == 1
    assert told(lab, "iteration_started", "number") == [1]
    assert told(lab, "waiting", "seconds") == []
    over = "network: no route: waiting would exceed the time limit (--max-time)"
    assert ended(lab)["reason"] == over


def test_backing_off_ends_with_ctrl_c(lab: Lab) -> None:
    lab.repository(ONE).play(default=[{"error": "login", "text": "log in first"}])
    assert stopped_while_waiting(lab) == 130
    assert (ended(lab)["result"], ended(lab)["reason"]) == ("interrupted", "interrupted")
    assert told(lab, "waiting", "why") == ["login: log in first"]
    [waiting] = [event for event in lab.events() if event["type"] == "waiting"]
    [failed] = [event for event in lab.events() if event["type"] == "agent" and event["event"]["kind"] == "failure"]
    passed = datetime.fromisoformat(waiting["at"]) - datetime.fromisoformat(failed["at"])
    assert FIRST_WAIT - passed.total_seconds() - 1 < waiting["seconds"] <= FIRST_WAIT
    assert lab.entries() == []


# --- trying again -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("patience", "tries"),
    [("1s", [LIMITED]), ("1s", [LIMITED, {"sleep": 0.6}, LIMITED]), ("5m", [{**LIMITED, "reset_in": 3600}])],
    ids=["in silence", "again and again", "in vain"],
)
def test_who_only_tries_again_is_ended_and_it_was_no_attempt(lab: Lab, patience: str, tries: Steps) -> None:
    lab.repository(ONE, agents=["scripted", "second"], patience=patience, max_time="5m")
    second(lab)
    lab.play(default=[{"write": "half", "text": ""}, {"tick": "1.1"}, *tries, HANG])
    assert lab.loop().exit_code == 0
    assert told(lab, "verdict", "status") == ["transient", "completed"]
    assert told(lab, "verdict", "summary")[0] == "rate-limit: slow down"
    assert told(lab, "iteration_started", "agent") == ["scripted", "second"]
    assert lab.endings() == [("add-login-1-1", "completed")]
    assert "half" in lab.git("ls-tree", "--name-only", "ralph/add-login").split(), "its work was taken up"
    assert is_gone(lab)


def test_who_tries_again_and_then_works_on_is_left_alone(lab: Lab) -> None:
    lab.repository(ONE, patience="1s")
    lab.play(default=[LIMITED, {"write": "a", "text": ""}, {"sleep": 2.5}, *DONE])
    assert lab.loop().exit_code == 0
    assert told(lab, "verdict", "status") == ["completed"]


def test_without_patience_nobody_is_ended_for_trying_again(lab: Lab) -> None:
    lab.repository(ONE, patience=0)
    lab.play(default=[{**LIMITED, "reset_in": 3600}, {"sleep": 3.5}, *DONE])
    assert lab.loop().exit_code == 0
    assert told(lab, "verdict", "status") == ["completed"]


CLOCKS: list[tuple[dict[str, str], Steps, str]] = [
    ({"silence": "5s"}, [LIMITED, HANG], "transient"),
    ({"timeout": "8s"}, [LIMITED, HANG], "transient"),
    ({"silence": "5s"}, [LIMITED, {"say": "I will think about it."}, HANG], "failed"),
    ({"silence": "5s"}, [{"error": "context", "text": "slow down"}, HANG], "failed"),
]


@pytest.mark.parametrize(
    ("clock", "steps", "status"),
    CLOCKS,
    ids=["silence", "wall clock", "silence after a word", "silence, own fault"],
)
def test_a_clock_that_runs_out_over_a_limit_is_nobodys_fault(
    lab: Lab, clock: dict[str, str], steps: Steps, status: str
) -> None:
    lab.repository(ONE, patience=0, max_iterations=1, **clock).play(default=steps)
    assert lab.loop().exit_code == 1
    assert told(lab, "verdict", "status") == [status]
    assert row(lab)["attempts"] == (status == "failed")
    assert is_gone(lab)


# --- budgets ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("budget", [{"story_tokens": 100_000}, {"story_cost": 0.5}], ids=["in tokens", "in dollars"])
def test_a_storys_budget_ends_its_iteration_and_nothing_else(lab: Lab, budget: dict[str, Any]) -> None:
    lab.repository(TWO, **budget)
    lab.play(turn("1", [{"run": "sleep 3600", "background": True}, {"write": "half", "text": ""}, SPENDS, HANG]),
             turn("2", [{"usage": {"input_tokens": 1000, "cost": 0.01}}, *DONE]))  # fmt: skip
    result = lab.run("run")
    assert result.exit_code == 1
    assert is_gone(lab)
    assert lab.endings() == [("add-login-1-1", "failed"), ("add-login-2-1", "completed")]
    assert told(lab, "verdict", "reasons")[0][0] == "the budget was used up and the agent was stopped"
    assert (row(lab)["state"], row(lab)["attempts"], row(lab, "2")["state"]) == ("failed", 1, "done")
    assert "half" not in lab.git("ls-tree", "--name-only", "ralph/add-login").split()
    assert lab.git("show", "refs/ralph/attempts/add-login-1-1:half") == ""
    assert "This run took" in result.stdout
    assert "61k tokens in, 40k out, $0.61" in result.stdout
    assert re.search(r"60k +40k +\$0\.60 +1\. First", result.stdout)


def test_the_runs_budget_ends_the_run(lab: Lab) -> None:
    lab.repository(TWO, max_cost=0.5).play(default=[SPENDS, HANG])
    assert lab.loop().exit_code == 1
    assert told(lab, "verdict", "status") == ["interrupted"]
    assert lab.entries() == [], "whose money is used up has not failed"
    assert (ended(lab)["result"], ended(lab)["reason"]) == ("unfinished", "the limit of $0.50 is reached (--max-cost)")
    assert row(lab)["attempts"] == 0
    assert is_gone(lab)


def test_what_one_story_spent_is_missing_to_the_next(lab: Lab) -> None:
    """The first story stays below the run's limit; the second one may only use what is left of it."""
    lab.repository(TWO, max_cost=1.0)
    lab.play(turn("1", [SPENDS, *DONE]), turn("2", [SPENDS, HANG]))
    assert lab.loop().exit_code == 1
    assert told(lab, "verdict", "status") == ["completed", "interrupted"]
    assert lab.endings() == [("add-login-1-1", "completed")]
    assert "--max-cost" in ended(lab)["reason"]
    assert ended(lab)["spent"]["cost"] == pytest.approx(1.2)


def test_an_agent_without_its_end_is_judged_by_what_was_proven(lab: Lab) -> None:
    """All tasks are ticked and the gates are green, but the budget ran out before the promise."""
    lab.repository(TWO, story_cost=0.5, checks=["true"], max_iterations=1)
    lab.play(default=[{"write": "a", "text": ""}, {"tick": "all"}, SPENDS, HANG])
    lab.loop()
    assert told(lab, "verdict", "status") == ["partial"]
    assert "the budget was used up" in told(lab, "verdict", "summary")[0]


def test_tokens_and_cost_are_on_record(lab: Lab) -> None:
    lab.repository(ONE, attempts=2)
    lab.play(turn("1", [SPENDS], attempt=1), turn("1", [SPENDS, *DONE], attempt=2))
    assert lab.loop().exit_code == 0
    events = [one for one in lab.events() if one["type"] == "verdict"]
    used = [(one["input_tokens"], one["output_tokens"], one["cost"]) for one in events]
    assert used == [(60_000, 40_000, 0.6)] * 2
    spent = ended(lab)["spent"]
    assert (spent["input_tokens"], spent["output_tokens"], spent["cost"]) == (120_000, 80_000, 1.2)
    assert (row(lab)["input_tokens"], row(lab)["output_tokens"], row(lab)["cost"]) == (120_000, 80_000, 1.2)
    explained = lab.run("explain", "add-login-1-1", "--json").json["verdict"]
    assert (explained["input_tokens"], explained["output_tokens"], explained["cost"]) == (60_000, 40_000, 0.6)


def test_people_are_told_what_an_attempt_cost(lab: Lab) -> None:
    lab.repository(ONE).play(default=[SPENDS, *DONE])
    assert lab.loop().exit_code == 0
    told = lab.run("explain", "add-login-1-1").stdout
    assert "$0.60" in told
    assert "60k tokens in, 40k out" in told


# --- agents of another kind -------------------------------------------------------------------------

# A scripted agent with extra arguments that say how it differs.
ODD = """
import time
from msgspec import structs
from ralphtool.agents import Quota, Start, Traits, Usage
from ralphtool.agents.scripted import ScriptedReader, Scripted


class Odd(Scripted):
    def __init__(self, name, options):
        script, *others = options["args"]
        super().__init__(name, {**options, "args": (script,)})
        self.odd = dict(other.split("=", 1) for other in others)
        notices = (self.odd["notice"],) if "notice" in self.odd else ()
        self.traits = Traits(cost=self.odd.get("cost", "told"), notices=notices)

    def start(self, job):
        return Start(argv=("sh", self.odd["sh"]), stdin=job.prompt) if "sh" in self.odd else super().start(job)

    def reader(self, job):
        return OddLines(self.odd)


class OddLines(ScriptedReader):
    def __init__(self, odd):
        super().__init__()
        self.odd, self.late = odd, []

    def take(self, line):
        for event in super().take(line):
            if isinstance(event, Usage):
                event = structs.replace(event, model=self.odd.get("model", ""))
            if isinstance(event, Usage) and "late" in self.odd:
                self.late.append(event)
            else:
                yield event

    def rest(self):
        quota = [Quota(float(self.odd["quota"]), time.time() + 3600, "weekly")] if "quota" in self.odd else []
        return [*super().rest(), *self.late, *quota]
"""


@pytest.fixture
def odd(lab: Lab, tmp_path: Path) -> Callable[..., None]:
    """Registers the agent `odd`; returns a function that configures it."""
    info = tmp_path / "odd/odd-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: odd\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[ralphtool.agents]\nodd = odd_agent:Odd\n")
    (info.parent / "odd_agent.py").write_text(ODD)
    lab.env |= {"PYTHONPATH": str(info.parent), "PYTHONDONTWRITEBYTECODE": "1"}

    def describe(*args: str, **settings: str) -> None:
        lines = ["[agents.odd]", f"args = {json.dumps([str(lab.script), *args])}"]
        configure(lab, "\n".join([*lines, *(f"{name} = {json.dumps(value)}" for name, value in settings.items())]))

    return describe


def test_what_a_final_report_tells_ends_nobody(lab: Lab, odd: Callable[..., None]) -> None:
    """It has spent too much, but is finished: its work counts, and the limit applies to later iterations."""
    lab.repository(TWO, agent="odd", max_cost=0.5)
    odd("late=yes")
    lab.play(default=[SPENDS, *DONE])
    assert lab.loop().exit_code == 1
    assert lab.endings() == [("add-login-1-1", "completed")]
    assert lab.checkpoints() == ["1"]
    assert "--max-cost" in ended(lab)["reason"]
    assert row(lab)["cost"] == pytest.approx(0.6)


PRICED: list[tuple[list[str], dict[str, str], str]] = [
    (["cost=tokens", "model=gpt-x"], {}, "gpt-x"),
    (["cost=tokens"], {"model": "gpt-x"}, "gpt-x"),
    (["cost=tokens"], {}, "odd"),
    (["cost=tokens", "model=unheard-of"], {"model": "gpt-x"}, "gpt-x"),
]


@pytest.mark.parametrize(
    ("args", "settings", "price"),
    PRICED,
    ids=["the model that it tells", "the configured model", "the agent's name", "an unknown model"],
)
def test_tokens_without_a_cost_are_priced(
    lab: Lab, odd: Callable[..., None], args: list[str], settings: dict[str, str], price: str
) -> None:
    lab.repository(TWO, agent="odd", story_cost=2.0)
    odd(*args, **settings)
    configure(lab, f'[prices."{price}"]\ninput = 2.5')
    lab.play(turn("1", [COUNTS, HANG]), turn("2", [{"usage": {"input_tokens": 100_000}}, *DONE]))
    assert lab.loop().exit_code == 1
    assert lab.endings() == [("add-login-1-1", "failed"), ("add-login-2-1", "completed")]
    assert "the budget was used up" in told(lab, "verdict", "summary")[0]
    assert told(lab, "verdict", "cost") == [pytest.approx(2.5), pytest.approx(0.25)]
    assert ended(lab)["spent"]["cost"] == pytest.approx(2.75)
    assert "can't be enforced" not in notices(lab)


def test_a_price_that_turns_out_to_be_missing_is_told_once(lab: Lab, odd: Callable[..., None]) -> None:
    lab.repository(TWO, agent="odd", max_cost=5.0)
    odd("cost=tokens", "model=gpt-y")
    configure(lab, "[prices.gpt-x]\ninput = 2.5")
    lab.play(default=[COUNTS, *DONE])
    assert lab.loop().exit_code == 0
    found = [text for text in told(lab, "notice", "text") if "can't be enforced" in text]
    assert found == ["the cost of odd is unknown, so the cost limit can't be enforced for it: set [prices.gpt-y]"]


@pytest.mark.parametrize("is_told", [True, False], ids=["told", "by a price"])
def test_what_is_free_is_not_unknown(lab: Lab, odd: Callable[..., None], is_told: bool) -> None:
    lab.repository(ONE, agent="odd", max_cost=5.0)
    odd("cost=told" if is_told else "cost=tokens")
    configure(lab, "[prices.odd]\ninput = 0")
    lab.play(default=[{"usage": {"input_tokens": 9, **({"cost": 0} if is_told else {})}}, *DONE])
    assert lab.loop().exit_code == 0
    assert "can't be enforced" not in notices(lab)


NO_COST = "the cost limit can't be enforced for odd: "


@pytest.mark.parametrize(
    ("cost", "limits", "notice"),
    [
        ("none", {"max_cost": 5.0}, f"{NO_COST}it does not report its usage"),
        ("tokens", {"story_cost": 5.0}, f"{NO_COST}it reports only tokens, and no price is configured for them"),
        ("tokens", {}, ""),
        ("told", {"max_cost": 5.0}, ""),
    ],
)
def test_a_limit_that_can_not_hold_is_told(
    lab: Lab, odd: Callable[..., None], cost: str, limits: dict[str, Any], notice: str
) -> None:
    lab.repository(ONE, agents=["scripted", "odd"], **limits).play(default=DONE)
    odd(f"cost={cost}")
    assert lab.loop().exit_code == 0
    assert notice in notices(lab)
    assert ("can't be enforced" in notices(lab)) is bool(notice)


def test_what_agents_may_do_is_told_before_they_do_it(lab: Lab, odd: Callable[..., None]) -> None:
    lab.repository(ONE, agents=["scripted", "odd"]).play(default=DONE)
    odd("notice=odd runs whatever it likes")
    assert lab.loop().exit_code == 0
    kinds = [(event["type"], event.get("text")) for event in lab.events()]
    assert kinds.index(("notice", "odd runs whatever it likes")) < kinds.index(("iteration_started", None))


@pytest.mark.parametrize(
    ("permissions", "notice"),
    [
        ("edit", 'to let it do everything without asking, set permissions = "all"'),
        ("all", "claude runs without asking: "),
    ],
)
def test_permissions_are_told_in_plain_words(lab: Lab, tmp_path: Path, permissions: str, notice: str) -> None:
    program = tmp_path / "claude"
    program.write_text("#!/bin/sh\ncase $1 in --version) echo 99.0.0;; *) exit 3;; esac\n")
    program.chmod(0o755)
    lab.repository(ONE, agent="claude", max_iterations=1).play(default=DONE)
    configure(lab, f'[agents.claude]\ncommand = ["{program}"]\npermissions = "{permissions}"')
    assert lab.loop().exit_code == 1
    assert notice in notices(lab)
    assert "permissions" in notices(lab)


@pytest.mark.parametrize(
    ("is_boxed", "permissions", "may_do_all"),
    [(True, None, True), (False, None, False), (True, "edit", False), (False, "all", True)],
)
def test_only_a_box_permits_everything_by_default(
    is_boxed: bool, permissions: Permissions | None, may_do_all: bool
) -> None:
    configured = Settings(run=RunSettings(agent="claude"), agents={"claude": AgentSettings(permissions=permissions)})
    [runner] = make_runners(configured, is_boxed=is_boxed)
    assert runner.traits.is_kept != may_do_all


def test_an_agent_rests_when_its_share_of_the_quota_is_used(lab: Lab, odd: Callable[..., None]) -> None:
    lab.repository(TWO, agent="odd", agents=["second"])
    odd("quota=0.83", stop_at="80%")
    second(lab)
    lab.play(turn("1", DONE))
    assert lab.loop().exit_code == 0
    assert told(lab, "iteration_started", "agent") == ["odd", "second"]
    assert told(lab, "handed_over", "why") == ["odd has used 83% of its weekly quota, and stops at 80%"]
    assert lab.checkpoints() == ["1", "2"]


def test_below_its_share_it_goes_on(lab: Lab, odd: Callable[..., None]) -> None:
    lab.repository(TWO, agent="odd", agents=["second"])
    odd("quota=0.79", stop_at="80%")
    second(lab)
    lab.play(default=DONE)
    assert lab.loop().exit_code == 0
    assert told(lab, "iteration_started", "agent") == ["odd", "odd"]


# Prints one more message when it is terminated, as real agents do.
TALKS = """\
trap 'echo "{\\"type\\": \\"message\\", \\"text\\": \\"I was told to go.\\"}"; exit 1' TERM
while :; do echo '{"type": "error", "trouble": "rate-limit", "text": "slow down"}'; sleep 0.2; done
"""


def test_a_last_word_does_not_change_why_it_was_ended(lab: Lab, odd: Callable[..., None]) -> None:
    lab.repository(ONE, agent="odd", agents=["second"], patience="1s", max_iterations=2)
    lab.write(".ralph/talks.sh", TALKS)
    odd(f"sh={lab.root}/.ralph/talks.sh")
    second(lab)
    lab.play(default=DONE)
    lab.loop()
    assert told(lab, "verdict", "status") == ["transient", "completed"]
    assert told(lab, "iteration_started", "agent") == ["odd", "second"]
