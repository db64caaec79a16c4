"""The issues of GitHub, read and written with the program `gh`.

A body is read again just before it is written, and only the marks of boxes are changed, so that other people's edits
are kept. Boxes are found by their text, never by their position.
"""

from ralphtool.core import config
from ralphtool.errors import InvalidValue, SpecError, shorten
from ralphtool.specs import Story, Task, issue_copy, markdown, program

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from typing import Any

    from ralphtool.specs.markdown import Box, Section
    from ralphtool.specs.tracker import DoneStory

_ADAPTER = "github"
_FIELDS = "number,title,body,state,url"
_MOST = 500
_TRIES = 3
_INSTALL = "install the GitHub CLI (https://cli.github.com), then run `gh auth login`"
_DEPENDS = ("depends on", "blocked by")


class Issue:
    """The parts of an issue that a change needs."""

    __slots__ = ("body", "is_closed", "number", "title", "url")

    def __init__(self, fields: "dict[str, Any]") -> None:
        number = fields.get("number")
        if type(number) is not int:
            raise SpecError("`gh issue` printed an issue without a number: update gh")
        self.number = str(number)
        texts = {key: fields.get(key) for key in ("title", "body", "state", "url")}
        if wrong := [key for key, value in texts.items() if value is not None and not isinstance(value, str)]:
            raise SpecError(f"`gh issue` printed an issue {number} whose {wrong[0]} is not a string: update gh")
        self.title = texts["title"] or f"Issue {number}"
        self.body = texts["body"] or ""
        self.url = texts["url"] or ""
        self.is_closed = (texts["state"] or "").upper() == "CLOSED"

    @property
    def name(self) -> str:
        return f"issue {self.number}"

    def list_sections(self) -> "list[Section]":
        return markdown.sections(self.body, self.name, is_mark=lambda mark: not mark.isalnum(), is_file=False)


# --- calling gh -------------------------------------------------------------------------------------


def find_program() -> str:
    found = program.find("gh")
    if found is None:
        raise SpecError(f"gh is not on the PATH: {_INSTALL}")
    return found


def _run_gh(project: str, *arguments: str, given: str = "", stop: "Callable[[], bool] | None" = None) -> str:
    find_program()
    repository = _read_repository(project)
    chosen = [f"--repo={repository}"] if repository else []
    return program.run(["gh", "issue", *arguments, *chosen], project, given=given, stop=stop)


def _read_repository(project: str) -> str | None:
    told = config.read_tracker(project, _ADAPTER).get("repository")
    if told is not None and (not isinstance(told, str) or not 1 <= told.count("/") <= 2 or told.startswith("-")):
        raise InvalidValue(f'{config.path_of(project)}: specs.github.repository must have the form "owner/name"')
    return told


def read_issue(project: str, number: str, stop: "Callable[[], bool]", fields: str = _FIELDS) -> "dict[str, Any]":
    command = ["view", number, f"--json={fields}"]
    [found] = program.parse_objects(_run_gh(project, *command, stop=stop), ["gh", "issue", *command])[:1] or [{}]
    return found


def _list_issues(project: str, kind: str, value: str, stop: "Callable[[], bool]") -> list[Issue]:
    """For a milestone including closed issues, which are done; for a label only open ones."""
    state = "all" if kind == "milestone" else "open"
    command = ["list", f"--{kind}={value}", f"--state={state}", f"--limit={_MOST + 1}", f"--json={_FIELDS}"]
    found = [
        Issue(one) for one in program.parse_objects(_run_gh(project, *command, stop=stop), ["gh", "issue", *command])
    ]
    if not found:
        raise SpecError(
            f"the {kind} {shorten(value)} has no{' open' if state == 'open' else ''} issues: check its name"
        )
    if len(found) > _MOST:
        raise SpecError(f"the {kind} {shorten(value)} has more than {_MOST} issues: choose a smaller one")
    return sorted(found, key=lambda issue: int(issue.number))


