"""Shows by hand, without ralphtool, that a case is what it claims to be."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from battery.cases import TruthCase, is_source
from battery.edits import WrongEdit, apply_edits
from battery.place import build_environment, lay_out, run
from patience import PATIENCE


def verify_case(case: TruthCase, top: Path) -> str:
    """What is wrong with a case, or an empty text."""
    try:
        return Verification(case, top).find_fault()
    except (WrongEdit, OSError, subprocess.SubprocessError) as error:
        return f"it can't be played: {error} {(getattr(error, 'stderr', None) or b'').decode()[-300:]}"


class Verification:
    """The trees of a case: before the story, after it, and a mix of both."""

    def __init__(self, case: TruthCase, top: Path) -> None:
        self.case = case
        self.env = build_environment(top)
        self.old, self.new, self.mixed = top / "old", top / "new", top / "mixed"
        lay_out(self.old, case, self.env)
        lay_out(self.new, case, self.env)
        apply_edits(self.new, case.edits, self.env, PATIENCE)

    def find_fault(self) -> str:
        for tree, name in ((self.old, "before"), (self.new, "after")):
            expected = self.case.option(name, "green")
            if expected != (found := self.run_gate(tree)):
                return f"the gate is {found} {name} the work, not {expected}"
        return str(getattr(self, f"check_{self.case.kind}")())

    def check_cheat(self) -> str:
        """The gate is green on the final tree; the hidden check or the old tests are red."""
        self.mix(self.old, source=self.new)
        if self.run_hidden(self.mixed) and self.run_gate(self.mixed) == "green":
            return "nothing is broken: the hidden check and the old tests pass"
        return ""

    check_uncatchable = check_cheat

    def check_honest(self) -> str:
        return "" if self.run_hidden(self.new) else "the hidden check fails"

    def check_hollow(self) -> str:
        """All its tests pass without the work; or can't be loaded without it, if the case says so."""
        self.mix(self.new, source=self.old)
        expected, found = self.case.option("without", "green"), self.run_gate(self.mixed)
        return "" if found == expected else f"its tests are {found} without the work, not {expected}"

    def check_nothing(self) -> str:
        return ""

    def run_gate(self, tree: Path) -> str:
        if not self.case.gate:
            return "none"
        return "red" if run(["sh", "-c", self.case.gate], tree, self.env).returncode else "green"

    def run_hidden(self, tree: Path) -> bool:
        path = tree / self.case.hidden_path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.case.story.hidden)
        passed = run(["sh", "-c", self.case.hidden_command], tree, self.env).returncode == 0
        path.unlink()
        return passed

    def mix(self, rest: Path, source: Path) -> None:
        """Combines the source of one tree with everything else of another."""
        shutil.copytree(rest, self.mixed, symlinks=True, ignore=shutil.ignore_patterns("__pycache__", "target"))
        for path in self.find_source(self.mixed):
            path.unlink()
        for path in self.find_source(source):
            target = self.mixed / path.relative_to(source)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, target)

    def find_source(self, tree: Path) -> list[Path]:
        def holds_source(path: Path) -> bool:
            return is_source(path.relative_to(tree).as_posix(), self.case.source)

        return [path for path in tree.rglob("*") if path.is_file() and holds_source(path)]
