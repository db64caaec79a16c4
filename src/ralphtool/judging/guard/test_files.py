"""Which files contain tests, and in which language: by their names and folders alone."""

from __future__ import annotations

import re

_TEST_FOLDERS = {"test", "tests", "__tests__", "spec", "specs", "e2e", "androidtest", "integration-tests"}
_SPEC_LANGUAGES = {"", "js", "rb", "php"}  # in other languages a folder of specifications is part of the product
_SNAKE = r"(?:tests?|tests?_.*|.*[_.-](?:tests?|unittests?|spec))"
_CAMEL = r"(?:Test[A-Z0-9_].*|.*(?:Tests?|TestCase|[a-z]IT|Spec))"
_PRODUCTION = re.compile(
    r"(?:^|/)src/main/|(?:^|/)(?:app|lib|Sources)/(?:[^/]*/)*Test[A-Z][^/]*$|(?:^|/)src/(?!test/)(?:[^/]*/)*Test[A-Z][^/]*$"
)
_BY_NAME = {
    "py": re.compile(r"tests?|test_.*|.*_tests?"),
    "js": re.compile(r".*[._-](?:test|spec|e2e|cy|test-d)|tests?"),
    "go": re.compile(r".*_test"),
    "rs": re.compile(_SNAKE),
    "java": re.compile(_CAMEL),
    "rb": re.compile(r".*_(?:spec|test)|test_.*"),
    "cs": re.compile(_CAMEL),
    "php": re.compile(_CAMEL),
    "swift": re.compile(_CAMEL),
    "exs": re.compile(r".*_test"),
    "cpp": re.compile(f"{_SNAKE}|{_CAMEL}"),
}
_LANGUAGE_OF = {
    **{name: name for name in _BY_NAME},
    **dict.fromkeys(("jsx", "ts", "tsx", "mjs", "cjs", "mts", "cts"), "js"),
    **dict.fromkeys(("kt", "kts"), "java"),
    **dict.fromkeys(("c", "cc", "cxx", "c++", "h", "hh", "hpp", "hxx"), "cpp"),
    "ex": "exs",
}
# In other languages a folder is enough; these are run only under the right name, so renaming can lose tests.
_NAME_DECIDES = {"py", "go", "rb", "exs"}


def is_test(path: str) -> bool:
    """Whether a file is a test, or belongs to tests, by its name or its folder."""
    return is_named_test(path) or (find_language(path) not in ("", "go") and in_test_folder(path))


def find_language(path: str) -> str:
    _, dot, suffix = path.rpartition("/")[2].rpartition(".")
    return _LANGUAGE_OF.get(suffix.lower(), "") if dot else ""


def is_named_test(path: str) -> bool:
    stem = path.rpartition("/")[2].rpartition(".")[0]
    language = find_language(path)
    if is_production_folder(path):
        return False
    return bool(language) and len(stem) < 256 and _BY_NAME[language].fullmatch(stem) is not None


def is_production_folder(path: str) -> bool:
    """Whether it is production code although its name starts like that of a test: `src/main/java/TestRunner.java`."""
    return _PRODUCTION.search(path) is not None and not in_test_folder(path)


def in_test_folder(path: str) -> bool:
    folders = path.split("/")[:-1]
    named = _TEST_FOLDERS if find_language(path) in _SPEC_LANGUAGES else _TEST_FOLDERS - {"spec", "specs"}
    return any(one.lower() in named or one.endswith(("Tests", ".Test", "_tests")) for one in folders)


def is_run_by_runner(path: str) -> bool:
    language = find_language(path)
    if language == "rs":
        return True  # tests may be anywhere in Rust
    return is_named_test(path) or (language not in _NAME_DECIDES and is_test(path))
