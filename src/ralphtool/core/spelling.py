"""Words that were mistyped: the one that was probably meant."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


def find_nearest(wrong: str, right: "Iterable[str]") -> str | None:
    """The word that looks most like it, whatever its case; of equal ones the first. A monster is near to nothing."""
    import difflib  # slow to import, and only needed where something is wrong

    by_lower: dict[str, str] = {}
    for one in right:
        by_lower.setdefault(one.lower(), one)
    found = difflib.get_close_matches(wrong[:80].lower(), by_lower, n=1)
    return by_lower[found[0]] if found else None


def suggest(wrong: str, right: "Iterable[str]", otherwise: str = "") -> str:
    """What a message says behind its colon: the word that is near, else the other text."""
    near = find_nearest(wrong, right)
    return f"did you mean {near}?" if near else otherwise
