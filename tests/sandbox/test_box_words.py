"""What agents are told about their box, and what happens if something is missing in it."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest
from lab import DONE, Lab
from sandbox.boxes import needs_box

from ralphtool.loop import way_out
from ralphtool.sandbox.advice import Present, suggest
from ralphtool.settings import SandboxSettings, Settings

TASKS = "## 1. First\n\n- [ ] 1.1 Make a\n"


def read_prompt(lab: Lab) -> str:
    [path] = lab.root.glob(".ralph/runs/*/**/prompt.md")
    return path.read_text()


@needs_box
def test_an_agent_knows_that_it_is_in_a_box_and_how_to_ask_for_more(lab: Lab) -> None:
    lab.repository(TASKS, workspace="box").play(default=DONE)
    config = lab.root / ".ralph/config.toml"
    config.write_text(config.read_text() + '[sandbox]\nhosts = ["packages.example.org"]\nports = [5432]\n')
    assert lab.loop().exit_code == 0
    told = read_prompt(lab)
    for text in ("You are in a sandbox.", "packages.example.org, port 5432 of this machine", "Don't push", "a blocker"):
        assert text in told, text
    assert "learnings.md" not in told, "which can't be written there"


def test_elsewhere_no_box_is_mentioned(lab: Lab) -> None:
    lab.repository(TASKS).play(default=DONE)
    assert lab.loop().exit_code == 0
    assert "sandbox" not in read_prompt(lab)
    assert "learnings.md" in read_prompt(lab)


@needs_box
@pytest.mark.parametrize("missing", ["~/.tool/settings", "the host api.example.org"])
def test_a_blocker_that_a_setting_solves_is_asked_about_at_once(lab: Lab, missing: str) -> None:
    lab.repository(TASKS, workspace="box", attempts=3)
    (lab.home / ".tool").mkdir()
    (lab.home / ".tool/settings").write_text("x")
    ask = "python3 -c \"import urllib.request as r; r.urlopen('https://api.example.org', timeout=20)\" || true"
    lab.play(default=[{"run": ask}, {"blocked": f"{missing} is not there"}])
    lab.loop()
    assert len(lab.entries()) == 1
    text = lab.question().read_text()
    line = 'set read = ["~/.tool/settings"] under [sandbox]' if "tool" in missing else 'hosts = ["api.example.org"]'
    assert line in text, text


@needs_box
def test_what_was_denied_is_in_the_summary(lab: Lab) -> None:
    lab.repository(TASKS, workspace="box")
    names = ", ".join(f"'h{number}.example.org'" for number in range(7))
    loop = f"for name in ({names}):\n try: r.urlopen('https://' + name)\n except OSError: pass\n"
    lab.write("ask.py", f"import urllib.request as r\n{loop}")
    lab.git("add", "ask.py")
    lab.git("commit", "--quiet", "--message=ask")
    lab.play(default=[{"run": "python3 ask.py"}, *DONE])
    told = lab.run("run").stdout
    summary = told[told.index("Next steps") :]
    lines = [line.strip() for line in summary.splitlines() if "was denied" in line]
    assert lines[0] == 'h0.example.org:443 was denied: allow it with [sandbox] hosts = ["h0.example.org"]'
    assert len(lines) == 5


# --- the advice itself ------------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path: Path) -> Path:
    for name in (".config/tool.toml", ".ssh/id_rsa", "work/project/data.json", ".cargo/bin/cargo"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    return tmp_path


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("FileNotFoundError: [Errno 2] No such file or directory: '{home}/.config/tool.toml'", "~/.config/tool.toml"),
        ("cannot open ~/.config/tool.toml.", "~/.config/tool.toml"),
        ("reading {home}/.config/tool.toml", ""),  # it is not missing
        ("{home}/.config/other.toml: No such file or directory", ""),  # it does not exist anyway
        ("{home}/.ssh/id_rsa: No such file or directory", ""),  # nobody should be asked to expose it
        ("{home}/work/project/data.json: No such file or directory", ""),  # the box has the project
        ("{home}/.cargo/bin/cargo: not found", ""),  # toolchains are shown
        ("{home}: not found", ""),
    ],
)
def test_a_file_that_is_hidden(home: Path, said: str, found: str) -> None:
    line = suggest(said.format(home=home), str(home / "work/project"), str(home))
    assert line == (f"set read = [{json.dumps(found)}] under [sandbox]" if found else "")


def test_in_a_claim_a_name_is_enough(home: Path) -> None:
    top = str(home / "work/project")
    said = "the story needs ~/.config/tool.toml"
    assert suggest(said, top, str(home)) == ""
    assert "~/.config/tool.toml" in suggest(said, top, str(home), is_claim=True)
    shown = [str(home / ".config")]
    assert suggest(said, top, str(home), shown=shown, is_claim=True) == ""


def test_a_host_that_was_denied(home: Path) -> None:
    told = suggest("it failed", str(home), str(home), ['[sandbox] hosts = ["x.example.org"]'])
    assert told == 'set hosts = ["x.example.org"] under [sandbox]'


def test_what_is_already_set_is_repeated_because_the_advice_replaces_it(home: Path) -> None:
    present = Present(read=("~/first",), ports=(5432,))
    told = suggest("cannot open ~/.config/tool.toml", str(home / "work"), str(home), present=present)
    assert told == 'set read = ["~/first", "~/.config/tool.toml"] under [sandbox]'
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        told = suggest(f"connection to localhost:{port} refused", str(home), str(home), present=present)
    assert told == f"set ports = [5432, {port}] under [sandbox]"
    settings = Settings(sandbox=SandboxSettings(hosts=("files.example.org",), ports=(5432,)))
    rules = way_out.build_rules(settings, [], str(home), {})
    denied = [rules.check_host("pypi.org", 443), rules.check_host("localhost", 8080)]
    allow = ['[sandbox] hosts = ["files.example.org", "pypi.org"]', "[sandbox] ports = [5432, 8080]"]
    assert [one.allow for one in denied if one] == allow
