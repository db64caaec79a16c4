"""The settings of a run: what the file and the flags mean, and what is said, with its line, when they are wrong."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from ralphtool import settings
from ralphtool.errors import InvalidValue
from ralphtool.settings import Agent, Blockers, Memory, Notify, Price, Prompt, Run, Settings, Verify, Wrong

PAGE = (Path(__file__).parent.parent / "docs/settings.md").read_text()


def parse(text: str) -> Settings:
    return settings.parse(text, "config.toml")


def complaint(text: str) -> str:
    with pytest.raises(Wrong) as caught:
        parse(text)
    assert caught.value.exit_code == 2
    assert isinstance(caught.value, InvalidValue)
    return str(caught.value)


def write(project: Path, content: str | bytes) -> str:
    file = project / ".ralph/config.toml"
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(file)


# --- good files -------------------------------------------------------------------------------------


def test_everything_has_a_default(tmp_path: Path) -> None:
    assert settings.load(str(tmp_path)) == parse("") == Settings()
    run = Settings().run
    assert (run.attempts, run.timeout, run.silence, run.guard, run.workspace) == (3, 3600, 900, "fail", "here")
    assert Settings().verify == Verify(checks=None, tests=None, timeout=1200)
    assert (Settings().memory.budget_tokens, Settings().prompt.budget_tokens) == (2000, 30000)


WHOLE = """\
[run]
spec = "docs/plan.md"
agent = "claude"
agents = ["claude", "codex"]
attempts = 5
max_iterations = 40
max_time = "8h"
timeout = "1h30m"
silence = 90
strict_order = true
setup = ["npm ci", "make"]
guard = "warn"
workspace = "worktree"
max_tokens = 1_000_000
max_cost = 20
story_tokens = 200_000
story_cost = 2.5

[verify]
checks = []
tests = ["pytest -q"]
timeout = "0"

[memory]
budget_tokens = 0

[prompt]
budget_tokens = 1

[agents.claude]
model = "opus"

