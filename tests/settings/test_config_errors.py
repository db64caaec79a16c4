"""A wrong settings file leads to an error that names the line and the nearest valid key."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from properties import examples
from settingsfile import parse, read_error, write_settings

from ralphtool import settings
from ralphtool.errors import WrongSetting
from ralphtool.settings import Settings

BAD = {
    # an unknown key
    "[run]\ntimeout = 1\n\n# why\n\n\ntimout = 2": "line 7: unknown setting run.timout: did you mean run.timeout?",
    "[run]\nmax-time = 1": "line 2: unknown setting run.max-time: did you mean run.max_time?",
    "[run]\nAttempts = 1": "line 2: unknown setting run.Attempts: did you mean run.attempts?",
    "[verify]\nattempts = 1": "line 2: unknown setting verify.attempts: did you mean run.attempts?",
    "[run]\nmodel = 'x'": "line 2: unknown setting run.model: did you mean agents.NAME.model?",
    "[run]\nbudget_tokens = 1": (
        "line 2: unknown setting run.budget_tokens: did you mean memory.budget_tokens or prompt.budget_tokens?"
    ),
    "[verify]\nxyzzy = 1": "line 2: unknown setting verify.xyzzy: the settings are checks, tests, timeout",
    "[agents.claude]\n\nmodle = 'x'": (
        "line 3: unknown setting agents.claude.modle: did you mean agents.claude.model?"
    ),
    "timeout = 1": "line 1: unknown setting timeout: did you mean run.timeout or verify.timeout?",
    "[specs.gitlab]": "line 1: unknown table [specs.gitlab]: the tables are [specs.github], [specs.beads]",
    "specs = 1": "line 1: specs must hold tables, as in [specs.github]",
    "[specs]\ngithub = 1": "line 2: specs.github must be a table, as in [specs.github]",
    "[specs.github]\nwrite = 'yes'": "line 2: specs.github.write must be true or false…",
    "[specs.beads]\nprogram = 'rm'": 'line 2: specs.beads.program must be "bd" or "br"…',
    "[specs.github]\nrepo = 'a/b'": "line 2: unknown setting specs.github.repo…",
    "xyzzy = 1": "line 1: unknown setting xyzzy: put it in a table, such as [run]",
    "[run]\n'a\\u001bb' = 1": "line 2: unknown setting run.'a\\\\u001bb': the settings are …",
    '[run]\n"a\\u001bb\\nc" = 1': "line 2: unknown setting run.'a\\x1bb\\nc': the settings are …",
    # an unknown table
    "\n[runn]\nx = 1": "line 2: unknown table [runn]: did you mean [run]?",
    "[agent.x]": "line 1: unknown table [agent]: did you mean [agents]?",
    "[xyzzy]": "line 1: unknown table [xyzzy]: the tables are run, verify, proof, memory, prompt, sandbox, "
    "blockers, executor, notify, otel, specs.github, specs.beads, "
    "agents.NAME, prices.MODEL",
    "\nrun = 3": "line 2: run must be a table, as in [run]",
    "[[run]]\n[[run]]": "line 1: run must be a table, as in [run]",
    "agents = ['claude']": "line 1: agents must hold tables, as in [agents.claude]: did you mean run.agents?",
    "[agents]\nclaude = 'x'": "line 2: agents.claude must be a table, as in [agents.claude]",
    # a value of the wrong type
    "[run]\n\nattempts = 'x'": "line 3: run.attempts must be a whole number, at least 1, as in attempts = 3",
    "[run]\nattempts = 2.0": "line 2: run.attempts must be a whole number, at least 1, as in attempts = 3",
    "[run]\nattempts = true": "line 2: run.attempts must be a whole number, at least 1, as in attempts = 3",
    "[run]\nattempts = 0": "line 2: run.attempts must be a whole number, at least 1, as in attempts = 3",
    "[run]\nattempts = '3'": "line 2: run.attempts must be a whole number, at least 1, as in attempts = 3",
    "[run]\nmax_tokens = -1": "line 2: run.max_tokens must be a whole number, at least 0, as in max_tokens = 20",
    "[run]\ntimeout = 'soon'": 'line 2: run.timeout must be a duration, as in timeout = "30m"',
    "[run]\ntimeout = -5": 'line 2: run.timeout must be a duration, as in timeout = "30m"',
    "[run]\ntimeout = false": 'line 2: run.timeout must be a duration, as in timeout = "30m"',
    "[run]\ntimeout = 00:30:00": 'line 2: run.timeout must be a duration, as in timeout = "30m"',
    "[run]\nmax_cost = nan": "line 2: run.max_cost must be a number, at least 0, as in max_cost = 2.50",
    "[run]\nmax_cost = true": "line 2: run.max_cost must be a number, at least 0, as in max_cost = 2.50",
    "[run]\nstrict_order = 1": "line 2: run.strict_order must be true or false, as in strict_order = true",
    "[run]\nagent = ''": 'line 2: run.agent must be a non-empty string, as in agent = "claude"',
    '[run]\nagent = "a\\u0000"': 'line 2: run.agent must be a non-empty string, as in agent = "claude"',
    "[run]\nagent = ['x']": 'line 2: run.agent must be a non-empty string, as in agent = "claude"',
    "[run]\nagents = 'x'": 'line 2: run.agents must be a list of names, as in agents = ["claude", "codex"]',
    "[verify]\ntests = 'x'": 'line 2: verify.tests must be a list of commands, as in tests = ["make test"]',
    "[verify]\ntests = [\n'x',\n'',\n]": (
        'line 2: verify.tests must be a list of commands, as in tests = ["make test"] (see item 2)'
    ),
    "[agents.x]\nargs = [1]": (
        'line 2: agents.x.args must be a list of strings, as in args = ["--verbose"] (see item 1)'
    ),
    "[agents.x]\ncommand = ['']": "line 2: agents.x.command must be a list of non-empty strings, as in…",
    "[agents.x]\nenv = 1": 'line 2: agents.x.env must be a table of strings, as in env = { PORT = "8080" }',
    "[agents.x.env]\nA = ''\nPORT = 80": (
        'line 3: agents.x.env must be a table of strings, as in env = { PORT = "8080" } (see PORT)'
    ),
    "[agents.x]\nenv.'A=B' = ''": "line 2: agents.x.env must be a table of strings, as in env = { PORT = "
    + "\"8080\" } (see 'A=B')",
    # too much
    "[run]\nattempts = 1000000000001": "line 2: run.attempts is too big: the maximum is 1000000000000",
    "[run]\nmax_cost = inf": "line 2: run.max_cost is too big: the maximum is 1000000000000",
    "[run]\nmax_cost = 0x" + "f" * 9999: "line 2: run.max_cost is too big: the maximum is 1000000000000",
    "[run]\nattempts = 0x" + "f" * 9999: "line 2: run.attempts is too big: the maximum is 1000000000000",
    "[run]\ntimeout = '9999h'": "line 2: run.timeout is too big: the maximum is a year",
    "[run]\nspec = '''\n\n'''\nattempts = " + "9" * 9999: "line 5: too long or nested too deeply: shorten it",
    "\n[run]\nattempts = " + "[" * 99999: "line 3: too long or nested too deeply: shorten it",
    # a choice
    "[run]\nguard = 'fial'": 'line 2: run.guard must be "off", "warn", "fail" or "strict": did you mean "fail"?',
    "[run]\nguard = 'WARN'": 'line 2: run.guard must be "off", "warn", "fail" or "strict": did you mean "warn"?',
    "[run]\nguard = 'xyzzy'": 'line 2: run.guard must be "off", "warn", "fail" or "strict"',
    "[run]\nguard = false": 'line 2: run.guard must be "off", "warn", "fail" or "strict"',
    "[run]\nworkspace = ['here']": 'line 2: run.workspace must be "auto", "box", "worktree" or "here"',
    # not TOML
    "[run]\ntimeout 3": "line 2: not valid TOML (Expected '=' after a key in a key/value pair): "
    "correct that line, or delete it",
    "[run]\nagent = mine": 'line 2: not valid TOML (Invalid value): text needs quotes, as in agent = "mine"',
    "[run]\nguard=off # x": 'line 2: not valid TOML (Invalid value): text needs quotes, as in guard = "off"',
    '[sandbox] hosts = ["a.org"]': "line 1: not valid TOML (Expected newline or end of document after a statement): "
    "write [sandbox] once, on a line of its own, and the setting below it",
    "[run]\nspec = -": "line 2: not valid TOML (Invalid value): correct that line, or delete it",
    "run = { agent = mine }": "line 1: not valid TOML (Invalid value): correct that line, or delete it",
    "[run]\nagent = 'x\nattempts = 1\n": "line 2: not valid TOML (…",
    "[run]\nsetup = [\n'x',\n\n": "line 2: not valid TOML (…",
    '[run]\nspec = """\na\nb\n': "line 2: not valid TOML (…",
    "[run]\nguard = 'off'\nagent =": "line 3: not valid TOML (…",
    "\n[run": "line 2: not valid TOML (…",
    "[run]\ntimeout = 1\n[run]\n": "line 3: not valid TOML (…",
    "[run]\ntimeout = 1\ntimeout = 2\n": "line 3: not valid TOML (…",
}


