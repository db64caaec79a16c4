"""Which files belong to the tests although their names don't say so."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import pytest

from ralphtool.judging.gate_files import find_bases, find_run_files, find_test_data
from ralphtool.judging.guard.model import FileChange
from ralphtool.judging.quoted import may_name, read_source
from ralphtool.judging.test_side import ChangedPaths, TestHints, find_tested_files

PACKAGE = '{"scripts": {"test": "npm run unit", "unit": "node ci/run.js", "start": "node app.js"}}'
FILES = {
    "Makefile": "test: lint\n\t./ci/all\n\nlint:\n\tpython tools/style.py\n\nrun:\n\tpython shop.py\n\nall: run\n",
    "ci/all": "#!/bin/sh\nexec bash ci/inner.sh\n",
    "ci/inner.sh": "python -m pytest -q\n",
    "ci/start.sh": '. "$(dirname "$0")/common"\n. ci/settings\nexec $HERE/inner.sh\n',
    "ci/common": "run() { :; }\n",
    "ci/settings": "ARGS=-q\n",
    "mk/Makefile": "include rules $(HERE)/more\ntest:\n\tmake\n",
    "mk/rules": "ARGS = -q\n",
    "mk/more": "ARGS += -v\n",
    "tools/style.py": "import unittest\n",
    "shop.py": "print('the work itself')\n",
    "package.json": PACKAGE,
    "ci/run.js": "require('node:test')\n",
    "app.js": "listen()\n",
    "web/package.json": '{"scripts": {"test": "tsx --tsconfig conf/tsconfig.test.json --test a.test.ts"}}',
    "web/conf/tsconfig.test.json": "{}",
    "tsconfig.json": "{}",
    "check.sh": "echo ok\n",
    "qa/all.py": "import pytest\n",
    "qa/Makefile": "more:\n\t$(MAKE) -C ../api test\n",
    "api/Makefile": "test:\n\t./check\n",
    "api/check": "#!/bin/sh\ntest 1 = 1\n",
}

ALL = {"Makefile", "ci/all", "ci/inner.sh", "tools/style.py"}


def read(paths: Sequence[str]) -> Mapping[str, bytes]:
    assert all(path and path[0] != "/" and ".." not in path for path in paths)
    return {path: FILES[path].encode() for path in paths if path in FILES}


@pytest.mark.parametrize(
    ("command", "wanted"),
    [
        ("make test", ALL),
        ("make run", {"Makefile"}),
        ("make -C qa more", {"qa/Makefile", "api/Makefile", "api/check", *ALL}),
        ("npm test", {"package.json", "ci/run.js"}),
        ("npm start", {"package.json"}),
        ("npm --prefix web test", {"package.json", "ci/run.js", "web/package.json", "web/conf/tsconfig.test.json"}),
        ("TS_NODE_PROJECT=tsconfig.json mocha", {"tsconfig.json"}),
        ("tsc -p tsconfig.json && node --test", set()),  # it only checks and builds
        ("./check.sh && true", {"check.sh"}),
        ("bash -e check.sh", {"check.sh"}),
        ("python -m qa.all", {"qa/all.py"}),
        ("python shop.py --self-test", set()),
        ("/usr/bin/python ../x.py ./ /etc/passwd a//b", set()),
        ("pytest -q", set()),
        ("sh ci/start.sh", {"ci/start.sh", "ci/common", "ci/settings", "ci/inner.sh"}),
        ("make -f mk/Makefile", {"mk/Makefile", "mk/rules", "mk/more", *ALL}),
    ],
)
def test_what_a_gate_runs_is_followed_through_its_scripts(command: str, wanted: set[str]) -> None:
    assert find_run_files([command], read, find_bases([command], "")) == wanted


@pytest.mark.parametrize("command", ["sh ../ci/t.sh", "cd .. && sh ci/t.sh", "make -C ../ci"])
def test_a_script_may_lie_above_the_project(command: str) -> None:
    files = {"ci/t.sh": b"cd app && pytest", "ci/Makefile": b"test:\n\tsh t.sh"}
    bases = find_bases([command], "app/")
    found = find_run_files([command], lambda paths: {one: files[one] for one in paths if one in files}, bases)
    assert "ci/t.sh" in found
    assert find_bases(["cd ../.. && ls", "cd /etc", "cd api/ui/"], "app/") == ("app/", "app/api/ui/")


def test_scripts_that_run_each_other_end() -> None:
    loop = {"a.sh": b"bash b.sh", "b.sh": b"bash a.sh"}
    assert find_run_files(["bash a.sh"], lambda paths: {one: loop[one] for one in paths if one in loop}) == set(loop)


def change(path: str, old: str | None = "old", new: str | None = "new") -> FileChange:
    return FileChange(path, old.encode() if old is not None else None, new.encode() if new is not None else None)


def test_files_in_which_a_program_named_tests() -> None:
    changes = [change(path) for path in ("qa/cart.py", "shop/cart.py", "manual/a.md", "qa.py")]
    names = ["qa/cart.py::test_a", "manual/a.md::a.md", "lib/x.py::test_b"]
    assert find_tested_files(names, changes) == {"qa/cart.py", "manual/a.md"}
    assert find_tested_files(["qa.cart.Cart.test_a"], changes) == {"qa/cart.py", "qa.py"}
    assert find_tested_files([], changes) == frozenset()


GLOB = 'Path("cases").glob("*.json")'


@pytest.mark.parametrize(
    ("path", "texts", "is_data"),
    [
        ("expected/prices.json", {"tests/test_a.py": "prices.json"}, True),
        ("shop/rates.json", {"tests/test_a.py": "rates.json", "shop/rates.py": "rates.json"}, False),
        ("shop/rates.json", {"tests/test_a.py": "rates.json", "shop/rates.ts": "from './rates'"}, False),
        ("cases/a.ans", {"tests/test_a.py": "cases/a.ans", "setup.cfg": "a.ans"}, True),
        ("cases/a", {"tests/test_a.py": 'open("cases/a")', "shop.py": 'row["a"]'}, True),
        ("data/cases/basic/a.json", {"tests/test_a.py": 'Path("data/cases")', "shop.py": 'row["data"]'}, True),
        ("data/cases/basic/a.json", {"tests/test_a.py": 'HERE / "cases"', "shop.py": "def basic(): ..."}, True),
        ("spec_out/n10", {"conftest.py": 'Path("spec_out")'}, True),
        ("rates/de.conf", {"tests/test_a.py": 'Path("rates")', "shop.py": 'Path("rates") / name'}, False),
        ("a/b/c.answer", {"tests/test_a.py": '"**/*.answer"'}, True),
        ("settings/base.ini", {"tests/test_a.py": '"*.ini"', "shop.py": 'glob("*.ini")'}, False),
        ("settings/base.ini", {"tests/test_a.py": "import shop"}, False),
        ("greet.sh", {"tests/test_a.py": "greet.sh"}, False),  # the work
        ("bin/greet", {"tests/test_a.py": "bin/greet"}, False),  # the work, too: see its first line
        ("web/cart.vue", {"tests/cart.test.js": "cart.vue"}, False),
        ("uv.lock", {"tests/test_a.py": "uv.lock"}, False),
        ("notes.md", {"tests/test_a.py": "notes.md", "pyproject.toml": "notes.md"}, False),
        # What source says in comments, or does not use as a path, names no file.
        ("cases/a.json", {"tests/test_a.py": GLOB, "shop.py": '"""All cases/edge cases."""\n'}, True),
        ("cases/a.json", {"tests/test_a.py": GLOB, "shop.py": 'def a():\n    """See cases/"""\n'}, True),
        ("cases/a.json", {"tests/test_a.py": GLOB, "shop.py": "a = 1  # as in cases/a.json\n"}, True),
        ("cases/a.json", {"tests/test_a.py": GLOB, "shop.js": "/* cases/a.json */ // '/cases/'\n"}, True),
        ("cases/a.json", {"tests/test_a.py": GLOB, "shop.py": 'is_a = kind == "cases"\n'}, True),
        ("cases/a.json", {"tests/test_a.py": GLOB, "shop.py": 'row["cases"] = {"cases": 1}\n'}, True),
        ("cases/a.json", {"tests/test_a.py": GLOB, "shop.py": 'raise ValueError("no cases/edge cases")\n'}, True),
        ("cases/a.json", {"tests/test_a.py": GLOB, "shop.py": "share = all_cases/2 + cases/3\n"}, True),
        ("cases/a.json", {"tests/test_a.py": GLOB, "shop.py": 'DATA = "cases"\n'}, False),
        ("cases/a.json", {"tests/test_a.py": GLOB, "shop.py": 'HERE / "cases"\n'}, False),
        ("cases/a.json", {"tests/test_a.py": GLOB, "shop.py": 'open(\n    "cases/" + name\n)\n'}, False),
        ("cases/a.json", {"tests/test_a.py": GLOB, "shop.py": 'run("sort cases/*.json")\n'}, False),
        ("cases/a.json", {"tests/test_a.py": GLOB, "shop.go": "//go:embed cases/*.json\nvar a embed.FS\n"}, False),
        ("cases/a.json", {"tests/test_a.py": GLOB, "shop.js": "load(`${here}/cases/${name}`)\n"}, False),
        ("cases/a.json", {"tests/test_a.py": GLOB, "shop.lua": "-- cases/\n"}, False),  # its comments are unknown
    ],
)
def test_data_that_only_tests_read(path: str, texts: Mapping[str, str], is_data: bool) -> None:
    old = "#!/usr/bin/python\n" if path.startswith("bin/") else "old"

    read, grep = serve(texts)
    assert find_test_data([change(path, old)], read, grep) == ({path} if is_data else set())
    assert find_test_data([change(path, old=None)], read, grep) == frozenset()


def serve(
    texts: Mapping[str, str],
) -> tuple[Callable[[Sequence[str]], Mapping[str, bytes]], Callable[[str], list[str]]]:
    def grep(word: str) -> list[str]:
        return [one for one, text in texts.items() if word in text]

    return lambda paths: {path: texts[path].encode() for path in paths if path in texts}, grep


def test_of_many_data_files_none_is_left_out() -> None:
    """Beyond a number, some of each folder decide for the others."""
    paths = [f"{folder}/{number}.json" for folder in ("rates", "cases", "cases/more") for number in range(150)]
    texts = {"tests/test_a.py": f'{GLOB}; Path("rates")', "shop.py": 'open(Path("rates") / name)'}
    read, grep = serve(texts)
    asked = set[str]()

    def note(word: str) -> list[str]:
        asked.add(word)
        return grep(word)

    found = find_test_data([change(path) for path in paths], read, note)
    assert found == {path for path in paths if path.startswith("cases")}
    assert len(asked) < 500


def test_no_text_of_a_source_is_slow() -> None:
    for text in (
        "/*" * 20_000,
        '"' * 40_000,
        '\\"' * 20_000,
        '"""' * 12_000,
        "`" * 39_999,
        "a" * 40_000,
        "'\n" * 18_000,
    ):
        start = time.process_time()
        for suffix in ("py", "js", "rs", "php"):
            may_name(read_source(f"a.{suffix}", text), ["cases", "a.json"])
        assert time.process_time() - start < 2  # 0.1 s on an idle machine


