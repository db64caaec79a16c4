from __future__ import annotations


def splice_tests(old: bytes, new: bytes, path: str) -> bytes | None:
    return None
