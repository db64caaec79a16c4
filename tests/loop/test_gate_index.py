"""Gates that ask git what has changed: their index has the work, as it will be committed."""

from __future__ import annotations

import sys

import pytest
from lab import Lab
from loop.shop import CART, DISCOUNT, UNITTEST_GATE, UNITTEST_OWN, attempt, make_shop, receipts
from sandbox.boxes import needs_box

GENERATE = "import pathlib\npathlib.Path('api.txt').write_text(pathlib.Path('cart.py').read_text().upper())\n"
# Every line of the status must be about the index alone: nothing changed since, and nothing is untracked.
CHECK = f"{sys.executable} generate.py && git diff --exit-code && ! git status --porcelain | grep -v '^[AMD]  '"


@pytest.mark.parametrize("workspace", [pytest.param("box", marks=needs_box), "worktree", "here"])
@pytest.mark.parametrize("is_generated", [True, False])
def test_a_check_of_a_generated_file_sees_the_work(lab: Lab, workspace: str, is_generated: bool) -> None:
    lab.write("generate.py", GENERATE)
    lab.write("api.txt", CART.upper())
    make_shop(lab, UNITTEST_GATE)
    lab.write(".gitignore", "__pycache__/\n.ralph/\n")
    lab.git("commit", "--quiet", "--all", "--message=ignore")
    lab.configure(checks=[CHECK], tests=[UNITTEST_GATE], workspace=workspace, attempts=1)
    lab.write("README.md", "staged by the user\n")
    lab.git("add", "README.md")
    users = lab.users_state()
    generate = [{"run": f"{sys.executable} generate.py"}] if is_generated else []
    files: dict[str, str | None] = {"cart.py": CART + DISCOUNT, "tests/test_discount.py": UNITTEST_OWN}
    *write, tick, promise = attempt(files)
    # What the agent stages itself does not matter.
    lab.play(default=[*write, {"run": "git rm -q --cached generate.py"}, *generate, tick, promise])
    result = lab.loop()
    assert [one["state"] for one in receipts(lab)] == (["proven"] if is_generated else []), result.stderr
    assert lab.users_state() == users, "the user's index is as it was"
