"""Honest changes that the diff guard used to accuse, by cause: none is reported."""

from __future__ import annotations

import textwrap

import pytest
from judging.guard.samples import FILES, GO, JAVA, JS, RUBY, RUST, WEAKER, altered, edit, kinds

from ralphtool.judging.guard import diff


def in_js(body: str) -> str:
    return f"it('a', async () => {{\n{textwrap.indent(textwrap.dedent(body), '  ')}\n}})\n"


def in_go(body: str) -> str:
    return f"package a\n\nfunc TestA(t *testing.T) {{\n{textwrap.indent(textwrap.dedent(body), '  ')}\n}}\n"


def in_rust(body: str) -> str:
    return f"#[test]\nfn a() {{\n{textwrap.indent(textwrap.dedent(body), '  ')}\n}}\n"


def in_java(body: str) -> str:
    return f"class ATest {{\n@Test\nvoid a() {{\n{textwrap.indent(textwrap.dedent(body), '  ')}\n}}\n}}\n"


def in_ruby(body: str) -> str:
    return f'it "a" do\n{textwrap.indent(textwrap.dedent(body), "  ")}\nend\n'


def in_python(body: str) -> str:
    return f"def test_a():\n{textwrap.indent(textwrap.dedent(body), '    ')}\n"


OTHER_FORMS = [
    ("a.test.js", in_js("assert.equal(total(c), 3)"), in_js("expect(total(c)).toBe(3)")),
    ("a.test.js", in_js("expect(list.length).toBe(2)"), in_js("expect(list).toHaveLength(2)")),
    ("a.test.js", in_js("expect(await f()).toBe(1)"), in_js("await expect(f()).resolves.toBe(1)")),
    ("a.test.js", in_js("assert.ok(a === b)"), in_js("assert.strictEqual(a, b)")),
    ("a.test.js", in_js("expect(() => f()).toThrow(TypeError)"), in_js("assert.throws(() => f(), TypeError)")),
    ("a.test.js", in_js("await expect(f()).rejects.toThrow(TypeError)"), in_js("await assert.rejects(f(), TypeError)")),
    (
        "a.test.ts",
        in_js("expect(res.status).toBe(200)\nexpect(res.body.name).toBe('x')\nexpect(res.body.age).toBe(7)"),
        in_js("expect(res).toMatchObject({ status: 200, body: { name: 'x', age: 7 } })"),
    ),
    (
        "a.test.ts",
        in_js("expect(got.a).toBe(1)\nexpect(got.b).toBe(2)"),
        in_js("expect(got).toEqual(expect.objectContaining({ a: 1, b: 2 }))"),
    ),
    ("a.test.js", in_js("expect(x).toBe(1)\nexpect(x).toBe(1)"), in_js("expect(x).toBe(1)")),
    (
        "a_test.go",
        in_go('got, err := F()\nif err != nil {\n  t.Fatal(err)\n}\nif got.A != 1 {\n  t.Error("a")\n}'),
        in_go("got, err := F()\nrequire.NoError(t, err)\nassert.Equal(t, 1, got.A)"),
    ),
    (
        "a_test.go",
        in_go('got := F()\nif got.A != 1 {\n  t.Error("a")\n}\nif got.B != 2 {\n  t.Error("b")\n}'),
        in_go('got := F()\nif diff := cmp.Diff(T{A: 1, B: 2}, got); diff != "" {\n  t.Errorf("diff: %s", diff)\n}'),
    ),
    (
        "a_test.go",
        in_go('if !strings.Contains(s, "x") {\n  t.Error("no x")\n}'),
        in_go('assert.Contains(t, s, "x")'),
    ),
    ("src/a.rs", in_rust("assert!(a == b);"), in_rust("assert_eq!(a, b);")),
    ("src/a.rs", in_rust("assert!(matches!(x, Err(E::A)));"), in_rust("assert_eq!(x, Err(E::A));")),
    ("ATest.java", in_java("assertTrue(list.contains(x));"), in_java("assertThat(list).containsExactly(x);")),
    ("ATest.java", in_java("assertEquals(3, cart.total());"), in_java("assertThat(cart.total(), is(3));")),
    (
        "ATest.java",
        in_java("assertThrows(ParseError.class, () -> f());"),
        in_java("f();").replace("@Test", "@Test(expected = ParseError.class)"),
    ),
    ("a_spec.rb", in_ruby("assert_equal 1, x.size"), in_ruby("expect(x.size).to eq(1)")),
    ("a_spec.rb", in_ruby("x.size.must_equal 1"), in_ruby("_(x.size).must_equal 1")),
    ("test_a.py", in_python("assert a['x'] == 1\nassert a['y'] == 2"), in_python("assert a == {'x': 1, 'y': 2}")),
    ("test_a.py", in_python("assert 'x' in names\nassert 'y' in names"), in_python("assert names == {'x', 'y'}")),
    ("test_a.py", in_python("assert f(1) == 2\nassert f(1) == 2"), in_python("assert f(1) == 2")),
]


