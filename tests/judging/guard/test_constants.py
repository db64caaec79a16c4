"""Tests that compare only constants assert nothing; a test that may depend on the work does."""

from __future__ import annotations

import pytest

from ralphtool.judging.guard.diff import find_empty_tests, list_checking_tests

HEAD = """
import math, pytest, unittest
import vouchers
from vouchers import price
TWO = 1 + 1
ROWS = []
def same(a, b): assert a == b
"""
CONSTANT = [
    "assert 1 + 1 == 2",
    "assert len('abc') == 3",
    "assert TWO == 2",
    "x = 2\n    y = x * 2\n    assert y == 4",
    "same(1, 1)",
    "assert math.floor(1.5) == 1",
    "assert 0.1 + 0.2 == pytest.approx(0.3)",
    "with pytest.raises(ZeroDivisionError): 1 / 0",
    "with pytest.raises(ValueError): int('x')",
    "vouchers\n    assert [1, 2] == [1, 2.0]",
    "assert sorted(n * 2 for n in (2, 1)) == [2, 4]",
]
HONEST = [
    "assert price() == 2",
    "found = price()\n    assert found == 2",
    "same(price(), 2)",
    "raised = False\n    try: price(-1)\n    except ValueError: raised = True\n    assert raised",
    "seen = 0\n    for one in vouchers.rows(): seen += 1\n    assert seen == 3",
    "rows = []\n    vouchers.fill(rows)\n    assert rows == [1]",
    "vouchers.fill(ROWS)\n    assert ROWS == [1]",
    "called = False\n    def on(): nonlocal called; called = True\n    price(on)\n    assert called",
    "for one in vouchers.rows():\n        if one.bad: assert False",
    "with pytest.raises(ValueError): price('x')",
    "assert open('made').read() == 'x'",
    "from vouchers import later\n    assert later == 2",
    "assert [price(n) for n in (1, 2)] == [1, 2]",
    "check_page('a')",
]


def empty(text: str, path: str = "tests/test_vouchers.py") -> set[str]:
    return find_empty_tests(path, text.encode())


@pytest.mark.parametrize("body", CONSTANT)
def test_a_test_of_constants_asserts_nothing(body: str) -> None:
    assert empty(f"{HEAD}def test_it():\n    {body}\n") == {"test_it"}


@pytest.mark.parametrize("body", HONEST)
def test_a_test_that_may_depend_on_the_work_counts(body: str) -> None:
    assert empty(f"{HEAD}def test_it():\n    {body}\n") == set()


def test_the_cases_of_a_table_are_constants_unless_the_work_makes_them() -> None:
    table = '@pytest.mark.parametrize("a, b", [(1, 1), pytest.param(%s, 2)])\ndef test_it(a, b): assert a == b\n'
    assert empty(HEAD + table % "2") == {"test_it"}
    assert empty(HEAD + table % "price()") == set()
    assert empty(f"{HEAD}def test_it(shop): assert shop == 1\n") == set()


CLASS = """
class T(unittest.TestCase):
    kind = "a"
    def setUp(self): self.n = 2; self.v = price(); self.called = False
    def on(self): self.called = True
    def check(self, a, b): self.assertEqual(a, b)
    def test_kind(self): self.assertEqual(self.kind, "a")
    def test_field(self): self.assertEqual(self.n, 2)
    def test_sum(self): self.assertEqual(1 + 1, 2)
    def test_truth(self): self.assertTrue(len("abc") == 3)
    def test_call(self): self.assertRaises(ValueError, int, "x")
    def test_helper(self): self.check(1 + 1, 2)
    def test_made(self): self.assertEqual(self.v, 2)
    def test_callback(self): price(self.on); self.assertTrue(self.called)
    def test_file(self): self.assertFileEqual("made", "expected")
    def test_page(self): self.assertRedirects("/a", "/b")
    def test_made_helper(self): self.check(price(), 2)
"""


def test_what_the_set_up_makes_is_constant_only_if_it_is_made_of_constants() -> None:
    names = ["kind", "field", "sum", "truth", "call", "helper"]
    assert empty(HEAD + CLASS) == {f"test_{name}" for name in names}
    checking = [f"T.test_{name}" for name in ("made", "callback", "file", "page", "made_helper")]
    assert list(list_checking_tests("tests/test_vouchers.py", (HEAD + CLASS).encode())) == checking


def test_skipped_tests_check_nothing() -> None:
    text = "@pytest.mark.skip\ndef test_a(): assert price() == 1\ndef test_b(): assert price() == 2\n"
    assert list_checking_tests("tests/test_vouchers.py", (HEAD + text).encode()) == ("test_b",)


