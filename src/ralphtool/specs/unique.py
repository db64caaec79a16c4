"""Makes ids unique: the second `1.1` of a file becomes `1.1-2`, with a warning."""

from ralphtool.errors import shorten


class UniqueIds:
    """The ids of one kind in one file, in order."""

    def __init__(self, path: str, what: str) -> None:
        self._path = path
        self._what = what
        self._counts: dict[str, int] = {}
        self.warnings: list[str] = []

    def claim(self, id: str) -> str:
        """The id itself, or one with a suffix if it is taken."""
        own, count = id, self._counts.get(id, 0)
        while own in self._counts:
            count += 1
            own = f"{id}-{count}"
        self._counts[id] = max(count, 1)
        self._counts.setdefault(own, 1)
        if own != id:
            self.warnings.append(
                f"{self._path}: the {self._what} id {shorten(id)} is used twice, and the second one is called {own} "
                "here: give it its own id"
            )
        return own