[agents."my agent"]
command = ["my-agent", "-q"]
args = ["", "--x"]
env = { PORT = "8080", EMPTY = "" }
"""


def test_a_whole_file() -> None:
    assert parse(WHOLE) == Settings(
        run=Run(
            spec="docs/plan.md",
            agent="claude",
            agents=("claude", "codex"),
            attempts=5,
            max_iterations=40,
            max_time=28800,
            timeout=5400,
            silence=90,
            strict_order=True,
            setup=("npm ci", "make"),
            guard="warn",
            workspace="worktree",
            max_tokens=1_000_000,
            max_cost=20,
            story_tokens=200_000,
            story_cost=2.5,
        ),
        verify=Verify(checks=(), tests=("pytest -q",), timeout=0),
        memory=Memory(budget_tokens=0),
        prompt=Prompt(budget_tokens=1),
        agents={
            "claude": Agent(model="opus"),
            "my agent": Agent(command=("my-agent", "-q"), args=("", "--x"), env={"PORT": "8080", "EMPTY": ""}),
        },
    )


@pytest.mark.parametrize(
    "text",
    [
        '[run]\ntimeout = "1m"\n',
        '\ufeff[run]\ntimeout = "1m"\n',
        '[run]\r\n# why\r\ntimeout = "1m"\r\n',
        'run.timeout = "1m"',
        'run = { timeout = "1m" }',
        '"run"."timeout" = 60',
        "['run']\n'timeout' = 60.0",
        "[ run ]\ntimeout=60 # seconds",
    ],
)
def test_one_setting_in_all_spellings(text: str) -> None:
    assert parse(text) == Settings(run=Run(timeout=60))


def test_numbers_have_the_type_of_their_setting() -> None:
    run = parse("[run]\nmax_cost = 3\nmax_time = 60\nmax_tokens = 7").run
    assert [type(value) for value in (run.max_cost, run.max_time, run.max_tokens)] == [float, float, int]


def test_minus_zero_is_zero() -> None:
    assert str(parse("[run]\nmax_cost = -0.0").run.max_cost) == "0.0"


def test_settings_can_not_be_changed() -> None:
    with pytest.raises(AttributeError):
        parse("").run.attempts = 4  # type: ignore[misc]


# --- durations --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("30m", 1800),
        ("2h", 7200),
        ("1h30m", 5400),
        ("1h 30m 5s", 5405),
        ("1h5s", 3605),
        ("1.5h", 5400),
        (" 90 ", 90),
        ("90", 90),
        ("0", 0),
        ("0s", 0),
        ("0.5", 0.5),
        (90, 90),
        (0, 0),
        (1.5, 1.5),
        ("8784h", 31622400),
    ],
)
def test_durations(text: str | float, seconds: float) -> None:
    assert settings.duration(text) == seconds


@pytest.mark.parametrize(
    "text",
    ["", " ", "h", "90 s", "1m1h", "1h30", "5d", "500ms", "-5", "-5m", "1.2.3", ".", "1e3", "٣m", "30M", "nan", "s30"],
)
def test_no_durations(text: str) -> None:
    with pytest.raises(Wrong, match="is no duration: write 90s, 30m, 2h, 1h30m or a number of seconds"):
        settings.duration(text)


@pytest.mark.parametrize("number", [-1, -0.1, float("nan"), True, None])
def test_numbers_that_are_no_durations(number: Any) -> None:
    with pytest.raises(Wrong, match="is no duration"):
        settings.duration(number)


@pytest.mark.parametrize("text", ["8785h", "9" * 5000, "9" * 5000 + "h", 10**400, float("inf"), 31622401])
def test_endless_durations(text: str | float) -> None:
    with pytest.raises(Wrong, match="that duration is too big: a year is the most"):
        settings.duration(text)


# --- wrong files ------------------------------------------------------------------------------------

BAD = {
    # a key that is none
    "[run]\ntimeout = 1\n\n# why\n\n\ntimout = 2": "line 7: there is no setting run.timout: did you mean run.timeout?",
    "[run]\nmax-time = 1": "line 2: there is no setting run.max-time: did you mean run.max_time?",
    "[run]\nAttempts = 1": "line 2: there is no setting run.Attempts: did you mean run.attempts?",
    "[verify]\nattempts = 1": "line 2: there is no setting verify.attempts: did you mean run.attempts?",
    "[run]\nmodel = 'x'": "line 2: there is no setting run.model: did you mean agents.NAME.model?",
    "[run]\nbudget_tokens = 1": (
        "line 2: there is no setting run.budget_tokens: did you mean memory.budget_tokens or prompt.budget_tokens?"
    ),
    "[verify]\nxyzzy = 1": "line 2: there is no setting verify.xyzzy: there are checks, tests, timeout",
    "[agents.claude]\n\nmodle = 'x'": (
        "line 3: there is no setting agents.claude.modle: did you mean agents.claude.model?"
    ),
    "timeout = 1": "line 1: there is no setting timeout: did you mean run.timeout or verify.timeout?",
    "xyzzy = 1": "line 1: there is no setting xyzzy: settings stand in tables, as in [run]",
    "[run]\n'a\\u001bb' = 1": "line 2: there is no setting run.'a\\\\u001bb': there are …",
    '[run]\n"a\\u001bb\\nc" = 1': "line 2: there is no setting run.'a\\x1bb\\nc': there are …",
    # a table that is none
    "\n[runn]\nx = 1": "line 2: there is no table [runn]: did you mean [run]?",
    "[agent.x]": "line 1: there is no table [agent]: did you mean [agents]?",
    "[xyzzy]": "line 1: there is no table [xyzzy]: there are run, verify, memory, prompt, blockers, notify, "
    "agents.NAME, prices.MODEL",
    "\nrun = 3": "line 2: run must be a table, as in [run]",
    "[[run]]\n[[run]]": "line 1: run must be a table, as in [run]",
    "agents = ['claude']": "line 1: agents must hold tables, as in [agents.claude]: did you mean run.agents?",
    "[agents]\nclaude = 'x'": "line 2: agents.claude must be a table, as in [agents.claude]",
    # a value of the wrong type
    "[run]\n\nattempts = 'x'": "line 3: run.attempts must be a whole number of 1 or more, as in attempts = 3",
    "[run]\nattempts = 2.0": "line 2: run.attempts must be a whole number of 1 or more, as in attempts = 3",
    "[run]\nattempts = true": "line 2: run.attempts must be a whole number of 1 or more, as in attempts = 3",
    "[run]\nattempts = 0": "line 2: run.attempts must be a whole number of 1 or more, as in attempts = 3",
    "[run]\nattempts = '3'": "line 2: run.attempts must be a whole number of 1 or more, as in attempts = 3",
    "[run]\nmax_tokens = -1": "line 2: run.max_tokens must be a whole number of 0 or more, as in max_tokens = 20",
    "[run]\ntimeout = 'soon'": 'line 2: run.timeout must be a duration, as in timeout = "30m"',
    "[run]\ntimeout = -5": 'line 2: run.timeout must be a duration, as in timeout = "30m"',
    "[run]\ntimeout = false": 'line 2: run.timeout must be a duration, as in timeout = "30m"',
    "[run]\ntimeout = 00:30:00": 'line 2: run.timeout must be a duration, as in timeout = "30m"',
    "[run]\nmax_cost = nan": "line 2: run.max_cost must be a number of 0 or more, as in max_cost = 2.50",
    "[run]\nmax_cost = true": "line 2: run.max_cost must be a number of 0 or more, as in max_cost = 2.50",
    "[run]\nstrict_order = 1": "line 2: run.strict_order must be true or false, as in strict_order = true",
    "[run]\nagent = ''": 'line 2: run.agent must be a text that is not empty, as in agent = "claude"',
    '[run]\nagent = "a\\u0000"': 'line 2: run.agent must be a text that is not empty, as in agent = "claude"',
    "[run]\nagent = ['x']": 'line 2: run.agent must be a text that is not empty, as in agent = "claude"',
    "[run]\nagents = 'x'": 'line 2: run.agents must be a list of names, as in agents = ["claude", "codex"]',
    "[verify]\ntests = 'x'": 'line 2: verify.tests must be a list of commands, as in tests = ["make test"]',
    "[verify]\ntests = [\n'x',\n'',\n]": (
        'line 2: verify.tests must be a list of commands, as in tests = ["make test"]: look at item 2'
    ),
    "[agents.x]\nargs = [1]": (
        'line 2: agents.x.args must be a list of texts, as in args = ["--verbose"]: look at item 1'
    ),
    "[agents.x]\ncommand = ['']": "line 2: agents.x.command must be a list of texts, none of them empty, as in…",
    "[agents.x]\nenv = 1": 'line 2: agents.x.env must be a table of texts, as in env = { PORT = "8080" }',
    "[agents.x.env]\nA = ''\nPORT = 80": (
        'line 3: agents.x.env must be a table of texts, as in env = { PORT = "8080" }: look at PORT'
    ),
    "[agents.x]\nenv.'A=B' = ''": "line 2: agents.x.env must be a table of texts, as in env = { PORT = "
    + "\"8080\" }: look at 'A=B'",
    # too much
    "[run]\nattempts = 1000000000001": "line 2: run.attempts is too big: 1000000000000 is the most",
    "[run]\nmax_cost = inf": "line 2: run.max_cost is too big: 1000000000000 is the most",
    "[run]\nmax_cost = 0x" + "f" * 9999: "line 2: run.max_cost is too big: 1000000000000 is the most",
    "[run]\nattempts = 0x" + "f" * 9999: "line 2: run.attempts is too big: 1000000000000 is the most",
    "[run]\ntimeout = '9999h'": "line 2: run.timeout is too big: a year is the most",
    "[run]\nspec = '''\n\n'''\nattempts = " + "9" * 9999: "line 5: this is more than can be read: shorten it",
    "\n[run]\nattempts = " + "[" * 99999: "line 3: this is more than can be read: shorten it",
    # a choice
    "[run]\nguard = 'fial'": 'line 2: run.guard must be "off", "warn" or "fail": did you mean "fail"?',
    "[run]\nguard = 'WARN'": 'line 2: run.guard must be "off", "warn" or "fail": did you mean "warn"?',
    "[run]\nguard = 'xyzzy'": 'line 2: run.guard must be "off", "warn" or "fail"',
    "[run]\nguard = false": 'line 2: run.guard must be "off", "warn" or "fail"',
    "[run]\nworkspace = ['here']": 'line 2: run.workspace must be "here" or "worktree"',
    # no TOML
    "[run]\ntimeout 3": "line 2: this is no TOML: Expected '=' after a key in a key/value pair: mend that line",
    "[run]\nagent = 'x\nattempts = 1\n": "line 2: this is no TOML: …",
    "[run]\nsetup = [\n'x',\n\n": "line 2: this is no TOML: …",
    '[run]\nspec = """\na\nb\n': "line 2: this is no TOML: …",
    "[run]\nguard = 'off'\nagent =": "line 3: this is no TOML: …",
    "\n[run": "line 2: this is no TOML: …",
    "[run]\ntimeout = 1\n[run]\n": "line 3: this is no TOML: …",
    "[run]\ntimeout = 1\ntimeout = 2\n": "line 3: this is no TOML: …",
}