def test_a_file_is_put_where_it_belongs() -> None:
    hints = TestHints(run=frozenset(["ci/all", "cart.py"]), tested=frozenset(["cart.py"]), data=frozenset(["x.json"]))
    doctest = 'def a():\n    """\n    >>> a()\n    1\n    """\n    return 1\n'
    paths = ChangedPaths(
        (change("ci/all"), change("x.json"), change("cart.py", doctest, doctest.replace("1", "2")), change("shop.py")),
        hints,
    )
    assert [one.path for one in paths.tests] == ["ci/all", "x.json"]
    assert [one.path for one in paths.inline] == ["cart.py"]
    assert [one.path for one in paths.own] == ["x.json", "cart.py"]


def test_a_file_outside_of_the_tests_can_belong_to_them() -> None:
    hints = TestHints(helpers=frozenset(["checks.py"]), hiding=frozenset(["iniconfig.py"]))
    changes = (change("checks.py"), change("iniconfig.py", None), change("shop.py"))
    paths = ChangedPaths(changes, hints)
    assert [one.path for one in paths.tests] == ["checks.py", "iniconfig.py"]
    assert [one.path for one in paths.own] == ["checks.py"]
    assert not paths.has_gate_files
    loaded = ChangedPaths(
        (change("tsconfig.json"), change("tsconfig.a.json")), TestHints(run=frozenset(["tsconfig.a.json"]))
    )
    assert [one.path for one in loaded.builds] == ["tsconfig.a.json"]
    assert [one.path for one in loaded.checks] == ["tsconfig.json", "tsconfig.a.json"]
    compared = ChangedPaths((change("expected.txt"), change("shop.py")), TestHints(named=frozenset(["expected.txt"])))
    assert [one.path for one in compared.tests] == ["expected.txt"]
    assert compared.has_gate_files


