"""The old tests with the new names of what the work renamed or moved."""

from __future__ import annotations

import pytest

from ralphtool.judging.guard.model import FileChange
from ralphtool.judging.proof_evidence import SuiteRun
from ralphtool.judging.renamed_tests import have_run
from ralphtool.judging.test_side import ChangedPaths

CART = b"def total(items):\n    return sum(items)\n\n\ndef label(name):\n    return name\n"
TEST = b"from shop.cart import label, total\n\n\ndef test_total():\n    assert total([1, 2]) // 1 == total([3])\n"


def ask(*changes: tuple[str, bytes | None, bytes | None] | FileChange) -> dict[str, str]:
    read = [one if isinstance(one, FileChange) else FileChange(*one) for one in changes]
    return {path: data.decode() for path, data in ChangedPaths(tuple(read)).rename_in_tests().items()}


def move(data: bytes, path: str, old_path: str, new: bytes | None = None) -> FileChange:
    return FileChange(path, data, data if new is None else new, old_path=old_path)


def test_a_renamed_function_has_its_new_name_in_tests_and_their_helpers() -> None:
    conftest = b"from shop.cart import total\n\nPATCHED = 'shop.cart.total'  # total\nTITLE = 'total'\n"
    new_conftest = conftest.replace(b"import total", b"import add_up").replace(b".total'", b".add_up'")
    found = ask(
        ("shop/cart.py", CART, CART.replace(b"total", b"add_up")),
        ("tests/test_cart.py", TEST, TEST.replace(b" total", b" add_up") + b"\n\ndef test_more():\n    assert True\n"),
        ("tests/conftest.py", conftest, new_conftest),
    )
    assert found["tests/conftest.py"] == new_conftest.decode()
    assert found["tests/test_cart.py"] == TEST.replace(b" total", b" add_up").decode()


@pytest.mark.parametrize("folder", ["", "src/"])
def test_a_moved_function_is_imported_from_where_the_source_has_it_now(folder: str) -> None:
    total, label = CART.split(b"\n\n\n")
    found = ask(
        (f"{folder}shop/cart.py", CART, total),
        (f"{folder}shop/printing.py", None, label),
        ("tests/test_cart.py", TEST, TEST.replace(b"shop.cart", b"shop.fake")),
    )
    moved = "from shop.printing import label\nfrom shop.cart import total\n"
    assert found["tests/test_cart.py"].startswith(moved)


def test_what_is_gone_is_not_imported() -> None:
    found = ask(("shop/cart.py", CART, CART.partition(b"\n\n\n")[0]), ("tests/test_cart.py", TEST, b""))
    assert found["tests/test_cart.py"].startswith("from shop.cart import total\n")


def test_a_function_that_is_still_there_is_imported_from_there() -> None:
    fake = b"def total(items):\n    return 3\n"
    changed = TEST.replace(b"shop.cart import label, total", b"shop.fake import total")
    broken = CART.replace(b"sum(items)", b"0")
    assert not ask(("shop/cart.py", CART, broken), ("shop/fake.py", None, fake), ("tests/test_cart.py", TEST, changed))


def test_two_places_are_unclear() -> None:
    gone = CART.replace(b"total", b"other")
    places = [(f"shop/{name}.py", None, CART.partition(b"\n\n\n")[0]) for name in ("one", "two")]
    assert not ask(("shop/cart.py", CART, gone), *places, ("tests/test_cart.py", TEST, TEST + b"# more\n"))


def test_a_moved_module_is_followed() -> None:
    tests = b"import shop.cart as c\nfrom shop.cart import label\n\n\ndef test_label():\n    c.label('shop.cart.x')\n"
    found = ask(
        move(CART, "shop/basket.py", "shop/cart.py"),
        move(tests, "tests/test_basket.py", "tests/test_cart.py", tests.replace(b"cart", b"basket")),
    )
    assert found == {"tests/test_cart.py": tests.replace(b"cart", b"basket").decode()}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            'import { label, total as sum } from "../src/cart.js";\n',
            'import { label } from "../src/printing.js";\nimport { total as sum } from "../src/cart.js";\n',
        ),
        (
            'const { label, total: sum } = require("../src/cart");\n',
            'const { label } = require("../src/printing");\nconst { total: sum } = require("../src/cart");\n',
        ),
        ('import { label, gone } from "../src/cart";\n', 'import { label } from "../src/printing";\n'),
    ],
)
def test_imports_of_javascript_follow_too(old: str, new: str) -> None:
    total, label, gone = (f"export function {name}() {{}}\n".encode() for name in ("total", "label", "gone"))
    found = ask(
        ("src/cart.js", total + label + gone, total),
        ("src/printing.js", None, label),
        ("tests/cart.test.js", old.encode(), b"// changed\n"),
    )
    assert found == {"tests/cart.test.js": new}


def test_a_module_of_javascript_may_become_one_of_typescript() -> None:
    old = b'import cart from "../src/cart.js";\njest.mock("../src/cart.js");\n'
    found = ask(
        move(b"export default 1;\n", "src/cart.ts", "src/cart.js"), ("tests/cart.test.js", old, b"// changed\n")
    )
    assert found == {"tests/cart.test.js": old.decode().replace(".js", ".ts")}


def test_tests_inside_a_source_that_was_moved_are_put_where_it_is_now() -> None:
    test = b"#[cfg(test)]\nmod tests {\n    #[test]\n    fn adds_up() { assert_eq!(super::total(), 3); }\n}\n"
    renamed = (CART + test).replace(b"total", b"all")
    found = ask(
        move(
            CART + test,
            "src/basket.rs",
            "src/cart.rs",
            renamed.replace(b"3); }\n", b"3); }\n    #[test]\n    fn b() {}\n"),
        )
    )
    assert found == {"src/basket.rs": renamed.decode()}


@pytest.mark.parametrize(
    ("path", "failed", "is_known"), [("t.py", 0, True), ("t.rs", 0, False), ("t.rs", 1, True), ("t.go", 0, False)]
)
def test_tests_that_only_do_not_load_say_something_where_imports_are_followed(
    path: str, failed: int, is_known: bool
) -> None:
    assert have_run([path], [SuiteRun(command="test", ok=False, count_passed=1, count_failed=failed)]) == is_known


@pytest.mark.parametrize(("end", "mark"), [("py", b"// "), ("js", b"# "), ("rb", b"#")])
def test_marks_that_are_no_comments_can_be_repeated(end: str, mark: bytes) -> None:
    test = b"total()\n" + 2000 * mark
    found = ask((f"a.{end}", b"def total", b"def add"), (f"tests/test_a.{end}", test, test.replace(b"total", b"add")))
    assert found[f"tests/test_a.{end}"].startswith("add()")


def test_bytes_that_are_not_utf_8_stay() -> None:
    test = TEST + "TITLE = 'Straße'\n".encode("latin-1")
    change = FileChange("tests/test_cart.py", test, test.replace(b" total", b" add_up"))
    paths = ChangedPaths((FileChange("shop/cart.py", CART, CART.replace(b"total", b"add_up")), change))
    assert paths.rename_in_tests()["tests/test_cart.py"].endswith(b"Stra\xdfe'\n")


def test_what_is_imported_by_default_is_imported_once() -> None:
    total, label = b"export function total() {}\n", b"export function label() {}\n"
    test = b"import cart, { total, label } from '../cart';\n"
    found = ask(("cart.js", total + label, total), ("lib/b.js", None, label), ("tests/cart.test.js", test, b"x"))
    expected = "import cart, { total } from '../cart';\nimport { label } from '../lib/b';\n"
    assert found["tests/cart.test.js"] == expected
