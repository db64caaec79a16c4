"""Reads tests with tree-sitter, in the same way for all languages; each language describes how its tests look."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct

from ralphtool.judging.guard.assertions import Claim, find_subjects, is_constant, parse_claim
from ralphtool.judging.guard.model import (
    EXACT,
    Assertion,
    Body,
    CallSite,
    ParsedTestFile,
    Test,
    add_skip,
    build_unknown_body,
    may_check,
    shorten,
)
from ralphtool.judging.guard.source_tree import Link, SourceTree, Splitter, unroll_chain

if TYPE_CHECKING:
    from tree_sitter import Node


class Head(Struct):
    """A test, a group of tests, or a function beside them; `start` is where its annotations begin."""

    name: str
    node: Node
    kind: str = "test"
    """test, group or function"""
    start: int = -1
    body: Node | None = None
    skips: dict[str, str] = {}
    cases: int = 1
    focused: bool = False
    checks: list[Assertion] = []
    """The assertions in its annotations."""
    doubts: list[str] = []

    @property
    def span(self) -> tuple[int, int]:
        return (self.start if self.start >= 0 else self.node.start_byte), self.node.end_byte


class TreeLanguage(Struct, frozen=True):
    """How the tests of a language are written."""

    query: str
    """Its captures: @comment, @call, @head (a possible test, group or function), @condition."""
    split: Splitter
    find_head: Callable[[SourceTree, Node], Head | None]
    asserting: re.Pattern[str]
    """The words of a chain that make it an assertion, joined by dots."""
    skipping: re.Pattern[str]
    """The words of a call that skips the test it is in."""
    parse_call: Callable[[SourceTree, Sequence[Link], int], Assertion | None] | None = None
    """Parses assertions in a form that only this language has."""
    file_skips: re.Pattern[str] | None = None
    loops: frozenset[str] = frozenset()
    """The words of calls that repeat their body."""
    failing: re.Pattern[str] = re.compile(r"\b(?:throw|raise|fail)\b")
    """What may fail a test without an assertion."""


def read_tree(text: str, path: str, language: TreeLanguage) -> ParsedTestFile | None:
    """None if it is nested too deeply."""
    try:
        return _read(SourceTree(text, path, language.query), text, language)
    except (RecursionError, MemoryError):
        return None


def _read(tree: SourceTree, text: str, language: TreeLanguage) -> ParsedTestFile:
    heads = [head for node in tree.heads if (head := language.find_head(tree, node))]
    heads.sort(key=lambda head: (head.span[0], -head.span[1]))
    reading = ParsedTestFile(text=text, focused=tuple(head.name for head in heads if head.focused))
    groups = [_TestGroup("", _find_file_skips(text, language), len(tree.data) + 1)]
    numbers, room = Counter[str](), 8 * len(tree.data)
    for head in heads:
        while groups[-1].end <= head.node.start_byte:
            groups.pop()
        name = f"{groups[-1].owner}{shorten(head.name, 80)}"
        skips = {**groups[-1].skips, **{key: f"{name}: {what}" for key, what in head.skips.items()}}
        if head.kind == "group":
            groups.append(_TestGroup(f"{name} > ", skips, head.span[1]))
            continue
        room -= head.span[1] - head.span[0]
        test = _build_test(tree, language, head, groups[-1].owner, skips, readable=room > 0)
        _add_test(reading, head, test, numbers)
    return reading


def _add_test(reading: ParsedTestFile, head: Head, test: Test, numbers: Counter[str]) -> None:
    if head.kind == "function":
        reading.beside[head.name] = test
        return
    numbers[test.name] += 1
    test.number = numbers[test.name]
    reading.tests[test.name] = test


class _TestGroup(Struct, frozen=True):
    """What the tests up to `end` have in common: the prefix of their names, and the skips of them all."""

    owner: str
    skips: dict[str, str]
    end: int


def _find_file_skips(text: str, language: TreeLanguage) -> dict[str, str]:
    found = language.file_skips.search(text[:4000]) if language.file_skips else None
    return {" ".join(found[0].split()): f"the file: {shorten(found[0])}"} if found else {}


def _build_test(
    tree: SourceTree, language: TreeLanguage, head: Head, owner: str, skips: dict[str, str], *, readable: bool
) -> Test:
    """Deeply nested tests would be read again at each level, so beyond a limit only their names are kept."""
    if not readable:
        return Test(owner, head.name, (), build_unknown_body, skips, head.cases)
    shown = shorten(f"{owner}{head.name}")
    lines = tree.list_lines(*head.span)
    return Test(owner, head.name, lines, lambda: _read_body(tree, language, head, shown), skips, head.cases)


_LOOP = re.compile(r"\b(?:for|foreach|forEach|each|while)\b|\bt\.Run\(")


def _read_body(tree: SourceTree, language: TreeLanguage, head: Head, shown: str) -> Body:
    reader = _BodyReader(tree, language, shown)
    if head.body is not None:
        reader.read(head.body)
        reader.start(head.body)
    reader.body.checks += head.checks
    reader.body.doubts += head.doubts
    return reader.body


class _BodyReader:
    """Collects the assertions, calls and skips of a test."""

    def __init__(self, tree: SourceTree, language: TreeLanguage, name: str) -> None:
        self.tree, self.language, self.name = tree, language, name
        self.body = Body()

    def start(self, body: Node) -> None:
        statements = _list_statements(body)
        self.body.empty = not statements and not self.body.checks
        first = statements[0] if statements else None
        # Kotlin, Ruby: a short function may consist of a single `return x`.
        if (
            first is not None
            and _RETURN.match(self.tree.get_text(first))
            and (len(statements) > 1 or len(self.tree.get_text(first)) < 8)
        ):
            self.body.skips["return"] = f"{self.name}: returns at once"

    def read(self, body: Node) -> None:
        text = self.tree.code[body.start_byte : body.end_byte].decode("utf-8", "replace")
        self.body.loops = _LOOP.search(text) is not None
        self.body.doubts += [found[0].strip() for found in self.language.failing.finditer(text)]
        for node in self.tree.list_calls(body):
            if links := unroll_chain(self.tree, node, self.language.split):
                self._take(links)

    def _take(self, links: Sequence[Link]) -> None:
        dotted = ".".join(link.name for link in links)
        if self.language.skipping.search(dotted):
            add_skip(self.body.skips, dotted, f"{self.name}: {shorten(self.tree.get_text(links[-1].node))}")
            return
        found = [dotted.count(".", 0, match.start() + 1) for match in self.language.asserting.finditer(dotted)]
        checks = [self._parse(links, index) for index in found]
        self.body.checks += [check for check in checks if check]
        if not found and links[-1].arguments is not None:
            self._add_call(links)
            self._doubt(links, dotted)

    def _parse(self, links: Sequence[Link], index: int) -> Assertion | None:
        if self.language.parse_call:
            return self.language.parse_call(self.tree, links, index)
        return parse_claim(build_claim(self.tree, links, index))

    def _add_call(self, links: Sequence[Link]) -> None:
        """Methods of other objects are the code under test, or its setup."""
        last = links[-1]
        asserts = _ASSERTING.match(last.name) is not None and _is_statement(last.node)
        if asserts or len(links) == 1 or (len(links) == 2 and links[0].name in _OURS):
            said = partial(_convert_call, self.tree, last)
            self.body.calls.append(CallSite(last.name, said, 1, asserts))

    def _doubt(self, links: Sequence[Link], dotted: str) -> None:
        given = [one for link in links for one in link.arguments or ()]
        has_subject = not all(one.type in _FUNCTIONS or is_constant(self.tree.get_text(one)) for one in given)
        if _is_statement(links[-1].node) and may_check(dotted, has_subject=has_subject):
            self.body.doubts.append(dotted)


_FUNCTIONS = {"arrow_function", "function_expression", "func_literal", "closure_expression", "lambda_literal", "lambda"}
_RETURN = re.compile(r"return\b")
_OURS = {"this", "self", "static", "Self", "super"}
_ASSERTING = re.compile(r"_?(?:assert|check|verify|expect|should|must)(?:_|[A-Z]|$)")


def _list_statements(body: Node) -> list[Node]:
    found = [one for one in body.named_children if not one.is_extra]
    inner = found[0] if len(found) == 1 else None
    return _list_statements(inner) if inner is not None and inner.type in _WRAPPING else found


_WRAPPING = {"statement_list", "block", "body_statement", "block_body", "statements"}


def _is_statement(node: Node) -> bool:
    """Whether the result of a call is unused: then the call is there to fail."""
    parent = node.parent
    while parent is not None and parent.type in ("await_expression", "try_expression", "arguments"):
        if parent.type == "arguments":
            return False
        parent = parent.parent
    return parent is not None and parent.type in _STATEMENTS


_STATEMENTS = {"expression_statement", "block", "body_statement", "block_body", "statement_list", "statements"}


def _convert_call(tree: SourceTree, link: Link, weight: int) -> Assertion:
    """The call of a function that contains assertions."""
    subjects = find_subjects(tree.get_text(one) for one in (link.arguments or ())[:2])
    return Assertion(tree.get_text(link.node), subjects, EXACT, weight)


def build_claim(tree: SourceTree, links: Sequence[Link], index: int) -> Claim:
    """Uses the links from the asserting one on: its arguments, or the object it is called on, are the subject."""
    part = links[index:]
    calls = [at for at, link in enumerate(part) if link.arguments is not None]
    opening = calls[0] if calls else len(part) - 1
    last = (part[calls[-1]].arguments if calls else None) or ()
    first = part[opening].arguments or ()
    # In `Assert::assertSame(…)` the part before the name is only its class.
    chained = index > 0 and _SAID_OF.match(part[0].name) is not None
    subject = part[0].receiver if chained else None
    return Claim(
        text=tree.get_text(links[-1].node)[:2000],
        words=[link.name for link in part],
        first=[tree.get_text(subject)] if subject is not None else [tree.get_text(one) for one in first],
        last=[tree.get_text(one) for one in last],
        chained=chained or len(part) > opening + 1,
        structured=bool(last) and _count_values(last[-1]) > 1,
    )


_SAID_OF = re.compile(r"should|must_|wont_|expect")


def _count_values(node: Node) -> int:
    kinds = ("object", "array", "hash", "array_creation_expression", "composite_literal", "argument")
    if node.type == "argument" and node.named_child_count == 1:
        return _count_values(node.named_children[0])
    return node.named_child_count if node.type in kinds else 1
