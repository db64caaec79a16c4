"""Where a run works: chosen by trial, remembered, and reported."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from lab import Lab
from loop.shop import CART, DISCOUNT, OWN_TEST, TASKS, UNITTEST_GATE, UNITTEST_OWN, UNITTESTS, attempt, make_shop
from sandbox.boxes import needs_box

from ralphtool.errors import InvalidValue
from ralphtool.judging.gate_trouble import Trouble
from ralphtool.loop import workspace_choice
from ralphtool.loop.workspace_choice import AGAIN, Findings, explain_refusal, list_choices
from ralphtool.sandbox.trial import NoBox, Tools
from ralphtool.settings import RunSettings, SandboxSettings, Settings
from ralphtool.workspace.git import Repository

GATES = ["make test"]
TOOLS = Tools(bwrap="bwrap", unshare="unshare", mount="mount")
NO_BOX = NoBox(why="bubblewrap is not installed", help="sudo apt install bubblewrap")
TROUBLE = Trouble(what="`make test` stays green there when the code is broken")


@pytest.fixture
def repository(lab: Lab) -> Repository:
    lab.repository()
    found = Repository.find(str(lab.root))
    assert found is not None
    return found


def build_settings(workspace: str = "auto", mode: str = "auto", **sandbox: Any) -> Settings:
    run = RunSettings(workspace=workspace)  # type: ignore[arg-type]
    return Settings(run=run, sandbox=SandboxSettings(mode=mode, **sandbox))  # type: ignore[arg-type]


def find(repository: Repository, settings: Settings | None = None, gates: Sequence[str] = GATES) -> Findings:
    return Findings(repository, settings or Settings(), gates)


def choose(found: Repository | None, workspace: str = "auto", mode: str = "auto") -> list[str]:
    settings = build_settings(workspace, mode)
    return [one.kind for one in list_choices(settings, found, find(found, settings) if found else None)]


def offer(monkeypatch: pytest.MonkeyPatch, found: Tools | NoBox) -> None:
    monkeypatch.setattr(workspace_choice, "try_box", lambda: found)


def try_all(
    repository: Repository, settings: Settings, troubles: dict[str, Trouble]
) -> list[tuple[str, tuple[str, ...]]]:
    """The kinds that are tried if the gates have these troubles there."""
    known, tried = find(repository, settings), []
    for choice in list_choices(settings, repository, known):
        tried.append((choice.kind, choice.help))
        if choice.is_settled or choice.kind not in troubles:
            break
        known.remember(choice.kind, troubles[choice.kind])
    return tried


def test_a_box_is_the_first_choice(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, TOOLS)
    troubles = {"box": TROUBLE, "worktree": TROUBLE}
    assert [kind for kind, _ in try_all(repository, Settings(), troubles)] == ["box", "worktree", "here"]
    assert (choose(repository, "worktree"), choose(repository, "here"), choose(None)) == (
        *(["worktree"], ["here"], ["here"]),
    )


def test_what_is_known_not_to_do_is_not_tried_again(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, TOOLS)
    find(repository).remember("box", TROUBLE)
    assert try_all(repository, Settings(), {}) == [("worktree", (AGAIN,))]
    find(repository).remember("worktree", None)
    assert find(repository).is_suitable("worktree")
    assert not find(repository, gates=["other"]).is_suitable("worktree"), "other gates are another matter"
    find(repository).forget()
    assert choose(repository) == ["box"]


def test_trouble_is_forgotten_when_files_or_settings_are_others(
    lab: Lab, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer(monkeypatch, TOOLS)
    find(repository).remember("box", TROUBLE)
    find(repository).remember("worktree", None)
    assert find(repository, build_settings(read=("~/.tool",))).read_trouble("box") is None
    lab.write("fixed.py", "x = 1\n")
    lab.git("add", "fixed.py")
    lab.git("commit", "--quiet", "--message=fixed")
    assert choose(repository) == ["box"]
    assert find(repository).is_suitable("worktree"), "what did well is not tried again for each commit"


def test_a_box_in_which_some_tests_fail_is_better_than_ones_own_folder(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer(monkeypatch, TOOLS)
    partly = Trouble(what="`make test` passes in your own folder", help='[sandbox] read = ["~/x"]', is_partial=True)
    tried = try_all(repository, Settings(), {"box": partly, "worktree": TROUBLE})
    assert tried == [("box", ()), ("worktree", (partly.help,)), ("box", (partly.help,))]
    assert try_all(repository, Settings(), {"box": partly}) == [("box", (partly.help,))], "and is remembered"


def test_a_required_box_is_never_left(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, TOOLS)
    for settings in (build_settings(mode="require"), build_settings("box")):
        assert [kind for kind, _ in try_all(repository, settings, {"box": TROUBLE})] == ["box"]
        refusal = explain_refusal(settings, "box", TROUBLE)
        assert TROUBLE.what in refusal
        assert "or remove" in refusal
    assert explain_refusal(Settings(), "box", TROUBLE) == ""


def test_without_a_box_the_reason_is_given_with_what_helps(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer(monkeypatch, NO_BOX)
    [worktree, here] = list_choices(Settings(), repository, find(repository))
    assert (worktree.kind, here.kind) == ("worktree", "here")
    assert worktree.describe() == ["why: bubblewrap is not installed", "to fix it: sudo apt install bubblewrap"]
    for wanted, mode in (("box", "auto"), ("auto", "require")):
        with pytest.raises(InvalidValue, match="apt install bubblewrap"):
            choose(repository, wanted, mode)
    for wanted in ("here", "worktree"):
        with pytest.raises(InvalidValue, match='set workspace = "auto" under'):
            choose(repository, wanted, "require")
    with pytest.raises(InvalidValue, match="git init"):
        choose(None, "auto", "require")


def test_a_damaged_note_is_none(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, TOOLS)
    find(repository).remember("box", TROUBLE)
    [note] = Path(repository.common, "ralph").glob("workspaces.json")
    for text in ("{", '{"key": "a text of an older version"}'):
        note.write_text(text)
        assert choose(repository) == ["box"]


# --- with real gates --------------------------------------------------------------------------------


def make_editable(lab: Lab, workspace: str) -> Lab:
    """A project whose tests import the code of the user's own folder, as with an editable install."""
    lab.write("src/cart.py", CART)
    lab.write("tests/test_cart.py", UNITTESTS)
    gate = f"PYTHONPATH={lab.root}/src python3 -B -m unittest discover -v -s tests"
    lab.write(".gitignore", "__pycache__/\n")
    files = {"src/cart.py": CART + DISCOUNT, "tests/test_discount.py": UNITTEST_OWN}
    return lab.repository(tasks=TASKS, tests=[gate], workspace=workspace, attempts=1).play(default=attempt(files))


