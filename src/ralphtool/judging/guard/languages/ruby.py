"""Ruby: RSpec, Minitest, Test::Unit."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ralphtool.judging.guard.assertions import Claim, parse_claim
from ralphtool.judging.guard.languages.annotated import FunctionHeads
from ralphtool.judging.guard.model import Assertion
from ralphtool.judging.guard.source_tree import Link, SourceTree, list_arguments, unroll_chain
from ralphtool.judging.guard.tree_reader import Head, TreeLanguage, build_claim

if TYPE_CHECKING:
    from tree_sitter import Node

_METHODS = FunctionHeads(named=re.compile(r"test_"))
_WORDS = re.compile(
    r"[xf]?(?:it|its|specify|example|test|property|should|describe|context|feature|scenario)|pending|skip"
)
_GROUP = re.compile(r"describe|context|feature")
_OFF = re.compile(r":(?:skip|pending)\b|\b(?:skip|pending):\s*(?!false|nil)")
_FOCUS = re.compile(r":focus\b|\bfocus:")
_MATCHING = {"to", "to_not", "not_to", "should", "should_not"}


def _split_link(tree: SourceTree, node: Node) -> Link | None:
    if node.type == "call":
        name, given = node.child_by_field_name("method"), list_arguments(node.child_by_field_name("arguments"))
        block = node.child_by_field_name("block")
        arguments = [*given, *([block] if block is not None else [])]
        return Link(node.child_by_field_name("receiver"), tree.get_text(name) if name else "", arguments, node)
    known = node.type in ("identifier", "constant", "self", "instance_variable")
    return Link(None, tree.get_text(node), None, node) if known else None


def _find_head(tree: SourceTree, node: Node) -> Head | None:
    if node.type == "call":
        return _find_block(tree, node)
    return _METHODS.build(tree, node, "", node.start_byte, is_group=node.type != "method")


def _find_block(tree: SourceTree, node: Node) -> Head | None:
    name, receiver = node.child_by_field_name("method"), node.child_by_field_name("receiver")
    word = tree.get_text(name) if name is not None else ""
    if not _WORDS.fullmatch(word) or (receiver is not None and tree.get_text(receiver) != "RSpec"):
        return None
    given, block = list_arguments(node.child_by_field_name("arguments")), node.child_by_field_name("block")
    is_test = not _GROUP.search(word)
    if block is None and (not is_test or word in ("skip", "pending") or not given or given[0].type != "string"):
        return None
    shown = tree.get_text(given[0]).strip("\"'") if given else tree.get_text(node)
    said = " ".join(tree.get_text(one) for one in given[1:])
    off = word.startswith("x") or word in ("pending", "skip") or bool(_OFF.search(said)) or block is None
    return Head(
        shown[:200],
        node,
        kind="test" if is_test else "group",
        body=block,
        skips={"skip": word} if off else {},
        focused=word in ("fit", "fdescribe", "fcontext") or bool(_FOCUS.search(said)),
    )


def _parse_call(tree: SourceTree, links: Sequence[Link], index: int) -> Assertion | None:
    claim = build_claim(tree, links, index)
    arguments = links[-1].arguments
    if claim.words[-1] in _MATCHING and arguments:
        claim = _take_matcher(tree, claim, arguments[0])
    elif claim.words[-1].startswith(("must_", "wont_", "assert_not", "refute")):
        claim = replace(claim, words=[*claim.words, claim.words[-1].replace("wont_", "not_")])
    return parse_claim(claim)


def _take_matcher(tree: SourceTree, claim: Claim, matcher: Node) -> Claim:
    """`expect(x).to eq 3`: here the matcher is an argument."""
    links = unroll_chain(tree, matcher, _split_link)
    words = [links[0].name] if links else [tree.get_text(matcher)]
    last = [tree.get_text(one) for one in (links[0].arguments or ())] if links else []
    return replace(claim, words=[*claim.words, *words], last=last, chained=True)


LANGUAGE = TreeLanguage(
    query="""
        (comment) @comment (call) @call @head ((identifier) @call (#any-of? @call "skip" "pending"))
        [(if) (if_modifier)] @condition [(method) (singleton_method) (class) (module)] @head
    """,
    split=_split_link,
    find_head=_find_head,
    asserting=re.compile(
        r"\A(?:(?:assert|refute)\w*[?!]?|expect|is_expected)(?=\Z|\.)|(?<=\.)(?:(?:must|wont)_\w+|should(?:_not)?)(?=\Z|\.)"
    ),
    skipping=re.compile(r"\A(?:skip|pending|omit)\Z"),
    parse_call=_parse_call,
)
