"""Changes to the files of a spec beyond ticking the boxes of the story."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from ralphtool.judging.guard.model import GuardFinding, shorten
from ralphtool.specs import Story

_BOX = re.compile(r"(?P<head>\s*(?:[-*+]|[0-9]{1,9}[.)])\s*\[)(?P<mark>[^\[\]]{0,8})\](?P<text>.*)\Z", re.DOTALL)


def inspect_spec(
    before: Mapping[str, bytes | None],
    after: Mapping[str, bytes | None],
    old: Sequence[Story],
    new: Sequence[Story],
    story_id: str,
    *,
    done_key: str | None = None,
) -> list[GuardFinding]:
    """Finds changes to the files of a spec beyond ticking boxes of the story.

    `old` and `new` are the stories as the adapter reads them; empty if it no longer can. A JSON format has a
    `done_key`, which marks a story as done; the agent must not set it.
    """
    ticks = _Ticks(old, new, story_id)
    found: list[GuardFinding] = []
    for path in sorted(before.keys() | after.keys()):
        one, other = before.get(path), after.get(path)
        if one == other:
            continue
        if one is None or other is None:
            found.append(GuardFinding("spec-edited", path, "the file was added" if one is None else "the file is gone"))
        elif done_key and path.endswith(".json"):
            found += _look_at_json(path, one, other, done_key)
        else:
            found += _inspect_boxes(path, one, other, ticks)
    return found


class _Ticks:
    """The tasks that became done, to be matched with the lines that were ticked."""

    def __init__(self, old: Sequence[Story], new: Sequence[Story], story_id: str) -> None:
        self.story_id = story_id
        open_before = {(story.id, task.id) for story in old for task in story.tasks if not task.done}
        self.by_text: dict[str, list[tuple[str, str]]] = {}
        self.by_id: dict[str, list[tuple[str, str]]] = {}
        self.all: list[tuple[str, str]] = []
        self.claimed: set[tuple[str, str]] = set()
        for story in reversed(new):
            for task in reversed(story.tasks):
                if task.done and (key := (story.id, task.id)) in open_before:
                    self.by_text.setdefault(_normalize(task.text.partition("\n")[0]), []).append(key)
                    self.by_id.setdefault(task.id, []).append(key)
                    self.all.append(key)

    def claim(self, text: str) -> tuple[str, str] | None:
        """The story and task of a ticked line. Ids and tags may precede the text."""
        words = _normalize(text).split(" ")
        tails = (" ".join(words[start:]) for start in range(min(len(words), 8)))
        return self._first(self.by_text.get(tail, []) for tail in tails)

    def claim_any(self, text: str) -> tuple[str, str] | None:
        """For texts from which the adapter removes marks: the task whose id occurs there, else the next one."""
        words = re.findall(r"[\w.#-]+", text[:500])
        return self._first([*(self.by_id.get(word, []) for word in words), self.all])

    def _first(self, lists: Iterable[list[tuple[str, str]]]) -> tuple[str, str] | None:
        for keys in lists:
            while keys:
                if (key := keys.pop()) not in self.claimed:
                    self.claimed.add(key)
                    return key
        return None


def _normalize(text: str) -> str:
    return " ".join(text.split())


def _inspect_boxes(path: str, one: bytes, other: bytes, ticks: _Ticks) -> list[GuardFinding]:
    old, new = (data.decode("utf-8", "backslashreplace").split("\n") for data in (one, other))
    found: list[GuardFinding] = []
    ticked: list[tuple[int, str]] = []
    for number, (before, after) in enumerate(zip(old, new, strict=False), 1):
        if before == after:
            continue
        change = _compare_boxes(before, after)
        if change is None:
            return [*found, *_check_claims(path, ticked, ticks), _build_edit_finding(path, number, after)]
        if change == "ticked":
            ticked.append((number, after))
        else:
            found.append(GuardFinding("unticked", path, f"line {number}: {shorten(after)}"))
    found += _check_claims(path, ticked, ticks)
    if len(old) != len(new):
        number = min(len(old), len(new)) + 1
        found.append(_build_edit_finding(path, number, new[number - 1] if len(new) >= number else "cut off"))
    return found


def _build_edit_finding(path: str, number: int, line: str) -> GuardFinding:
    return GuardFinding("spec-edited", path, f"line {number}: {shorten(line)}")


def _compare_boxes(before: str, after: str) -> Literal["ticked", "unticked"] | None:
    one, other = _BOX.match(before), _BOX.match(after)
    if one is None or other is None or one["head"] != other["head"]:
        return None
    was, now = one["mark"].strip() in ("x", "X"), other["mark"].strip() in ("x", "X")
    # Ticking `[ ](a)` needs a space after the box, otherwise it would be a link.
    same = other["text"] in (one["text"], f" {one['text']}" if one["text"][:1] in ("(", "[") else one["text"])
    if was == now or not same:
        return None
    return "unticked" if was else "ticked" if other["mark"] in ("x", "X") else None


def _check_claims(path: str, ticked: Sequence[tuple[int, str]], ticks: _Ticks) -> list[GuardFinding]:
    texts = [(number, line, line.partition("]")[2]) for number, line in ticked]
    claims = [ticks.claim(text) for _, _, text in texts]
    claims = [claim or ticks.claim_any(text) for claim, (_, _, text) in zip(claims, texts, strict=True)]
    found = []
    for claim, (number, line, _) in zip(claims, texts, strict=True):
        if claim is None:
            found.append(_build_edit_finding(path, number, line))
        elif claim[0] != ticks.story_id:
            detail = f"story {shorten(claim[0], 40)}, line {number}: {shorten(line)}"
            found.append(GuardFinding("other-story-ticked", path, detail))
    return found


def _look_at_json(path: str, one: bytes, other: bytes, key: str) -> list[GuardFinding]:
    old, new = _done_in(one, key), _done_in(other, key)
    found = []
    for story, is_done in new.items():
        if is_done and not old.get(story, False):
            found.append(GuardFinding("passes-flipped", path, f"{shorten(story)}: {key} is now true"))
        elif not is_done and old.get(story, False):
            found.append(GuardFinding("unticked", path, f"{shorten(story)}: {key} was true"))
    flag = re.compile(rb'("%s"\s*+:\s*+)(?:true|false)' % re.escape(key.encode()))
    if not found or flag.sub(rb"\1", one) != flag.sub(rb"\1", other):
        lines = (data.decode("utf-8", "backslashreplace").split("\n") for data in (one, other))
        pairs = enumerate(zip(*lines, strict=False), 1)
        number, line = next(((number, after) for number, (before, after) in pairs if before != after), (0, "its end"))
        found.append(
            _build_edit_finding(path, number, line) if number else GuardFinding("spec-edited", path, "its end")
        )
    return found


def _done_in(data: bytes, key: str) -> dict[str, bool]:
    """The value of the key everywhere in the document: by the id of the story, else by its place."""
    try:
        waiting: list[Any] = [json.loads(data.decode("utf-8-sig", "replace"))]
    except (ValueError, RecursionError):
        return {}
    found: dict[str, bool] = {}
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict) and key in one:
            name = f"story {one['id']}" if isinstance(one.get("id"), str | int) else f"story {len(found) + 1}"
            found[name] = one[key] is True or found.get(name, False)
        waiting += one.values() if isinstance(one, dict) else one if isinstance(one, list) else []
    return found
