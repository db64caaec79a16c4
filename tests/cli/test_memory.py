"""`ralphtool memory …` and `ralphtool agent recall` as commands: answers, errors, and an unchanged history."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE
from project import COMMAND, Ralph

from ralphtool.core.install_hint import build_install_command

MOMENT = "2026-01-31T09:30:00Z"
APPLES = "Apples are peeled by the fruit robot"
BANANAS = "Bananas ripen in the yellow warehouse"
CHERRIES = "Cherries are counted one by one at night"
REPEAT = "Apples are peeled by the fruit robot!"
OPPOSITE = "Bananas don't ripen in the yellow warehouse"


def learning(number: int, content: str, **more: Any) -> dict[str, Any]:
    return {
        "id": f"learning-{number:04}",
        "type": "tool-usage",
        "content": content,
        "source_prd_id": "shop-1",
        "created_at": f"2026-01-{1 + number % 28:02}T09:30:00Z",
        "times_referenced": 0,
        "still_valid": True,
        **more,
    }


def fill(ralph: Ralph, *contents: str | dict[str, Any], patterns: list[dict[str, Any]] | None = None) -> Ralph:
    """Writes the history, as another program would."""
    learnings = [learning(number, one) if isinstance(one, str) else one for number, one in enumerate(contents, start=1)]
    document = {"version": "1.0", "created_at": MOMENT, "entries": [], "learnings": learnings}
    ralph.write(".ralph/progress.json", json.dumps(document | {"patterns": patterns or []}, ensure_ascii=False))
    return ralph


def history(ralph: Ralph) -> dict[str, bytes]:
    names = ("progress.json", "progress.journal", "usefulness.jsonl")
    return {name: path.read_bytes() for name in names if (path := ralph.root / ".ralph" / name).exists()}


def showings(ralph: Ralph, text: str, *statuses: str) -> None:
    from ralphtool.memory import usefulness

    shown = {usefulness.digest(text): None}
    lines = [
        {"entry": f"{len(text)}-{number}", "status": status, "shown": shown} for number, status in enumerate(statuses)
    ]
    with (ralph.root / ".ralph/usefulness.jsonl").open("a") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)


def valid(ralph: Ralph) -> list[str]:
    found = ralph.run("progress", "learnings", "--json").json["learnings"]
    return [one["id"] for one in found]


# --- memory -----------------------------------------------------------------------------------------


def test_an_empty_project_has_learnt_nothing_and_gets_nothing(ralph: Ralph) -> None:
    ralph.write("README.md", "hello\n")
    before = ralph.snapshot()
    told = ralph.run("memory")
    assert (told.exit_code, told.stderr) == (0, "")
    assert "There are no learnings yet" in told.stdout
    assert ralph.run("memory", "--json").json == {"known": 0, "learnings": [], "stale": [], "repeats": []}
    assert ralph.run("memory", "search", "anything", "--json").json == {"found": []}
    assert "No learning or pattern matches" in ralph.run("memory", "search", "anything").stdout
    assert ralph.snapshot() == before


def test_memory_shows_what_was_learnt_and_how_it_fared(ralph: Ralph) -> None:
    gone = learning(4, CHERRIES, still_valid=False)
    fill(ralph, APPLES, BANANAS, REPEAT, gone, OPPOSITE)
    showings(ralph, APPLES, "completed", "failed", "completed")
    showings(ralph, REPEAT, *["failed"] * 8)
    before = history(ralph)
    told = ralph.run("memory", "--json").json
    assert set(told) == {"known", "learnings", "stale", "repeats"}
    assert told["known"] == 4
    assert told["learnings"][0] == {
        "id": "learning-0001",
        "type": "tool-usage",
        "text": APPLES,
        "source": "shop-1",
        "shown": 3,
        "helped": 2,
    }
    assert [one["id"] for one in told["learnings"]] == [f"learning-000{number}" for number in (1, 2, 3, 5)]
    assert {one["id"] for one in told["stale"]} == {"learning-0003", "learning-0002"}
    assert told["repeats"] == [{"keep": "learning-0001", "merge": "learning-0003"}]
    assert history(ralph) == before


def test_the_table_tells_the_same_and_what_to_do(ralph: Ralph) -> None:
    fill(ralph, APPLES, BANANAS, REPEAT)
    showings(ralph, BANANAS, *["failed"] * 8)
    told = ralph.run("memory")
    assert (told.exit_code, told.stderr) == (0, "")
    assert "\x1b" not in told.stdout, "a pipe gets no colours"
    assert told.stdout.splitlines()[0].split() == ["LEARNING", "SHOWN", "HELPED", "FROM", "WHAT"]
    assert "`ralphtool memory forget learning-0002`" in told.stdout
    assert "`ralphtool memory merge learning-0001 learning-0003`" in told.stdout
    assert ralph.run("memory", "merge", "learning-0001", "learning-0003").exit_code == 0
    assert ralph.run("memory", "forget", "learning-0002").exit_code == 0
    assert valid(ralph) == ["learning-0001"]


def test_the_newest_are_looked_through_and_with_all_everything(ralph: Ralph) -> None:
    fill(ralph, *(f"Fact {number} of thing{number}x" for number in range(230)))
    assert len(ralph.run("memory", "--json").json["learnings"]) == 200
    told = ralph.run("memory", "--json", "--all").json
    assert (len(told["learnings"]), told["known"]) == (230, 230)
    table = ralph.run("memory").stdout
    assert "210 earlier learnings not shown" in table
    assert "learning-0230" in table
    assert "learning-0210" not in table
    assert "\x1b" not in table


def test_what_others_wrote_can_do_nothing_to_the_terminal(ralph: Ralph) -> None:
    """Neither when it is piped, nor on a terminal, which shows only ralphtool's own colours."""
    evil = "Apples \x1b]0;owned\x07\x1b[2J\x9b31m are\r\nred \u202e"
    fill(ralph, evil, learning(2, "Bananas", source_prd_id="a\x1b[31m\u202e"))
    for arguments in (["memory"], ["memory", "search", "apples"]):
        piped = ralph.run(*arguments).stdout
        on_terminal = _on_a_terminal(ralph, *arguments)
        for bad in ("\x1b]0;owned", "\x1b[2J", "\x9b", "\x07", "\u202e"):
            assert bad not in piped
            assert bad not in on_terminal
        assert "Apples" in piped
        assert "Apples" in on_terminal
    assert ralph.run("memory", "search", "apples", "--json").json["found"][0]["text"] == evil