def test_a_worktree_in_which_gates_are_blind_is_refused(lab: Lab) -> None:
    make_editable(lab, "worktree")
    told = lab.loop()
    assert told.exit_code == 1
    assert "stays green there when the code is broken" in told.stderr
    assert lab.entries() == []


@needs_box
def test_in_a_box_they_see(lab: Lab) -> None:
    make_editable(lab, "auto")
    assert lab.loop().exit_code == 0
    assert [event["workspace"] for event in lab.events() if event["type"] == "run_started"] == ["box"]
    assert [event["receipt"]["state"] for event in lab.events() if event["type"] == "proof"] == ["proven"]


@needs_box
def test_only_the_first_run_pays_for_it(lab: Lab) -> None:
    files = {"cart.py": CART + DISCOUNT, "tests/test_discount.py": UNITTEST_OWN}
    make_shop(lab, UNITTEST_GATE).configure(tests=[UNITTEST_GATE], workspace="auto", attempts=1)
    lab.play(default=attempt(files))
    lab.loop()
    assert [event["when"] for event in lab.events() if event["type"] == "gate"].count("blind") == 1
    lab.run("reject", "1")
    lab.loop()
    assert [event["when"] for event in lab.events() if event["type"] == "gate"].count("blind") == 1


def list_notices(lab: Lab) -> list[str]:
    return [event["text"] for event in lab.events() if event["type"] == "notice"]


def list_places(lab: Lab) -> list[str]:
    return [event["kind"] for event in lab.events() if event["type"] == "workspace"]


NEEDS_HOME = """\
import os
import unittest


class TestHome(unittest.TestCase):
    def test_home(self):
        open(os.path.expanduser("~/.tool/settings")).close()
"""


def make_needy(lab: Lab, test: str = NEEDS_HOME, **config: Any) -> Lab:
    """A shop with a test that needs a file in the user's home."""
    lab.write("tests/test_home.py", test)
    make_shop(lab, UNITTEST_GATE).configure(tests=[UNITTEST_GATE], attempts=1, **config)
    (lab.home / ".tool").mkdir()
    (lab.home / ".tool/settings").write_text("x")
    return lab.play(default=attempt({"cart.py": CART + DISCOUNT, "tests/test_discount.py": UNITTEST_OWN}))


