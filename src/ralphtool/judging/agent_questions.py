"""The question that an agent asks at the end of its final message, and whether two questions are the same."""

from __future__ import annotations

import re

_LONGEST = 20_000  # characters read from the end of a message
_SHOWN = 2000  # characters of a question, with its choices
_LONGEST_CLOSING = 160
_SAME = 0.6  # the share of the shorter question's words that must be in both

_PROMISE = re.compile(r"^\s*<promise>[^\n]*$", re.MULTILINE)
_FENCED = re.compile(r"^\s*(`{3,}|~{3,})[^\n]*\n.*?^\s*\1[^\n]*$", re.MULTILINE | re.DOTALL)
_PARAGRAPH = re.compile(r"\n[ \t]*\n")
_SENTENCE = re.compile(r"(?<=[.!?\uff1f\u061f])[\"')*_`]*\s+|\n")
_ITEM = re.compile(r"\s*(?:[-*+•]|\(?\w[.)])\s")
_MARKS = " \t\"'*_`)]}>"
# A request is a question without a question mark.
_REQUEST = re.compile(
    r"\b(?:please|kindly|you need to|could you|i need you to) (?:\w+ ){0,2}"
    r"(?:tell|specify|clarify|confirm|decide|choose|pick|say|name|provide|advise|let me know (?:which|what|how))\b"
    r"|\bi need (?:a|your|the) (?:\w+ )?(?:decision|answer|input|choice|clarification|confirmation)\b"
    r"|\b(?:needs?|requires?|waiting for|awaiting) (?:a|your) (?:\w+ )?(?:decision|answer|input|choice)\b",
    re.IGNORECASE,
)
# Polite phrases around a question, or without one.
_CLOSING = re.compile(
    r"\W*(?:please )?(?:let me know|tell me|once (?:i|you)|i(?:'ll| will| can) |as soon as|waiting|thanks|thank you)\b",
    re.IGNORECASE,
)
_DETAIL = re.compile(r"\b(?:which|what|whether|where|who|how)\b", re.IGNORECASE)
_OFFER = re.compile(
    r"\W*(?:(?:would you like|do you want|want) me to|(?:shall|should|may|can) i)\b(?!.*\bor\b).*"
    r"\b(?:continue|proceed|go on|go ahead|keep going|try again|retry|finish|commit|do (?:it|that|this|so|more))\b"
    r"|\W*(?:is there )?anything else\b|\W*(?:do you have )?any (?:other |more |further )?questions\b"
    r"|\W*(?:does|do|is) (?:that|this|it|these) (?:help|work|look|sound|ok|okay|all right|clear|make sense)\b"
    r"|\W*how can i help\b|\W*what (?:would you like|do you want) me to do\b(?: next)?\W*$",
    re.IGNORECASE,
)


def find_question(message: str) -> str:
    """The question at the end of a message, with the choices below it; empty if it asks for no decision."""
    text = _PROMISE.sub("", _FENCED.sub("", message[-_LONGEST:].replace("\r\n", "\n")))
    below: list[str] = []
    for paragraph in reversed([one.strip() for one in _PARAGRAPH.split(text) if one.strip()]):
        if _list_asking(paragraph):
            return "\n\n".join([paragraph, *below])[-_SHOWN:]
        if not (_is_list(paragraph) or _is_closing(paragraph)):
            return ""
        below[:0] = [paragraph] if _is_list(paragraph) else []
    return ""


def is_same_question(one: str, other: str) -> bool:
    """Whether two questions ask the same thing, even in different words."""
    from ralphtool.memory import tokens, word_frequency  # they read a table

    asked, again = (" ".join(_list_asking(text)) or text for text in (one, other))
    if tokens.split_plain_words(asked) == tokens.split_plain_words(again):
        return True
    left, right = set(tokens.split_tokens(asked)), set(tokens.split_tokens(again))
    said = min(sum(map(word_frequency.find_weight, words)) for words in (left, right))
    return said > 0 and sum(map(word_frequency.find_weight, left & right)) / said >= _SAME


def _list_asking(text: str) -> list[str]:
    """The sentences that ask for something."""
    return [one for one in map(str.strip, _SENTENCE.split(text)) if _asks(one)]


def _asks(sentence: str) -> bool:
    is_question = sentence.rstrip(_MARKS).endswith(("?", "\uff1f", "\u061f"))
    return (is_question or _REQUEST.search(sentence) is not None) and not _OFFER.match(sentence)


def _is_list(paragraph: str) -> bool:
    return all(_ITEM.match(line) for line in paragraph.splitlines())


def _is_closing(paragraph: str) -> bool:
    is_short = len(paragraph) <= _LONGEST_CLOSING and not _DETAIL.search(paragraph)
    is_offer = all(_OFFER.match(one) for one in _SENTENCE.split(paragraph) if one.strip())
    return (is_short and _CLOSING.match(paragraph) is not None) or is_offer
