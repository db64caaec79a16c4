"""The texts of people to agents: answers, guidance, reasons."""

from __future__ import annotations

from ralphtool.errors import InvalidValue

LONGEST = 16_000  # characters of an answer, or of any other text from a person to an agent


def check_text(text: str) -> str:
    """A text from a person to an agent, cleaned and checked."""
    told = text.encode("utf-8", "replace").decode().replace("\0", "").strip()
    if not told:
        raise InvalidValue("the text is empty: say what the agent should know or do")
    if len(told) > LONGEST:
        raise InvalidValue(
            f"the text is too long ({len(told)} characters; the maximum is {LONGEST}): name a file instead"
        )
    return told
