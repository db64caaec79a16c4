"""A run in progress: its stories on the left, its log on the right, and the keys that steer it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual.binding import Binding
from textual.containers import Horizontal, Vertical
from textual.widgets import OptionList, RichLog, Static
from textual.widgets.option_list import Option

from ralphtool.core.amounts import pluralize
from ralphtool.errors import InvalidValue, RalphError
from ralphtool.record import plan_numbers, questions, run_command, runs, steering
from ralphtool.views import project_data as data
from ralphtool.views.screen.base import ChoiceDialog, Navigate, Page, TextDialog
from ralphtool.views.screen.diff import DiffTarget
from ralphtool.views.screen.record import FollowedRun
from ralphtool.views.terminal.phrases import flatten, render_mark
from ralphtool.views.terminal.summary import describe_run_end_shortly

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual import events
    from textual.app import ComposeResult
    from textual.binding import BindingType

    from ralphtool.record.runs import RunSummary
    from ralphtool.record.steering import Action
    from ralphtool.specs import Task
    from ralphtool.views.screen.record import WatchedRun

_OFTEN = 0.25  # seconds between two reads of the record
_SOON = 0.02  # seconds between two slices of a long record
_RARELY = 3.0  # seconds between two checks that the run is alive
_MOST = 30  # activities written per read: people can't read more
_LINES = 1500  # of the log that can be scrolled back to


class WatchPage(Page, inherit_bindings=False):
    """Shows only the record; steering commands become files. The run itself is never touched."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("a", "answer", "Answer", tooltip="answer the selected story's question, or the first"),
        Binding("a", "no_answer", show=False),
        Binding("e", "result", "Result", tooltip="the result of the run, once it has ended"),
        Binding("g", "guide", "Guide", tooltip="tell the agent something about the selected story"),
        Binding("p", "pause", "Pause", tooltip="pause the run, and resume it"),
        Binding("p", "resume", "Resume"),
        Binding("x", "stop", "Stop", tooltip="stop the run, now or after this iteration"),
        Binding("t", "retry", "Retry", tooltip="give the selected story fresh attempts"),
        Binding("k", "skip", "Skip", tooltip="skip the selected story"),
        Binding("d", "diff", "Diff", tooltip="what the attempts at the selected story did"),
        Binding("f", "fold", "Fold", tooltip="show more or less of the tool results", show=False),
        *Page.BINDINGS,
    ]

    def __init__(self, root: str, run: RunSummary) -> None:
        super().__init__(root)
        self.following = FollowedRun(run)
        self._view: WatchedRun | None = None  # the one that is shown
        self._rows: list[Text] = []
        self._texts: dict[str, Text] = {}
        self._title = ""
        self._shown = 0  # the number of the last activity that was written
        self._unfolded = False
        self._is_reading_on = False
        self._is_alive = run.state in ("running", "paused")
        self._resuming = ""  # the command that resumes it, if it has died
        self._looked = time.monotonic()
        self._was_current: str | None = None
        self._keys: tuple[bool, ...] = ()
        self._pulse: tuple[int, ...] = ()
        self._asked: set[str] = set()  # the stories with unanswered questions
        self._height = 0  # of the log
        self._tasks: dict[str, Sequence[Task]] = {}  # by story

    @property
    def change(self) -> str:
        return self.following.run.change

    @property
    def subject(self) -> str:
        return self.following.run.id

    def compose_body(self) -> ComposeResult:
        with Horizontal(classes="halves"):
            yield OptionList(id="stories", markup=False)
            with Vertical(id="doings"):
                yield RichLog(id="log", wrap=True, markup=False, min_width=1, max_lines=_LINES)
                yield Static(id="now", classes="-empty", markup=False)

    def on_mount(self) -> None:
        self.query_one("#stories").border_title = "Stories"
        self.query_one("#stories").focus()
        self.set_interval(_OFTEN, self._refresh_all)
        self.call_after_refresh(self._refresh_all)

    def on_resize(self, event: events.Resize) -> None:
        self._rows = []
        self._begin_log()
        self.call_after_refresh(self._refresh_all)

    # --- showing

    def _refresh_all(self) -> None:
        if not self.is_current:
            return
        self.following.read()
        if self.following.is_behind and not self._is_reading_on:
            self._is_reading_on = True
            self.set_timer(_SOON, self._read_on)
        if self.following.view is not self._view:
            self._view = self.following.view
            self._begin_log()
        self._show_log()
        self._check_alive()
        self._check_questions()
        if self.following.may_have_changed():
            self.run_worker(self._show_current(), group="current", exclusive=True)
        self._show_head()
        self._show_stories()
        self._show_keys()

    def _read_on(self) -> None:
        """Pausing between two slices of a long record leaves time for keys."""
        self._is_reading_on = False
        self._refresh_all()

    def _check_alive(self) -> None:
        """A killed run writes no end, so its process is checked from time to time."""
        view = self.following.view
        view.is_over = view.run.end is not None or not self._is_alive
        if view.run.end:
            self._is_alive = False
        elif self._is_alive and time.monotonic() - self._looked > _RARELY:
            self._looked = time.monotonic()
            self._is_alive = runs.is_alive(self.following.run)

    def _check_questions(self) -> None:
        """A record says which questions were asked, not which of them are still open."""
        pulse = data.read_fingerprint(self.root)
        if pulse == self._pulse:
            return
        self._pulse = pulse
        self.run_worker(self._load_tasks(), exclusive=True)
        try:
            self._asked = {one.story for one in data.list_unanswered(self.root, self.change)}
        except (RalphError, OSError):
            self._asked = set()  # the reason is shown to a user who wants to answer

    async def _show_current(self) -> None:
        """The next refresh shows the stories of an ended run as they are now. On an error, the record stays."""
        show = await self.run_in_thread(self.following.find_current)
        if not isinstance(show, RalphError):
            show()

    async def _load_tasks(self) -> None:
        """A record has the number of tasks, but not their texts."""
        found = await self.run_in_thread(lambda: data.read_tasks(self.root, self.change))
        self._tasks = {} if isinstance(found, RalphError) else found  # the log says why, if the run fails too

    def _show_head(self) -> None:
        view = self.following.view
        foot = view.render_foot(self.query_one("#log").size.width) if self._is_alive else []
        self._update_text("#head", view.render_head(self.size.width - 2))
        self.show_status(self._build_status())
        self._update_text("#now", Text("\n").join(foot))
        title = view.now or "Log"
        if title != self._title:
            self._title = title
            self.query_one("#doings").border_title = Text(title)

    def _update_text(self, place: str, words: Text) -> None:
        """Updates a text only if it has changed."""
        before = self._texts.get(place, Text())
        if before != words:
            self._texts[place] = words
            shown = self.query_one(place, Static)
            shown.set_class(not words.plain, "-empty")
            shown.update(words, layout=place != "#head" or not before.plain)  # the head's height is fixed

    def _build_status(self) -> Text:
        view = self.following.view
        if view.run.end:
            return Text.assemble((describe_run_end_shortly(view.run.end), "bold"), ("  e shows the result", "dim"))
        if not self._is_alive:
            self._resuming = self._resuming or run_command.build_resuming(self.following.run)
            return Text(f"This run died. `{flatten(self._resuming)}` resumes where it stopped.", style="red")
        asked = [one for one in view.stories if one.state == "waiting"]
        if asked:
            told = f" {pluralize(len(asked), 'story needs', 'stories need')} your answer: press a to answer"
            return Text.assemble(render_mark("waiting"), (told, "yellow"))
        return Text()

    def _show_stories(self) -> None:
        view, shown = self.following.view, self.query_one("#stories", OptionList)
        width = max(10, shown.scrollable_content_region.width)
        rows = [self._render_row(view, one.id, width) for one in view.stories]
        if len(rows) != len(self._rows):
            place = shown.highlighted
            shown.set_options(Option(row) for row in rows)
            shown.highlighted = place if place is not None and place < len(rows) else 0 if rows else None
        else:
            for number, (row, before) in enumerate(zip(rows, self._rows, strict=True)):
                if row != before:
                    shown.replace_option_prompt_at_index(number, row)
        self._rows = rows
        self._follow_current(shown)

    def _render_row(self, view: WatchedRun, story: str, width: int) -> Text:
        """A story; if it is in progress, with its tasks and their ticks below."""
        tasks = self._tasks.get(story, ()) if self._is_alive else ()
        return Text("\n").join([view.render_row(story, width), *view.render_tasks(story, tasks, width)])

    def _follow_current(self, shown: OptionList) -> None:
        """The selection follows the run, unless the user has moved it."""
        stories = self.following.view.stories
        current = next((one.id for one in stories if one.is_current), None)
        if current is None or current == self._was_current:
            return
        if self._was_current is None or self._find_selected() == self._was_current:
            shown.highlighted = [one.id for one in stories].index(current)
        self._was_current = current

    def _begin_log(self) -> None:
        self._shown = 0
        self.query_one("#log", RichLog).clear()

    def _show_log(self) -> None:
        log = self.query_one("#log", RichLog)
        at_end = self._is_at_end(log)
        fresh = [one for one in self.following.view.activities if one.number > self._shown]
        if not fresh:
            return
        passed = fresh[0].number - self._shown - 1
        if self._shown and len(fresh) > _MOST:
            passed, fresh = passed + len(fresh) - _MOST, fresh[-_MOST:]
        if passed:
            more = f"{pluralize(passed, 'thing', 'things')} more; `ralphtool logs` has them all"
            log.write(Text(more, style="dim italic"), scroll_end=at_end)
        self._shown = fresh[-1].number
        if at_end:
            self.call_after_refresh(log.scroll_end, animate=False)
        for one in fresh:
            for words in one.describe(unfolded=self._unfolded):
                log.write(words, scroll_end=at_end)

    def _is_at_end(self, log: RichLog) -> bool:
        """Whether the newest lines are in view, even if the log has just become shorter."""
        lost, self._height = max(0, self._height - log.size.height), log.size.height
        at_end = not self._shown or log.scroll_y >= log.max_scroll_y - lost
        if lost and at_end:
            self.call_after_refresh(log.scroll_end, animate=False)
        return at_end

    def _show_keys(self) -> None:
        ended = self.following.view.run.end is not None
        is_at_work, is_judged = self._is_at_work(self._find_selected()), self.check_action("diff", ()) is True
        keys = (self._is_alive, self._is_paused, bool(self._waiting), ended, is_at_work, is_judged)
        if keys != self._keys:
            self._keys = keys
            self.refresh_bindings()

    # --- keys

    @property
    def _is_paused(self) -> bool:
        return self.following.view.run.is_pause_requested

    @property
    def _waiting(self) -> set[str]:
        """The stories that need an answer, including questions that a run in progress has just asked."""
        told = {one.id for one in self.following.view.stories if one.state == "waiting"} if self._is_alive else set()
        return self._asked | told

    def _is_at_work(self, story: str | None) -> bool:
        return self._is_alive and any(one.is_current and one.id == story for one in self.following.view.stories)

    def _find_selected(self) -> str | None:
        stories, place = self.following.view.stories, self.query_one("#stories", OptionList).highlighted
        return stories[place].id if place is not None and place < len(stories) else None

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action in ("stop", "pause", "resume"):
            return self._is_alive and action != ("pause" if self._is_paused else "resume")
        if action == "result":
            return not self._is_alive
        if action == "diff":
            return any(one.verdict for one in self.following.view.run.attempts)
        if action == "retry":
            return not self._is_at_work(self._find_selected())
        return action not in ("answer", "no_answer") or bool(self._waiting) == (action == "answer")

    def on_option_list_option_highlighted(self) -> None:
        self._show_keys()

    def on_option_list_option_selected(self) -> None:
        if self._find_selected() in self._waiting:
            self.action_answer()

    def action_result(self) -> None:
        self.try_action(
            lambda: self.post_message(Navigate("result", runs.read_summary(self.root, self.following.run.id)))
        )

    def action_diff(self) -> None:
        self.post_message(Navigate("diff", DiffTarget(self.change, story=self._find_selected())))

    def action_fold(self) -> None:
        self._unfolded = not self._unfolded
        self._begin_log()
        self._show_log()

    # --- steering

    def action_answer(self) -> None:
        self.try_action(lambda: self._answer(self._find_selected()))

    def _answer(self, story: str | None) -> None:
        self._check_clear(story)
        self.ask_for_answer(self.change, story)

    action_no_answer = action_answer  # which says that there is none

    def action_guide(self) -> None:
        self.try_action(lambda: self._guide(self._find_selected()))

    def _guide(self, story: str | None) -> None:
        self._check_clear(story)
        name = self.following.view.format_name(story) if story else self.change
        dialog = TextDialog(
            f"Guidance for the agent, from its next prompt on: {name}", hint="what it should know or do"
        )
        self.open_dialog(dialog, lambda text: self._send("guide", story, text))

    def action_pause(self) -> None:
        self.try_action(lambda: self._send("pause"))

    def action_resume(self) -> None:
        self.try_action(lambda: self._send("resume"))

    def action_stop(self) -> None:
        command = flatten(run_command.build(self.root, self.change))
        text = f"Nothing is lost: `{command}` resumes where it stopped."
        answers = [("y", "Stop now", "stop"), ("a", "After this iteration", "stop-after"), ("n", "Keep running", None)]
        self.open_dialog(ChoiceDialog(f"Stop the run of {self.change}?", text, answers, careful=True), self._stop)

    def _stop(self, how: str) -> None:
        self._send("stop-after" if how == "stop-after" else "stop")

    def action_retry(self) -> None:
        self.try_action(lambda: self._ask_about_story("retry", "fresh attempts"))

    def action_skip(self) -> None:
        self.try_action(lambda: self._ask_about_story("skip", "skip it"))

    def _ask_about_story(self, action: Action, what: str) -> None:
        if (story := self._find_selected()) is None:
            return
        self._check_clear(story)
        if self._is_done(story):
            raise InvalidValue(f"story {story} of {self.change} is done: there is nothing to {action}")
        title = f"{self.following.view.format_name(story)}: {what}?"
        answers = [("y", "Yes", "yes"), ("n", "No", None)]
        self.open_dialog(ChoiceDialog(title, "", answers, careful=True), lambda _: self._send(action, story))

    def _check_clear(self, story: str | None) -> None:
        """The plan may have been edited since this run: then the story can have another number now."""
        if story is None:
            return
        ref = questions.load_change_state(self.root, self.change).get("spec") or None
        plan_numbers.check_clear(self.root, self.change, ref, story)

    def _is_done(self, story: str) -> bool:
        """During a run, its record is decisive; later, other runs may have completed the story."""
        if any(one.id == story and one.state == "done" for one in self.following.view.stories):
            return True
        return not self._is_alive and data.is_done(self.root, self.change, story)

    def _send(self, action: Action, story: str | None = None, text: str = "") -> None:
        only = self.following.run.id if action in ("stop", "stop-after") else None
        steering.send(self.root, self.change, action, story, text, only)
        self.show_message(f"sent: {action}{f' {flatten(story, 40)}' if story else ''}")
