"""Files outside of the test folders that take part in tests."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import pytest
from judging.test_test_side import change

from ralphtool.judging.test_support import find_checking_modules, find_hiding, find_plugins

Reader = Callable[[Sequence[str]], Mapping[str, bytes]]


def serve(files: Mapping[str, str]) -> tuple[Reader, Callable[[str], list[str]]]:
    def read(paths: Sequence[str]) -> Mapping[str, bytes]:
        return {path: files[path].encode() for path in paths if path in files}

    return read, lambda word: [path for path, text in files.items() if word in text]


PLUGINS: dict[str, tuple[dict[str, str], str, str]] = {
    "of conftest": ({"tests/conftest.py": 'pytest_plugins = ["shop.testing"]\n'}, "pytest", "shop/testing.py"),
    "of conftest, as one name": ({"conftest.py": 'pytest_plugins = "helper"\n'}, "pytest", "helper.py"),
    "of addopts": ({"pytest.ini": "[pytest]\naddopts = -q -p helper\n"}, "pytest", "helper.py"),
    "of addopts as a list": (
        {"pyproject.toml": '[tool.pytest.ini_options]\naddopts = ["-p", "helper"]\n'},
        "pytest",
        "src/helper.py",
    ),
    "of the command": ({}, "python -m pytest -p helper", "helper.py"),
    "an entry point": (
        {"pyproject.toml": '[project]\nname = "shop"\n[project.entry-points.pytest11]\nshop = "helper:hook"\n'},
        "pytest",
        "helper.py",
    ),
    "an entry point of setup.cfg": (
        {"setup.cfg": "[options.entry_points]\npytest11 =\n    shop = helper\n"},
        "pytest",
        "helper.py",
    ),
    "an entry point of setup.py": (
        {"setup.py": "setup(entry_points={'pytest11': ['shop = helper']})\n"},
        "pytest",
        "helper.py",
    ),
    "an entry point in an inline table": (
        {"pyproject.toml": '[project.entry-points]\npytest11 = {shop = "helper"}\nshop = {a = "shop.cart"}\n'},
        "pytest",
        "helper.py",
    ),
    "an entry point after a program": (
        {"setup.cfg": "[options.entry_points]\npytest11 =\n    shop = helper\nconsole_scripts =\n    a = shop.cart\n"},
        "pytest",
        "helper.py",
    ),
    "a setup file of jest": (
        {"jest.config.js": "module.exports = { setupFiles: ['<rootDir>/config/a.js'] };"},
        "jest",
        "config/a.js",
    ),
    "a module that node loads": ({}, "node --require ./config/a.js --test", "config/a.js"),
}


@pytest.mark.parametrize("name", PLUGINS)
def test_a_plugin_is_found(name: str) -> None:
    files, command, path = PLUGINS[name]
    read, grep = serve(files)
    changes = [change(path), change("shop/cart.py"), change("src/cart.js")]
    assert find_plugins(changes, [command], [], read, grep) == {path}


@pytest.mark.parametrize(
    "files",
    [
        {"pytest.ini": "[pytest]\naddopts = -p no:helper\n"},
        {"pyproject.toml": '[project]\nname = "pytest-shop"\n[project.entry-points.pytest11]\nshop = "helper"\n'},
    ],
)
def test_what_is_no_plugin_or_is_the_product(files: dict[str, str]) -> None:
    assert find_plugins([change("helper.py")], ["pytest"], [], *serve(files)) == frozenset()


@pytest.mark.parametrize(
    ("path", "is_green", "is_hiding"),
    [
        ("iniconfig.py", False, True),
        ("src/pluggy/__init__.py", False, True),
        ("requests.py", True, True),
        ("requests.py", False, False),  # the tests may have been written first
        ("shop/requests.py", True, False),
        ("tax.py", True, False),  # only named in a comment
        ("shop.py", True, False),  # it existed, elsewhere
        ("packaging/new.py", True, False),  # a package of the project
    ],
)
def test_a_new_module_that_hides_a_library(path: str, is_green: bool, is_hiding: bool) -> None:
    files = {
        "tests/test_shop.py": "import requests\nfrom shop import total  # not from tax import\n",
        "lib/shop.py": "",
        "packaging/__init__.py": "",
    }
    found = find_hiding([change(path, old=None)], [*files], *serve(files), is_green=is_green)
    assert found == (frozenset([path]) if is_hiding else frozenset())
    assert not find_hiding([change(path)], [*files], *serve(files), is_green=is_green)


@pytest.mark.parametrize(
    ("path", "has_module", "is_hiding"),
    [
        ("api/tests/test_shop.py", True, False),  # another project of the repository, which has such a module, too
        ("api/tests/test_shop.py", False, True),
        ("web/tests/test_shop.py", True, True),
    ],
)
def test_modules_of_other_projects_are_no_libraries(path: str, has_module: bool, is_hiding: bool) -> None:
    files = {path: "import models\n", **({"api/models.py": ""} if has_module else {})}
    found = find_hiding([change("web/models.py", old=None)], [], *serve(files), ["web/"], is_green=True)
    assert found == (frozenset(["web/models.py"]) if is_hiding else frozenset())


ASSERTS = "def assert_price(got, want):\n    assert got == want\n"
TEST = "from checks import assert_price\nfrom shop import total\n"
SHOP = {"shop.py": "", "tests/test_shop.py": TEST}
JS = "const assert = require('node:assert');\nexports.eq = (a, b) => assert.strictEqual(a, b);\n"
JS_TEST = "const { eq } = require('../lib/checks.js');\nconst { total } = require('../lib/shop.js');\n"
THROWS = "exports.eq = (a, b) => {\n  if (a !== b) throw new Error(`${a} is not ${b}`);\n};\n"
WORKSPACE = {
    "packages/check/package.json": '{"name": "@acme/check"}',
    "packages/shop/package.json": '{"name": "@acme/shop", "main": "index.js", "devDependencies": {"left-pad": "1"}}',
    "packages/shop/a.test.js": 'const { eq } = require("@acme/check");\nconst { total } = require("@acme/shop");\n',
}
MODULES: dict[str, tuple[str, str, dict[str, str], bool]] = {
    "only tests import it": ("checks.py", ASSERTS, SHOP, True),
    "it uses pytest": ("checks.py", "import pytest\nVALUE = 1\n", SHOP, True),
    "through another": (
        "checks.py",
        ASSERTS,
        {
            "shop.py": "",
            "more.py": "from checks import assert_price\n",
            "tests/test_a.py": "import more\nimport shop\n",
        },
        True,
    ),
    "in JavaScript": ("lib/checks.js", JS, {"lib/shop.js": "", "test/a.test.js": JS_TEST}, True),
    "in JavaScript, exported at the end": (
        "lib/checks.js",
        "const assert = require('assert');\nfunction eq(a, b) {\n  assert.equal(a, b);\n}\nmodule.exports = { eq };\n",
        {"lib/shop.js": "", "test/a.test.js": JS_TEST},
        True,
    ),
    "JavaScript that throws": ("lib/checks.js", THROWS, {"lib/shop.js": "", "test/a.test.js": JS_TEST}, True),
    "JavaScript that throws because of its input": (
        "lib/checks.js",
        "exports.eq = (a) => { if (!a) throw new Error(a); return a + 1; };\n",
        {"lib/shop.js": "", "test/a.test.js": JS_TEST},
        False,
    ),
    "a package of a workspace": ("packages/check/index.js", JS, WORKSPACE, True),
    "a package with another name than its folder": (
        "packages/qa/src/index.js",
        JS,
        {**WORKSPACE, "packages/qa/package.json": '{"name": "@acme/check"}'},
        True,
    ),
    "a package that source uses": (
        "packages/check/index.js",
        JS,
        {**WORKSPACE, "packages/shop/index.js": 'const c = require("@acme/check");\nexports.total = (a) => a;\n'},
        False,
    ),
    "a package that is what is tested": (
        "packages/check/index.js",
        JS,
        {**WORKSPACE, "packages/shop/a.test.js": 'require("@acme/check"); require("left-pad")'},
        False,
    ),
    "JavaScript without functions": ("lib/checks.js", "", {"lib/shop.js": "", "test/a.test.js": JS_TEST}, False),
    "source imports it": ("checks.py", ASSERTS, {**SHOP, "cart.py": "import checks\n"}, False),
    "nothing imports it": ("checks.py", ASSERTS, {"shop.py": ""}, False),
    "it is what is tested": (
        "checks.py",
        ASSERTS,
        {"shop.py": "", "tests/test_a.py": "from checks import assert_price\n"},
        False,
    ),
    "it also works": ("checks.py", f"{ASSERTS}\ndef total(prices):\n    return sum(prices)\n", SHOP, False),
    "JavaScript that also works": (
        "lib/checks.js",
        f"{JS}exports.total = (a) => a;\n",
        {"lib/shop.js": "", "test/a.test.js": JS_TEST},
        False,
    ),
}


@pytest.mark.parametrize("name", MODULES)
def test_a_module_that_only_checks_results(name: str) -> None:
    path, text, files, is_found = MODULES[name]
    found = find_checking_modules([change(path, text, "pass")], *serve({**files, path: text}))
    assert found == (frozenset([path]) if is_found else frozenset())
    assert not find_checking_modules([change(path, None, text)], *serve(files))


def test_no_text_is_slow() -> None:
    for text in ("pytest11" + "a" * 200_000, "\n" * 200_000, "pytest11=[" * 20_000, "exports.a" * 20_000):
        files = {"pyproject.toml": text, "tests/test_a.py": text, "conftest.py": f"pytest_plugins={text}", "a.js": text}
        read, grep = serve(files)
        everywhere: Callable[[str], list[str]] = partial(lambda names, word: names, [*files])
        start = time.process_time()
        find_plugins([change("helper.py"), change("a.js", text)], ["pytest"], [], read, grep)
        find_hiding([change("tests.py", None)], [*files], read, everywhere, is_green=True)
        find_checking_modules([change("a.js", text), change("b.py", text)], read, everywhere)
        assert time.process_time() - start < 5