@pytest.mark.parametrize(("text", "wanted"), BAD.items(), ids=[text[:40] for text in BAD])
def test_what_is_wrong_is_told_with_its_line(text: str, wanted: str) -> None:
    told = read_error(text)
    if wanted.endswith("…"):
        assert told.startswith(f"config.toml, {wanted.removesuffix('…')}")
    else:
        assert told == f"config.toml, {wanted}"
    assert told.isprintable()


# Each has its mistake on line 5; the text before it is made to confuse line counting.
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
    told = read_error("attempt = 1".join(before.rsplit("X", 1)).replace("\n", ending) + ending + "[prompt]")
    assert told == "config.toml, line 5: unknown setting run.attempt: did you mean run.attempts?"


def test_of_several_mistakes_the_first_in_the_file_is_told() -> None:
    assert read_error("[verify]\ntimeout = 'x'\n[run]\nx = 1\n[runn]").startswith("config.toml, line 2: ")
    assert read_error("[runn]\n[verify]\ntimeout = 'x'\n[run]\nx = 1\n").startswith("config.toml, line 1: ")


def test_values_are_not_repeated() -> None:
    """They may be secrets."""
    for text in ("[agents.x.env]\nKEY = ['s3cret']", "[agents.x]\napi_key = 's3cret'", "[run]\nguard = 's3cret'"):
        assert "s3cret" not in read_error(text)