def _on_a_terminal(ralph: Ralph, *arguments: str) -> str:
    ours, theirs = pty.openpty()
    environment = {**ralph.env, "TERM": "xterm-256color", "COLUMNS": "200"}
    process = subprocess.Popen(
        [COMMAND, *arguments], cwd=ralph.root, env=environment, stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    told = b""
    try:
        while data := os.read(ours, 65536):
            told += data
    except OSError:
        pass  # the other end is closed: everything has been read
    os.close(ours)
    assert process.wait(timeout=PATIENCE) == 0
    return told.decode()


def test_options_of_a_command_stand_behind_it(ralph: Ralph) -> None:
    told = ralph.run("memory", "--json", "search", "apples")
    assert told.exit_code == 2
    assert "after it" in told.error["error"]


@pytest.mark.parametrize("command", [(), ("search",), ("merge",), ("forget",), ("install",)])
def test_every_help_has_an_example(ralph: Ralph, command: tuple[str, ...]) -> None:
    told = ralph.run("memory", *command, "--help")
    assert told.exit_code == 0
    assert "Example" in told.stdout
    assert f"ralphtool {' '.join(('memory', *command))}" in told.stdout


def test_a_broken_history_is_told_and_left_as_it_is(ralph: Ralph) -> None:
    ralph.write(".ralph/progress.json", '{"version": "1.0", broken')
    for arguments in (["memory"], ["memory", "search", "x"], ["memory", "forget", "learning-0001"]):
        told = ralph.run(*arguments, "--json")
        assert (told.exit_code, told.code) == (1, "CORRUPT_STATE")
    assert ralph.read(".ralph/progress.json") == '{"version": "1.0", broken'


# --- search -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Ralph:
    """Tests must not change it."""
    ralph = Ralph(tmp_path_factory.mktemp("shop"))
    names = {
        "id": "pattern-0001",
        "name": "Fruit names",
        "type": "naming-convention",
        "description": "Fruit classes are singular",
        "discovered_at": MOMENT,
    }
    others = [f"Thing{number} of the shop is blue" for number in range(12)]
    gone = learning(16, "Apples grow on the moon", still_valid=False)
    return fill(ralph, APPLES, BANANAS, "Счета хранятся в копейках", *others, gone, patterns=[names])


def test_search_finds_by_what_it_is_about(shop: Ralph) -> None:
    before = history(shop)
    found = shop.run("memory", "search", "who peels apples?", "--json").json["found"]
    assert found[0] == {
        "id": "learning-0001",
        "kind": "learning",
        "type": "tool-usage",
        "text": APPLES,
        "sources": ["shop-1"],
        "created_at": "2026-01-02T09:30:00Z",
        "score": found[0]["score"],
    }
    assert 0 < found[0]["score"] <= 1
    assert "Apples grow on the moon" not in [one["text"] for one in found]
    [pattern] = shop.run("memory", "search", "names of fruit classes", "--json", "--limit", "1").json["found"]
    assert (pattern["kind"], pattern["id"], pattern["sources"]) == ("pattern", "pattern-0001", [])
    assert shop.run("memory", "search", "счета", "--json").json["found"][0]["id"] == "learning-0003"
    table = shop.run("memory", "search", "who peels apples?").stdout
    assert table.splitlines()[0].split() == ["ID", "SCORE", "FROM", "WHAT"]
    assert "learning-0001" in table.splitlines()[1]
    assert history(shop) == before


BAD: tuple[str, ...] = (
    "",
    "x",
    " ",
    "the of and",
    "?!…",
    '"',
    '"unclosed phrase',
    "apples*",
    "NEAR(apples, 5)",
    "apples AND NOT OR",
    "terms: apples",
    "^apples",
    "- apples",
    "\x01\x1b[31m\x7f",
    "リンゴ 사과 تفاح",
    "'; DROP TABLE texts; --",
    "apples " * 18_000,
)


@pytest.mark.parametrize("text", BAD[::3], ids=lambda text: ascii(text[:16]))
def test_any_text_is_searched_for(shop: Ralph, text: str) -> None:
    before = history(shop)
    found = shop.run("memory", "search", "--json", "--", text).json["found"]
    assert isinstance(found, list)
    assert ("apples" not in text) or found[0]["text"] == APPLES
    assert history(shop) == before


def test_a_text_that_is_not_utf8_is_refused(shop: Ralph) -> None:
    done = subprocess.run(
        [COMMAND, "memory", "search", b"\xff\xfe"], cwd=shop.root, env=shop.env, capture_output=True, timeout=PATIENCE
    )
    assert done.returncode == 2
    assert b"it must be UTF-8" in done.stderr


def test_the_limit_has_bounds(shop: Ralph) -> None:
    assert len(shop.run("memory", "search", "blue shop", "--json").json["found"]) == 10
    assert len(shop.run("memory", "search", "blue shop", "--json", "--limit", "1000").json["found"]) == 12
    for limit in ("0", "1001", "many"):
        told = shop.run("memory", "search", "blue shop", "--limit", limit)
        assert (told.exit_code, told.stdout) == (2, "")
        assert "--limit" in told.stderr


# --- merge and forget -------------------------------------------------------------------------------


def test_merge_keeps_the_first_and_the_history_keeps_them_all(ralph: Ralph) -> None:
    fill(ralph, APPLES, BANANAS, REPEAT, CHERRIES)
    assert ralph.run("memory", "search", "apples", "--json").json["found"][1]["id"] == "learning-0003"
    told = ralph.run("memory", "merge", "learning-0001", "learning-0003", "learning-0004", "--json").json
    assert told == {"success": True, "kept": "learning-0001", "forgotten": ["learning-0003", "learning-0004"]}
    assert valid(ralph) == ["learning-0001", "learning-0002"]
    document = json.loads(ralph.read(".ralph/progress.json"))
    assert [one["content"] for one in document["learnings"]] == [APPLES, BANANAS, REPEAT, CHERRIES]
    assert "merged into learning-0001" in document["learnings"][2]["context"]
    assert [one["id"] for one in ralph.run("memory", "search", "apples", "--json").json["found"]] == ["learning-0001"]


def test_forget_says_why(ralph: Ralph) -> None:
    fill(ralph, APPLES, BANANAS)
    told = ralph.run("memory", "forget", "learning-0001", "--why", "the robot is gone", "--json").json
    assert told == {"success": True, "forgotten": ["learning-0001"]}
    assert valid(ralph) == ["learning-0002"]
    assert "the robot is gone" in json.loads(ralph.read(".ralph/progress.json"))["learnings"][0]["context"]
    assert ralph.run("memory", "--json").json["known"] == 1


def test_who_is_named_twice_is_forgotten_once(ralph: Ralph) -> None:
    fill(ralph, APPLES, BANANAS)
    told = ralph.run("memory", "forget", "learning-0001", "learning-0001", "--json").json
    assert told["forgotten"] == ["learning-0001"]
    assert json.loads(ralph.read(".ralph/progress.json"))["learnings"][0]["context"].count("forgotten by hand") == 1


WRONG: dict[str, tuple[list[str], int]] = {
    "nobody to forget": (["forget", "learning-0099"], 1),
    "one good and one bad": (["forget", "learning-0001", "learning-0099"], 1),
    "forgotten before": (["forget", "learning-0003"], 1),
    "a pattern": (["forget", "pattern-0001"], 1),
    "no id at all": (["forget", "../../etc/passwd\x1b[31m"], 1),
    "an empty id": (["forget", ""], 1),
    "a very long id": (["forget", "learning-" + "9" * 100_000], 1),
    "no reason": (["forget", "learning-0001", "--why", " "], 2),
    "nobody to keep": (["merge", "learning-0099", "learning-0001"], 1),
    "the kept one holds no longer": (["merge", "learning-0003", "learning-0001"], 1),
    "the other holds no longer": (["merge", "learning-0001", "learning-0002", "learning-0003"], 1),
    "into itself": (["merge", "learning-0001", "learning-0001"], 2),
    "one of them twice": (["merge", "learning-0001", "learning-0002", "learning-0002"], 2),
}


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Ralph:
    """The third learning is no longer valid. Tests must not change it."""
    return fill(Ralph(tmp_path_factory.mktemp("three")), APPLES, BANANAS, learning(3, CHERRIES, still_valid=False))


@pytest.mark.parametrize("case", WRONG)
def test_what_can_not_be_is_one_clear_error_and_changes_nothing(three: Ralph, case: str) -> None:
    arguments, exit_code = WRONG[case]
    before = history(three)
    told = three.run("memory", *arguments, "--json")
    assert told.exit_code == exit_code
    assert told.code == ("INVALID_VALUE" if exit_code == 1 else "USAGE")
    assert len(told.error["error"]) < 500
    assert history(three) == before


@pytest.mark.parametrize("case", ["no id at all", "into itself"])
def test_people_are_told_the_same_in_a_line(three: Ralph, case: str) -> None:
    arguments, exit_code = WRONG[case]
    plain = three.run("memory", *arguments)
    assert (plain.exit_code, plain.stdout) == (exit_code, "")
    assert plain.stderr.startswith("Error: ")
    assert "\x1b" not in plain.stderr


def test_merging_into_nothing_forgets_nothing(ralph: Ralph) -> None:
    fill(ralph, APPLES, BANANAS)
    before = history(ralph)
    assert ralph.run("memory", "merge", "", "learning-0001", "--json").code == "INVALID_VALUE"
    assert history(ralph) == before


@pytest.mark.parametrize("command", [["forget"], ["merge", "learning-0001"]])
def test_an_id_that_is_not_utf8_is_refused(three: Ralph, command: list[str]) -> None:
    before = history(three)
    done = subprocess.run(
        [COMMAND, "memory", *command, b"\xff"], cwd=three.root, env=three.env, capture_output=True, timeout=PATIENCE
    )
    assert done.returncode in (1, 2), done.stderr
    assert history(three) == before


@pytest.mark.parametrize("command", [["forget"], ["merge"], ["merge", "learning-0001"], ["search"], ["nothing"]])
def test_a_wrong_command_line_changes_nothing(three: Ralph, command: list[str]) -> None:
    before = history(three)
    told = three.run("memory", *command)
    assert (told.exit_code, told.stdout) == (2, "")
    assert history(three) == before


# --- install ----------------------------------------------------------------------------------------


def test_install_without_numpy_says_what_is_missing(ralph: Ralph) -> None:
    """Detected before anything is downloaded."""
    program = "\n".join(
        [
            "import sys",
            "from importlib import util",
            "find_spec = util.find_spec",
            "util.find_spec = lambda name, package=None: None if name == 'numpy' else find_spec(name, package)",
            "from ralphtool.cli.main import main",
            "sys.exit(main(sys.argv[1:]))",
        ]
    )
    for more, expected in (["--json"], '"code"'), ([], "Error: "):
        done = subprocess.run(
            [sys.executable, "-c", program, "memory", "install", *more],
            cwd=ralph.root,
            env={**ralph.env, "PIP_NO_INDEX": "1"},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert (done.returncode, done.stdout) == (1, "")
        assert build_install_command("semantic") in done.stderr
        assert expected in done.stderr


# --- recall -----------------------------------------------------------------------------------------


def recalled(ralph: Ralph, text: str, **more: Any) -> list[str]:
    told = ralph.agent("recall", "--", text, **more).json
    assert set(told) == {"success", "learnings", "known"}
    assert told["success"] is True
    return [one["text"] for one in told["learnings"]]


@pytest.fixture
def known(project: Ralph) -> Ralph:
    """A session, in a project with learnings."""
    return fill(project, APPLES, BANANAS, learning(3, CHERRIES, still_valid=False)).begin()


def test_recall_needs_a_session(known: Ralph) -> None:
    before = known.snapshot()
    told = known.agent("recall", "apples", session=None)
    assert (told.exit_code, told.code) == (1, "SESSION_REQUIRED")
    assert known.agent("recall", "apples", session="nobody").code == "SESSION_NOT_FOUND"
    assert known.agent("recall", "apples", session="../x").code == "INVALID_NAME"
    for arguments in (["recall"], ["recall", "a", "b"], ["recall", "--limit", "3", "a"]):
        told = known.agent(*arguments)
        assert (told.exit_code, told.code) == (2, "USAGE")
    assert known.snapshot() == before


def test_recall_tells_what_is_known_and_where_from(known: Ralph) -> None:
    before = history(known)
    told = known.agent("recall", "who peels apples?").json
    assert told["known"] == 2
    [found] = told["learnings"]
    assert found == {
        "id": "learning-0001",
        "text": APPLES,
        "kind": "learning",
        "type": "tool-usage",
        "source": "shop-1",
        "created_at": "2026-01-02T09:30:00Z",
        "score": found["score"],
    }
    assert recalled(known, "cherries counted at night") == []
    assert history(known) == before


def test_without_a_run_nothing_is_recorded(known: Ralph) -> None:
    before = known.session_file().read_bytes()
    assert recalled(known, "apples") == [APPLES]
    assert known.session_file().read_bytes() == before
    assert not (known.root / ".ralph/usefulness.jsonl").exists()
    assert recalled(known, "apples", RALPH_TOKEN="t" * 32) == [APPLES]
    assert known.session()["recalled"] == ["learning-0001"]
    assert recalled(known, "zeppelins", RALPH_TOKEN="t" * 32) == []
    assert known.session()["recalled"] == ["learning-0001"]


def test_what_was_just_learnt_is_recalled(known: Ralph) -> None:
    assert recalled(known, "dates dried on the roof") == []
    assert known.agent("learn", "Dates are dried on the roof").json
    assert recalled(known, "dates dried on the roof") == ["Dates are dried on the roof"]
    assert known.agent("session", "flush").json
    known.begin(session="s2")
    told = known.agent("recall", "dates dried on the roof", session="s2").json
    assert [one["id"] for one in told["learnings"]] == ["learning-0004"], "once, and by its id from now on"
    assert told["known"] == 3


def test_what_was_learnt_again_word_for_word_is_recalled_once_it_is_written_out(known: Ralph) -> None:
    """The history does not change then, since it already has that learning."""
    assert known.agent("learn", APPLES).json
    assert recalled(known, "apples peeled") == [APPLES, APPLES]
    assert known.agent("session", "flush").json
    known.begin(session="s2")
    assert recalled(known, "apples peeled", session="s2") == [APPLES]


def test_recall_notices_what_another_process_has_changed(known: Ralph) -> None:
    assert recalled(known, "dates dried on the roof") == []
    fill(known, APPLES, BANANAS, "Dates are dried on the roof")
    assert recalled(known, "dates dried on the roof") == ["Dates are dried on the roof"]
    assert known.run("memory", "forget", "learning-0001").exit_code == 0
    assert recalled(known, "apples peeled") == []
    (known.root / ".ralph/progress.json").unlink()
    assert recalled(known, "bananas ripen") == []


def test_recall_notices_a_line_in_the_journal(known: Ralph) -> None:
    """In a history of more than 1 MiB, an addition is only a line in the journal."""
    fill(known, APPLES, learning(2, "A long story", context="x" * (1 << 20)))
    assert known.run("memory", "forget", "learning-0002").exit_code == 0
    assert (known.root / ".ralph/progress.journal").exists()
    assert recalled(known, "long story") == []
    before = history(known)
    assert recalled(known, "apples peeled") == [APPLES]
    assert history(known) == before
    assert known.run("memory", "forget", "learning-0001").exit_code == 0
    assert recalled(known, "apples peeled") == []


def test_recall_where_nothing_is_known_yet(project: Ralph) -> None:
    project.begin()
    assert project.agent("recall", "apples").json == {"success": True, "learnings": [], "known": 0}
    assert not (project.root / ".ralph/progress.json").exists()


def test_recall_gives_ten_at_most(project: Ralph) -> None:
    fill(project, *(f"Thing{number} of the shop is blue" for number in range(40))).begin()
    told = project.agent("recall", "blue shop").json
    assert (len(told["learnings"]), told["known"]) == (10, 40)
    scores = [one["score"] for one in told["learnings"]]
    assert scores == sorted(scores, reverse=True)


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Ralph:
    ralph = Ralph(tmp_path_factory.mktemp("asked")).openspec()
    return fill(
        ralph, APPLES, "Счета хранятся в копейках", "الفواتير بالقروش دائما", "청구서 합계는 센트로 저장"
    ).begin()


@pytest.mark.parametrize("text", BAD, ids=lambda text: ascii(text[:16]))
def test_any_text_is_recalled(asked: Ralph, text: str) -> None:
    before = history(asked)
    found = recalled(asked, text)
    assert ("apples" not in text) or found[0] == APPLES
    assert history(asked) == before


@pytest.mark.parametrize(("text", "found"), [("счета", "Счета"), ("الفواتير", "الفواتير"), ("청구서", "청구서")])
def test_other_scripts_are_recalled_by_their_words(asked: Ralph, text: str, found: str) -> None:
    assert recalled(asked, text)[0].startswith(found)


def test_a_megabyte_from_stdin(asked: Ralph) -> None:
    big = b"who peels the apples? " * 50_000
    told = asked.agent("recall", "-", stdin=big).json
    assert told["learnings"][0]["text"] == APPLES
    assert asked.agent("recall", "-", stdin=b"").json["learnings"] == []
    assert asked.agent("recall", "-", stdin=b"x" * (1 << 20)).json["learnings"] == []
    assert asked.agent("recall", "-", stdin=b"\xff\xfe").code == "INVALID_VALUE"


def test_recall_is_answered_when_the_index_is_of_no_use(known: Ralph) -> None:
    index = known.root / ".ralph/memory.index"
    before = history(known)
    for content in (b"", b"garbage" * 2000, b"SQLite format 3\0" + b"\xff" * 8000):
        for path in known.root.glob(".ralph/memory.index*"):
            path.unlink()
        index.write_bytes(content)
        assert recalled(known, "apples peeled") == [APPLES]
        assert recalled(known, "apples peeled") == [APPLES]
    index.unlink()
    index.mkdir()
    assert recalled(known, "apples peeled") == [APPLES], "without a file"
    index.rmdir()
    elsewhere = known.home / "elsewhere"
    elsewhere.write_text("mine")
    index.symlink_to(elsewhere)
    assert recalled(known, "apples peeled") == [APPLES]
    assert elsewhere.read_text() == "mine"
    assert history(known) == before


@pytest.mark.skipif(not Path("/usr/bin/setpriv").exists() and os.geteuid() == 0, reason="root may write everywhere")
@pytest.mark.parametrize("is_indexed", [False, True])
def test_a_project_that_may_only_be_read(known: Ralph, is_indexed: bool) -> None:
    """Without an index, and with one that is up to date."""
    if is_indexed:
        assert recalled(known, "apples") == [APPLES]
    prefix = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] if os.geteuid() == 0 else []
    paths = [*known.root.rglob("*"), known.root]
    before = history(known)
    for path in paths:
        path.chmod(0o500 if path.is_dir() else 0o400)
    try:
        for arguments in (
            ["agent", "recall", "apples"],
            ["memory", "--json"],
            ["memory", "search", "apples", "--json"],
        ):
            done = subprocess.run(
                [*prefix, COMMAND, *arguments],
                cwd=known.root,
                env={**known.env, "RALPH_SESSION": "s1"},
                capture_output=True,
                text=True,
                timeout=PATIENCE,
            )
            assert (done.returncode, done.stderr) == (0, "")
            assert APPLES in done.stdout
        assert history(known) == before
    finally:
        for path in reversed(paths):
            path.chmod(0o700 if path.is_dir() else 0o600)


def test_secrets_are_recalled_masked(known: Ralph) -> None:
    assert known.agent("learn", "The depot wants s3cr3t-v4lue", DEPOT_TOKEN="s3cr3t-v4lue").json
    assert recalled(known, "what the depot wants", DEPOT_TOKEN="s3cr3t-v4lue") == ["The depot wants [redacted]"]
    for path in known.root.glob(".ralph/memory.index*"):
        assert b"s3cr3t-v4lue" not in path.read_bytes(), path.name


def test_many_recalls_at_once_are_all_answered(known: Ralph) -> None:
    """The index does not exist yet: each of them would create it."""
    environment = {**known.env, "RALPH_SESSION": "s1", "RALPH_TOKEN": "t" * 32}
    running = [
        subprocess.Popen(
            [COMMAND, "agent", "recall", "apples peeled"],
            cwd=known.root,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for _ in range(6)
    ]
    for process in running:
        stdout, stderr = process.communicate(timeout=PATIENCE)
        assert (process.returncode, stderr) == (0, b"")
        assert [one["text"] for one in json.loads(stdout)["learnings"]] == [APPLES]
    assert known.session()["recalled"] == ["learning-0001"] * 6
