"""What a gate is made of: what it runs, what configures that, and what it compares results with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from judging.test_test_side import change

from ralphtool.judging.gate_files import find_check_files, find_gate_data

LINT = 'import json\nlimit = json.load(open(".lintrc"))\nfor line in open("shop.py"): ...\n'
FILES = {
    "Makefile": "test:\n\tpytest\n\nlint:\n\t$(PYTHON) lint.py\n\noutput:\n\t./app | diff - expected/app.txt\n",
    "package.json": '{"scripts": {"lint": "node tools/style.js", "start": "node app.js"}}',
    "tools/style.js": "const rules = require('./rules.js');\n",
    "tools/rules.js": "exports.max = 80;\n",
    ".pre-commit-config.yaml": "repos: []\n",
    "pyproject.toml": 'readme = "notes.txt"\n',
    "notes.txt": "about\n",
    "lint.py": LINT,
    ".lintrc": "{}",
    "shop.py": "import prices\n",
    "prices.py": "print('the work')\n",
    "app.py": "from shop import total\n",
    "expected.txt": "1\n",
    "expected/app.txt": "1\n",
    "rates.json": "{}",
    "loads.py": "open('rates.json')\n",
    "check.sh": "cd out && diff a ../expected.txt\npython app.py < rates.json\nfor f in cases/*.in; do diff $f x; done",
    "cases/a.out": "1\n",
    "requirements.txt": "pytest\n",
    "README.md": "lint.py and expected.txt\n",
    "tools/check_app.py": "from shop import total\n",
    "validate.py": "def amount(): ...\n",
    "cart.py": "import validate\n",
}


def read(paths: Sequence[str]) -> Mapping[str, bytes]:
    return {path: FILES[path].encode() for path in paths if path in FILES}


def grep(word: str) -> list[str]:
    return [path for path, text in FILES.items() if word in text]


CHANGES = [change(path) for path in FILES]


@pytest.mark.parametrize(
    ("command", "wanted"),
    [
        ("python lint.py", {"lint.py", ".lintrc"}),
        (".venv/bin/python lint.py shop.py", {"lint.py", ".lintrc"}),
        ("make lint", {"Makefile", "lint.py", ".lintrc"}),
        ("npm run -s lint", {"package.json", "tools/style.js", "tools/rules.js"}),
        ("python app.py --self-check", set()),  # it uses the project's code: it is the work
        ("python tools/check_app.py", {"tools/check_app.py"}),
        ("pre-commit run --all-files", {".pre-commit-config.yaml"}),
        ("poetry run lint", {"pyproject.toml"}),
        ("python validate.py", set()),  # source imports it
        ("ruff check shop.py lint.py", set()),  # they are what is checked
        ("python app.py | diff - expected.txt", {"expected.txt"}),
        ("make output", {"Makefile", "expected/app.txt"}),
    ],
)
def test_what_a_check_is_made_of(command: str, wanted: set[str]) -> None:
    assert find_check_files([command], CHANGES, read, grep) == wanted


def test_a_new_file_that_a_check_reads_is_part_of_it() -> None:
    known = {path: text for path, text in FILES.items() if path != ".lintrc"}
    fresh = [change(".lintrc", old=None), change("notes.txt", old=None)]
    found = find_check_files(
        ["python lint.py"], fresh, lambda paths: read([one for one in paths if one in known]), grep
    )
    assert found == {".lintrc"}


@pytest.mark.parametrize(
    ("command", "wanted"),
    [
        ("python app.py | diff - expected.txt", {"expected.txt"}),
        ("pip install -r requirements.txt && python app.py", set()),
        ("sh check.sh", {"expected.txt", "cases/a.out"}),
        ("python app.py rates.json", set()),  # source reads it
        ("poetry run pytest -q", set()),
    ],
)
def test_what_a_gate_compares_results_with(command: str, wanted: set[str]) -> None:
    assert find_gate_data([command], CHANGES, read, grep) == wanted
    assert not find_gate_data([command], [change(path, old=None) for path in FILES], read, grep)


PYTEST = "import subprocess\nsubprocess.call(['pytest'])\n"


@pytest.mark.parametrize(
    ("command", "files", "wanted"),
    [
        ("sh ci/run.sh", {"ci/run.sh": "EXP=ci/expected\ncmp o $EXP", "ci/expected": "9"}, {"ci/expected"}),
        ("sh ci/run.sh", {"ci/run.sh": "for f in ci/steps/*; do sh $f; done", "ci/steps/1": ""}, {"ci/steps/1"}),
        ("sh qa/run.sh", {"qa/run.sh": "for f in qa/steps/*; do sh $f; done", "qa/steps/1": ""}, {"qa/steps/1"}),
        ("sh ci/run.sh", {"ci/run.sh": "pytest", "ci/lib/args": "-q", "args": "-q"}, {"ci/lib/args"}),
        ("sh bin/run.sh", {"bin/run.sh": "pytest", "bin/greet": "the work"}, set()),
        ("sh ci/run.sh", {"ci/run.sh": "pytest", "ci/r.json": "{}", "shop.py": "open('ci/r.json')"}, set()),
        (
            "python tools/run.py",
            {"tools/run.py": "import lib", "tools/lib.py": PYTEST, "tools/unused.py": PYTEST},
            {"tools/run.py", "tools/lib.py"},
        ),
        ("python tools/run.py", {"tools/run.py": f"import lib\n{PYTEST}", "tools/lib.py": "A = 1"}, {"*"}),
        (
            "python tools/run.py",  # it checks the module itself
            {"tools/run.py": f"import lib\nassert lib.A\n{PYTEST}", "tools/lib.py": "A = 1"},
            {"tools/run.py"},
        ),
        (
            "python tools/run.py",
            {"tools/run.py": f"import lib\n{PYTEST}", "tools/lib.py": "", "tests/test_a.py": "import lib"},
            {"tools/run.py"},
        ),
        ("python run.py", {"run.py": "import lib", "lib.py": "A = 1"}, set()),
        ("python tools/verify.py", {"tools/verify.py": "from shop import a\nCASES = {1: 2}"}, {"tools/verify.py"}),
        ("make test", {"Makefile": "test:\n\tnode ci/smoke.mjs", "ci/smoke.mjs": "import '../a.js'"}, {"ci/smoke.mjs"}),
        ("python tools/verify.py", {"tools/verify.py": "", "shop.py": "import verify"}, set()),
        ("python shop/verify.py", {"shop/verify.py": "CASES = {1: 2}"}, set()),  # it may be the work
        ("python tools/build.py", {"tools/build.py": "from shop import a"}, set()),
    ],
)  # fmt: skip
def test_what_lies_beside_the_scripts_of_a_gate(command: str, files: dict[str, str], wanted: set[str]) -> None:
    found = find_gate_data(
        [command],
        [change(path, text) for path, text in files.items()],
        lambda paths: {path: files[path].encode() for path in paths if path in files},
        lambda word: [path for path, text in files.items() if word in text],
    )
    assert found - {one for one in files if one.endswith(".sh")} == ({*files} if wanted == {"*"} else wanted)