@pytest.mark.parametrize(("text", "wanted"), BAD.items(), ids=[text[:40] for text in BAD])
def test_what_is_wrong_is_told_with_its_line(text: str, wanted: str) -> None:
    told = complaint(text)
    if wanted.endswith("…"):
        assert told.startswith(f"config.toml, {wanted.removesuffix('…')}")
    else:
        assert told == f"config.toml, {wanted}"
    assert told.isprintable()


# Each has its mistake on line 5; what stands before it is made to confuse whoever counts lines.
BEFORE = [
    '[run]\n\n\nspec = """a"""" # "[\nX',
    "[run]\n\n\nspec = '''a'''' # '[\nX",
    "[run]\n\n\n\nX",
    "# [verify]\n# X\n\n[run]\nX",
    "[run]\nspec = '''\nX\n'''\nX",
    '[run]\nspec = """\nattempt = 1 \\""" ] }\n"""""\nX',
    "[run]\nspec = '''a\n[run]\n'''''\nX",
    '[run]\nsetup = [ # ]\n\'a]\', "b\\"]",\n]\nX',
    "[run]\nsetup = ['''a\n''', # '''\n]\nX",
    '[agents.x]\nenv = { A = \'}\', B = "{" }\n[run] # [x]\nagent = "#"\nX',
    "[agents.'x.y']\n[agents.\"#[\"]\n[agents]\n[run]\nX",
    "verify.timeout = 1\n\n\n\nrun.X",
    "verify = { timeout = 1 }\n\n\n\nrun = { timeout = 1, X }",
    "[agents]\nrun.args = []\n\n[ 'run' ]\n  X",
    "[run] # \"\"\"\n# '''\n\n\tagent = 'a' # '\n\tX",
]


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("before", BEFORE)
def test_no_text_leads_to_another_line(before: str, ending: str) -> None:
    told = complaint("attempt = 1".join(before.rsplit("X", 1)).replace("\n", ending) + ending + "[prompt]")
    assert told == "config.toml, line 5: there is no setting run.attempt: did you mean run.attempts?"


