"""Gates that change the files of the work: what they tested is not what would be committed."""

from __future__ import annotations

import sys

import pytest
from lab import Lab
from loop.shop import CART, DISCOUNT, UNITTEST_GATE, attempt, make_shop, receipts
from sandbox.boxes import needs_box

REPAIR = """\
import pathlib
path = pathlib.Path("cart.py")
text = path.read_text()
path.write_text(text.replace("retrun", "return"))
"""
FIX = f"{sys.executable} fix.py"
WRONG: dict[str, str | None] = {"cart.py": CART + DISCOUNT.replace("return", "retrun")}


@pytest.mark.parametrize("workspace", [pytest.param("box", marks=needs_box), "here"])
def test_a_gate_that_repairs_the_work_proves_nothing(lab: Lab, workspace: str) -> None:
    lab.write("fix.py", REPAIR)
    make_shop(lab, UNITTEST_GATE)
    lab.configure(checks=[FIX], tests=[UNITTEST_GATE], attempts=2, workspace=workspace)
    repaired = {"story": "1", "attempt": 2, "steps": [{"run": FIX}, {"complete": True}]}
    lab.play(repaired, default=attempt(WRONG))
    lab.loop()
    first, second = lab.entries()
    assert first["status"] == "partial", "the next attempt begins with the work"
    assert f"`{FIX}` did not test the work: it changes cart.py; run it before" in first["summary"]
    assert second["status"] == "completed"
    assert [one["state"] for one in receipts(lab)] == ["held"]
    assert lab.git("show", "ralph/add-login:cart.py").strip() == (CART + DISCOUNT).strip()
