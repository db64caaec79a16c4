"""Text with styled pieces, as a plain value: all views describe events, but only a terminal draws them.

`rich.text.Text.assemble(*line)` turns it into a drawable text.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

Piece = tuple[str, str]  # a text and its style, as rich names styles


class StyledLine(tuple[Piece, ...]):
    """Pieces in order; false if there is no text."""

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