def test_of_several_mistakes_the_first_in_the_file_is_told() -> None:
    assert complaint("[verify]\ntimeout = 'x'\n[run]\nx = 1\n[runn]").startswith("config.toml, line 2: ")
    assert complaint("[runn]\n[verify]\ntimeout = 'x'\n[run]\nx = 1\n").startswith("config.toml, line 1: ")


def test_values_are_not_repeated() -> None:
    """They may be secrets."""
    for text in ("[agents.x.env]\nKEY = ['s3cret']", "[agents.x]\napi_key = 's3cret'", "[run]\nguard = 's3cret'"):
        assert "s3cret" not in complaint(text)


def test_a_monster_of_a_key_is_cut() -> None:
    assert len(complaint(f"[run]\n{'x' * 1_000_000} = 1")) < 500
    assert len(complaint(f"{'x' * 1_000_000} = 1\n{'x' * 1_000_000} = 2")) < 500


def test_the_deepest_nesting_that_can_be_read_has_a_line_too() -> None:
    seen = set()
    for depth in range(100, 600, 2):
        told = complaint("[run]\nxyzzy = " + "[" * depth + "]" * depth)
        assert told.startswith("config.toml, line 2: ")
        seen.add("there is no setting" in told)
    assert True in seen


def test_much_text_before_a_mistake() -> None:
    text = "[run]\nsetup = [\n" + "'x',\n" * 20_000 + ']\nspec = """\n' + "]\n" * 20_000 + '"""\nattempt = 1'
    assert complaint(text).startswith("config.toml, line 40006: ")


# --- files ------------------------------------------------------------------------------------------


def test_errors_name_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, "[run]\ntimout = 1\n")
    with pytest.raises(Wrong) as caught:
        settings.load(str(tmp_path))
    assert str(caught.value) == f"{path}, line 2: there is no setting run.timout: did you mean run.timeout?"


def test_what_is_not_utf8(tmp_path: Path) -> None:
    path = write(tmp_path, b"[run]\nagent = 'caf\xe9'\n")
    with pytest.raises(Wrong) as caught:
        settings.load(str(tmp_path))
    assert str(caught.value) == f"{path}, line 2: byte 18 is not UTF-8: save the file as UTF-8"


