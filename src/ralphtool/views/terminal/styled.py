"""Text in which pieces have a style, as a plain value: describing needs it everywhere, drawing only in a terminal.

`rich.text.Text.assemble(*line)` makes of it what can be drawn.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

Piece = tuple[str, str]  # a text and its style, as rich names styles


class StyledLine(tuple[Piece, ...]):
    """Pieces in their order; false if there is nothing to read."""

    __slots__ = ()

    @property
    def plain(self) -> str:
        return "".join(text for text, _ in self)


def assemble(*parts: str | Piece | StyledLine) -> StyledLine:
    """One line of texts, of texts with a style, and of other lines."""
    return StyledLine(_list_pieces(parts))


def _list_pieces(parts: tuple[str | Piece | StyledLine, ...]) -> Iterator[Piece]:
    for part in parts:
        pieces = part if isinstance(part, StyledLine) else [(part, "") if isinstance(part, str) else part]
        yield from (piece for piece in pieces if piece[0])
