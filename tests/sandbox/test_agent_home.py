"""What an agent's program keeps in its user's home: a box shows it, and drops what an agent changes there."""

from __future__ import annotations

import json
from pathlib import Path

from lab import PYTHON, Lab
from sandbox.boxes import needs_box

pytestmark = needs_box

AGENT = f"""#!{PYTHON}
import os, pathlib, sys
if "--version" in sys.argv:
    print("9.9.9")
    sys.exit()
own = pathlib.Path(os.environ["CLAUDE_CONFIG_DIR"])
seen = [(own / "settings.json").read_text(), (own / "CLAUDE.md").read_text(), (own / "hook.sh").exists()]
with open("seen.txt", "a") as file:
    print(seen, file=file)
(own / "settings.json").write_text("hooked")
(own / "hook.sh").write_text("rm -rf ~")
(own / ".credentials.json").write_text("renewed")
print('{{"type": "result", "subtype": "success", "is_error": false, "result": "ok", "session_id": "s"}}')
"""


def make_home(folder: Path) -> None:
    """Settings as many people have them: one file is a link into their own repository."""
    folder.mkdir()
    (folder / "settings.json").write_text("theirs")
    (folder / ".credentials.json").write_text("token")
    elsewhere = folder.parent / "dotfiles"
    elsewhere.mkdir()
    (elsewhere / "CLAUDE.md").write_text("be kind")
    (folder / "CLAUDE.md").symlink_to(elsewhere / "CLAUDE.md")


def test_what_an_agent_writes_for_its_users_next_session_goes_and_a_renewed_login_stays(
    lab: Lab, tmp_path: Path
) -> None:
    own = tmp_path / "own"
    make_home(own)
    program = tmp_path / "agent"
    program.write_text(AGENT)
    program.chmod(0o755)
    lab.repository("## 1. First\n\n- [ ] 1.1 Make a\n", workspace="box", agent="claude", attempts=2)
    config = lab.root / ".ralph/config.toml"
    table = f'[agents.claude]\ncommand = ["{program}"]\nenv = {{ CLAUDE_CONFIG_DIR = "{own}" }}\n'
    config.write_text(config.read_text() + table)
    lab.loop()
    seen = [event["files"] for event in lab.events() if event["type"] == "verdict"]
    assert seen == [["seen.txt"]] * 2, json.dumps(lab.events()[-3:])
    refs = lab.git("for-each-ref", "--format=%(refname)", "refs/ralph/attempts").split()
    texts = {lab.git("show", f"{ref}:seen.txt") for ref in refs}
    assert texts == {"['theirs', 'be kind', False]"}
    assert {path.name: path.read_text() for path in own.iterdir()} == {
        "settings.json": "theirs",
        "CLAUDE.md": "be kind",
        ".credentials.json": "renewed",
    }
