"""The help of every command: no line is wider than a narrow terminal, and no word is broken."""

from __future__ import annotations

import inspect
import re
import shlex
from collections.abc import Iterator

import click
import pytest
from lab import Lab

from ralphtool.cli import agent
from ralphtool.cli.help_text import fit_example
from ralphtool.cli.main import cli

NARROW = 80


def list_commands(
    command: click.Command, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from list_commands(found, (*path, name))


def render(command: click.Command, path: tuple[str, ...], width: int) -> str:
    name = " ".join(("ralphtool", *path))
    context = command.context_class(command, info_name=name, terminal_width=width, max_content_width=width)
    return command.get_help(context)


EVERY = {" ".join(path) or "ralphtool": (path, command) for path, command in list_commands(cli)}


@pytest.mark.parametrize("name", EVERY)
def test_help_fits_and_breaks_no_word(name: str) -> None:
    path, command = EVERY[name]
    shown, wide = render(command, path, NARROW - 2), render(command, path, 400)  # click keeps two columns free
    assert [line for line in shown.splitlines() if len(line) > NARROW] == []
    added = set(shown.split()) - set(wide.split())
    assert added <= {"|", "\\"}, "a word that is only there because another one was broken"
    assert not any(line.endswith("...") for line in shown.splitlines() if not line.startswith("Usage"))


def test_the_agent_s_own_help_fits() -> None:
    assert [line for line in agent.HELP.splitlines() if len(line) > NARROW] == []


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("  ralphtool x   # what it does for you", ["  ralphtool x", "      # what it does for", "      # you"]),
        ("  ralphtool x --json | jq '.a | .b'", ["  ralphtool x --json |", "    jq '.a | .b'"]),
        ("  ralphtool x --long-option value", ["  ralphtool x \\", "    --long-option value"]),
        ("  ralphtool x 'a quoted text that is long'", ["  ralphtool x \\", "    'a quoted text that is long'"]),
        ("  averyveryveryverylongwordindeed", ["  averyveryveryverylongwordindeed"]),
        ("  short", ["  short"]),
    ],
)
def test_an_example_that_is_too_wide(line: str, wanted: list[str]) -> None:
    assert fit_example(line, 26) == wanted


@pytest.mark.parametrize("words", [[], ["run"], ["progress"]], ids=" ".join)
def test_help_is_also_a_word(lab: Lab, words: list[str]) -> None:
    asked, usual = lab.run("help", *words), lab.run(*words, "--help")
    assert (asked.exit_code, asked.stdout) == (0, usual.stdout)
    assert asked.stdout.startswith("Usage: ralphtool")


def test_help_for_a_command_that_does_not_exist(lab: Lab) -> None:
    asked = lab.run("help", "rum")
    assert asked.exit_code == 2
    assert "Did you mean 'ralphtool run'?" in asked.stderr


# --- examples ---------------------------------------------------------------------------------------

OTHERS = {"$EDITOR", "claude", "codex", "eval", "gh", "git", "head", "jq", "less", "source", "ssh"}
JOINTS = {"|", "&&", "<", ">"}


def list_examples() -> Iterator[tuple[str, str]]:
    """The example lines of every help, with the name of the command."""
    for name, (_, command) in EVERY.items():
        for block in re.split(r"\n\s*\n", inspect.cleandoc(command.help or "")):
            if block.startswith("\b"):
                yield from ((name, line.strip()) for line in block.split("\n")[2:] if not line.strip().startswith("{"))


def split_line(line: str) -> Iterator[list[str]]:
    """The commands of a line for the shell, also those in `$(…)`."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&<>")
    lexer.commenters, lexer.whitespace_split = "", True
    words: list[str] = []
    for word in [*lexer, "|"]:
        if inner := re.fullmatch(r"\$\((.*)\)", word):
            yield from split_line(inner[1])
        if word in JOINTS:
            yield words
            words = []
        else:
            words.append(word)


def parse_only(words: list[str]) -> None:
    """Lets click parse a command line, and runs nothing."""
    command: click.Command = cli
    context = command.make_context("ralphtool", list(words))
    while isinstance(command, click.Group) and (rest := [*context._protected_args, *context.args]):
        name, found, rest = command.resolve_command(context, rest)
        assert found is not None
        command = found
        context = command.make_context(name, rest, parent=context)


@pytest.mark.parametrize(("name", "line"), list(list_examples()))
def test_an_example_can_be_pasted(name: str, line: str) -> None:
    line, _, about = line.partition(" # ")
    assert "  " not in line.strip(), "a description needs a # before it"
    assert not about.startswith(" ")
    *commands, last = split_line(line)
    after_file = {words[0] for words in [*commands, last] if "." in words[0]}  # of `< answer.txt`
    named = {words[0] for words in [*commands, last]} - after_file
    assert named <= {"ralphtool", *OTHERS}
    for words in [*commands, last]:
        if words[0] == "ralphtool":
            parse_only(words[1:])
    assert "source" not in named or last == ["source"]


def test_a_description_without_its_sign_is_no_command() -> None:
    with pytest.raises(click.UsageError):
        parse_only(["logs", "the", "last", "iteration"])


@pytest.mark.parametrize("name", EVERY)
def test_no_word_is_broken_in_a_very_narrow_terminal(name: str) -> None:
    path, command = EVERY[name]
    shown, wide = render(command, path, 38), render(command, path, 400)
    added = set(shown.split()) - set(wide.split())
    assert added <= {"|", "\\"}


def test_the_help_of_a_terminal_with_40_columns_fits(lab: Lab) -> None:
    shown = lab.run("runs", "--help", COLUMNS="40").stdout.splitlines()
    assert [line for line in shown if len(line) > 40 and not line.startswith("    ")] == []


def test_an_option_names_its_values(lab: Lab) -> None:
    shown = " ".join(lab.run("run", "--help").stdout.split())
    for words in (
        *("--guard off|warn|fail|strict ", "--workspace auto|box|worktree|here ", "--executor local|temporal "),
        *("--max-time DURATION ", "--attempts N ", "--agent NAME ", "--agent-command COMMAND ", "--max-cost DOLLARS "),
        *("--strict-order Let each story wait", "--check-blockers Let a read-only agent check"),
    ):
        assert words in shown
    assert "VALUE" not in shown + lab.run("backtest", "--help").stdout + lab.run("worker", "--help").stdout


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["web", "--port", "abc"], "'abc' is not a whole number from 0 to 65535"),
        (["web", "--port", "70000"], "'70000' is not a whole number from 0 to 65535"),
        (["runs", "--last", "0"], "'0' is not a whole number of at least 1"),
        (["run", "--agent"], "Usage: ralphtool run [OPTIONS] [CHANGE]\nTry 'ralphtool run --help' for help.\n"),
        (["new", ""], "the text is empty"),
        (["plan"], "say what the change is about"),
        (["plan", " "], "the text is empty"),
    ],
)
def test_wrong_usage_says_what_is_valid(lab: Lab, words: list[str], told: str) -> None:
    result = lab.run(*words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert told in result.stderr
