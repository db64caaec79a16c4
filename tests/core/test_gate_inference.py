"""The commands that a project's own files suggest."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ralphtool.core import gate_commands

UNITTEST = "import unittest\n\nclass T(unittest.TestCase):\n    def test_it(self):\n        pass\n"
PLAIN = "def test_it():\n    assert True\n"
UV = '[project]\nname = "a"\n[dependency-groups]\n'


def scripts(**more: str) -> str:
    return json.dumps({"scripts": more})


# The files of a project, then its checks and its tests.
CASES: dict[str, tuple[dict[str, str], list[str], list[str]]] = {
    # Python
    "nothing": ({"readme.md": "x"}, [], []),
    "unittest at the top": ({"shop.py": "", "test_shop.py": UNITTEST}, [], ["python -m unittest"]),
    "pytest at the top": ({"test_shop.py": PLAIN}, [], ["python -m pytest"]),
    "a folder of unittest": ({"tests/test_a.py": UNITTEST}, [], ["python -m unittest discover -s tests"]),
    "a package of unittest": (
        {"tests/test_a.py": UNITTEST, "tests/__init__.py": ""},
        [],
        ["python -m unittest"],
    ),
    "other names": ({"a_test.py": UNITTEST}, [], ["python -m unittest discover -p '*_test.py'"]),
    "tests in the package": (
        {"setup.py": "", "shop/__init__.py": "", "shop/tests/__init__.py": "", "shop/tests/test_a.py": UNITTEST},
        [],
        ["python -m unittest"],
    ),
    "both kinds": ({"test_a.py": UNITTEST, "test_b.py": PLAIN}, [], ["python -m pytest"]),
    "pytest is named": ({"tests/test_a.py": UNITTEST, "requirements-dev.txt": "pytest\n"}, [], ["python -m pytest"]),
    "all tests in test.py": ({"shop.py": "", "test.py": UNITTEST}, [], ["python -m unittest"]),
    "all tests in tests.py": ({"setup.py": "", "tests.py": PLAIN}, [], ["python -m pytest tests.py"]),
    "test.py for pytest": (
        {"tox.ini": "[testenv]\ndeps = pytest\n", "test.py": UNITTEST},
        [],
        ["python -m pytest test.py"],
    ),
    "test.py for uv": (
        {"pyproject.toml": f'{UV}dev = ["pytest"]\n', "uv.lock": "", "test.py": PLAIN},
        [],
        ["uv run pytest test.py"],
    ),
    "test.py beside tests": (
        {"setup.cfg": "pytest", "test.py": PLAIN, "tests/unit/test_a.py": PLAIN},
        [],
        ["python -m pytest"],
    ),
    "test.py that pytest finds": (
        {"pytest.ini": "[pytest]\npython_files = test.py\n", "test.py": PLAIN},
        [],
        ["python -m pytest"],
    ),
    "test.py without tests": ({"test.py": "print(1)\n"}, [], []),
    "no tests": ({"pyproject.toml": '[project]\nname = "a"\n', "tests/data.json": "{}"}, [], []),
    "django": ({"manage.py": "", "shop/tests.py": UNITTEST}, [], ["python manage.py test"]),
    "tox alone": ({"tox.ini": "[testenv]\ncommands = trial shop\n"}, [], ["tox run -e py"]),
    "a script of Django": (
        {"tox.ini": "[testenv]\n", "tests/runtests.py": "", "tests/shop/test_a.py": UNITTEST},
        [],
        ["python tests/runtests.py"],
    ),
    "such a script beside pytest": ({"runtests.py": "", "pytest.ini": ""}, [], ["python -m pytest"]),
    "tox with pytest": ({"tox.ini": "[testenv]\ncommands = pytest\n"}, [], ["python -m pytest"]),
    "uv": ({"pyproject.toml": "[tool.pytest.ini_options]\n", "uv.lock": ""}, [], ["uv run pytest"]),
    "uv without a lock": ({"pyproject.toml": "[tool.uv]\n[tool.ruff]\n"}, ["uv run ruff check ."], []),
    "uv and unittest": ({"uv.lock": "", "test_a.py": UNITTEST}, [], ["uv run python -m unittest"]),
    "uv with dev": ({"pyproject.toml": f'{UV}dev = ["pytest>=8"]\n', "uv.lock": ""}, [], ["uv run pytest"]),
    "uv with a group": (
        {"pyproject.toml": f'{UV}test = [\n  "pytest>=8",\n]\ndev = ["ruff"]\n', "uv.lock": ""},
        [],
        ["uv run --group test pytest"],
    ),
    "uv with other tools in a group": (
        {"pyproject.toml": f'{UV}dev = ["ruff"]\ntyping = ["mypy"]\n[tool.ruff]\n[tool.mypy]\n', "uv.lock": ""},
        ["uv run ruff check .", "uv run --group typing mypy ."],
        [],
    ),
    "uv with a group in dev": (
        {"pyproject.toml": f'{UV}test = ["pytest"]\ndev = [{{include-group = "test"}}]\n', "uv.lock": ""},
        [],
        ["uv run pytest"],
    ),
    "uv with default groups": (
        {"pyproject.toml": f'{UV}test = ["pytest"]\n[tool.uv]\ndefault-groups = ["test"]\n', "uv.lock": ""},
        [],
        ["uv run pytest"],
    ),
    "uv with an extra": (
        {"pyproject.toml": '[project.optional-dependencies]\nall = ["a"]\ntest = ["pytest"]\n', "uv.lock": ""},
        [],
        ["uv run --extra test pytest"],
    ),
    "a workspace of uv": (
        {"pyproject.toml": '[tool.uv.workspace]\nmembers = ["a"]\n[tool.pytest.ini_options]\n', "uv.lock": ""},
        [],
        ["uv run --all-packages pytest"],
    ),
    "poetry": ({"pyproject.toml": "[tool.poetry]\n[tool.pytest]\n"}, [], ["poetry run pytest"]),
    "mypy with files": ({"pyproject.toml": '[tool.mypy]\nfiles = ["src"]\n'}, ["mypy"], []),
    "mypy with packages": ({"mypy.ini": "[mypy]\npackages = shop\n", "setup.py": ""}, ["mypy"], []),
    "mypy without": ({"pyproject.toml": "[tool.mypy]\nstrict = true\n"}, ["mypy ."], []),
    "mypy, files of an override": (
        {"pyproject.toml": '[tool.mypy]\nstrict = true\n[[tool.mypy.overrides]]\nmodule = "a"\nfiles = 1\n'},
        ["mypy ."],
        [],
    ),
    "its own files": (
        {"setup.cfg": "[flake8]\n", "ruff.toml": "", "pyrightconfig.json": "{}"},
        ["ruff check .", "pyright"],
        [],
    ),
    "ruff that fixes what it finds": (
        {"pyproject.toml": "[tool.ruff]\nfix = true  # locally\n", "uv.lock": ""},
        ["uv run ruff check --no-fix ."],
        [],
    ),
    "ruff that only fixes": (
        {".ruff.toml": "fix = true\nfix-only = true\n[lint]\nfixable = []\n", "setup.py": ""},
        ["ruff check --no-fix --no-fix-only ."],
        [],
    ),
    # JavaScript
    "npm": (
        {"package.json": scripts(test="jest", lint="eslint ."), "package-lock.json": ""},
        ["npm run lint"],
        ["npm test"],
    ),
    "pnpm by its name": ({"package.json": '{"packageManager": "pnpm@9", "scripts": {"test": "a"}}'}, [], ["pnpm test"]),
    "bun": ({"package.json": scripts(test="vitest"), "bun.lock": ""}, [], ["bun run test"]),
    "no test specified": ({"package.json": scripts(test='echo "Error: no test specified" && exit 1')}, [], []),
    "broken": ({"package.json": "{"}, [], []),
    "a workspace of npm": (
        {"package.json": '{"workspaces": ["packages/*"]}', "packages/a/package.json": scripts(test="jest")},
        [],
        ["npm run test --workspaces --if-present"],
    ),
    "a workspace of npm that has its own": (
        {
            "package.json": '{"workspaces": {"packages": ["packages/*"]}, "scripts": {"test": "turbo test"}}',
            "packages/a/package.json": scripts(test="jest", lint="eslint"),
        },
        ["npm run lint --workspaces --if-present"],
        ["npm test"],
    ),
    "a workspace of pnpm": (
        {
            "package.json": "{}",
            "pnpm-workspace.yaml": "packages:\n  # all\n  - 'apps/*'\n  - \"!apps/old\"\n  - web\ncatalog:\n  - x\n",
            "apps/a/package.json": scripts(lint="x"),
            "web/package.json": scripts(test="x"),
        },
        ["pnpm -r run --if-present lint"],
        ["pnpm -r run --if-present test"],
    ),
    "the first yarn": (
        {"package.json": '{"workspaces": ["a"]}', "yarn.lock": "", "a/package.json": scripts(test="x")},
        [],
        [],
    ),
    "a later yarn": (
        {
            "package.json": '{"workspaces": ["a"]}',
            "yarn.lock": "",
            ".yarnrc.yml": "",
            "a/package.json": scripts(test="x"),
        },
        [],
        ["yarn workspaces foreach -A run test"],
    ),
    # others
    "cargo": ({"Cargo.toml": '[package]\nname = "a"\n'}, ["cargo check"], ["cargo test"]),
    "a workspace of cargo": (
        {"Cargo.toml": '[workspace]\nmembers = ["a"]\n'},
        ["cargo check --workspace"],
        ["cargo test --workspace"],
    ),
    "a package and a workspace": (
        {"Cargo.toml": '[package]\nname = "a"\n[workspace.package]\nedition = "2021"\n'},
        ["cargo check --workspace"],
        ["cargo test --workspace"],
    ),
    "go": ({"go.mod": "module a\n"}, ["go vet ./..."], ["go test ./..."]),
    "a workspace of go": (
        {"go.work": "go 1.22\n\nuse (\n\t./api // one\n\t./web\n)\nuse ./cli\nreplace a => ./b\n"},
        ["go vet ./api/... ./web/... ./cli/..."],
        ["go test ./api/... ./web/... ./cli/..."],
    ),
    "a linter that changes files": (
        {"package.json": scripts(test="vitest", lint="eslint . --fix", check="biome check --write")},
        [],
        ["npm test"],
    ),
    "a linter before a formatter": ({"package.json": scripts(lint="oxlint", postlint="prettier --write .")}, [], []),
    "a linter beside one that changes files": (
        {"package.json": scripts(lint="eslint .", **{"lint:fix": "npm run lint -- --fix"})},
        ["npm run lint"],
        [],
    ),
    "the names of type checks": (
        {"package.json": scripts(**{"check-types": "tsc", "check:types": "tsc --noEmit"})},
        ["npm run check-types", "npm run check:types"],
        [],
    ),
    "rspec": ({"Gemfile": "", "spec/spec_helper.rb": ""}, [], ["bundle exec rspec"]),
    "rspec by its file": ({".rspec": ""}, [], ["bundle exec rspec"]),
    "rails beside scripts": (
        {"Gemfile": "", "bin/rails": "", "test/test_helper.rb": "", "package.json": scripts(lint="oxlint")},
        ["npm run lint"],
        ["bin/rails test"],
    ),
    "rake": ({"Gemfile": "", "Rakefile": "", "test/shop_test.rb": ""}, [], ["bundle exec rake test"]),
    "a Gemfile without tests": ({"Gemfile": "", "Rakefile": ""}, [], []),
    "phpunit": (
        {"composer.json": "{}", "phpunit.xml.dist": "", "package.json": "{}"},
        [],
        ["vendor/bin/phpunit"],
    ),
    "pest": (
        {"composer.json": '{"require-dev": {"pestphp/pest": "^2"}}', "phpunit.xml": ""},
        [],
        ["vendor/bin/pest"],
    ),
    "composer": ({"composer.json": scripts(test="phpunit"), "phpunit.xml": ""}, [], ["composer test"]),
    "maven": ({"pom.xml": "", "mvnw": ""}, [], ["./mvnw test"]),
    "dotnet": ({"Shop.sln": ""}, [], ["dotnet test"]),
    "dotnet, the newer form": ({"Shop.slnx": ""}, [], ["dotnet test"]),
    "make": ({"Makefile": "lint test: all\n\ttrue\n"}, ["make lint"], ["make test"]),
    "make beside go": ({"Makefile": "test:\n", "go.mod": ""}, ["go vet ./..."], ["go test ./..."]),
    "two languages": (
        {"go.mod": "", "package.json": scripts(test="jest")},
        ["go vet ./..."],
        ["npm test", "go test ./..."],
    ),
}


def make_project(top: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return top


@pytest.fixture(autouse=True)
def bare_machine(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with `python` and nothing else."""
    place = tmp_path_factory.mktemp("bin")
    (place / "python").touch(0o755)
    monkeypatch.setenv("PATH", str(place))
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    return place


