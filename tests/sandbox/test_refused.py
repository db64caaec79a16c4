"""Machines that refuse a box, or a part of one: the run continues if it can, says why, and refuses if it must.

The programs that create a box are replaced, for one command only, by ones that fail as the real ones do there.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from lab import Lab
from loop.shop import CART, DISCOUNT, UNITTEST_GATE, UNITTEST_OWN, attempt, make_shop
from patience import PATIENCE
from project import COMMAND
from sandbox.boxes import needs_box, needs_root

pytestmark = [needs_box, needs_root]

NO_NAMESPACES = "#!/bin/sh\necho 'bwrap: setting up uid map: Permission denied' >&2\nexit 1\n"
# As in a container without the right to mount: it can only bind its own folders.
NO_OVERLAY = """\
#!/bin/sh
case "$*" in
*overlay*) echo "mount: merged: permission denied." >&2; exit 32 ;;
esac
exec {real} "$@"
"""
BUILDS = "mkdir -p build && date >build/made"


@pytest.fixture
def shop(lab: Lab) -> Lab:
    make_shop(lab, UNITTEST_GATE).configure(tests=[UNITTEST_GATE], workspace="auto", attempts=1)
    return lab.play(default=attempt({"cart.py": CART + DISCOUNT, "tests/test_discount.py": UNITTEST_OWN}))


def require_box(lab: Lab) -> None:
    config = lab.root / ".ralph/config.toml"
    config.write_text(config.read_text() + '[sandbox]\nmode = "require"\n')


def replace(folder: Path, program: str, text: str) -> list[str]:
    """The prefix of a command that sees another program in place of the real one. No other process does."""
    found = shutil.which(program, path="/usr/bin:/bin")
    assert found is not None
    real = shutil.copy2(found, folder / f"real-{program}")
    fake = folder / program
    fake.write_text(text.replace("{real}", str(real)))
    fake.chmod(0o755)
    script = f'{real if program == "mount" else "mount"} --bind {fake} {found} && exec "$@"'
    return ["unshare", "--mount", "--propagation", "private", "--", "/bin/sh", "-c", script, "replace"]


def run(lab: Lab, before: list[str]) -> subprocess.CompletedProcess[str]:
    command = [*before, COMMAND, "run", "--json"]
    return subprocess.run(
        command, cwd=lab.root, env=lab.env, capture_output=True, text=True, timeout=PATIENCE, check=False
    )


def list_events(lab: Lab, type: str, field: str) -> list[Any]:
    return [event[field] for event in lab.events() if event["type"] == type]


def check_refusal(lab: Lab, done: subprocess.CompletedProcess[str], *words: str) -> None:
    assert done.returncode == 1
    told = json.loads(done.stderr.splitlines()[-1])["error"]
    assert [word for word in words if word not in told] == [], told
    assert lab.entries() == []
    assert not any(event["type"] == "agent" for event in lab.events()), "no agent was started"


def test_without_user_namespaces_the_run_goes_on_in_a_worktree(shop: Lab, tmp_path: Path) -> None:
    done = run(shop, replace(tmp_path, "bwrap", NO_NAMESPACES))
    assert done.returncode == 0, done.stderr
    assert list_events(shop, "workspace", "kind") == ["worktree"]
    [why] = [text for text in list_events(shop, "notice", "text") if text.startswith("why: ")]
    assert "bwrap: setting up uid map: Permission denied" in why
    assert any(text.startswith("to fix it: ") for text in list_events(shop, "notice", "text"))
    assert [one["state"] for one in list_events(shop, "proof", "receipt")] == ["proven"]


def test_without_user_namespaces_a_required_box_is_refused(shop: Lab, tmp_path: Path) -> None:
    require_box(shop)
    done = run(shop, replace(tmp_path, "bwrap", NO_NAMESPACES))
    check_refusal(shop, done, "no box is available here", "setting up uid map: Permission denied", "To fix it: ")


def add_environment(lab: Lab, *gates: str) -> None:
    """A folder that git ignores, with something installed in it."""
    lab.write(".gitignore", "__pycache__/\nbuild/\n")
    lab.git("commit", "--quiet", "--all", "--message=ignored")
    lab.write("build/tool", "installed\n")
    lab.configure(tests=[UNITTEST_GATE, *gates], workspace="auto", attempts=1)


def test_without_overlays_a_box_shows_environments_read_only(shop: Lab, tmp_path: Path) -> None:
    add_environment(shop, "grep -q installed build/tool")
    done = run(shop, replace(tmp_path, "mount", NO_OVERLAY))
    assert done.returncode == 0, done.stderr
    assert list_events(shop, "workspace", "kind") == ["box"]
    said = "this machine does not support overlays: build is read-only in the box"
    assert said in list_events(shop, "notice", "text")
    assert [one["state"] for one in list_events(shop, "proof", "receipt")] == ["proven"]


def test_gates_that_write_to_one_then_run_in_a_worktree(shop: Lab, tmp_path: Path) -> None:
    add_environment(shop, BUILDS)
    done = run(shop, replace(tmp_path, "mount", NO_OVERLAY))
    assert done.returncode == 0, done.stderr
    assert list_events(shop, "workspace", "kind") == ["worktree"]
    [why] = [text for text in list_events(shop, "notice", "text") if text.startswith("why: ")]
    assert "Read-only file system" in why
    assert (shop.root / "build/tool").read_text() == "installed\n"


def test_gates_that_write_to_one_refuse_a_required_box(shop: Lab, tmp_path: Path) -> None:
    add_environment(shop, BUILDS)
    require_box(shop)
    done = run(shop, replace(tmp_path, "mount", NO_OVERLAY))
    check_refusal(shop, done, "Read-only file system", 'mode = "require" under [sandbox]')
