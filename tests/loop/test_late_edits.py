"""What the user saves in their own folder while no agent works there is kept."""

from __future__ import annotations

import sys

import pytest
from lab import Lab
from loop.shop import CART, DISCOUNT, UNITTEST_GATE, UNITTEST_OWN, UNITTESTS, attempt, make_shop, receipts

OWN = UNITTEST_OWN.replace("import unittest\n", "").replace("from cart import discount\n", "").strip("\n")
WORK: dict[str, str | None] = {
    "cart.py": CART + DISCOUNT,
    "tests/test_cart.py": UNITTESTS.replace("import count,", "import count, discount,") + "\n\n" + OWN + "\n",
}
# A gate can do what a user does meanwhile.
SAVE = """\
import os, pathlib, sys
mark = pathlib.Path(os.environ["SAVES"], sys.argv[1])
runs = len(list(mark.parent.glob("run-*"))) + 1
(mark.parent / f"run-{runs}").touch()
if runs == int(sys.argv[1]):
    for name in ("cart.py", "tests/test_cart.py", "notes.txt", "docs/mine.txt"):
        path = pathlib.Path(name)
        path.parent.mkdir(exist_ok=True)
        with path.open("a") as file:
            file.write(f"# by the user {name}\\n")
    pathlib.Path("README.md").unlink()
"""
RUNS = {"before": 1, "after": 2, "replay": 3, "own-tests": 4}


def save_in(lab: Lab, run: int) -> str:
    (lab.root.parent / "saves").mkdir()
    (lab.root.parent / "save.py").write_text(SAVE)
    lab.env["SAVES"] = str(lab.root.parent / "saves")
    return f"{UNITTEST_GATE}; code=$?; {sys.executable} ../save.py {run}; exit $code"


def notices(lab: Lab) -> list[str]:
    texts = [one["text"] for one in lab.events() if one["type"] == "notice"]
    return [text for text in texts if "while no agent worked" in text]


@pytest.mark.parametrize("when", RUNS)
def test_what_the_user_saves_while_gates_run_is_kept(lab: Lab, when: str) -> None:
    lab.write("notes.txt", "one\n")
    make_shop(lab, UNITTEST_GATE)
    lab.configure(tests=[save_in(lab, RUNS[when])], attempts=1)
    lab.play(default=attempt(WORK))
    users = lab.users_state()
    lab.loop()
    again = ["after-again"] if when == "after" else []  # those gates did not test the work
    ran = [one["when"] for one in lab.events() if one["type"] == "gate"]
    assert ran == ["before", "after", *again, "replay", "own-tests"]
    assert [one["state"] for one in receipts(lab)] == ["proven"]
    assert lab.users_state() == users
    [text] = notices(lab)
    ref = next(word.rstrip("`") for word in text.split() if word.startswith("refs/"))
    assert lab.git("for-each-ref", "--format=%(refname)", "refs/ralph/interrupted").split() == [ref]
    added = [line for line in lab.git("show", "--format=", ref).split("\n") if line[0] in "+-" and line[:3] != "+++"]
    assert sorted(line for line in added if line[:3] != "---") == [
        "+# by the user cart.py",
        "+# by the user docs/mine.txt",
        "+# by the user notes.txt",
        "+# by the user tests/test_cart.py",
        "-hello",
    ]
    assert "cart.py" in text
    assert "and 2 more" in text
    assert "by the user" not in lab.git("log", "-p", "ralph/add-login")


def test_files_that_gates_write_each_time_are_kept_without_a_notice(lab: Lab) -> None:
    make_shop(lab, UNITTEST_GATE)
    lab.configure(tests=[f"{UNITTEST_GATE} && date +%N > report.xml && date +%N >> README.md"], attempts=3)
    lab.play({"story": "1", "attempt": 1, "steps": attempt({**WORK, "cart.py": CART + "\n"})}, default=attempt(WORK))
    lab.loop()
    assert [one["state"] for one in receipts(lab)] == ["proven"]
    assert notices(lab) == []
    assert len(lab.git("for-each-ref", "refs/ralph/interrupted").split("\n")) == 1


def test_a_run_in_which_nobody_saves_anything_keeps_nothing(lab: Lab) -> None:
    make_shop(lab, UNITTEST_GATE)
    lab.play({"story": "1", "attempt": 1, "steps": attempt({**WORK, "cart.py": CART + "\n"})}, default=attempt(WORK))
    lab.loop()
    assert [one["state"] for one in receipts(lab)] == ["proven"]
    assert (notices(lab), lab.git("for-each-ref", "refs/ralph/interrupted")) == ([], "")