def test_a_bom_in_the_file(tmp_path: Path) -> None:
    write(tmp_path, b"\xef\xbb\xbf[run]\r\nattempts = 1\r\n")
    assert settings.load(str(tmp_path)).run.attempts == 1


def test_what_can_not_be_read(tmp_path: Path) -> None:
    (tmp_path / ".ralph/config.toml").mkdir(parents=True)
    with pytest.raises(Wrong, match=r"config\.toml can't be read"):
        settings.load(str(tmp_path))
    (tmp_path / ".ralph/config.toml").rmdir()
    os.mkfifo(tmp_path / ".ralph/config.toml")
    with pytest.raises(Wrong, match="not a plain file"):
        settings.load(str(tmp_path))


# --- flags ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "wanted"),
    [
        ({}, Run(attempts=7, timeout=60)),
        ({"attempts": None, "timeout": None}, Run(attempts=7, timeout=60)),
        ({"attempts": "5", "timeout": "2m"}, Run(attempts=5, timeout=120)),
        ({"attempts": 5, "timeout": 120}, Run(attempts=5, timeout=120)),
        ({"timeout": "0"}, Run(attempts=7, timeout=0)),
        (
            {"max_cost": "2.5", "story_cost": "3", "max_tokens": "9"},
            Run(attempts=7, timeout=60, max_cost=2.5, story_cost=3, max_tokens=9),
        ),
        ({"strict_order": True}, Run(attempts=7, timeout=60, strict_order=True)),
        ({"strict_order": "true", "guard": "off"}, Run(attempts=7, timeout=60, strict_order=True, guard="off")),
        ({"agent": "codex", "agents": ["a", "b"]}, Run(attempts=7, timeout=60, agent="codex", agents=("a", "b"))),
    ],
)
def test_flags_win_over_the_file(tmp_path: Path, flags: dict[str, Any], wanted: Run) -> None:
    write(tmp_path, "[run]\nattempts = 7\ntimeout = 60\n[verify]\ntimeout = 1\n")
    assert settings.load(str(tmp_path), flags) == Settings(run=wanted, verify=Verify(timeout=1))


@pytest.mark.parametrize(
    ("flags", "wanted"),
    [
        ({"timeout": "soon"}, '--timeout: must be a duration, as in --timeout "30m"'),
        ({"timeout": "-5"}, '--timeout: must be a duration, as in --timeout "30m"'),
        ({"max_time": "9999h"}, "--max-time: is too big: a year is the most"),
        ({"attempts": "x"}, "--attempts: must be a whole number of 1 or more, as in --attempts 3"),
        ({"attempts": "0"}, "--attempts: must be a whole number of 1 or more, as in --attempts 3"),
        ({"attempts": "2.0"}, "--attempts: must be a whole number of 1 or more, as in --attempts 3"),
        ({"attempts": "9" * 5000}, "--attempts: is too big: 1000000000000 is the most"),
        ({"max_cost": "nan"}, "--max-cost: must be a number of 0 or more, as in --max-cost 2.50"),
        ({"guard": "of"}, '--guard: must be "off", "warn" or "fail": did you mean "off"?'),
        ({"strict_order": "maybe"}, "--strict-order: must be true or false, as in --strict-order true"),
        ({"agent": "\udcff"}, '--agent: must be a text that is not empty, as in --agent "claude"'),
        ({"max_tim": "1"}, "there is no flag --max-tim: did you mean --max-time?"),
        ({"xyzzy": "1"}, "there is no flag --xyzzy: see ralphtool run --help"),
    ],
)
def test_wrong_flags_are_named(tmp_path: Path, flags: dict[str, Any], wanted: str) -> None:
    with pytest.raises(Wrong) as caught:
        settings.load(str(tmp_path), flags)
    assert str(caught.value) == wanted
    assert caught.value.exit_code == 2


# --- for people -------------------------------------------------------------------------------------


def test_every_setting_is_described() -> None:
    rows = settings.describe()
    tables = {
        "run": Run,
        "verify": Verify,
        "memory": Memory,
        "prompt": Prompt,
        "blockers": Blockers,
        "notify": Notify,
        "agents.NAME": Agent,
        "prices.MODEL": Price,
    }
    wanted = [(name, key) for name, table in tables.items() for key in table.__struct_fields__]
    assert [(row.table, row.key) for row in rows] == wanted
    assert [row for row in rows if not row.help.endswith(".") or not row.words] == []