OTHERS = {
    "a.test.js": (
        'test("{0}", () => {{ {1} }});\n',
        ["expect(1 + 1).toBe(2);", "assert.equal(1 + 1, 2);", 'assert.strictEqual("abc".length, 3);'],
        [
            "expect(price()).toBe(2);",
            "expect(2).toBe(price());",
            "try { price(); expect(true).toBe(false); } catch {}",
            'assert.equal(`${price()}`, "2");',
            "assert.deepEqual([price()], [2]);",
        ],
    ),
    "a_test.go": (
        "func {0}(t *testing.T) {{ {1} }}\n",
        ['if 1+1 != 2 { t.Fatal("x") }', "assert.Equal(t, 2, 1+1)"],
        ['if Price() != 2 { t.Fatal("x") }', "assert.Equal(t, 2, Price())"],
    ),
    "tests/a.rs": (
        "#[test]\nfn {0}() {{ {1} }}\n",
        ["assert_eq!(1 + 1, 2);", "assert!(1 + 1 == 2);"],
        ["assert_eq!(price(), 2);", 'assert_eq!(format!("{x}"), "2");', "assert!(price() == 2);"],
    ),
}


@pytest.mark.parametrize("path", OTHERS)
def test_other_languages_compare_constants_too(path: str) -> None:
    form, constant, honest = OTHERS[path]
    names = [f"Test{number}" for number in range(len(constant) + len(honest))]
    bodies = zip(names, [*constant, *honest], strict=True)
    text = "".join(form.format(name, body) for name, body in bodies)
    assert empty(text, path) == set(names[: len(constant)])


# Forms that check something in a way that can't be read, and by them others that check nothing.
UNREAD: dict[str, tuple[str, list[str], list[str]]] = {
    "tests/test_vouchers.py": (
        HEAD + "def use(value): return value\ndef {0}(client):\n    {1}\n",
        [
            "price(1)",
            "price([1], rate=2)",
            "found = price()",
            "print(price())",
            "logging.info(price())",
            "use(price())",
            "try: expect(price()).to(equal(2))\n    except Exception: pass",
        ],
        [
            "expect(price()).to(equal(2))",
            "client.get('/').raise_for_status()",
            "same_as(price(), 2)",
            "if price() != 2: raise ValueError",
            "vouchers.check_all()",
        ],
    ),
    "a.test.js": (
        'const a = require("assert");\nconst use = (value) => value;\ntest("{0}", async (t) => {{ {1} }});\n',
        ["", "price(1);", "const found = price();", "console.log(price());", "use(price());", "t.diagnostic(price());"],
        [
            "a.strictEqual(price(), 2);",
            "eq(price(), 2);",
            "t.assert.strictEqual(price(), 2);",
            'screen.getByText("Buy");',
            'const found = await screen.findAllByRole("row");',
            "same(price(1), 2);",
            'if (price() !== 2) throw new Error("no");',
        ],
    ),
    "a_test.go": (
        "func use(value int) {{}}\n\nfunc {0}(t *testing.T) {{ {1} }}\n",
        [
            "",
            "Price(1)",
            "_ = Price(1)",
            "t.Log(Price(1))",
            "use(Price(1))",
            't.Run("a", func(t *T) { Price(1) })',
        ],
        [
            "g.Expect(Price()).To(Equal(2))",
            "same(t, Price(), 2)",
            'if Price() != 2 { panic("no") }',
        ],
    ),
    "tests/a.rs": (
        "fn take(value: u8) {{}}\n\n#[test]\nfn {0}() {{ {1} }}\n",
        ["", "price(1);", "let _ = price(1);", 'println!("{}", price(1));', "take(price(1));"],
        [
            "price(1)?; Ok(())",
            "price(1).unwrap();",
            'price(1).expect("a price");',
            "same(price(1), 2);",
            'if price(1) != 2 { panic!("no") }',
        ],
    ),
}


@pytest.mark.parametrize("path", UNREAD)
def test_only_a_test_that_certainly_checks_nothing_is_empty(path: str) -> None:
    form, nothing, doubtful = UNREAD[path]
    for body in nothing:
        assert empty(form.format("TestIt" if path.endswith("go") else "test_it", body), path), body
    for body in doubtful:
        assert not empty(form.format("TestIt" if path.endswith("go") else "test_it", body), path), body


def test_an_example_of_go_with_an_output_checks_it() -> None:
    text = "func {0}() {{\n\tfmt.Println(Price())\n\t{1}\n}}\n"
    assert empty(text.format("ExamplePrice", ""), "a_test.go") == {"ExamplePrice"}
    assert empty(text.format("ExamplePrice", "// Output: 2"), "a_test.go") == set()
