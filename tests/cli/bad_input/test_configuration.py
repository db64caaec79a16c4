"""Bad input: the configuration."""

from __future__ import annotations

import pytest
from cli.bad_input.calls import INIT, ok, refused
from project import Ralph

NOT_TOML = {
    "prose": b"please run the tests\n",
    "open table": b"[run\n",
    "a key twice": b"[run]\na = 1\na = 2\n",
    "a table twice": b"[run]\n[run]\n",
    "open text": b'[run]\nagent = "claude\n',
    "JSON": b'{"run": {}}',
    "binary": bytes(range(256)),
    "not UTF-8": b'[run]\nagent = "caf\xe9"\n',
    "UTF-16": "[run]\n".encode("utf-16"),
    "nested deeply": b"a = " + b"[" * 100_000 + b"]" * 100_000 + b"\n",
    "a number too long": b"a = " + b"1" * 5000 + b"\n",
    "control character": b'[run]\nagent = "a\x00b"\n',
}


WRONG_SETTINGS = {
    "verify is a number": (b"verify = 3\n", "verify"),
    "verify is a list": (b"verify = []\n", "verify"),
    "verify is a list of tables": (b'[[verify]]\nchecks = ["a"]\n', "verify"),
    "checks are a text": (b'[verify]\nchecks = "make lint"\n', "verify.checks"),
    "checks are a number": (b"[verify]\nchecks = 3\n", "verify.checks"),
    "checks hold a number": (b'[verify]\nchecks = ["a", 3]\n', "verify.checks"),
    "checks hold a list": (b'[verify]\nchecks = [["a"]]\n', "verify.checks"),
    "tests are a text": (b'[verify]\ntests = "make test"\n', "verify.tests"),
    "tests are a table": (b"[verify.tests]\nall = true\n", "verify.tests"),
    "tests are true": (b"verify.tests = true\n", "verify.tests"),
}


class TestConfiguration:
    @pytest.mark.parametrize("how", NOT_TOML)
    def test_not_toml(self, project: Ralph, how: str) -> None:
        path = project.write(".ralph/config.toml", NOT_TOML[how])
        error = refused(project, *INIT)
        assert error["code"] == "INVALID_VALUE"
        assert str(path) in error["error"]

    @pytest.mark.parametrize(
        "lines",
        [
            b'checks = ["a" "b"]',
            b'checks = [, "a"]',
            b'checks = ["a"]\nchecks = ["b"]',
            b'checks = ["a"',
            b"checks = [a]",
            b"checks",
            b"checks = ",
            b'checks = ["a"] ["b"]',
            b'checks = ["a\x00b"]',
            b'checks = ["a"]\nplease run the tests',
            b'checks = ["a"]\ntimeout = "20m',
            b'checks = ["a"]\n[verify]\ntests = ["b"]',
        ],
    )
    def test_not_toml_where_the_commands_are(self, project: Ralph, lines: bytes) -> None:
        """The fast reader is not more lenient: otherwise two commands would disagree."""
        project.begin()
        path = project.write(".ralph/config.toml", b"[verify]\n" + lines + b"\n")
        error = refused(project, "context")
        assert error["code"] == "INVALID_VALUE"
        assert str(path) in error["error"]

    @pytest.mark.parametrize("how", WRONG_SETTINGS)
    def test_wrong_types(self, project: Ralph, how: str) -> None:
        content, named = WRONG_SETTINGS[how]
        project.begin()
        path = project.write(".ralph/config.toml", content)
        error = refused(project, "context")
        assert error["code"] == "INVALID_VALUE"
        assert str(path) in error["error"]
        assert named in error["error"]

    @pytest.mark.parametrize("content", [b"run = 3\n", b"[run]\nspec = 3\n", b'[run]\nspec = ["a.md"]\n'])
    def test_wrong_types_of_what_names_the_spec(self, project: Ralph, content: bytes) -> None:
        path = project.write(".ralph/config.toml", content)
        error = refused(project, *INIT)
        assert error["code"] == "INVALID_VALUE"
        assert str(path) in error["error"]
        assert "run" in error["error"].removeprefix(str(path))

    def test_a_folder_in_its_place(self, project: Ralph) -> None:
        path = project.root / ".ralph/config.toml"
        path.mkdir(parents=True)
        error = refused(project, *INIT)
        assert error["code"] in ("INVALID_VALUE", "IO_ERROR")
        assert str(path) in error["error"]

    @pytest.mark.parametrize("content", [b"", b"\xef\xbb\xbf", b"# nothing\n", b"[verify]\n", b"\r\n"])
    def test_empty_ones_work(self, project: Ralph, content: bytes) -> None:
        project.write(".ralph/config.toml", content)
        project.begin()
        assert ok(project, "context")["verify"] == {"checks": [], "tests": []}
