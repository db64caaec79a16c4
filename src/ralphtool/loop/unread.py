"""Reports guidance from a person that no agent has read, so that nothing is lost silently."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ralphtool.record.steering import SteeringCommand

StoryOutlook = Literal["done", "waiting", "skipped", "open"]


class UnreadGuidance:
    """The guidance of this run that has not been in a prompt yet."""

    def __init__(self) -> None:
        self._commands: list[SteeringCommand] = []

    def add(self, said: Sequence[SteeringCommand]) -> None:
        for one in said:
            if one.action == "forget":
                self._commands = [each for each in self._commands if one.story not in (None, each.story)]
            elif one.action == "guide":
                self._commands.append(one)

    def mark_read(self, story: str) -> None:
        """A prompt for this story has been written."""
        self._commands = [one for one in self._commands if one.story not in (None, story)]

    @property
    def stories(self) -> list[str]:
        """The stories that the guidance is for."""
        return list(dict.fromkeys(one.story for one in self._commands if one.story is not None))

    @property
    def is_empty(self) -> bool:
        return not self._commands

    def drain(self, outlooks: Mapping[str, StoryOutlook], flag: str, *, is_over: bool) -> list[str]:
        """The notices to report now; each piece of guidance is mentioned once. `flag` names the change in commands."""
        told: list[str] = []
        for story in dict.fromkeys(one.story for one in self._commands):
            if text := explain_unread(story, outlooks, flag, is_over=is_over):
                told.append(text)
                self._commands = [one for one in self._commands if one.story != story]
        return told


def explain_unread(story: str | None, outlooks: Mapping[str, StoryOutlook], flag: str, *, is_over: bool) -> str:
    """Why no attempt gets the guidance, and what to do; empty while one may still get it."""
    if story is None:
        return _explain_unread_by_all(outlooks) if is_over else ""
    unread = f"no attempt has used your last guidance for story {story}"
    match outlooks.get(story):
        case "done":
            again = f'`ralphtool reject {story} --why "…"{flag}` reopens it'
            return f"{unread}: it is done; if that matters, {again}"
        case "waiting":
            ways = f'answer its question (`ralphtool answer {story} "…"{flag}`) or run `ralphtool retry {story}{flag}`'
            return f"{unread}, and none will until you {ways}: it is kept for that"
        case "skipped":
            return f"{unread}, and none will while it is skipped: `ralphtool retry {story}{flag}` starts one that does"
        case "open" if is_over:
            return f"{unread}: it is kept for the next run"
    return ""


def _explain_unread_by_all(outlooks: Mapping[str, StoryOutlook]) -> str:
    if all(one == "done" for one in outlooks.values()):
        return "every story is done, and no attempt has used your last guidance for all stories"
    return "no attempt has used your last guidance for all stories: it is kept for the next one"