# --- from issues to a copy --------------------------------------------------------------------------


def download(project: str, where: str, kind: str, value: str, *, stop: "Callable[[], bool]") -> tuple[str, list[str]]:
    if kind != "issue":
        issues = _list_issues(project, kind, value, stop)
        numbers = {issue.number for issue in issues}
        stories = [_build_story(issue, numbers) for issue in issues]
        text = issue_copy.render((_ADAPTER, where), f"{kind.capitalize()} {value}", "", stories)
    else:
        issue = Issue(read_issue(project, value, stop))
        if "/pull/" in issue.url:
            raise SpecError(f"{value} is a pull request: give the number of an issue")
        stories = _build_stories(issue)
        text = issue_copy.render((_ADAPTER, where), issue.title, issue.body, stories, issue.url)
    issue_copy.check(text, f"{_ADAPTER}:{where}")
    return text, []


def _build_stories(issue: Issue) -> list[Story]:
    """Every heading with boxes is a story; an issue without boxes is one story with one task."""
    sections = [section for section in issue.list_sections() if section.boxes]
    if not sections:
        return [Story("1", issue.title, [Task("1.1", issue.title, issue.is_closed)])]
    known = [str(number) for number in range(1, len(sections) + 1)]
    return [
        Story(
            id,
            section.title or issue.title,
            _build_tasks(id, section.boxes, is_closed=issue.is_closed),
            markdown.join_prose(section.prose),
            markdown.is_optional(section.title, section.above),
            [one for one in markdown.parse_dependencies(section.title) if one in known],
        )
        for id, section in zip(known, sections, strict=True)
    ]


def _build_story(issue: Issue, known: "Collection[str]") -> Story:
    boxes = [box for section in issue.list_sections() for box in section.boxes]
    tasks = _build_tasks(issue.number, boxes, is_closed=issue.is_closed)
    tasks = tasks or [Task(f"{issue.number}.1", issue.title, issue.is_closed)]
    depends_on = [one for one in _list_dependencies(issue.body) if one in known]
    return Story(issue.number, issue.title, tasks, issue.body, depends_on=depends_on)


def _build_tasks(story: str, boxes: "Sequence[Box]", *, is_closed: bool) -> list[Task]:
    texts = [(box.text, box.done or is_closed) for box in boxes]
    return [Task(f"{story}.{number}", text, done) for number, (text, done) in enumerate(texts, 1)]


def _list_dependencies(body: str) -> list[str]:
    """The numbers in lines that begin with "Depends on" or "Blocked by": `Depends on #12, #13`."""
    found = []
    for _, line, is_plain in markdown.iterate_lines(body.split("\n")):
        bare = line.lstrip(" \t-*+>").lower().replace("*", "")
        if is_plain and bare.startswith(_DEPENDS):
            words = bare.replace(",", " ").split()
            found += [word[1:].rstrip(".;") for word in words if word.startswith("#")]
    return list(dict.fromkeys(found))


# --- writing ----------------------------------------------------------------------------------------


class _Words:
    """The text of a box, and the heading above it if an issue has several stories."""

    __slots__ = ("text", "title")

    def __init__(self, title: str | None, text: str) -> None:
        self.title = None if title is None else issue_copy.flatten(title)
        self.text = issue_copy.flatten(text)


def publish(
    project: str,
    change: str,
    where: tuple[str, str],
    done: "Sequence[DoneStory]",
    *,
    is_complete: bool,
    stop: "Callable[[], bool]",
) -> list[str]:
    """Ticks the boxes of done stories; comments on and closes complete issues. Each step may be repeated."""
    kind, value = where
    if kind == "issue":
        wanted = [_Words(story.title, text) for story in done for text in story.tasks]
        return _IssueUpdate(project, change, value, stop).send(wanted, done, is_complete=is_complete)
    notices = []
    for story in [one for one in done if one.is_new]:
        wanted = [_Words(None, text) for text in story.tasks]
        notices += _IssueUpdate(project, change, story.id, stop).send(wanted, [story], is_complete=True)
    return notices