@pytest.mark.parametrize("case", OTHER_FORMS, ids=lambda case: f"{case[0]}: {' '.join(case[2].split())[10:70]}")
def test_an_equal_or_stronger_assertion_in_another_form(case: tuple[str, str, str]) -> None:
    assert diff.inspect_changes([edit(*case)]) == []


TESTED = [
    "python",
    "js",
    "go",
    "rust",
    "java",
    "kotlin",
    "ruby",
    "minitest",
    "php",
    "pest",
    "csharp",
    "swift",
    "elixir",
    "cpp",
]
SUBJECTS = {"Cart": "Basket", "cart": "basket", "Total": "Price", "total": "price", "adds": "sums", "parse": "read"}


@pytest.mark.parametrize("language", TESTED)
def test_tests_that_are_renamed_with_their_subject(language: str) -> None:
    path, text = FILES[language]
    new, new_path = text, path
    for old, other in SUBJECTS.items():
        new, new_path = new.replace(old, other), new_path.replace(old, other)
    assert diff.inspect_changes([edit(new_path, text, new, path)]) == []
    assert diff.inspect_changes([edit(path, text, None), edit(new_path, None, new)]) == []


SPLIT = {
    "js": (
        "a.test.js",
        in_js("const cart = make()\nexpect(cart.total).toBe(3)\nexpect(cart.size).toBe(1)"),
        in_js("const cart = make()\nexpect(cart.total).toBe(3)")
        + in_js("const cart = make()\nexpect(cart.size).toBe(1)").replace("'a'", "'b'"),
    ),
    "go": (
        "a_test.go",
        in_go("cart := Make()\nassert.Equal(t, 3, cart.Total)\nassert.Equal(t, 1, cart.Size)"),
        in_go("cart := Make()\nassert.Equal(t, 3, cart.Total)")
        + in_go("cart := Make()\nassert.Equal(t, 1, cart.Size)").replace("TestA", "TestB").replace("package a", ""),
    ),
    "rust": (
        "src/a.rs",
        in_rust("let cart = make();\nassert_eq!(cart.total, 3);\nassert_eq!(cart.size, 1);"),
        in_rust("let cart = make();\nassert_eq!(cart.total, 3);")
        + in_rust("let cart = make();\nassert_eq!(cart.size, 1);").replace("fn a", "fn b"),
    ),
    "ruby": (
        "a_spec.rb",
        in_ruby("cart = make\nexpect(cart.total).to eq(3)\nexpect(cart.size).to eq(1)"),
        in_ruby("cart = make\nexpect(cart.total).to eq(3)")
        + in_ruby("cart = make\nexpect(cart.size).to eq(1)").replace('"a"', '"b"'),
    ),
}


@pytest.mark.parametrize("language", SPLIT)
def test_tests_that_are_split_or_merged(language: str) -> None:
    path, one, two = SPLIT[language]
    assert diff.inspect_changes([edit(path, one, two)]) == []
    assert diff.inspect_changes([edit(path, two, one)]) == []
    assert kinds(edit(path, one, SPLIT[language][2].replace("1", "x").partition("size")[0].replace("size", ""))) != []


@pytest.mark.parametrize("language", TESTED)
def test_tests_that_move_to_another_file(language: str) -> None:
    path, text = FILES[language]
    other = path.replace("cart", "basket").replace("Cart", "Basket")
    assert diff.inspect_changes([edit(path, text, None), edit(other, None, text)]) == []


COPIES = [
    (
        "js",
        JS,
        "      test(",
        "      it('adds up again', () => {\n        const cart = make({ book: 3 })\n"
        '        expect(total(cart)).toBe(3)\n        expect(cart.items).toEqual([{ name: "it\'s" }])\n'
        "      })\n\n      test(",
    ),
    (
        "java",
        JAVA,
        "        @Test\n        void refuses",
        "        @Test\n        void refusesToo() {\n"
        '            assertThrows(IllegalArgumentException.class, () -> parse("x"));\n'
        "        }\n\n        @Test\n        void refuses",
    ),
    (
        "ruby",
        RUBY,
        '      it "refuses"',
        '      it "also refuses" do\n        expect { parse("x") }.to raise_error(ParseError)\n'
        '      end\n\n      it "refuses"',
    ),
]


@pytest.mark.parametrize("case", COPIES, ids=lambda case: case[0])
def test_a_copy_of_a_test_may_go(case: tuple[str, str, str, str]) -> None:
    language, text, old, new = case
    assert diff.inspect_changes([edit(FILES[language][0], altered(old, new, text), text)]) == []