@needs_box
def test_a_required_box_that_does_not_do_is_refused_with_what_helps(lab: Lab) -> None:
    make_needy(lab, workspace="auto")
    config = lab.root / ".ralph/config.toml"
    config.write_text(config.read_text() + '[sandbox]\nmode = "require"\n')
    told = lab.loop()
    assert told.exit_code == 1
    for text in ("test_home", "FileNotFoundError", 'read = [\\"~/.tool/settings\\"]', 'mode = \\"require\\"'):
        assert text in told.stderr, (text, told.stderr)
    assert lab.entries() == []
    assert not any(event["type"] == "agent" for event in lab.events())


@needs_box
def test_what_fails_in_a_box_only_is_named_with_its_cause_and_what_helps(lab: Lab) -> None:
    make_needy(lab, workspace="auto")
    lab.loop("--max-iterations", "1")
    assert list_places(lab) == ["worktree"]
    assert [event["type"] for event in lab.events()].count("run_started") == 1
    told = list_notices(lab)
    [why] = [text for text in told if text.startswith("why: ")]
    assert "test_home" in why
    assert "FileNotFoundError" in why
    assert 'to fix it: set read = ["~/.tool/settings"] under [sandbox]' in told
    config = lab.root / ".ralph/config.toml"
    config.write_text(config.read_text() + '[sandbox]\nread = ["~/.tool/settings"]\n')
    lab.loop("--max-iterations", "1")
    assert list_places(lab) == ["worktree", "box"], "a setting that helps is tried at once"


@needs_box
@pytest.mark.parametrize("is_used", [True, False])
def test_a_filter_that_does_not_run_in_a_box_is_named(lab: Lab, is_used: bool) -> None:
    """Otherwise a file that it should encrypt would be committed, and published, as it is."""
    lab.write(".gitattributes", f"*.key filter={'crypt' if is_used else 'lfs'}\n")
    make_shop(lab, UNITTEST_GATE).configure(tests=[UNITTEST_GATE], workspace="box", attempts=1)
    lab.git("config", "filter.crypt.clean", "tr a-z A-Z")
    lab.git("config", "filter.lfs.clean", "git-lfs clean -- %f")
    lab.play(default=attempt({"cart.py": CART + DISCOUNT}))
    lab.loop()
    assert any("the git filter crypt does not run in a box" in text for text in list_notices(lab)) == is_used


@needs_box
def test_tests_that_need_uncommitted_files_cost_no_box(lab: Lab) -> None:
    make_needy(lab, NEEDS_HOME.replace("~/.tool/settings", "data.json"), workspace="auto")
    lab.write("data.json", "{}")
    lab.loop()
    assert list_places(lab) == ["box"]
    assert any("needs uncommitted files" in text for text in list_notices(lab)), json.dumps(list_notices(lab))


@needs_box
def test_a_gate_that_fails_only_once_costs_no_box(lab: Lab) -> None:
    (lab.home / "outside").touch()  # no box shows it
    gate = "test -e ~/outside || test -e flags || { mkdir flags; touch flags/x; false; }"
    lab.write(".gitignore", "flags/\n")
    lab.repository(tasks=TASKS, tests=[gate], workspace="auto", attempts=1).play(default=attempt({"a.txt": "x\n"}))
    lab.loop()
    assert list_places(lab) == ["box"]
    assert f"`{gate}` failed once and passed once without changes" in list_notices(lab)
    ran = [(event["when"], event["ok"]) for event in lab.events() if event["type"] == "gate"]
    assert ran[:3] == [("before", False), ("outside", True), ("before-again", True)]


COMMITS = """\
import subprocess
import tempfile
import unittest


class TestCommit(unittest.TestCase):
    def test_commit(self):
        with tempfile.TemporaryDirectory() as folder:
            def git(*words):
                return subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True).stdout.decode()

            git("init", "-q")
            git("commit", "-q", "--allow-empty", "-m", "first")
            self.assertEqual(git("log", "--format=%an").strip(), 'A "quoted" user')
            git("config", "user.name", "Other")
            git("commit", "-q", "--allow-empty", "-m", "second")
            self.assertEqual(git("log", "-1", "--format=%an").strip(), "Other")
"""


@needs_box
def test_git_knows_the_user_in_a_box(lab: Lab) -> None:
    (lab.home / ".gitconfig").write_text('[user]\nname = "A \\"quoted\\" user"\nemail = a@example.org\n')
    make_needy(lab, COMMITS, workspace="auto")
    lab.git("config", "--unset", "user.name")
    del lab.env["GIT_CONFIG_NOSYSTEM"]
    lab.loop()
    assert list_places(lab) == ["box"], json.dumps(list_notices(lab))


# --- blind gates --------------------------------------------------------------------------------------