def test_the_defaults_that_are_told_are_the_defaults() -> None:
    told = [row for row in settings.describe() if row.default]
    lines = "".join(f"{row.table}.{row.key} = {row.default}\n" for row in told)
    assert parse(lines) == Settings(agents={"NAME": Agent()}, prices={"MODEL": Price()})
    assert {row.key: row.default for row in told if row.table == "run"}["timeout"] == '"1h"'


def test_flags_are_the_settings_of_run_that_are_no_lists() -> None:
    flags = [row.flag for row in settings.describe() if row.flag]
    wanted = [key for key in Run.__struct_fields__ if key not in ("spec", "agents", "setup")]
    assert flags == ["--" + key.replace("_", "-") for key in wanted]


def test_the_page_has_every_setting() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| `")]
    wanted = []
    for row in settings.describe():
        default = f"`{row.default}`" if row.default else ""
        wanted.append(f"| `{row.table}.{row.key}` | {default} | {row.words} | {row.help} |")
    assert rows == wanted


def test_the_example_of_the_page_is_right() -> None:
    [text] = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    found = parse(text)
    assert found.run.timeout == 2700
    assert found.agents["mine"] == Agent(command=("my-agent", "--quiet"), env={"MY_AGENT_PORT": "8080"})


def test_the_complaint_of_the_page_is_what_is_said() -> None:
    [told] = re.findall(r"^\.ralph/config\.toml, (line 7: .*)$", PAGE, re.MULTILINE)
    assert complaint("\n" * 5 + "[run]\ntimout = 1") == f"config.toml, {told}"


# --- anything at all --------------------------------------------------------------------------------

NAMES = st.sampled_from(
    ["run", "verify", "agents", "prompt", "timeout", "attempts", "env", "x", "command", '"a b"', "'#'", "guard", '""']
)
SCALARS = ["1", "-1", "2.5", "true", "'x'", '"1m"', '""', "nan", "2020-01-01", "07:30:00", "0x9", "'''\n'''"]
NESTED = ["[]", "['a', 1]", "[\n'a', # ]\n]", "{}", "{ x = 1 }", "{ a.b = [\n] }", "[[[]]]", '"""\n""\\""""']
VALUES = st.sampled_from([*SCALARS, *NESTED, "{ timeout = '1m', env = { A = 1 } }"])
KEYS = st.lists(NAMES, min_size=1, max_size=5).map(".".join)
LINES = st.one_of(
    st.builds("{} = {}".format, KEYS, VALUES),
    KEYS.map("[{}]".format),
    KEYS.map("[[{}]]".format),
    st.sampled_from(["", "# [run]", "  ", "[run]", "[agents.x]"]),
)
TOML = st.lists(LINES, max_size=8).map("\n".join)


def outcome(text: str) -> str | Settings:
    try:
        return parse(text)
    except Wrong as error:
        return str(error)


@hypothesis_settings(deadline=None, derandomize=True, database=None, max_examples=1500)
@given(st.one_of(TOML, TOML, st.text(), st.text("[]{}\"'=.#\n\\ar1-")))
@example("[a.b.c.d.e.f]\nx.y = 1")
@example("[[agents.x.env]]\na = 1")
def test_nothing_but_settings_or_a_complaint_with_a_line(text: str) -> None:
    found = outcome(text)
    if isinstance(found, str):
        named = re.match(r"config\.toml, line ([0-9]+): ", found)
        assert named
        assert 1 <= int(named[1]) <= text.count("\n") + 1


@hypothesis_settings(deadline=None, derandomize=True, database=None, max_examples=500)
@given(TOML)
def test_lines_count_from_the_beginning(text: str) -> None:
    """Three comments before a text move whatever is told of it by three lines."""
    found, moved = outcome(text), outcome("# [run]\n#\n# '''\n" + text)
    if isinstance(found, str):
        assert isinstance(moved, str)
        found = re.sub("(?<=line )[0-9]+", lambda line: str(int(line[0]) + 3), found, count=1)
    assert moved == found


@hypothesis_settings(deadline=None, derandomize=True, database=None, max_examples=500)
@given(st.one_of(st.text(), st.text("0123456789.hms "), st.integers(), st.floats(), st.booleans()))
def test_a_duration_is_one_or_a_complaint(value: Any) -> None:
    try:
        seconds = settings.duration(value)
    except Wrong:
        seconds = 0
    assert 0 <= seconds <= 366 * 86400
