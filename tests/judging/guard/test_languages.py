"""The diff guard on other languages: cheats are reported with the right kind, honest work is not reported."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

import pytest
from judging.guard.samples import (
    CPP,
    DELETED,
    ELIXIR,
    FILES,
    GO,
    JAVA,
    JS,
    RUBY,
    RUST,
    SKIPPED,
    WEAKER,
    altered,
    edit,
    kinds,
)

from ralphtool.judging.guard import diff
from ralphtool.judging.guard.model import FileChange

_TEST_OF_JS = JS[JS.index("      it(") : JS.index("      test(")]
_TEST_OF_GO = GO[GO.index("    func TestTotal") : GO.index("    func TestParse")]
_TEST_OF_JAVA = JAVA[
    JAVA.index("        @Test\n        void addsUp") : JAVA.index("        @Test\n        void refuses")
]


# Language, old text, new text, and the kind of the finding.
CHEATS = [
    ("js", _TEST_OF_JS, "", DELETED),
    ("js", "      it('adds up'", "      it.skip('adds up'", SKIPPED),
    ("js", "      it('adds up'", "      xit('adds up'", SKIPPED),
    ("js", "      it('adds up'", "      it.only('adds up'", SKIPPED),
    ("js", "      it('adds up'", "      fit('adds up'", SKIPPED),
    ("js", "describe('cart'", "describe.skip('cart'", SKIPPED),
    ("js", "describe('cart'", "xdescribe('cart'", SKIPPED),
    ("js", "describe('cart'", "describe.only('cart'", SKIPPED),
    ("js", "describe('cart'", "fdescribe('cart'", SKIPPED),
    ("js", 'test("refuses", () => {', 'test.fails("refuses", () => {', SKIPPED),
    ("js", 'test("refuses", () => {', 'test.skipIf(ci)("refuses", () => {', SKIPPED),
    ("js", _TEST_OF_JS, "      it.todo('adds up')\n", SKIPPED),
    ("js", _TEST_OF_JS, "".join(f"//{line}\n" for line in _TEST_OF_JS.splitlines()), SKIPPED),
    ("js", _TEST_OF_JS, f"/*{_TEST_OF_JS}*/", SKIPPED),
    ("js", _TEST_OF_JS, f"if (false) {{ {_TEST_OF_JS} }}", SKIPPED),
    ("js", "const cart", "return;\n        const cart", SKIPPED),
    ("js", "        expect(total(cart)).toBe(3)\n", "", WEAKER),
    ("js", "expect(total(cart)).toBe(3)", "expect(true).toBe(true)", WEAKER),
    ("js", "expect(total(cart)).toBe(3)", "expect(total(cart) || true).toBe(true)", WEAKER),
    ("js", "expect(total(cart)).toBe(3)", "expect(total(cart)).toBeTruthy()", WEAKER),
    ("js", "expect(total(cart)).toBe(3)", "expect(total(cart)).toBeDefined()", WEAKER),
    ("js", "expect(total(cart)).toBe(3)", "expect(total(cart)).toBeGreaterThan(0)", WEAKER),
    ("js", "expect(total(cart)).toBe(3)", "expect(total(cart)).toBeCloseTo(3)", WEAKER),
    ("js", "expect(total(cart)).toBe(3)", "expect(total(cart)).toEqual(expect.any(Number))", WEAKER),
    ("js", "expect(total(cart)).toBe(3)", "expect(total(cart)).not.toBe(4)", WEAKER),
    ("js", 'toEqual([{ name: "it\'s" }])', "toContain('it')", WEAKER),
    ("js", ".toThrow(ParseError)", ".toThrow()", WEAKER),
    ("js", ".toThrow(ParseError)", ".toThrow(Error)", WEAKER),
    ("js", ".toHaveBeenCalledWith('x')", ".toHaveBeenCalled()", WEAKER),
    ("supertest", ".expect(403)", "", WEAKER),
    ("go", _TEST_OF_GO, "", DELETED),
    ("go", "\tgot := Total", '\tt.Skip("later")\n    \tgot := Total', SKIPPED),
    ("go", "\tgot := Total", "\tt.SkipNow()\n    \tgot := Total", SKIPPED),
    ("go", "\tgot := Total", "\treturn\n    \tgot := Total", SKIPPED),
    ("go", "package shop", "//go:build integration\n\n    package shop", SKIPPED),
    ("go", _TEST_OF_GO, "".join(f"//{line}\n" for line in _TEST_OF_GO.splitlines()), SKIPPED),
    ("go", "if got != 3 {", "if got == 0 {", WEAKER),
    ("go", "if got != 3 {", "if got < 1 {", WEAKER),
    ("go", "if got != 3 {", "if false {", WEAKER),
    ("go", "assert.Equal(t, 1, size)", "assert.NotNil(t, size)", WEAKER),
    ("go", "assert.Equal(t, 1, size)", "assert.True(t, true)", WEAKER),
    ("go", "    \tassert.Equal(t, 1, size)\n", "", WEAKER),
    (
        "rust",
        RUST[RUST.index("        #[test]\n        fn") : RUST.index("        #[test]\n        #[should")],
        "",
        DELETED,
    ),
    ("rust", "#[test]\n        fn adds_up", "#[test]\n        #[ignore]\n        fn adds_up", SKIPPED),
    ("rust", "#[test]\n        fn adds_up", '#[test]\n        #[ignore = "slow"]\n        fn adds_up', SKIPPED),
    ("rust", "#[test]\n        fn adds_up", "fn adds_up", SKIPPED),
    ("rust", "assert_eq!(got, 3)", "assert!(got > 0)", WEAKER),
    ("rust", "assert_eq!(got, 3)", "assert!(true)", WEAKER),
    ("rust", "assert_eq!(got, 3)", "assert_ne!(got, 4)", WEAKER),
    ("rust", "            assert_eq!(got, 3);\n", "", WEAKER),
    ("rust", '(expected = "too big")', "", WEAKER),
    ("java", _TEST_OF_JAVA, "", DELETED),
    ("java", "@Test\n        void addsUp", "@Disabled\n        @Test\n        void addsUp", SKIPPED),
    ("java", "@Test\n        void addsUp", '@Test\n        @Ignore("x")\n        void addsUp', SKIPPED),
    ("java", "class CartTest", '@Disabled("later")\n    class CartTest', SKIPPED),
    ("java", "@Test\n        void addsUp", "void addsUp", SKIPPED),
    ("java", "assertEquals(3, cart.total())", "assertNotNull(cart.total())", WEAKER),
    ("java", "assertEquals(3, cart.total())", "assertTrue(cart.total() > 0)", WEAKER),
    ("java", "assertEquals(3, cart.total())", "assertTrue(true)", WEAKER),
    ("java", "isEqualTo(1)", "isNotNull()", WEAKER),
    ("java", "isEqualTo(1)", "isGreaterThan(0)", WEAKER),
    ("java", "IllegalArgumentException.class", "Exception.class", WEAKER),
    ("java", "            assertEquals(3, cart.total());\n", "", WEAKER),
    ("kotlin", "@Test\n", "@Test\n        @Disabled\n", SKIPPED),
    ("kotlin", "assertEquals(3, cart.total())", "assertNotNull(cart.total())", WEAKER),
    ("kotlin", "            assertEquals(3, cart.total())\n", "", WEAKER),
    ("ruby", RUBY[RUBY.index('      it "adds') : RUBY.index('      it "refuses')], "", DELETED),
    ("ruby", 'it "adds up"', 'xit "adds up"', SKIPPED),
    ("ruby", 'it "adds up"', 'fit "adds up"', SKIPPED),
    ("ruby", 'it "adds up" do', 'it "adds up", skip: true do', SKIPPED),
    ("ruby", "        cart = Cart", '        skip "later"\n        cart = Cart', SKIPPED),
    ("ruby", "        cart = Cart", "        pending\n        cart = Cart", SKIPPED),
    ("ruby", "expect(cart.total).to eq(3)", "expect(cart.total).to be_truthy", WEAKER),
    ("ruby", "expect(cart.total).to eq(3)", "expect(cart.total).not_to be_nil", WEAKER),
    ("ruby", "expect(cart.size).to eq 1", "expect(cart.size).to be_within(1).of 1", WEAKER),
    ("ruby", "raise_error(ParseError)", "raise_error", WEAKER),
    ("ruby", "        expect(cart.total).to eq(3)\n", "", WEAKER),
    ("minitest", "assert_equal 3, @cart.total", "assert @cart.total", WEAKER),
    ("minitest", "assert_equal 3, @cart.total", "assert true", WEAKER),
    ("minitest", "assert_equal 3, @cart.total", "refute_nil @cart.total", WEAKER),
    ("minitest", "        assert_equal", "        skip\n        assert_equal", SKIPPED),
    ("csharp", "[Fact]", '[Fact(Skip = "later")]', SKIPPED),
    ("csharp", "[Fact]", "[Fact]\n        [Ignore]", SKIPPED),
    ("csharp", "[Fact]\n", "\n", SKIPPED),
    ("csharp", "Assert.Equal(3, cart.Total)", "Assert.NotNull(cart.Total)", WEAKER),
    ("csharp", "Assert.Equal(3, cart.Total)", "Assert.True(true)", WEAKER),
    ("csharp", "Should().Be(1)", "Should().NotBeNull()", WEAKER),
    ("csharp", "Should().Be(1)", "Should().BeGreaterThan(0)", WEAKER),
    ("csharp", "Assert.Throws<ArgumentException>", "Assert.ThrowsAny<Exception>", WEAKER),
    ("csharp", "        [InlineData(2)]\n", "", DELETED),
    ("php", "$this->assertSame", "$this->markTestSkipped('x');\n            $this->assertSame", SKIPPED),
    ("php", "/** @test */", "/** */", SKIPPED),
    ("php", "assertSame(3, $cart->total())", "assertNotNull($cart->total())", WEAKER),
    ("php", "assertSame(3, $cart->total())", "assertTrue(true)", WEAKER),
    ("php", "ParseError::class", "Exception::class", WEAKER),
    ("pest", "toBe(3);\n    });", "toBe(3);\n    })->skip();", SKIPPED),
    ("pest", "->toBe(3)", "->not->toBeNull()", WEAKER),
    ("swift", "            XCTAssertEqual", "            try XCTSkipIf(true)\n            XCTAssertEqual", SKIPPED),
    ("swift", "@Test func", '@Test(.disabled("x")) func', SKIPPED),
    ("swift", "XCTAssertEqual(cart.total, 3)", "XCTAssertNotNil(cart.total)", WEAKER),
    ("swift", "XCTAssertEqual(cart.total, 3)", "XCTAssertTrue(true)", WEAKER),
    ("swift", "#expect(cart.size == 1)", "#expect(cart.size > 0)", WEAKER),
    ("elixir", '        test "adds up"', '        @tag :skip\n        test "adds up"', SKIPPED),
    ("elixir", "use ExUnit.Case", "use ExUnit.Case\n      @moduletag :skip", SKIPPED),
    ("elixir", "assert Cart.total(cart) == 3", "assert Cart.total(cart)", WEAKER),
    ("elixir", "assert Cart.total(cart) == 3", "assert true", WEAKER),
    ("elixir", ELIXIR[ELIXIR.index('      test "refuses') : ELIXIR.rindex("    end")], "", DELETED),
    ("cpp", "TEST(Cart, AddsUp)", "TEST(Cart, DISABLED_AddsUp)", SKIPPED),
    ("cpp", "      Cart cart;\n", "      GTEST_SKIP();\n      Cart cart;\n", SKIPPED),
    ("cpp", CPP[CPP.index("    TEST(") : CPP.index("    TEST_F")], "", DELETED),
    ("cpp", CPP[CPP.index("    TEST(") :], f"#if 0\n{CPP[CPP.index('    TEST(') :]}#endif\n", SKIPPED),
    ("cpp", "EXPECT_EQ(cart.total(), 3)", "EXPECT_GT(cart.total(), 0)", WEAKER),
    ("cpp", "EXPECT_EQ(cart.total(), 3)", "EXPECT_TRUE(true)", WEAKER),
    ("cpp", 'EXPECT_THROW(parse("x"), ParseError)', 'EXPECT_ANY_THROW(parse("x"))', WEAKER),
    ("catch", '"[cart]"', '"[.cart]"', SKIPPED),
    ("catch", "REQUIRE(total(cart) == 3)", "REQUIRE(total(cart) > 0)", WEAKER),
    ("catch", "std::length_error", "std::exception", WEAKER),
    ("catch", '      REQUIRE_THROWS_AS(parse("x"), std::length_error);\n', "", WEAKER),
]
HONEST = [
    ("js", "toBe(3)", "toBe(4)"),
    ("js", "toBe(3)", "toStrictEqual(3)"),
    ("js", "expect(total(cart)).toBe(3)", "expect(\n          total(cart),\n        ).toBe(3);"),
    ("js", "it('adds up'", 'it("adds up"'),
    ("js", "it('adds up'", "it('adds up the books'"),
    ("js", "it('adds up', () =>", "it('adds up', async () =>"),
    ("js", "describe('cart'", "describe('the cart'"),
    ("js", "        expect(total(cart)", "        // it.skip('adds up') was here; see xit\n        expect(total(cart)"),
    ("js", "expect(total(cart)).toBe(3)", "expect(cart.x).toBe(1)\n        expect(total(cart)).toBe(3)"),
    ("js", "    })\n", "      it('more', () => { expect(a).toBe(/it's {/) })\n    })\n"),
    (
        "js",
        "      it('adds up', () => {\n        const cart = make({ book: 3 })\n        expect(total(cart)).toBe(3)",
        "      it.each([[1], [2]])('adds up', (n) => {\n"
        "        const cart = make({ book: n })\n        expect(total(cart)).toBe(n)",
    ),
    (
        "js",
        '        expect(total(cart)).toBe(3)\n        expect(cart.items).toEqual([{ name: "it\'s" }])',
        "        for (const [got, want] of [[total(cart), 3], [cart.items.length, 1]]) {\n"
        "          expect(got).toBe(want)\n        }",
    ),
    ("supertest", ".expect(403)", ".expect(401)"),
    ("catch", "std::length_error", "std::range_error"),
    ("go", 't.Errorf("got %d, want 3", got)', 't.Errorf("Total(3) = %d", got)'),
    ("go", "if got != 3 {", "if got != 4 {"),
    ("go", 'if got != 3 {\n    \t\tt.Errorf("got %d, want 3", got)\n    \t}', "assert.Equal(t, 3, got)"),
    ("go", "\tgot := Total", "\tt.Parallel()\n    \tgot := Total"),
    ("go", "func TestTotal", "func TestTotalOfOne"),
    (
        "go",
        GO[GO.index("    \tgot :=") : GO.index("    }\n")],
        "    \tfor _, c := range cases {\n    \t\tt.Run(c.name, func(t *testing.T) {\n"
        "    \t\t\tassert.Equal(t, c.want, Total(c.in))\n    \t\t})\n    \t}\n",
    ),
    ("rust", "assert_eq!(got, 3)", "assert_eq!(got, 4)"),
    ("rust", "assert!(got > 2,", "assert_eq!(got, 3); assert!(got > 2,"),
    (
        "rust",
        "pub fn total(a: u32) -> u32 { a }",
        "pub fn sum(a: u32) -> u32 { a }\n\n    fn more<'a>(x: &'a str) -> char { '{' }",
    ),
    ("rust", "fn adds_up", "fn adds_them_up"),
    ("java", "assertEquals(3, cart.total())", "assertEquals(4, cart.total())"),
    ("java", "assertEquals(3, cart.total())", "assertThat(cart.total()).isEqualTo(3)"),
    ("java", "void addsUp()", "void addsUp() throws Exception"),
    ("java", "@Test\n        void addsUp", '@Test\n        @DisplayName("@Disabled {")\n        void addsUp'),
    ("kotlin", "`adds up`", "`adds all up`"),
    ("ruby", "to eq(3)", "to eq 4"),
    ("ruby", '      end\n\n      it "ref', '        expect(cart.owner).to be_nil\n      end\n\n      it "ref'),
    ("ruby", 'it "adds up" do', "it 'adds up', :slow do"),
    ("minitest", "assert_equal 3, @cart.total", "assert_equal 4, @cart.total"),
    ("csharp", "Assert.Equal(3, cart.Total)", "cart.Total.Should().Be(3)"),
    ("csharp", "[InlineData(2)]", "[InlineData(2)]\n        [InlineData(3)]"),
    ("php", "assertSame(3,", "assertSame(4,"),
    ("php", "/** @test */", "#[Test]"),
    ("pest", "->toBe(3)", "->toBe(4)"),
    ("swift", "XCTAssertEqual(cart.total, 3)", "XCTAssertEqual(cart.total, 4)"),
    ("swift", "#expect(cart.size == 1)", "#expect(cart.size == 2)"),
    ("elixir", "== 3", "== 4"),
    (
        "elixir",
        "assert Cart.total(cart) == 3",
        "cart = make()\n          assert Cart.total(cart) == 3\n          assert cart.size == 1",
    ),
    ("cpp", "EXPECT_EQ(cart.total(), 3)", "EXPECT_EQ(cart.total(), 4)"),
    ("cpp", "ASSERT_TRUE(cart.size() == 1)", "ASSERT_EQ(cart.size(), 1)"),
    ("catch", "== 3", "== 4"),
]


def label(case: Sequence[str]) -> str:
    return f"{case[0]}: {' '.join(case[2].split())[:50]}"


@pytest.mark.parametrize("case", CHEATS, ids=label)
def test_cheats_are_named(case: tuple[str, str, str, str]) -> None:
    language, old, new, kind = case
    path, text = FILES[language]
    assert kinds(edit(path, text, altered(old, new, text))) == [kind]


@pytest.mark.parametrize("case", HONEST, ids=label)
def test_honest_work_is_silent(case: tuple[str, str, str]) -> None:
    language, old, new = case
    path, text = FILES[language]
    assert diff.inspect_changes([edit(path, text, altered(old, new, text))]) == []


@pytest.mark.parametrize("language", FILES)
def test_every_language_moves_and_goes(language: str) -> None:
    path, text = FILES[language]
    folder, _, name = path.rpartition("/")
    moved = f"{folder}/deeper/{name}".lstrip("/")
    assert diff.inspect_changes([edit(path, None, text)]) == []
    assert diff.inspect_changes([edit(moved, text, text, path)]) == []
    assert diff.inspect_changes([edit(path, text, None), edit(moved, None, text)]) == []
    flush = textwrap.dedent(text).encode()
    assert diff.inspect_changes([FileChange(path, flush, flush.replace(b"\n", b"\r\n"))]) == []
    deeper = text if language == "python" else text.replace("\n    ", "\n        ")
    assert diff.inspect_changes([edit(path, text, deeper)]) == []
    assert kinds(edit(path, text, None)) == [DELETED]
    assert kinds(edit(path, text, "")) == [DELETED]


def test_a_test_file_of_an_unknown_kind_may_not_go_either() -> None:
    assert kinds(edit("src/odd.test.js", "    odd.check(1, 2)\n", None)) == [DELETED]


def test_assertions_outside_of_tests_excuse_those_that_went_there() -> None:
    old = "it('a', () => {\n  expect(a.x).toBe(1)\n  expect(a.y).toBe(2)\n})\n"
    checks = "  expect(a.x).toBe(x)\n  expect(a.y).toBe(y)\n"
    new = f"function same(a, x, y) {{\n{checks}}}\nit('a', () => {{\n  same(a, 1, 2)\n}})\n"
    assert diff.inspect_changes([edit("a.test.js", old, new)]) == []
    assert kinds(edit("a.test.js", old, new.replace(checks, ""))) == [WEAKER]
