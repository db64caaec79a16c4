"""A bench of a worker, without a server: it judges by what is red on its own machine."""

from __future__ import annotations

import os

import pytest
from lab import Lab
from loop.lanes import CODE, GATE, NEEDS_BOXES, ONE

from ralphtool import settings as settings_module
from ralphtool.agents import End
from ralphtool.executors import Assignment, Report
from ralphtool.executors.orders import Order
from ralphtool.judging import gates
from ralphtool.judging.gates import Baseline
from ralphtool.workers.bench import Bench
from ralphtool.workspace.git import Repository


def build_order(lab: Lab, red_elsewhere: bool) -> Order:
    """Work that breaks the gate. On the machine that measured the baseline, the gate may already have been red."""
    base, home = lab.git("rev-parse", "main"), Repository.find(str(lab.root))
    assert home
    lab.write("parts/1.txt", " ")
    lab.git("add", "parts")
    work = lab.git("commit-tree", "-p", base, "-m", "work", lab.git("write-tree"))
    tree = home.tree_of(work)
    known = Baseline(gates.build_key(home.tree_of(base), [GATE]), red={GATE: None} if red_elsewhere else {})
    end = End(True, "<promise>COMPLETE:t</promise>")
    done = frozenset({"1.1"})
    return Order(
        kind="prove",
        name="run/001-prove-x",
        run="run",
        assignment=build_assignment(base),
        settings=settings_module.load(str(lab.root)),
        spec="openspec:openspec/changes/add-login",
        prd_ids=("add-login-1",),
        upon=base,
        work=work,
        report=Report(ending="exit", end=end, tree=tree, ticked=done, required=done, baseline=known),
    )


def build_assignment(base: str) -> Assignment:
    return Assignment(
        number=1,
        change="add-login",
        story="1",
        task=None,
        entry="add-login-1-1",
        attempt=1,
        token="t",
        prompt="",
        shown={},
        agent="scripted",
        base=base,
        kept=None,
        cut_off=None,
        fix=False,
        gates=(GATE,),
        baseline=None,
        folder="001-add-login-1-1",
        seconds=0.0,
    )


@pytest.fixture
def lab(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Lab:
    made = Lab(tmp_path_factory.mktemp("bench"))
    made.write("gate.sh", CODE)
    made.repository(ONE, workspace="box", tests=[GATE])
    made.play(default=[])
    for name in ("HOME", "TMPDIR"):
        monkeypatch.setenv(name, made.env[name])
    return made


@NEEDS_BOXES
@pytest.mark.parametrize("red_elsewhere", [True, False])
def test_what_is_red_only_on_another_machine_excuses_nothing(lab: Lab, red_elsewhere: bool) -> None:
    order = build_order(lab, red_elsewhere)
    repository = Repository.find(str(lab.root))
    assert repository
    bench = Bench(repository, 1, order)
    bench.open(order, lambda: False)
    try:
        report = bench.carry_out(order, "anna", lambda: False).report
    finally:
        bench.close()
    assert report
    assert [one.command for one in report.red] == [GATE], os.listdir(lab.root)