@pytest.mark.parametrize(("files", "checks", "tests"), CASES.values(), ids=CASES.keys())
def test_what_files_suggest(tmp_path: Path, files: dict[str, str], checks: list[str], tests: list[str]) -> None:
    found = gate_commands.infer(str(make_project(tmp_path, files)))
    assert (found.checks, found.tests) == (checks, tests)


def test_the_python_that_is_there(tmp_path: Path, bare_machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_project(tmp_path, {"test_a.py": UNITTEST, "ruff.toml": ""})
    (bare_machine / "python").rename(bare_machine / "python3")
    assert gate_commands.infer(str(tmp_path)).tests == ["python3 -m unittest"]
    (bare_machine / "python3").unlink()
    assert gate_commands.infer(str(tmp_path)).tests == ["python -m unittest"]
    make_project(tmp_path, {".venv/bin/python": "", ".venv/bin/ruff": ""})
    found = gate_commands.infer(str(tmp_path))
    assert (found.checks, found.tests) == ([".venv/bin/ruff check ."], [".venv/bin/python -m unittest"])
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / ".venv"))
    found = gate_commands.infer(str(tmp_path))
    assert (found.checks, found.tests) == (["ruff check ."], ["python -m unittest"])


@pytest.mark.parametrize("name", [".venv", "venv"])
def test_the_project_s_environment_while_another_is_active(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = make_project(tmp_path / "other", {"bin/python": ""})
    monkeypatch.setenv("VIRTUAL_ENV", str(other))
    root = make_project(tmp_path / "shop", {"conftest.py": "", "ruff.toml": "", "setup.py": ""})
    assert gate_commands.infer(str(root)).tests == ["python -m pytest"]
    make_project(root, {f"{name}/bin/{program}": "" for program in ("python", "pytest", "ruff")})
    found = gate_commands.infer(str(root))
    assert (found.checks, found.tests) == ([f"{name}/bin/ruff check ."], [f"{name}/bin/python -m pytest"])
    make_project(other, {"bin/pytest": "", "bin/ruff": ""})
    found = gate_commands.infer(str(root))
    assert (found.checks, found.tests) == (["ruff check ."], ["python -m pytest"])


@pytest.mark.parametrize("name", ["pyproject.toml", "package.json", "Cargo.toml", "go.work", "tests", "Makefile"])
def test_what_can_t_be_read_stops_nothing(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / "test_a.py").write_bytes(b"\xff\xfe import unittest")
    assert "python -m unittest" in gate_commands.infer(str(tmp_path)).tests
