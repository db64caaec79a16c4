"""Where `ralphtool agent` finds the project, and which commands verify it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli.agent.calls import init, ok
from project import Ralph


class TestWhereTheProjectIs:
    COMMANDS = (
        ("session", "next-story"),
        ("context",),
        ("status",),
        ("task", "done", "1.1"),
        ("learn", "x"),
        ("pattern", "n", "d"),
        ("observe", "finding", "t"),
        ("session", "flush"),
    )

    def run_all(self, project: Ralph, folder: Path) -> None:
        for command in self.COMMANDS:
            ok(project, *command, cwd=folder)
        assert "[x] 1.1" in project.tasks_file.read_text()
        assert "- x\n" in project.design_file.read_text()
        assert not project.lock_file.exists()

    def test_from_a_folder_below(self, project: Ralph) -> None:
        below = project.root / "src/deep"
        below.mkdir(parents=True)
        ok(project, "session", "init", "--change", "add-login", cwd=below)
        assert project.lock_file.exists()
        self.run_all(project, below)

    @pytest.mark.parametrize("mark", ["specs", "openspec", ".ralph", ".git"])
    def test_from_a_folder_below_that_looks_like_a_project(self, project: Ralph, mark: str) -> None:
        init(project)
        below = project.root / "packages/api"
        (below / mark).mkdir(parents=True)
        self.run_all(project, below)
        assert list((below / mark).iterdir()) == []

    def test_from_a_project_below_with_a_change_of_that_name_that_another_session_holds(self, project: Ralph) -> None:
        project.write("nested/openspec/changes/add-login/tasks.md", "## 7. Other\n- [ ] 7.1 x\n")
        nested = project.root / "nested"
        ok(project, "session", "init", "--change", "add-login", session="s2", cwd=nested)
        init(project)
        self.run_all(project, nested)
        assert (nested / ".ralph/locks/add-login.lock").exists()

    def test_init_takes_the_nearest(self, project: Ralph) -> None:
        project.write("nested/openspec/changes/inner/tasks.md", "## 7. Other\n- [ ] 7.1 x\n")
        nested = project.root / "nested"
        assert ok(project, "session", "init", "--change", "inner", cwd=nested)["stories"][0]["id"] == "7"
        assert (nested / ".ralph/locks/inner.lock").exists()
        assert not (project.root / ".ralph").exists()

    def test_tmpdir_is_honoured(self, project: Ralph) -> None:
        elsewhere = project.home / "other-tmp"
        elsewhere.mkdir()
        ok(project, "session", "init", "--change", "add-login", TMPDIR=str(elsewhere))
        assert (elsewhere / "ralph/sessions/s1.json").is_file()
        assert not (project.tmp / "ralph").exists()
        assert project.agent("status").code == "SESSION_NOT_FOUND"


class TestVerificationCommands:
    def verify(self, project: Ralph) -> tuple[list[str], list[str]]:
        init(project)
        found = ok(project, "context", RALPH_STORY="1")["verify"]
        assert set(found) == {"checks", "tests"}
        return found["checks"], found["tests"]

    def test_from_the_configuration(self, project: Ralph) -> None:
        project.write("Cargo.toml", "[package]\n")
        project.write(".ralph/config.toml", '[verify]\nchecks = ["a", "b c"]\ntests = ["d"]\ntimeout = "20m"\n')
        assert self.verify(project) == (["a", "b c"], ["d"])

    def test_empty_lists_are_an_answer(self, project: Ralph) -> None:
        project.write("Cargo.toml", "[package]\n")
        project.write(".ralph/config.toml", "[verify]\nchecks = []\ntests = []\n")
        assert self.verify(project) == ([], [])

    def test_what_is_not_configured_is_inferred(self, project: Ralph) -> None:
        project.write("Cargo.toml", "[package]\n")
        project.write(".ralph/config.toml", '[verify]\nchecks = ["mine"]\n')
        assert self.verify(project) == (["mine"], ["cargo test"])

    @pytest.mark.parametrize(
        "text",
        [
            'verify.checks = ["a", "b"]\nverify.tests = ["c"]\n',
            'verify = { checks = ["a", "b"], tests = ["c"] }\n',
            '[ verify ]\nchecks = ["a", "b"]\ntests = ["c"]\n',
            '["verify"]\nchecks = ["a", "b"]\ntests = ["c"]\n',
            '[verify] # how we prove it\nchecks = ["a", "b"] # two\ntests = ["c"]\n',
            '[verify]\n"checks" = ["a", "b"]\n\'tests\' = ["c"]\n',
            '[verify]\nchecks = ["\\u0061", "b"]\ntests = ["""c"""]\n',
            "[verify]\nchecks = ['a', 'b',]\ntests = [ 'c' , ]\n",
            '[verify]\nchecks = [\n  "a", # first\n  # none\n  "b",\n]\ntests = [\n"c"\n]\n',
            '[verify]\r\nchecks = ["a", "b"]\r\ntests = ["c"]\r\n',
            '\ufeff[verify]\nchecks = ["a", "b"]\ntests = ["c"]\n',
            '[run]\nagent = "x"\n[verify]\nchecks = ["a", "b"]\ntests = ["c"]\n[memory]\nchecks = ["z"]\n',
            '[run]\nnote = """\n[verify]\nchecks = ["z"]\n"""\n[verify]\nchecks = ["a", "b"]\ntests = ["c"]\n',
            '[verify]\nchecks=["a","b"]\ntests=["c"]\n\n[agents.verify]\nargs = ["z"]\n',
            '[other]\nverify = ["z"]\n[verify]\nchecks = ["a", "b"]\ntests = ["c"]\n',
            '# [verify]\n[verify]\n\tchecks = ["a", "b"]\n\ttests = ["c"]\n# tests = ["z"]\n',
        ],
    )
    def test_any_toml_will_do(self, project: Ralph, text: str) -> None:
        project.write(".ralph/config.toml", text)
        assert self.verify(project) == (["a", "b"], ["c"])

    @pytest.mark.parametrize("command", ['echo "#1"', "echo [x]", "a = b", "cd 'x y'; run", "größer", "]", "a\\b", ""])
    def test_commands_with_marks_in_them(self, project: Ralph, command: str) -> None:
        project.write(".ralph/config.toml", f"[verify]\nchecks = [{json.dumps(command)}]\ntests = []\n")
        assert self.verify(project) == ([command], [])

    def test_nothing_to_go_by(self, project: Ralph) -> None:
        assert self.verify(project) == ([], [])

    def test_cargo(self, project: Ralph) -> None:
        project.write("Cargo.toml", "[package]\n")
        assert self.verify(project) == (["cargo check"], ["cargo test"])

    def test_package_json(self, project: Ralph) -> None:
        project.write("package.json", '{"scripts": {"test": "vitest", "lint": "eslint .", "build": "tsc"}}')
        assert self.verify(project) == (["npm run lint"], ["npm test"])

    def test_package_json_with_another_tool(self, project: Ralph) -> None:
        project.write("package.json", '{"scripts": {"test": "vitest", "typecheck": "tsc"}}')
        project.write("pnpm-lock.yaml", "")
        assert self.verify(project) == (["pnpm run typecheck"], ["pnpm test"])

    @pytest.mark.parametrize(
        "text",
        [
            '{"scripts": {"test": "echo \\"Error: no test specified\\" && exit 1"}}',
            '{"scripts": {}}',
            '{"scripts": ["test"]}',
            "[]",
            "{broken",
            "",
            "[" * 100_000,
        ],
        ids=lambda text: text[:20],
    )
    def test_package_json_without_tests(self, project: Ralph, text: str) -> None:
        project.write("package.json", text)
        assert self.verify(project) == ([], [])

    def test_pyproject(self, project: Ralph) -> None:
        project.write("pyproject.toml", "[tool.ruff]\n[tool.mypy]\n[tool.pytest.ini_options]\n")
        assert self.verify(project) == (["ruff check .", "mypy ."], ["python -m pytest"])

    @pytest.mark.parametrize("name", ["setup.py", "setup.cfg", "pyproject.toml"])
    def test_python_with_a_folder_of_tests(self, project: Ralph, name: str) -> None:
        project.write(name, "")
        project.write("tests/test_x.py", "")
        assert self.verify(project) == ([], ["python -m pytest"])

    def test_go(self, project: Ralph) -> None:
        project.write("go.mod", "module x\n")
        assert self.verify(project) == (["go vet ./..."], ["go test ./..."])

    def test_makefile(self, project: Ralph) -> None:
        project.write("Makefile", "lint check: x\n\ttrue\ntest:\n\ttrue\n\n# other: x\nother:\n\ttrue\n")
        assert self.verify(project) == (["make lint", "make check"], ["make test"])

    def test_two_languages(self, project: Ralph) -> None:
        project.write("Cargo.toml", "")
        project.write("go.mod", "")
        checks, tests = self.verify(project)
        assert sorted(checks) == ["cargo check", "go vet ./..."]
        assert sorted(tests) == ["cargo test", "go test ./..."]