def test_a_monster_of_a_key_is_cut() -> None:
    assert len(read_error(f"[run]\n{'x' * 1_000_000} = 1")) < 500
    assert len(read_error(f"{'x' * 1_000_000} = 1\n{'x' * 1_000_000} = 2")) < 500


def test_the_deepest_nesting_that_can_be_read_has_a_line_too() -> None:
    seen = set()
    for depth in range(100, 600, 2):
        told = read_error("[run]\nxyzzy = " + "[" * depth + "]" * depth)
        assert told.startswith("config.toml, line 2: ")
        seen.add("unknown setting" in told)
    assert True in seen


def test_much_text_before_a_mistake() -> None:
    text = "[run]\nsetup = [\n" + "'x',\n" * 20_000 + ']\nspec = """\n' + "]\n" * 20_000 + '"""\nattempt = 1'
    assert read_error(text).startswith("config.toml, line 40006: ")


# --- files ----------------------------------------------------------------------------------------


def test_errors_name_the_file(tmp_path: Path) -> None:
    path = write_settings(tmp_path, "[run]\ntimout = 1\n")
    with pytest.raises(WrongSetting) as caught:
        settings.load(str(tmp_path))
    assert str(caught.value) == f"{path}, line 2: unknown setting run.timout: did you mean run.timeout?"


def test_what_is_not_utf8(tmp_path: Path) -> None:
    path = write_settings(tmp_path, b"[run]\nagent = 'caf\xe9'\n")
    with pytest.raises(WrongSetting) as caught:
        settings.load(str(tmp_path))
    assert str(caught.value) == f"{path}, line 2: byte 18 is not UTF-8: save the file as UTF-8"


def test_a_bom_in_the_file(tmp_path: Path) -> None:
    write_settings(tmp_path, b"\xef\xbb\xbf[run]\r\nattempts = 1\r\n")
    assert settings.load(str(tmp_path)).run.attempts == 1


def test_what_can_not_be_read(tmp_path: Path) -> None:
    (tmp_path / ".ralph/config.toml").mkdir(parents=True)
    with pytest.raises(WrongSetting, match=r"config\.toml can't be read"):
        settings.load(str(tmp_path))
    (tmp_path / ".ralph/config.toml").rmdir()
    os.mkfifo(tmp_path / ".ralph/config.toml")
    with pytest.raises(WrongSetting, match="not a regular file"):
        settings.load(str(tmp_path))


# --- anything at all ------------------------------------------------------------------------------

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
    except WrongSetting as error:
        return str(error)


@hypothesis_settings(deadline=None, derandomize=True, database=None, max_examples=examples(1500))
@given(st.one_of(TOML, TOML, st.text(), st.text("[]{}\"'=.#\n\\ar1-")))
@example("[a.b.c.d.e.f]\nx.y = 1")
@example("[[agents.x.env]]\na = 1")
def test_nothing_but_settings_or_a_complaint_with_a_line(text: str) -> None:
    found = outcome(text)
    if isinstance(found, str):
        named = re.match(r"config\.toml, line ([0-9]+): ", found)
        assert named
        assert 1 <= int(named[1]) <= text.count("\n") + 1


@hypothesis_settings(deadline=None, derandomize=True, database=None, max_examples=examples(500))
@given(TOML)
def test_lines_count_from_the_beginning(text: str) -> None:
    """Three comments before a text move every reported line number by three."""
    found, moved = outcome(text), outcome("# [run]\n#\n# '''\n" + text)
    if isinstance(found, str):
        assert isinstance(moved, str)
        found = re.sub("(?<=line )[0-9]+", lambda line: str(int(line[0]) + 3), found, count=1)
    assert moved == found