def test_the_files_of_a_check_that_only_follow_the_work_are_left_out() -> None:
    script = "from shop import discount\n\nassert discount(1000) == 900\n"
    renamed = change("check.py", script, script.replace("discount", "reduce_by"))
    weaker = change("lint.py", "limit = 80", "limit = 800")
    changes = (renamed, weaker, change("shop.py", "def discount(a): ...", "def reduce_by(a): ..."), change("ruff.toml"))
    paths = ChangedPaths(changes, TestHints(checks=frozenset(["check.py", "lint.py"])))
    assert [one.path for one in paths.checks] == ["lint.py", "ruff.toml"]


def test_tests_that_still_read_the_same_are_not_touched() -> None:
    total = "\n\ndef test_total():\n    assert total()\n"
    old = f"from cart import label, total\n\n\ndef test_label():\n    assert label()\n{total}"
    new = f"from cart import total\n{total}"
    paths = ChangedPaths((change("tests/test_cart.py", old, new), change("cart.py")))
    assert paths.find_touched_tests() == frozenset({"test_label"})
    looser = ChangedPaths((change("tests/test_cart.py", old, new.replace("total()\n", "total() or 1\n")),))
    assert looser.find_touched_tests() == frozenset({"test_label", "test_total"})
    beside = ChangedPaths((change("tests/test_cart.py", f"PRICE = 1\n{old}", f"PRICE = 2\n{new}"),))
    assert beside.find_touched_tests() == frozenset({"test_label", "test_total"})
    configured = ChangedPaths((change("tests/test_cart.py", old, new), change("conftest.py")))
    assert configured.find_touched_tests() is None