class _IssueUpdate:
    """The update of one issue on GitHub."""

    def __init__(self, project: str, change: str, number: str, stop: "Callable[[], bool]") -> None:
        self.project = project
        self.change = change
        self.number = number
        self.stop = stop

    def send(self, wanted: "Sequence[_Words]", done: "Sequence[DoneStory]", *, is_complete: bool) -> list[str]:
        issue = self._tick(wanted)
        notices = [
            f"issue {self.number} no longer has the box {shorten(text)}: it is not ticked there"
            for text in _BodyBoxes(issue).list_missing(wanted)
        ]
        if not is_complete or issue.is_closed:
            return notices
        if left := _list_open(issue):
            told = f"issue {self.number} stays open: it has a box that was not part of this run ({shorten(left[0])})"
            return [*notices, told]
        self._comment(done)
        _run_gh(self.project, "close", self.number, stop=self.stop)
        return notices

    def _tick(self, wanted: "Sequence[_Words]") -> Issue:
        """The issue with its boxes ticked.

        GitHub has no conditional write: so we read the issue again afterwards, and repeat lost ticks.
        """
        for _ in range(_TRIES):
            issue = Issue(read_issue(self.project, self.number, self.stop))
            body = _BodyBoxes(issue).tick(wanted)
            if body == issue.body:
                return issue
            _run_gh(self.project, "edit", self.number, "--body-file=-", given=body, stop=self.stop)
        raise SpecError(f"issue {self.number} did not store the update: its boxes could not be ticked")

    def _comment(self, done: "Sequence[DoneStory]") -> None:
        """Comments only once: after a kill, the next run finds the comment here."""
        mark = f"<!-- ralphtool {self.change} {' '.join(story.commit[:12] for story in done)} -->"
        comments = read_issue(self.project, self.number, self.stop, "comments").get("comments")
        known = [one.get("body") for one in comments if isinstance(one, dict)] if isinstance(comments, list) else []
        if not any(mark in body for body in known if isinstance(body, str)):
            lines = [f"- {issue_copy.flatten(story.title)}: {story.describe()}" for story in done]
            text = "\n".join(["All tasks of this issue are done.", "", *lines, "", mark, ""])
            _run_gh(self.project, "comment", self.number, "--body-file=-", given=text, stop=self.stop)


class _BodyBoxes:
    """The boxes of the current issue, found by their text."""

    def __init__(self, issue: Issue) -> None:
        self.issue = issue
        self._by_text: dict[str, list[tuple[str, Box]]] = {}
        for section in issue.list_sections():
            title = issue_copy.flatten(section.title or issue.title)
            for box in section.boxes:
                self._by_text.setdefault(issue_copy.flatten(box.text), []).append((title, box))

    def find(self, words: _Words) -> "list[Box]":
        """The boxes below that heading; if the heading was renamed, the only box with this text."""
        same = self._by_text.get(words.text, [])
        exact = [box for title, box in same if words.title in (None, title)]
        return exact or ([box for _, box in same] if len(same) == 1 else [])

    def tick(self, wanted: "Sequence[_Words]") -> str:
        """The body with these boxes ticked, and no other character changed."""
        return issue_copy.tick_all(self.issue.body, [box for words in wanted for box in self.find(words)])

    def list_missing(self, wanted: "Sequence[_Words]") -> list[str]:
        """The texts of boxes that no longer exist. An issue without boxes was its own task."""
        own = issue_copy.flatten(self.issue.title)
        return [words.text for words in wanted if words.text != own and not self.find(words)]


def _list_open(issue: Issue) -> list[str]:
    sections = [one for one in issue.list_sections() if not markdown.is_optional(one.title, one.above)]
    return [box.text for section in sections for box in section.boxes if not box.done]