def make_script(lab: Lab, *gates: str) -> Lab:
    """A project whose gate is a plain script that imports the code of the user's own folder."""
    lab.write("src/cart.py", CART)
    lab.write("t.py", "from cart import total\n\nassert total([1, 2]) == 3\n")
    gate = f"PYTHONPATH={lab.root}/src python3 t.py"
    lab.repository(tasks=TASKS, tests=[gate, *gates], workspace="worktree", attempts=1)
    return lab.play(default=attempt({"src/cart.py": CART + DISCOUNT}))


def test_a_gate_whose_tests_nobody_can_count_may_be_blind_too(lab: Lab) -> None:
    told = make_script(lab).loop()
    assert told.exit_code == 1
    assert "t.py` stays green there when the code is broken" in told.stderr


def test_a_gate_that_reads_no_code_is_harmless_beside_one_that_does(lab: Lab) -> None:
    make_script(lab, "true", "python3 -m compileall -q src").loop()
    assert list_places(lab) == ["worktree"]


def test_a_linter_that_sees_does_not_excuse_blind_tests(lab: Lab) -> None:
    make_editable(lab, "worktree")
    config = lab.root / ".ralph/config.toml"
    config.write_text(config.read_text().replace("checks = []", 'checks = ["python3 -m compileall -q src"]'))
    told = lab.loop()
    assert told.exit_code == 1
    assert "unittest discover -v -s tests` stays green there" in told.stderr


@needs_box
def test_in_a_box_a_gate_that_reads_no_code_is_only_said_to_prove_nothing(lab: Lab) -> None:
    lab.write("src/cart.py", CART)
    lab.repository(tasks=TASKS, tests=["true"], workspace="auto", attempts=1).play(default=attempt({"a.py": "x = 1\n"}))
    lab.loop()
    assert list_places(lab) == ["box"]
    assert any("it proves nothing" in text for text in list_notices(lab))
    assert list_claims(lab) == [("unproven", "no gate noticed broken code (`true`)")]
    lab.play(default=attempt({"b.py": "y = 1\n"}))
    lab.git("branch", "--quiet", "-D", "ralph/add-login")
    lab.run("unlock", "add-login")
    (lab.root / ".ralph/standing/add-login.json").unlink()
    lab.git("update-ref", "-d", "refs/ralph/base/add-login")
    lab.git("update-ref", "-d", "refs/ralph/start/add-login")
    lab.loop()  # a second run knows it, too
    assert list_claims(lab)[-1] == ("unproven", "no gate noticed broken code (`true`)")


def list_claims(lab: Lab) -> list[tuple[str, str]]:
    return [(one["receipt"]["state"], one["receipt"]["why"]) for one in lab.events() if one["type"] == "proof"]


@needs_box
def test_a_gate_that_tests_another_copy_holds_nothing_anywhere(lab: Lab) -> None:
    lab.write("src/cart.py", CART)
    lab.write("tests/test_cart.py", UNITTESTS)
    elsewhere = lab.root.parent / "elsewhere"
    shutil.copytree(lab.root, elsewhere)
    gate = f"cd {elsewhere} && PYTHONPATH=src python3 -B -m unittest discover -v -s tests"
    lab.repository(tasks=TASKS, tests=[gate], workspace="auto", attempts=1)
    lab.play(default=attempt({"src/cart.py": CART.replace("sum(prices)", "0")})).loop()
    assert list_places(lab) == ["box"], "the user's own folder would be no better, and has no sandbox"
    assert any("stays green there when the code is broken" in text for text in list_notices(lab))
    [(state, why)] = list_claims(lab)
    assert (state, why[:30]) == ("unproven", "no gate noticed broken code (`")


@needs_box
def test_a_gate_that_gets_its_first_tests_is_not_blind_any_more(lab: Lab) -> None:
    lab.write("src/cart.py", CART)
    lab.write("conftest.py", "import sys\n\nsys.path.insert(0, 'src')\n")
    tasks = "## 1. Test\n\n- [ ] 1.1 Test it\n\n## 2. Rename\n\n- [ ] 2.1 Rename it\n"
    gate = "python3 -m pytest -q -p no:cacheprovider || [ $? = 5 ]"
    lab.repository(tasks=tasks, tests=[gate], workspace="auto", attempts=1)
    first = attempt({"src/cart.py": CART + DISCOUNT, "tests/test_own.py": OWN_TEST})
    second = attempt({"src/cart.py": CART + DISCOUNT + "\n# words\n"})
    lab.play({"story": "1", "steps": first}, {"story": "2", "steps": second}).loop()
    assert list_claims(lab) == [("proven", ""), ("held", "")]
