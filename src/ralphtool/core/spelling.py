"""Suggests the word that was probably meant by a mistyped one."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


def find_nearest(wrong: str, right: "Iterable[str]") -> str | None:
    """The most similar word, ignoring case; the first of several. Only the start of a very long text is compared."""
    import difflib  # slow to import, and needed only for an error

    by_lower: dict[str, str] = {}
    for one in right:
        by_lower.setdefault(one.lower(), one)
    found = difflib.get_close_matches(wrong[:80].lower(), by_lower, n=1)
    return by_lower[found[0]] if found else None


def suggest(wrong: str, right: "Iterable[str]", otherwise: str = "") -> str:
    """The part of a message after its colon: the nearest word, else the other text."""
    near = find_nearest(wrong, right)
    return f"did you mean {near}?" if near else otherwise


def suggest_id(wrong: str, right: "Iterable[str]") -> str:
    """The same for ids of stories. Ids with other numbers look alike, but are about something else."""
    numbers = _list_numbers(wrong)
    return suggest(wrong, [one for one in right if _list_numbers(one) == numbers])


def _list_numbers(id: str) -> list[int]:
    return [int(one) for one in "".join(char if char.isdecimal() else " " for char in id[:80]).split()]
