"""Steering commands and answers during a run: recorded as events within a second, applied between iterations.

While an agent works, the change state is not written: a command is only recorded then. Its immediate effects (stop,
leave the story) can be queried here.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from ralphtool.core import sender
from ralphtool.errors import shorten
from ralphtool.loop.unread import UnreadGuidance
from ralphtool.record import events, questions, steering

if TYPE_CHECKING:
    from ralphtool.loop.change import Change
    from ralphtool.record.log import Log
    from ralphtool.record.steering import SteeringCommand

_BETWEEN = 0.3  # seconds between two looks


class Listener:
    def __init__(self, change: Change, log: Log) -> None:
        self._change = change
        self._log = log
        self._pending: dict[str, SteeringCommand] = {}  # not yet applied
        self._postponed: set[str] = set()  # for the next run
        self._unread = UnreadGuidance()
        self._answers: dict[str, int] = {}  # the recorded version of each answer
        self._last_look = 0.0
        self.is_stopped = False
        self.stops_after = False  # the current iteration

    def listen(self) -> None:
        """Looks for new steering commands and answers. Cheap enough to call all the time."""
        now = time.monotonic()
        if now - self._last_look < _BETWEEN:
            return
        self._last_look = now
        for said in steering.list_pending(self._change.root, self._change.name, self._pending.keys() | self._postponed):
            self._receive(said)
        self._look_for_answers()

    def _receive(self, said: SteeringCommand) -> None:
        is_applied = said.id in self._change.change_state.heeded
        if said.action in steering.JUDGEMENTS and not is_applied and not sender.is_outside(said.sender, said.action):
            self._refuse(said)
            return
        self._pending[said.id] = said
        if is_applied and said.action in steering.JUDGEMENTS:
            self._record_earlier(said)
        if is_applied or said.run not in (None, self._change.run):
            return  # it was for a run that has ended
        self.is_stopped = self.is_stopped or said.action == "stop"
        self.stops_after = self.stops_after or said.action == "stop-after"
        self._record(said)

    def _record(self, said: SteeringCommand) -> None:
        self._log.add(events.Steered(action=said.action, story=said.story, text=said.text, by=said.by, via=said.via))

    def _record_earlier(self, said: SteeringCommand) -> None:
        """Records a decision that a person made between two runs in the later one."""
        self._record(said)
        state = self._change.change_state.stories.get(said.story or "")
        if said.action == "accept" and state and state.proof and state.proof.state == "accepted":
            self._log.note(events.Proof(story=said.story or "", entry=state.entry or "", receipt=state.proof))

    def _refuse(self, said: SteeringCommand) -> None:
        """An agent can write such a file too: only a command that waits for a reply, outside the run, is trusted."""
        self._postponed.add(said.id)
        steering.remove_applied(self._change.root, self._change.name, [said.id])
        what = f"{said.action} for story {shorten(said.story or '')}"
        text = f"ignored {what}: no running command of yours sent it. If it was you, run the command again"
        self._log.note(events.Notice(text=text))

    def _look_for_answers(self) -> None:
        for id, state in self._change.change_state.stories.items():
            asked = state.question if state.status != "completed" else None  # a done story needs a decision
            path = questions.path_of(self._change.root, asked.name) if asked else ""
            version = _version(path) if path else 0
            if version and self._answers.get(path) != version:
                self._answers[path] = version
                told, via = questions.read_answer_and_via(path)
                if told:
                    self._change.answers[id] = told
                    prd_id = os.path.basename(path).removesuffix(".md")
                    self._log.add(events.Answered(story=id, prd_id=prd_id, text=told, via=via))

    def is_skipped(self, story: str) -> bool:
        """Whether a person has skipped this story, or accepted an attempt at it."""
        deciding = ("skip", "retry", "accept")
        last = [one.action for one in self._pending.values() if one.story == story and one.action in deciding]
        return last[-1:] in (["skip"], ["accept"])

    @property
    def has_pending(self) -> bool:
        return bool(self._pending)

    def mark_read(self, story: str) -> None:
        """The guidance is in a prompt for this story."""
        self._unread.mark_read(story)

    def apply(self, *, is_over: bool = False) -> None:
        """Applies the new steering commands. Must not be called while an agent works."""
        self._last_look = 0.0
        self.listen()
        if self._pending:
            new = [one for one in self._pending.values() if one.id not in self._change.change_state.heeded]
            self._postponed |= set(self._change.apply(list(self._pending.values())))
            self._unread.add(new)
            self._pending = {}
        self._tell_unread(is_over=is_over)
        self.report()

    def report(self) -> None:
        """Records the effects of a person's commands and edits."""
        for event in self._change.drain_events():
            self._log.note(event)
        for text in self._change.drain_notices():
            self._log.note(events.Notice(text=text))

    def _tell_unread(self, *, is_over: bool) -> None:
        """Guidance that arrives during the last attempt leads to a notice that no other attempt will read it."""
        if not self._unread.is_empty:
            outlooks, flag = self._change.list_outlooks(), self._change.change_flag()
            self._change.notices += self._unread.drain(outlooks, flag, is_over=is_over)


def _version(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0
