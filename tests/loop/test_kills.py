"""The loop is killed at any moment, stopped by any signal, started twice: everything counts once, and nothing is lost.

RALPH_STORM=1 makes the storm of kills longer: several hundred, and one at every system call.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from faults import CHANGING, Call, calls_in, in_memory, injected, list_names, need_strace
from lab import DONE, Lab, Process, ignores_term, kill, processes_with, wait_until
from patience import PATIENCE
from project import COMMAND
from properties import THOROUGH

from ralphtool.history import History

STORM = bool(os.environ.get("RALPH_STORM"))
STORIES = 10 if THOROUGH or STORM else 5
FAIL_ONCE = ("3", "6", "9")
WAITS_FOR = {5: [2], 8: [5, 7]}
GATES = ["test ! -e broken"]

# Each learning is unique, and is noted outside once `learn` has acknowledged it.
LEARN = (
    't="learnt in {story} as $(cat /proc/sys/kernel/random/uuid)"; ralphtool agent learn "$t" && echo "$t" >> "$NOTED"'
)
WORK: list[dict[str, Any]] = [
    {"run": "echo {story} > work-{story}.txt; echo {story} >> README.md"},
    {"run": LEARN},
    {"observe": "finding", "title": "it goes on", "description": "whoever watches"},
    {"tick": "all"},
    {"complete": True},
]
FAIL: list[dict[str, Any]] = [{"run": LEARN}, {"run": "echo half > half.txt"}, {"say": "I could not."}]


class _Watched(Lab):
    """Remembers the loops it started, so that a failing test leaves none running."""

    def __init__(self, top: Path) -> None:
        super().__init__(top)
        self.started: list[Process] = []

    def start(self, *arguments: str, stdout: int | None = None) -> Process:
        self.started.append(super().start(*arguments, stdout=stdout))
        return self.started[-1]


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    lab = _Watched(tmp_path)
    lab.env["NOTED"] = str(tmp_path / "noted")
    yield lab
    for process in lab.started:
        kill(process)
    assert wait_until(lambda: not processes_with(str(lab.home))), processes_with(str(lab.home))


# --- the change, and the user's untidy tree ---------------------------------------------------------


def numbered_stories() -> str:
    parts = []
    for number in range(1, STORIES + 1):
        after = f" (depends on {', '.join(map(str, WAITS_FOR[number]))})" if number in WAITS_FOR else ""
        parts.append(f"## {number}. Story {number}{after}\n\n- [ ] {number}.1 One\n- [ ] {number}.2 Two\n")
    return "\n".join(parts)


def stories_as_prd() -> str:
    stories = [
        {
            "id": str(number),
            "title": f"Story {number}",
            "acceptanceCriteria": ["One", "Two"],
            "priority": number,
            "passes": False,
            "dependsOn": [str(one) for one in WAITS_FOR.get(number, [])],
        }
        for number in range(1, STORIES + 1)
    ]
    return json.dumps({"project": "add-login", "branchName": "ralph/add-login", "userStories": stories}, indent=2)


def prepare(lab: Lab, kind: str) -> None:
    lab.repository(tasks=numbered_stories(), checks=GATES)
    if kind == "prd":
        shutil.rmtree(lab.root / "openspec")
        lab.write("prd.json", stories_as_prd())
        lab.git("add", "--all", "--", ":!.ralph")
        lab.git("commit", "--quiet", "--message=a prd")
    lab.play(*({"story": story, "attempt": 1, "steps": FAIL} for story in FAIL_ONCE), default=WORK)
    make_untidy(lab)


def make_untidy(lab: Lab) -> None:
    """Uncommitted work of every kind."""
    for name in ("modified", "staged", "both", "deleted", "removed", "executable", "crlf", "kept"):
        lab.write(f"{name}.txt", f"{name}\n")
    lab.write(".gitignore", ".env\ncache/\n")
    (lab.root / "link").symlink_to("kept.txt")
    lab.git("add", "--all", "--", ":!.ralph")
    lab.git("commit", "--quiet", "--message=more")
    lab.write("staged.txt", "staged by the user\n")
    lab.write("both.txt", "staged by the user\n")
    lab.write("new-staged.txt", "new\n")
    lab.git("add", "staged.txt", "both.txt", "new-staged.txt")
    lab.git("rm", "--quiet", "removed.txt")
    lab.write("both.txt", "and changed after that\n")
    lab.write("modified.txt", "modified by the user\n")
    lab.write("README.md", "the user's README\n")
    lab.write("crlf.txt", "one\r\ntwo\r\n")
    (lab.root / "deleted.txt").unlink()
    (lab.root / "executable.txt").chmod(0o755)
    (lab.root / "link").unlink()
    (lab.root / "link").symlink_to("modified.txt")
    (lab.root / "dangling").symlink_to("nowhere")
    lab.write("untracked.txt", "untracked\n")
    lab.write("work-1.txt", "the user has a file of this name too\n")
    lab.write("folder/inner/deep.txt", b"\0binary\xff")
    lab.write("folder/other.sh", "#!/bin/sh\n").chmod(0o700)
    lab.write(".env", "SETTING=1\n").chmod(0o600)
    lab.write("cache/object", "cached\n")


# --- what must hold at the end ----------------------------------------------------------------------


def check_everything(lab: Lab, before: dict[str, Any]) -> None:
    assert lab.users_state() == before
    assert sorted(lab.checkpoints(), key=int) == [str(number) for number in range(1, STORIES + 1)]
    check_entries(lab)
    check_learnings(lab)
    assert lab.git("fsck", "--no-dangling", "--no-progress") == ""
    assert list_left(lab) == []
    assert not (lab.root / ".git/ralph/away.json").exists()


def list_left(lab: Lab) -> list[Path]:
    """Leftover files of sessions."""
    return [*lab.root.glob(".ralph/locks/*.lock"), *lab.tmp.glob("ralph/sessions/*.json")]


def check_entries(lab: Lab) -> None:
    entries = lab.entries()
    assert not [id for id, count in Counter(entry["id"] for entry in entries).items() if count > 1]
    found: dict[str, list[dict[str, Any]]] = {}
    for entry in entries:
        found.setdefault(entry["prd_id"].rpartition("-")[2], []).append(entry)
    for number in range(1, STORIES + 1):
        tried = found[str(number)]
        wanted = ["failed", "completed"] if str(number) in FAIL_ONCE else ["completed"]
        assert [entry["status"] for entry in tried] == wanted, number
        assert [entry["iteration"] for entry in tried] == list(range(1, len(tried) + 1))


def check_learnings(lab: Lab) -> None:
    noted = Path(lab.env["NOTED"]).read_text().splitlines()
    told = lab.run("progress", "learnings", "--json").json["learnings"]
    known = Counter(one["content"] for one in told)
    assert len(noted) >= STORIES
    assert {text: known[text] for text in noted} == dict.fromkeys(noted, 1)
    assert not [text for text, count in known.items() if count > 1]


# --- at random moments ------------------------------------------------------------------------------


def kill_until_done(lab: Lab, dice: random.Random, longest: float, before: dict[str, Any], most: int) -> int:
    """Starts runs until one completes, and kills each after a random time; returns how many were killed.

    The maximum time grows: otherwise a slow machine would never finish.
    """
    for killed in range(most):
        process = lab.start()
        try:
            printed, wrong = process.communicate(timeout=dice.uniform(0, longest * (1 + killed / 20)))
        except subprocess.TimeoutExpired:
            kill(process)
        else:
            assert process.returncode == 0, (printed[-4000:].decode(), wrong.decode())
            return killed
        if dice.random() < 0.2:
            told = lab.run("back")
            assert told.exit_code == 0, told.stderr
            assert lab.users_state() == before, "right after a kill"
    raise AssertionError("it does not come to an end")


SEEDS = [("openspec", 1), ("prd", 2)]
SEEDS += [(kind, seed) for seed in range(3, 9) for kind in ("openspec", "prd")] if STORM else []


@pytest.mark.parametrize(("kind", "seed"), SEEDS)
def test_killed_at_random_moments_until_it_is_done(
    lab: Lab, kind: str, seed: int, record_property: Callable[[str, object], None]
) -> None:
    prepare(lab, kind)
    before = lab.users_state()
    killed = kill_until_done(lab, random.Random(seed), 0.7 if STORM else 1.2, before, most=200)
    record_property("kills", killed)
    assert killed
    check_everything(lab, before)


# --- at the short moments ---------------------------------------------------------------------------


def _size(lab: Lab, pattern: str, word: str = "") -> int:
    """How often a word occurs in files; without a word, their number plus their size."""
    total = 0
    for path in lab.root.glob(pattern):
        try:
            data = path.read_bytes()
        except OSError:
            continue
        total += data.count(word.encode()) if word else len(data) + 1
    return total


MOMENTS: dict[str, tuple[str, str]] = {
    "the user's files leave": (".git/ralph/away.json", "leaving"),
    "the user's files are away": (".git/ralph/away.json", '"away"'),
    "the user's files return": (".git/ralph/away.json", "returning"),
    "an outcome is written down": (".ralph/standing/add-login.json", ""),
    "a verdict": (".ralph/runs/*/events.jsonl", '"verdict"'),
    "a decision": (".ralph/runs/*/events.jsonl", '"decision"'),
    "a checkpoint": (".git/refs/heads/ralph/add-login", ""),
    "an attempt is kept": (".git/refs/ralph/attempts/*", ""),
    "an entry": (".ralph/progress.json", '"iteration"'),
    "a lock": (".ralph/locks/add-login.lock", ""),
    "a prompt": (".ralph/runs/*/*/prompt.md", ""),
    "the index is lent": (".git/index", ""),
}


def kill_when(lab: Lab, pattern: str, word: str, delay: float) -> bool:
    """Kills the loop when something changes; returns whether it was killed before it was done."""
    process = lab.start(stdout=subprocess.DEVNULL)  # nothing reads its output: with a pipe, it would block
    known = _size(lab, pattern, word)
    end = time.monotonic() + PATIENCE
    while process.poll() is None and time.monotonic() < end:
        if _size(lab, pattern, word) > known:
            time.sleep(delay)
            kill(process)
            return process.returncode == -signal.SIGKILL
    kill(process)
    return False


ROUNDS = 6 if STORM else 1


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_killed_at_the_short_moments(lab: Lab, seed: int, record_property: Callable[[str, object], None]) -> None:
    prepare(lab, "prd" if seed % 2 else "openspec")
    before = lab.users_state()
    dice = random.Random(seed)
    moments = list(MOMENTS.values()) * (2 if STORM else 1)
    dice.shuffle(moments)
    moments = moments if THOROUGH or STORM else moments[:3]
    killed = 0
    for pattern, word in moments:
        killed += kill_when(lab, pattern, word, dice.choice((0, 0, 0.001, 0.003, 0.01)))
        if dice.random() < 0.3:
            assert lab.run("back").exit_code == 0
            assert lab.users_state() == before, f"right after a kill at {pattern} {word}"
    record_property("kills", killed)
    assert killed > len(moments) // 2
    assert lab.loop().exit_code == 0
    check_everything(lab, before)


# --- at system calls --------------------------------------------------------------------------------

ONE = "## 1. First\n\n- [ ] 1.1 Make it\n"
QUICK: list[dict[str, Any]] = [
    {"run": "echo work > work-1.txt"},
    {"learn": "learnt once"},
    {"tick": "all"},
    {"complete": True},
]


def under_strace(lab: Lab, *options: str) -> int:
    command = ["strace", "-qq", "-y", *options, COMMAND, "run", "--json"]
    process = subprocess.Popen(
        command, cwd=lab.root, env=lab.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    process.communicate(timeout=PATIENCE)
    return process.returncode


def one_story(top: Path) -> tuple[Lab, dict[str, Any]]:
    top.mkdir()
    lab = Lab(top).repository(tasks=ONE)
    lab.play(default=QUICK)
    make_untidy(lab)
    return lab, lab.users_state()


def _turning_points(calls: list[Call]) -> set[int]:
    """Right after an outcome was written: it counts from then on, but has not been carried out.
    And around the end of the session, which removes three files."""
    noted = {place + 1 for place, call in enumerate(calls) if call.operation == "rename" and "/standing/" in call.text}
    ending = [place for place, call in enumerate(calls) if call.operation == "unlink" and _ENDS.search(call.text)]
    assert len(ending) >= 3, ending
    return noted | set(ending[-3:])


_ENDS = re.compile(r"/(sessions|projects|locks)/")


def recorded(lab: Lab) -> tuple[list[tuple[str, str]], list[str]]:
    """The entries and the learnings of the history. Asking a command for them would take longer than all the rest."""
    with closing(History(str(lab.root))) as history:
        progress = history.load()
    return [(one.id, one.status) for one in progress.entries], [one.content for one in progress.learnings]


def check_killed_at(call: Call, top: Path) -> None:
    lab, before = one_story(top)
    under_strace(lab, "-o", os.devnull, *injected(call.name, call.number, "signal=KILL"))
    told = lab.run("back")
    assert (told.exit_code, lab.users_state()) == (0, before), f"after {call}: {told.stderr}"
    done = lab.loop()
    assert done.exit_code == 0, f"after {call}: {done.stderr}"
    assert recorded(lab) == ([("add-login-1-1", "completed")], ["learnt once"]), str(call)
    assert lab.checkpoints() == ["1"], str(call)
    assert lab.users_state() == before, str(call)
    assert wait_until(lambda: not processes_with(str(lab.home))), str(call)
    assert list_left(lab) == [], str(call)
    shutil.rmtree(lab.root.parent)


def test_killed_at_its_own_system_calls(tmp_path: Path) -> None:
    """Only the loop itself is traced: the processes that it started continue."""
    need_strace()
    lab, _ = one_story(tmp_path / "whole")
    log = tmp_path / "calls.log"
    assert under_strace(lab, "-o", str(log), "-e", f"trace={list_names(CHANGING)}") == 0
    lines = [f"1 {line}" for line in log.read_text(errors="replace").splitlines()]
    log.write_text("\n".join(lines))
    calls = [call for call in calls_in(log) if "events.jsonl" not in call.text]
    assert len(calls) > 50
    step = len(calls) // (10 if THOROUGH else 3)
    sample = range(random.Random(7).randrange(step), len(calls), step)
    chosen = [calls[place] for place in (range(len(calls)) if STORM else sorted({*sample, *_turning_points(calls)}))]
    with in_memory(tmp_path) as top:
        for number, call in enumerate(chosen):
            check_killed_at(call, top / str(number))


# --- what a killed loop leaves running --------------------------------------------------------------


def test_a_git_command_of_a_killed_loop_does_not_write_over_the_users_files(lab: Lab) -> None:
    """Git continues when the loop is killed. `back` must wait for it before it restores the files."""
    lab.repository()
    lab.write(".gitattributes", "slow* filter=slow\n")
    lab.write("zz.txt", "committed\n")
    lab.git("config", "filter.slow.clean", "cat")
    lab.git("config", "filter.slow.smudge", "sleep ${SLOW:-0}; cat")
    lab.git("add", "--all", "--", ":!.ralph")
    lab.git("commit", "--quiet", "--message=slow")
    change = "for i in 0 1 2 3 4 5; do echo agent > slow$i.txt; done; echo agent > zz.txt"
    lab.play({"story": "1", "steps": [{"run": change}, *DONE]}, default=DONE)
    lab.write("zz.txt", "a day of work\n")
    before = lab.users_state()
    assert lab.loop("--max-iterations", "1").exit_code == 1
    lab.env["SLOW"] = "0.4"
    process = lab.start()
    del lab.env["SLOW"]
    assert wait_until(lambda: any(one.startswith("sleep 0.4") for one in processes_with("SLOW=0.4")))
    kill(process)
    assert lab.run("back").exit_code == 0
    assert wait_until(lambda: not processes_with(str(lab.home)))
    assert lab.users_state() == before


def read_if_there(path: Path) -> str | None:
    """One step, not a check and then a read: a file that is set aside disappears between the two."""
    try:
        return path.read_text()
    except FileNotFoundError:
        return None


def test_an_agent_of_a_killed_loop_does_not_write_once_the_files_are_back(lab: Lab) -> None:
    lab.repository().play(default=[{"run": "while :; do echo agent > README.md; done"}])
    lab.write("README.md", "a day of work\n")
    before = lab.users_state()
    process = lab.start()
    assert wait_until(lambda: read_if_there(lab.root / "README.md") == "agent\n")
    kill(process)
    assert lab.run("back").exit_code == 0
    assert lab.users_state() == before
    assert wait_until(lambda: not processes_with(str(lab.home)))
    assert lab.users_state() == before


# What an agent did before its loop was killed: no process is left that remembers the state before it.
MISDEEDS = {
    "commits on main": "git checkout --quiet main; echo bad > bad.txt; git add bad.txt; git commit --quiet -m bad",
    "removes main": "git update-ref -d refs/heads/main",
    "adds a hook": "printf '#!/bin/sh\\ntouch hooked\\n' > .git/hooks/post-checkout; chmod +x .git/hooks/post-checkout",
    "changes git's settings": "git config core.hooksPath /tmp/hooks; git config user.email agent@example.org",
    "stashes": "echo x >> README.md; git stash --quiet",
    "takes away the gates": "printf '[verify]\\nchecks = []\\n' > .ralph/config.toml",
    "writes history": "rm .ralph/progress.json; echo '{}' > .ralph/progress.json",
    "breaks the index": "echo garbage > .git/index; touch .git/index.lock .git/HEAD.lock",
    "cleans up": "git clean -fdxq -e .ralph",
}


def gits_own(lab: Lab) -> dict[str, Any]:
    hooks = sorted(path.name for path in (lab.root / ".git/hooks").iterdir() if path.suffix != ".sample")
    return {
        "hooks": hooks,
        "git's settings": lab.read(".git/config"),
        "settings": lab.read(".ralph/config.toml"),
        "entries": lab.endings(),
    }


@pytest.mark.parametrize("misdeed", MISDEEDS)
def test_what_an_agent_did_before_its_loop_was_killed_is_put_back(lab: Lab, misdeed: str) -> None:
    lab.repository(tasks="## 1. First\n\n- [ ] 1.1 It\n\n## 2. Second\n\n- [ ] 2.1 It\n", checks=GATES)
    make_untidy(lab)
    before = lab.users_state()
    bad = [{"run": MISDEEDS[misdeed]}, {"run": 'touch "$NOTED"'}, {"hang": True}]
    lab.play({"story": "2", "steps": bad}, default=DONE)
    assert lab.loop("--max-iterations", "1").exit_code == 1
    own = gits_own(lab)
    process = lab.start()
    assert wait_until(Path(lab.env["NOTED"]).exists)
    kill(process)
    assert lab.run("back").exit_code == 0
    assert lab.users_state() == before
    assert gits_own(lab) == own
    lab.play(default=DONE)
    assert lab.loop().exit_code == 0
    assert lab.endings() == [("add-login-1-1", "completed"), ("add-login-2-1", "completed")]
    assert lab.users_state() == before


def test_a_run_goes_on_with_the_next_task_of_a_story_in_chunks(lab: Lab) -> None:
    """The next run knows the kept work of a story, as the next iteration does."""
    lab.repository(tasks="## 1. First\n\n- [ ] 1.1 One\n- [ ] 1.2 Two\n- [ ] 1.3 Three\n")
    too_big = [{"error": "context", "text": "too long"}]
    lab.play({"attempt": 1, "steps": too_big}, default=DONE)
    for _ in range(3):
        assert lab.loop("--max-iterations", "1").exit_code == 1
    assert lab.loop("--max-iterations", "1").exit_code == 0
    asked = [event["task"] for event in lab.events() if event["type"] == "iteration_started"]
    assert asked == [None, "1.1", "1.2", "1.3"]
    assert [status for _, status in lab.endings()] == ["failed", "partial", "partial", "completed"]


# --- signals ----------------------------------------------------------------------------------------

# Records that it was asked to end, and keeps recording that it is still alive.
LIVES = 'trap \'touch "$NOTED.asked"\' TERM; while :; do date +%s.%N >> "$NOTED.alive"; sleep 0.1; done'
HANG: list[dict[str, Any]] = [
    {"run": f'echo half > half.txt; ({LIVES}) & touch "$NOTED"'},
    {"hang": True, "ignore_term": True},
]


def hanging(lab: Lab) -> tuple[Process, dict[str, Any]]:
    lab.repository(tasks=ONE).play(default=HANG)
    make_untidy(lab)
    before = lab.users_state()
    process = lab.start()
    assert wait_until(Path(lab.env["NOTED"]).exists)
    assert wait_until(lambda: ignores_term(str(lab.home)))
    return process, before


def lived_on(lab: Lab, since: float) -> float:
    """How many seconds after a moment a process of the agent was still alive."""
    return float(Path(f"{lab.env['NOTED']}.alive").read_text().split()[-1]) - since


def check_goes_on(lab: Lab, before: dict[str, Any]) -> None:
    assert lab.users_state() == before
    assert wait_until(lambda: not processes_with(str(lab.home)))
    assert lab.entries() == []
    lab.play(default=DONE)
    assert lab.loop().exit_code == 0
    assert lab.endings() == [("add-login-1-1", "completed")]
    assert lab.users_state() == before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_agent_and_gives_the_tree_back(lab: Lab, number: int) -> None:
    process, before = hanging(lab)
    asked = time.time()
    process.send_signal(number)
    _, stderr = process.communicate(timeout=PATIENCE)
    assert (process.returncode, stderr) == (130, b"")
    assert lived_on(lab, asked) < 10
    check_goes_on(lab, before)


def test_a_second_interrupt_ends_it_at_once(lab: Lab) -> None:
    process, before = hanging(lab)
    process.send_signal(signal.SIGINT)
    # Two pending signals of the same kind are merged into one.
    assert wait_until(Path(f"{lab.env['NOTED']}.asked").exists)
    asked = time.time()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert lived_on(lab, asked) < 4, "the agent has longer than that when it is asked once"
    lab.run("back")
    check_goes_on(lab, before)


# --- two at once ------------------------------------------------------------------------------------


def test_a_second_run_of_the_same_change_names_the_holder(lab: Lab) -> None:
    process, before = hanging(lab)
    second = lab.loop("add-login")
    assert second.exit_code == 1
    assert "add-login is locked by" in second.stderr
    assert str(process.pid) in second.stderr
    kill(process)
    lab.run("back")
    check_goes_on(lab, before)


def with_another_change(lab: Lab, **config: Any) -> None:
    lab.repository(tasks=ONE, **config).openspec(ONE, "other")
    lab.git("add", "openspec")
    lab.git("commit", "--quiet", "--message=another change")


def test_another_change_in_the_same_tree_has_to_wait(lab: Lab) -> None:
    with_another_change(lab)
    lab.play(default=HANG)
    process = lab.start("add-login")
    assert wait_until(Path(lab.env["NOTED"]).exists)
    second = lab.loop("other")
    assert second.exit_code == 1
    assert re.search(r"is in use by the run add-login-\S+ of add-login", second.stderr)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE)
    lab.play(default=DONE)
    assert lab.loop("other").exit_code == 0
    assert lab.checkpoints("other") == ["1"]


def test_another_change_in_a_worktree_goes_on_at_the_same_time(lab: Lab) -> None:
    with_another_change(lab)
    before = lab.users_state()
    lab.play(default=HANG)
    process = lab.start("add-login")
    assert wait_until(Path(lab.env["NOTED"]).exists)
    lab.play(default=DONE)
    assert lab.loop("other", "--workspace", "worktree").exit_code == 0
    assert lab.checkpoints("other") == ["1"]
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE)
    assert lab.loop("add-login").exit_code == 0
    assert sorted(lab.endings()) == [("add-login-1-1", "completed"), ("other-1-1", "completed")]
    assert lab.users_state() == before


# --- clocks -----------------------------------------------------------------------------------------


# Python imports this when it starts: the time of day jumps, by an hour per second. The monotonic clock stays.
CLOCK = """\
import time
began, real = time.monotonic(), time.time
time.time = lambda: real() + {speed} * (time.monotonic() - began)
time.time_ns = lambda: int(time.time() * 1e9)
"""


@pytest.mark.parametrize("speed", [3600, -3600], ids=["forward", "back"])
def test_a_clock_that_jumps_ends_no_agent(lab: Lab, speed: int) -> None:
    lab.repository(tasks=ONE, timeout="600s", silence="600s").play(default=[{"sleep": 1}, *DONE])
    clock = lab.root.parent / "clock"
    clock.mkdir()
    (clock / "sitecustomize.py").write_text(CLOCK.format(speed=speed))
    env = {**lab.env, "PYTHONPATH": str(clock)}
    done = subprocess.run([COMMAND, "run", "--json"], cwd=lab.root, env=env, capture_output=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    assert lab.endings() == [("add-login-1-1", "completed")]
    first, *_, last = [_find_time(one) for one in lab.events()]
    assert (last - first > 1800) if speed > 0 else (last - first < -1800), "the clock did not jump"


def _find_time(event: dict[str, Any]) -> float:
    return datetime.fromisoformat(event["at"]).timestamp()


# --- trees that are untidy in rare ways -------------------------------------------------------------


def _forgotten(lab: Lab) -> None:
    lab.git("rm", "--quiet", "--cached", "README.md")


def _folder_became_file(lab: Lab) -> None:
    shutil.rmtree(lab.root / "d")
    lab.write("d", "a file\n")


def _file_became_folder(lab: Lab) -> None:
    (lab.root / "README.md").unlink()
    lab.write("README.md/inside.txt", "a folder\n")


def _folder_became_link(lab: Lab) -> None:
    (lab.root / "d").rename(lab.root.parent / "elsewhere")
    (lab.root / "d").symlink_to("../elsewhere")


def _private_mode(lab: Lab) -> None:
    (lab.root / "README.md").chmod(0o600)


def _intended(lab: Lab) -> None:
    lab.write("later.txt", "later\n")
    lab.git("add", "--intent-to-add", "later.txt")


RARE: dict[str, Callable[[Lab], None]] = {
    "a file that git is to forget": _forgotten,
    "a file where a folder was": _folder_became_file,
    "a folder where a file was": _file_became_folder,
    "a link where a folder was": _folder_became_link,
    "a mode that git does not keep": _private_mode,
    "a file that is to be added later": _intended,
}


@pytest.mark.parametrize("rare", RARE)
def test_a_tree_that_is_untidy_in_a_rare_way(lab: Lab, rare: str) -> None:
    lab.repository(tasks=ONE)
    lab.write("d/x.txt", "x\n")
    lab.git("add", "d")
    lab.git("commit", "--quiet", "--message=d")
    lab.play(default=[{"run": "echo more >> README.md"}, *DONE])
    RARE[rare](lab)
    before = lab.users_state()
    outside = sorted(path.name for path in lab.root.parent.rglob("elsewhere/*"))
    done = lab.loop()
    assert done.exit_code == 0, done.stderr
    assert lab.checkpoints() == ["1"]
    assert lab.users_state() == before
    assert sorted(path.name for path in lab.root.parent.rglob("elsewhere/*")) == outside