HELPERS = [
    (
        "a.test.js",
        in_js("expect(a.x).toBe(1)\nexpect(a.y).toBe(2)"),
        in_js("same(a, 1, 2)"),
        "const same = (a, x, y) => {\n  expect(a.x).toBe(x)\n  expect(a.y).toBe(y)\n}\n",
    ),
    (
        "a_test.go",
        in_go("assert.Equal(t, 1, a.X)\nassert.Equal(t, 2, a.Y)"),
        in_go("same(t, a, 1, 2)"),
        "func same(t *testing.T, a A, x, y int) {\n  assert.Equal(t, x, a.X)\n  assert.Equal(t, y, a.Y)\n}\n",
    ),
    (
        "src/a.rs",
        in_rust("assert_eq!(a.x, 1);\nassert_eq!(a.y, 2);"),
        in_rust("same(a, 1, 2);"),
        "fn same(a: A, x: u8, y: u8) {\n  assert_eq!(a.x, x);\n  assert_eq!(a.y, y);\n}\n",
    ),
    (
        "ATest.java",
        in_java("assertEquals(1, a.x);\nassertEquals(2, a.y);"),
        in_java("same(a, 1, 2);"),
        "class Other {\nvoid same(A a, int x, int y) {\n  assertEquals(x, a.x);\n  assertEquals(y, a.y);\n}\n}\n",
    ),
    (
        "a_spec.rb",
        in_ruby("expect(a.x).to eq(1)\nexpect(a.y).to eq(2)"),
        in_ruby("same(a, 1, 2)"),
        "def same(a, x, y)\n  expect(a.x).to eq(x)\n  expect(a.y).to eq(y)\nend\n",
    ),
]


@pytest.mark.parametrize("case", HELPERS, ids=lambda case: case[0])
def test_assertions_that_went_into_a_function(case: tuple[str, str, str, str]) -> None:
    path, old, new, function = case
    assert diff.inspect_changes([edit(path, old, new + function)]) == []
    assert kinds(edit(path, old, new)) == [WEAKER]


def test_a_panic_that_is_fixed() -> None:
    fixed = altered('        #[should_panic(expected = "too big")]\n', "", RUST)
    assert diff.inspect_changes([edit("src/cart.rs", RUST, fixed)]) == []
    answered = altered("total(9999);", "assert_eq!(total(9999), 9999);", fixed)
    assert diff.inspect_changes([edit("src/cart.rs", RUST, answered)]) == []


def test_production_files_whose_name_begins_as_those_of_tests() -> None:
    text = "class TestRunner {\n    void testIt() {\n        assertThat(a).isEqualTo(1);\n    }\n}\n"
    assert diff.inspect_changes([edit("src/main/java/TestRunner.java", text, None)]) == []
    assert diff.inspect_changes([edit("src/TestData.ts", "export const a = 1\n", "export const b = 1\n")]) == []


HEREDOC = """\
    RSpec.describe Mail do
      it "greets" do
        text = <<~TEXT
          it's "late
        TEXT
        expect(text).to eq("x")
      end

      it "ends" do
        expect(mail.end).to eq("bye")
      end
    end
"""
JSX = """\
    it('renders', () => {
      render(<p>it's a ` tick and a { '}' } brace</p>)
      expect(screen.text).toBe('x')
    })

    it('ends', () => {
      expect(end).toBe(`b`)
    })
"""


def test_a_heredoc_does_not_blind_the_guard() -> None:
    path = "spec/mail_spec.rb"
    assert kinds(
        edit(path, HEREDOC, altered('expect(mail.end).to eq("bye")', "expect(mail.end).to be_truthy", HEREDOC))
    ) == [WEAKER]
    assert kinds(edit(path, HEREDOC, altered('it "ends"', 'xit "ends"', HEREDOC))) == ["test-skipped"]
    assert diff.inspect_changes([edit(path, HEREDOC, altered("it's", "it is", HEREDOC))]) == []


@pytest.mark.parametrize("path", ["src/a.test.tsx", "src/a.test.jsx"])
def test_a_backtick_in_the_text_of_jsx_does_not_blind_the_guard(path: str) -> None:
    assert kinds(edit(path, JSX, altered("expect(end).toBe(`b`)", "expect(end).toBeDefined()", JSX))) == [WEAKER]
    assert kinds(edit(path, JSX, altered("it('ends'", "it.skip('ends'", JSX))) == ["test-skipped"]
    assert diff.inspect_changes([edit(path, JSX, altered("it's", "it is", JSX))]) == []


def test_a_go_file_with_a_backtick_string_is_read_whole() -> None:
    text = GO.replace("\tgot := Total(3)", "\tgot := Total(len(`it's \\`) - 2)")
    assert kinds(edit("a_test.go", text, altered("assert.Equal(t, 1, size)", "assert.NotNil(t, size)", text))) == [
        WEAKER
    ]
