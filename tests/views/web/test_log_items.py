"""The log of the page: forward in pieces and backward in pages, it is the same, whatever is in the record."""

from __future__ import annotations

import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from ralphtool.views.web import log_items
from ralphtool.views.web.log_items import Item


def write_record(path: Path, texts: list[str]) -> Path:
    lines = [
        json.dumps({"at": "2026-03-01T22:00:00.000000Z", "type": kind, **fields}, ensure_ascii=False)
        for text in texts
        for kind, fields in (
            ("agent", {"event": {"kind": "message", "text": text}, "iteration": 1, "story": str(len(text) % 2)}),
            ("unknown", {"text": text}),
        )
    ]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", errors="replace")
    return path


def read_forward(path: Path, start: int = 0) -> list[Item]:
    found, place = [], start
    while True:
        batch = log_items.read_batch(str(path), place, {})
        found += batch.items
        if batch.end == place:
            return found
        place = batch.end


def read_back(path: Path, end: int, most: int, story: str = "") -> list[Item]:
    found: list[Item] = []
    while end:
        items, before = log_items.read_before(str(path), end, most, story, {})
        assert len(items) <= most
        assert before < end, "each look goes further back"
        found, end = items + found, before
    return found


@given(texts=st.lists(st.text(max_size=40), max_size=60), most=st.integers(1, 50))
def test_back_and_forth_it_is_the_same(tmp_path_factory: object, texts: list[str], most: int) -> None:
    path = write_record(Path(tmp_path_factory.mktemp("log")) / "events.jsonl", texts)  # type: ignore[attr-defined]
    whole = read_forward(path)
    assert len(whole) == len(texts)
    assert read_back(path, path.stat().st_size, most) == whole
    for story in ("0", "1"):
        assert read_back(path, path.stat().st_size, most, story) == [one for one in whole if one[3] == story]


def test_lines_longer_than_a_block_are_neither_lost_nor_read_twice(tmp_path: Path) -> None:
    texts = ["short", "x" * 500_000, "middle", "y" * 300_000, "z" * 10, "w" * 900_000]
    path = write_record(tmp_path / "events.jsonl", texts)
    whole = read_forward(path)
    assert [one[4][0] for one in whole] == ["s", "x", "m", "y", "z", "w"]
    assert read_back(path, path.stat().st_size, 1) == whole
    for place in range(1, path.stat().st_size, 70_001):
        start = log_items.find_line(str(path), place)
        assert read_back(path, start, 3) + read_forward(path, start) == whole


def test_a_line_that_is_still_being_written_is_read_when_it_is_whole(tmp_path: Path) -> None:
    path = write_record(tmp_path / "events.jsonl", ["one", "two"])
    data = path.read_bytes()
    path.write_bytes(data[:-5])
    batch = log_items.read_batch(str(path), 0, {})
    assert batch.end < len(data) - 5
    path.write_bytes(data)
    assert batch.items + read_forward(path, batch.end) == read_forward(path)
