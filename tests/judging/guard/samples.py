"""Test files in every language that the guard reads, and edits to them."""

from __future__ import annotations

import textwrap

from ralphtool.judging.guard import diff
from ralphtool.judging.guard.model import FileChange


def edit(path: str, old: str | None, new: str | None, old_path: str | None = None) -> FileChange:
    before, after = (None if text is None else textwrap.dedent(text).encode() for text in (old, new))
    return FileChange(path, before, after, old_path)


def kinds(*changes: FileChange) -> list[str]:
    return sorted({finding.kind for finding in diff.inspect_changes(changes)})


PYTHON = """\
    import pytest
    from shop import Cart, total, parse


    def test_total():
        cart = Cart()
        cart.add("book", 3)
        assert total(cart) == 3
        assert cart.size == 1


    def test_parse_refuses():
        with pytest.raises(ValueError, match="no number"):
            parse("x")


    class TestCart:
        def test_empty(self):
            assert Cart().size == 0

        def test_smoke(self):
            Cart().add("pen", 1)
"""


def altered(old: str, new: str, text: str = PYTHON) -> str:
    assert old in text
    return text.replace(old, new)


def decorated(mark: str, test: str = "def test_total") -> str:
    return altered(f"    {test}", f"    {mark}\n    {test}")


BODY = """\
        cart = Cart()
        cart.add("book", 3)
        assert total(cart) == 3
        assert cart.size == 1
"""
TOTAL = f"    def test_total():\n{BODY}"
EQUAL = "assert total(cart) == 3"
RAISES = 'pytest.raises(ValueError, match="no number")'


JS = """\
    import { total } from './shop'

    describe('cart', () => {
      it('adds up', () => {
        const cart = make({ book: 3 })
        expect(total(cart)).toBe(3)
        expect(cart.items).toEqual([{ name: "it's" }])
      })

      test("refuses", () => {
        expect(() => parse('x')).toThrow(ParseError)
        expect(log).toHaveBeenCalledWith('x')
      })
    })
"""
SUPERTEST = """\
    test('refuses', async () => {
      await request(app)
        .post('/orders')
        .send({})
        .expect(403);
    });
"""
GO = """\
    package shop

    import "testing"

    func TestTotal(t *testing.T) {
    \tgot := Total(3)
    \tif got != 3 {
    \t\tt.Errorf("got %d, want 3", got)
    \t}
    \tassert.Equal(t, 1, size)
    }

    func TestParse(t *testing.T) {
    \t_, err := Parse("x")
    \tif err == nil {
    \t\tt.Fatal("no error")
    \t}
    }
"""
RUST = """\
    pub fn total(a: u32) -> u32 { a }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn adds_up() {
            let got = total(3);
            assert_eq!(got, 3);
            assert!(got > 2, "too small: {}", got);
        }

        #[test]
        #[should_panic(expected = "too big")]
        fn refuses() {
            total(9999);
        }
    }
"""
JAVA = """\
    class CartTest {
        @Test
        void addsUp() {
            Cart cart = new Cart();
            assertEquals(3, cart.total());
            assertThat(cart.size()).isEqualTo(1);
        }

        @Test
        void refuses() {
            assertThrows(IllegalArgumentException.class, () -> parse("x"));
        }
    }
"""
KOTLIN = """\
    class CartTest {
        @Test
        fun `adds up`() {
            assertEquals(3, cart.total())
        }
    }
"""
RUBY = """\
    RSpec.describe Cart do
      it "adds up" do
        cart = Cart.new
        expect(cart.total).to eq(3)
        expect(cart.size).to eq 1
      end

      it "refuses" do
        expect { parse("x") }.to raise_error(ParseError)
      end
    end
"""
MINITEST = """\
    class CartTest < Minitest::Test
      def test_total
        assert_equal 3, @cart.total
      end
    end
"""
CSHARP = """\
    public class CartTests
    {
        [Fact]
        public void AddsUp()
        {
            var cart = new Cart();
            Assert.Equal(3, cart.Total);
            cart.Size.Should().Be(1);
        }

        [Theory]
        [InlineData(1)]
        [InlineData(2)]
        public async Task Refuses(int number)
        {
            Assert.Throws<ArgumentException>(() => Parse(number));
        }
    }
"""
PHP = """\
    <?php
    final class CartTest extends TestCase
    {
        public function testTotal(): void
        {
            $this->assertSame(3, $cart->total());
        }

        /** @test */
        public function it_refuses(): void
        {
            $this->expectException(ParseError::class);
            parse('x');
        }
    }
"""
PEST = """\
    <?php
    it('adds up', function () {
        expect($cart->total())->toBe(3);
    });
"""
SWIFT = """\
    final class CartTests: XCTestCase {
        func testTotal() {
            XCTAssertEqual(cart.total, 3)
        }

        @Test func refuses() {
            #expect(cart.size == 1)
        }
    }
"""
ELIXIR = """\
    defmodule CartTest do
      use ExUnit.Case

      describe "total" do
        test "adds up" do
          assert Cart.total(cart) == 3
        end
      end

      test "refuses" do
        assert_raise ArgumentError, fn -> parse("x") end
      end
    end
"""
CPP = """\
    #include <gtest/gtest.h>

    TEST(Cart, AddsUp) {
      Cart cart;
      EXPECT_EQ(cart.total(), 3);
      ASSERT_TRUE(cart.size() == 1);
    }

    TEST_F(Shop, Refuses) {
      EXPECT_THROW(parse("x"), ParseError);
    }
"""
CATCH = """\
    TEST_CASE("adds up", "[cart]") {
      REQUIRE(total(cart) == 3);
      REQUIRE_THROWS_AS(parse("x"), std::length_error);
    }
"""
FILES = {
    "python": ("tests/test_cart.py", PYTHON),
    "js": ("src/cart.test.ts", JS),
    "supertest": ("test/orders.js", SUPERTEST),
    "go": ("cart_test.go", GO),
    "rust": ("src/cart.rs", RUST),
    "java": ("src/test/java/CartTest.java", JAVA),
    "kotlin": ("src/test/kotlin/CartTest.kt", KOTLIN),
    "ruby": ("spec/cart_spec.rb", RUBY),
    "minitest": ("test/cart_test.rb", MINITEST),
    "csharp": ("Shop.Tests/CartTests.cs", CSHARP),
    "php": ("tests/CartTest.php", PHP),
    "pest": ("tests/Cart.php", PEST),
    "swift": ("Tests/CartTests.swift", SWIFT),
    "elixir": ("test/cart_test.exs", ELIXIR),
    "cpp": ("tests/cart_test.cc", CPP),
    "catch": ("tests/cart_test.cpp", CATCH),
}
DELETED, SKIPPED, WEAKER = "test-deleted", "test-skipped", "assertion-weakened"
