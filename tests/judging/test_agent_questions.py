"""The question at the end of an agent's final message, and whether two questions are the same."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from properties import examples

from ralphtool.judging.agent_questions import find_question, is_same_question

COLOUR = "Which colour should the button have?"
PROMISE = "<promise>COMPLETE:0123</promise>"

FOUND: list[tuple[str, str]] = [
    ("", ""),
    ("All is done.", ""),
    (COLOUR, COLOUR),
    (f"I read the design.\n\n{COLOUR}", COLOUR),
    (f"I read the design.\r\n\r\n{COLOUR}\r\n", COLOUR),
    (f"The design names none. {COLOUR}", f"The design names none. {COLOUR}"),
    (f"{COLOUR} The design names none.", f"{COLOUR} The design names none."),
    (f"**{COLOUR}**", f"**{COLOUR}**"),
    (f"{COLOUR}\n\n1. Red\n2. Blue", f"{COLOUR}\n\n1. Red\n2. Blue"),
    (f"{COLOUR}\n- Red\n- Blue", f"{COLOUR}\n- Red\n- Blue"),
    (f"{COLOUR}\n\n- Red\n\n- Blue\n\nPlease let me know.", f"{COLOUR}\n\n- Red\n\n- Blue"),
    (f"{COLOUR}\n\nOnce you decide, I'll finish task 1.1.", COLOUR),
    (f"{COLOUR}\n\n```\nbutton {{ color: ??? }}\n```\n", COLOUR),
    (f"{COLOUR}\n\nShould I continue?", COLOUR),
    (f"{COLOUR}\n<promise>BLOCKED:0123:no colour</promise>", COLOUR),
    ("- Which colour?\n- Which size?", "- Which colour?\n- Which size?"),
    ("Welche Farbe soll der Knopf haben?", "Welche Farbe soll der Knopf haben?"),
    ("按钮应该是什么颜色？", "按钮应该是什么颜色？"),
    ("Please tell me which colour the button should have.", "Please tell me which colour the button should have."),
    ("I need your decision: red or blue.", "I need your decision: red or blue."),
    ("Should I continue with red or with blue?", "Should I continue with red or with blue?"),
    # A question that was answered, quoted or part of a URL does not count.
    (f"{COLOUR}\n\nThe design says blue, so I took that.", ""),
    ("The page asks:\n\n```\nWhich colour?\n```", ""),
    ("See https://example.org/search?q=colour for more.", ""),
    # A polite phrase needs no decision.
    ("Task 1.1 is not done.\n\nShould I continue?", ""),
    ("Would you like me to go ahead with the other tasks?", ""),
    ("The tests fail. Do you want me to try again?", ""),
    ("Is there anything else?", ""),
    ("Let me know.", ""),
    ("Does that look right?", ""),
    ("What would you like me to do next?", ""),
]


@pytest.mark.parametrize(("message", "question"), FOUND)
def test_the_question_at_the_end_of_a_message(message: str, question: str) -> None:
    assert find_question(message) == question


SAME: list[tuple[str, str, bool]] = [
    (COLOUR, COLOUR, True),
    ("Which colour?", "which colour", True),
    ("Which colour?", "Which colour should it be?", True),
    (COLOUR, "What colour should the button be? The design names none.", True),
    (f"I looked through the whole of the spec. {COLOUR}", f"Task 1.1 can't be done so. {COLOUR}", True),
    ("Nobody told me the colour: The design names none", "the colour was told by nobody", True),
    (f"{COLOUR}\n\n1. Red\n2. Blue", f"{COLOUR} Red, blue?", True),
    ("Should it be this or that?", "should it be this, or that?", True),
    ("Should it be this or that?", "Should it be the other?", False),
    (COLOUR, "Which port does the server listen on?", False),
    ("Which colour?", "Which size?", False),
    ("Which database: SQLite or PostgreSQL?", "Which licence goes into the header?", False),
    ("the mail server does not answer", "the licence key is expired", False),
    ("按钮应该是什么颜色？", "按钮应该是什么颜色？", True),
    ("???", "!!!", True),
    ("", "Which colour?", False),
]


@pytest.mark.parametrize(("one", "other", "is_same"), SAME)
def test_the_same_question_in_whatever_words(one: str, other: str, is_same: bool) -> None:
    assert is_same_question(one, other) is is_same
    assert is_same_question(other, one) is is_same


@settings(max_examples=examples(100), deadline=None)
@given(st.text(alphabet="aB ?.!\n-`~<>*1)promise", max_size=300))
def test_no_message_is_too_odd(message: str) -> None:
    question = find_question(message)
    assert len(question) <= 2000
    assert is_same_question(question, question)


def test_of_a_message_of_any_size_the_end_is_read() -> None:
    assert find_question("a? " * 2_000_000 + "\n\n" + COLOUR) == COLOUR
    for piece in ("?\n", "- \n\n", "```\n", "please ", "shall i ", "?)*_`"):
        find_question(piece * 500_000)
