"""Where tests begin and end in languages that are read as text: four ways of writing them."""

from __future__ import annotations

import re

from msgspec import Struct

from ralphtool.judging.guard.masked_text import Source
from ralphtool.judging.guard.model import MANY


class Head(Struct):
    """Where a test, or a group of tests, begins and ends; `before` is where its annotations begin."""

    name: str
    before: int
    start: int
    end: int
    is_test: bool = True
    skips: dict[str, str] = {}
    cases: int = 1
    focused: bool = False
    panics: str = ""
    """The annotation that makes a panic what has to happen."""


_CALLED = re.compile(
    r"(?<![\w.$>])(?P<word>[xf]?(?:it|test|describe|context)|specify|suite|(?:Deno|QUnit|t)\.test)"
    r"(?P<more>(?:\s*\.\s*\w+)*)\s*(?P<open>[(`])"
)
_MODIFIERS = {"concurrent", "sequential", "serial", "parallel", "shuffle", "each", "for", "only", "describe", "slow"}
_OFF = {"skip", "todo", "fixme", "fails", "failing", "skipIf", "runIf", "if"}
_BLANK = re.compile(r"\s*")
_ARROW = re.compile(r"=>|\bfunction\b|\bfn\b")
_SKIPPED_AFTER = re.compile(r"\s*(?:->|\.)\s*(?:skip|todo)\b")
_CLASS = re.compile(r"\b(?:class|struct|interface|object|mod|namespace|trait)\s+(?P<name>[\w.]+)")
_PROVIDED = re.compile(r"[pP]rovider|MethodSource|MemberData|ClassData|Source\b|Sources\b|arguments:|values")
_PANICS = re.compile(r"should_panic[^\]]*")
_MACRO = re.compile(
    r"\b(?:(?:TYPED_)?TEST(?:_F|_P)?\s*\(\s*(?P<group>\w+)\s*,\s*(?P<name>\w+)\s*\)"
    r"|BOOST_(?:AUTO|FIXTURE|DATA)_TEST_CASE\s*\(\s*(?P<boost>\w+)[^)\n]*\)"
    r"|(?:TEST_CASE|SCENARIO|TEST_CASE_METHOD|TEMPLATE_TEST_CASE)\s*(?P<open>\())"
)
_HIDDEN_TAG = re.compile(r'"\[[^"]*[.!]')
_BLOCK = re.compile(
    r"^(?P<indent>[ \t]*)(?:def\s+(?P<method>test_\w+[?!]?)"
    r"|(?P<word>[xf]?(?:it|specify|example|test|property|should|describe|context|feature|scenario)|RSpec\.describe|pending)\b"
    r"(?P<rest>[ (][^\n]*|\{[^\n]*)"
    r"|(?:class|module|defmodule)\s+(?P<class>[\w:.]+)[^\n]*)",
    re.MULTILINE,
)


def find_call_heads(source: Source) -> list[Head]:
    """`it("does", () => { … })` and its relatives."""
    found = []
    for match in _CALLED.finditer(source.bare):
        more = re.findall(r"\w+", match["more"])
        if set(more) - _MODIFIERS - _OFF:
            continue
        opening, cases = _skip_table(source, match.start("open"), more)
        if opening is not None and (head := _build_call_head(source, match, more, opening)):
            head.cases = cases
            found.append(head)
    return found


def _skip_table(source: Source, at: int, more: list[str]) -> tuple[int | None, int]:
    """Where the arguments begin that hold the name: after the table of `it.each([...])`, or after `skipIf(…)`."""
    if source.bare[at] == "(" and not {"each", "for", "skipIf", "runIf", "if"} & set(more):
        return at, 1
    if source.bare[at] == "`":
        literal = source.literal(at) or ""
        end, cases = at + len(literal) + 2, max(1, literal.count("\n") - 1)
    else:
        end, cases = source.end_of(at), _count_rows(source, at) if {"each", "for"} & set(more) else 1
    following = re.compile(r"\s*\(").match(source.bare, end)
    return (following.end() - 1 if following else None), cases


def _count_rows(source: Source, opening: int) -> int:
    inner = re.compile(r"\s*\[").match(source.bare, opening + 1)
    if not inner:
        return MANY
    return max(1, len(source.arguments(inner.end() - 1)))


def _build_call_head(source: Source, match: re.Match[str], more: list[str], opening: int) -> Head | None:
    end = source.end_of(opening)
    if source.mates[opening] < 0:
        return None
    arguments = source.arguments(opening)
    blank = _BLANK.match(source.bare, opening + 1)
    name = source.literal(blank.end() if blank else opening + 1)
    if name is None and (len(arguments) < 2 or not _ARROW.search(source.bare, opening, min(end, opening + 2000))):
        return None  # `test.skip(condition, "reason")` inside of a test: a skip, not a head
    word = match["word"]
    is_test = not re.search(r"describe|context|suite", word) and "describe" not in more
    after = _SKIPPED_AFTER.match(source.bare, end)
    skips = {}
    if _OFF & set(more) or after or word[0] == "x":
        skips["skip"] = f"{word}{match['more']}{after[0].strip() if after else ''}"
    elif is_test and len(arguments) == 1:
        skips["skip"] = "it has no body"
    focused = "only" in more or word in ("fit", "fdescribe", "fcontext", "ftest")
    shown = arguments[0][:200] if name is None else name
    return Head(shown, match.start(), opening, end, is_test, skips, focused=focused)


class FunctionHeads(Struct, frozen=True):
    """Functions that an annotation or their name makes tests, and the classes around them."""

    head: re.Pattern[str]
    marks: re.Pattern[str]
    """What makes a test of a function, before it or in its name."""
    cases: re.Pattern[str] | None = None

    def __call__(self, source: Source) -> list[Head]:
        starts = [(match.start(), match, True) for match in self.head.finditer(source.bare)]
        starts += [(match.start(), match, False) for match in _CLASS.finditer(source.bare)]
        found, floor = [], 0
        for at, match, is_function in sorted(starts, key=lambda one: one[0]):
            before = _find_annotations(source, at, floor)
            floor = match.end()
            if block := source.block_after(floor):
                head = Head(match["name"].strip("`"), before, *block, is_function)
                found += [head] if not is_function or self._is_test(head, source, at) else []
        return found

    def _is_test(self, head: Head, source: Source, at: int) -> bool:
        """Takes what the annotations say, if it is one; `at` is where they end."""
        said = source.text[head.before : at]
        if not self.marks.search(said) and not self.marks.search(f"name:{head.name}"):
            return False
        panics = _PANICS.search(source.code, head.before, head.start)
        head.cases, head.panics = self._cases(said), panics[0] if panics else ""
        return True

    def _cases(self, said: str) -> int:
        rows = len(self.cases.findall(said)) if self.cases else 0
        return MANY if _PROVIDED.search(said) else max(1, rows)


def _find_annotations(source: Source, at: int, floor: int) -> int:
    """Back to where the last statement or block ended; never past `floor`, so that all of it is one walk."""
    while at > floor:
        char = source.bare[at - 1]
        if char in "{};":
            break
        mate = source.mates[at - 1] if char in ")]" else -1
        at = max(floor, mate) if mate >= 0 else at - 1
    return at


def find_macro_heads(source: Source) -> list[Head]:
    """GoogleTest, Catch2, doctest, Boost."""
    found = []
    for match in _MACRO.finditer(source.bare):
        end = source.end_of(match.start("open")) if match["open"] else match.end()
        block = source.block_after(end)
        if block is None:
            continue
        told = re.search(r'"([^"\n]*)"', source.code[match.start() : min(end, match.start() + 500)])
        name = f"{match['group']}.{match['name']}" if match["name"] else match["boost"] or (told[1] if told else "")
        skips = {}
        if "DISABLED_" in name:
            skips["skip"] = "DISABLED_"
        elif told and match["open"] and _HIDDEN_TAG.search(source.code, match.start(), end):
            skips["skip"] = "a hidden tag"
        found.append(Head(name.replace("DISABLED_", ""), match.start(), *block, skips=skips))
    return found


def find_indented_heads(source: Source) -> list[Head]:
    """Ruby and Elixir: a block ends where a line is indented as little as its first."""
    found: list[Head] = []
    waiting: list[tuple[int, Head]] = []
    matches = {match.start(): match for match in _BLOCK.finditer(source.bare)}
    at, before = 0, None
    for line in source.bare.split("\n"):
        bare = line.strip()
        indent = len(line) - len(line.lstrip())
        while bare and waiting and indent <= waiting[-1][0]:
            closes = bare.startswith(("end", "}"))
            waiting.pop()[1].end = at + (len(line) if closes else 0)
        before = (at if before is None else before) if bare.startswith("@") else before
        if (match := matches.get(at)) and (head := _build_indented_head(source, match)):
            head.before = at if before is None else before
            found.append(head)
            waiting.append((indent, head))
        before = before if bare.startswith("@") else None
        at += len(line) + 1
    return found


def _build_indented_head(source: Source, match: re.Match[str]) -> Head | None:
    end, start = len(source.bare), match.end()
    if match["class"] or match["method"]:
        return Head(match["class"] or match["method"], 0, start, end, is_test=bool(match["method"]))
    word, rest = match["word"], match["rest"]
    if not re.search(r"\bdo\b|\{", rest) and word != "pending" and not rest.rstrip().endswith(("'", '"')):
        return None
    shift = len(rest) - len(rest.lstrip(" ("))
    name = source.literal(match.start("rest") + shift) or source.code[match.start("rest") : match.end()].strip()
    is_test = not re.search(r"describe|context|feature", word)
    tags = re.search(r"\bskip\b|\bpending\b|:skip\b", source.bare[match.start("rest") : match.end()])
    off = word.startswith("x") or word == "pending" or bool(tags) or (is_test and not re.search(r"\bdo\b|\{", rest))
    start = match.start("rest") if "{" in rest else start  # the body of `it { … }` is on its line
    focused = word in ("fit", "fdescribe", "fcontext") or bool(re.search(r":focus\b|\bfocus:", rest))
    return Head(name[:200], 0, start, end, is_test, {"skip": word} if off else {}, 1, focused)
