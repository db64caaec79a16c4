"""The contract of a spec format: the built-in ones keep it, and it detects those that don't."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import pytest
from project import Ralph
from specs.formats import MAKERS, STRANGER, every_format, make_checklist

from ralphtool import specs
from ralphtool.errors import TaskNotFound
from ralphtool.specs import Adapter, Spec, Story, Task, checklist
from ralphtool.specs.scaffold import EXAMPLES, Scaffold
from ralphtool.testing import ContractBroken, check_adapter


@every_format
def test_the_built_in_adapters_keep_the_contract(ralph: Ralph, name: str) -> None:
    change = MAKERS[name](ralph)
    check_adapter(specs.adapter(name), str(ralph.root), change)


@every_format
def test_a_story_that_is_done_can_be_opened_again(ralph: Ralph, name: str) -> None:
    spec: Any = specs.open(str(ralph.root), MAKERS[name](ralph))
    before = {path: path.read_bytes() for path in ralph.root.rglob("*") if path.is_file()}
    given = {task.id for story in spec.stories() for task in story.tasks if task.done}
    for story in spec.stories():
        tasks = [task.id for task in story.tasks]
        for task in tasks:
            spec.tick(task, tasks)
    assert all(story.done for story in spec.stories())
    for task in [task.id for story in spec.stories() for task in story.tasks if task.id not in given]:
        spec.untick(task)
    assert {path: path.read_bytes() for path in before} == before, "not a byte else was changed"
    with pytest.raises(TaskNotFound):
        spec.untick("no.such.task")


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("openspec", "openspec/changes/add-login/tasks.md"),
        ("speckit", "specs/001-login/tasks.md"),
        ("checklist", "fix_plan.md"),
        ("prd", "prd.json"),
        ("kiro", ".kiro/specs/login/tasks.md"),
        ("taskmaster", ".taskmaster/tasks/tasks.json"),
        ("backlog", "backlog/tasks/task-1 - Set-up.md"),
    ],
)
def test_the_contract_holds_with_crlf_and_a_byte_order_mark(ralph: Ralph, name: str, path: str) -> None:
    change = MAKERS[name](ralph)
    file = ralph.root / path
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes().replace(b"\n", b"\r\n"))
    check_adapter(specs.adapter(name), str(ralph.root), change)
    assert file.read_bytes().startswith(b"\xef\xbb\xbf")
    assert file.read_bytes().count(b"\r\n") == file.read_bytes().count(b"\n")


def test_a_strangers_adapter_can_be_checked(stranger: Ralph) -> None:
    namespace: dict[str, Any] = {}
    exec(compile(STRANGER, "formats.py", "exec"), namespace)
    check_adapter(namespace["by_path"], str(stranger.root), "jobs")


class WrongSpec(checklist.Checklist):
    """A good spec, for subclasses to spoil."""

    def __init__(self, good: checklist.Checklist) -> None:
        super().__init__(good.path, good.change, good.ref)

    @property
    def folder(self) -> Path:
        return Path(self.path).parent

    def rewrite(self, change: Callable[[str], str]) -> None:
        path = Path(self.path)
        path.write_bytes(change(path.read_bytes().decode()).encode())

    def note(self, records: Sequence[dict[str, Any]], file: str = "notes.md") -> int:
        """Writes notes in the simplest correct way."""
        path = self.folder / file
        old = path.read_text() if path.exists() else ""
        lines = [f"- {' '.join(str(one).split())}\n" for one in records]
        fresh = [line for line in lines if line not in old]
        path.write_text(old + "".join(fresh))
        return len(fresh)


class WrongAdapter:
    name = "wrong"
    found_in = "fix_plan.md"

    def __init__(self, spec: type[WrongSpec] = WrongSpec) -> None:
        self.spec = spec

    def changes(self, project: str) -> list[str]:
        return checklist.changes(project)

    def open(self, project: str, change: str, where: str | None = None) -> Spec:
        return self.spec(checklist.open(project, change, where))

    def places(self, change: str, where: str | None = None) -> list[str]:
        return checklist.places(change, where)


def promise_broken(ralph: Ralph, adapter: Adapter) -> str:
    change = make_checklist(ralph)
    with pytest.raises(ContractBroken) as caught:
        check_adapter(adapter, str(ralph.root), change)
    return str(caught.value)


def test_the_spec_that_is_spoilt_below_is_right(ralph: Ralph) -> None:
    check_adapter(WrongAdapter(), str(ralph.root), make_checklist(ralph))


def test_refused_a_name_that_is_none(ralph: Ralph) -> None:
    adapter = WrongAdapter()
    adapter.name = "my format"
    assert promise_broken(ralph, adapter) == "an adapter has a valid name"


def test_refused_changes_without_the_change(ralph: Ralph) -> None:
    class Forgetful(WrongAdapter):
        def changes(self, project: str) -> list[str]:
            return []

    assert promise_broken(ralph, Forgetful()) == "`changes` names the change"


def test_refused_opening_what_is_not_there(ralph: Ralph) -> None:
    class Credulous(WrongAdapter):
        def open(self, project: str, change: str, where: str | None = None) -> Spec:
            return super().open(project, "fix_plan")

    assert "ChangeNotFound" in promise_broken(ralph, Credulous())


def test_refused_another_error_for_what_is_not_there(ralph: Ralph) -> None:
    class Rude(WrongAdapter):
        def open(self, project: str, change: str, where: str | None = None) -> Spec:
            if change != "fix_plan":
                raise KeyError(change)
            return super().open(project, change)

    assert "ChangeNotFound" in promise_broken(ralph, Rude())


@pytest.mark.parametrize(
    ("places", "promise"),
    [
        ([], "`places` names everything that is needed to read the change"),
        (["PLAN.md"], "`places` names everything that is needed to read the change"),
        (["/etc/passwd"], "`places` names paths inside the project"),
        (["../fix_plan.md"], "`places` names paths inside the project"),
        (["."], "`places` names paths inside the project"),
    ],
)
def test_refused_other_places(ralph: Ralph, places: list[str], promise: str) -> None:
    class Elsewhere(WrongAdapter):
        def places(self, change: str, where: str | None = None) -> list[str]:
            return places

    assert promise in promise_broken(ralph, Elsewhere())


@pytest.mark.parametrize(
    ("place", "text", "promise"),
    [
        ("fix_plan.md", "- [ ] Work\n", "a change that was not filled in is recognised"),
        ("fix_plan.md", f"- [x] {EXAMPLES[0]}\n", "a change that was not filled in is recognised"),
        ("docs/fix_plan.md", f"- [ ] {EXAMPLES[0]}\n", "ChangeNotFound"),
    ],
)
def test_refused_a_skeleton(ralph: Ralph, place: str, text: str, promise: str) -> None:
    class Begins(WrongAdapter):
        def scaffold(self, project: str, text_: str, name: str | None, file: str | None) -> Scaffold:
            return Scaffold("fix_plan", f"{project}/{place}", {"": text})

    assert promise in promise_broken(ralph, Begins())


class WrongName(WrongSpec):
    def __init__(self, good: checklist.Checklist) -> None:
        super().__init__(good)
        self.change = "other"


class WrongPath(WrongSpec):
    """Reads the right file, but reports another one to people."""

    def __init__(self, good: checklist.Checklist) -> None:
        super().__init__(good)
        self.path = f"{good.path}.not"


class WritesWhenRead(WrongSpec):
    def stories(self, completed: Collection[str] = ()) -> list[Story]:
        (self.folder / "cache").write_text("x")
        return super().stories(completed)


class WritesWhenAsked(WrongSpec):
    def design(self) -> str | None:
        (self.folder / "cache").write_text("x")
        return None


class NoTitle(WrongSpec):
    def stories(self, completed: Collection[str] = ()) -> list[Story]:
        return [Story(one.id, "", one.tasks) for one in super().stories(completed)]


class TwiceTheSame(WrongSpec):
    def stories(self, completed: Collection[str] = ()) -> list[Story]:
        return [Story(one.id, one.title, [Task("1", "x", False)] * 2) for one in super().stories(completed)]


class NothingToDo(WrongSpec):
    def stories(self, completed: Collection[str] = ()) -> list[Story]:
        return []


class TicksNothing(WrongSpec):
    def tick(self, task_id: str, completed: Collection[str] = (), *, proven: bool = True) -> None:
        if task_id not in [task.id for one in self.stories() for task in one.tasks]:
            raise TaskNotFound(task_id)


class TicksAll(TicksNothing):
    def tick(self, task_id: str, completed: Collection[str] = (), *, proven: bool = True) -> None:
        super().tick(task_id)
        self.rewrite(lambda text: text.replace("[ ]", "[x]"))


class TicksTheWrongOne(WrongSpec):
    def tick(self, task_id: str, completed: Collection[str] = (), *, proven: bool = True) -> None:
        super().tick("1.2" if task_id == "1.1" else task_id)


class AcceptsAnyTask(WrongSpec):
    def tick(self, task_id: str, completed: Collection[str] = (), *, proven: bool = True) -> None:
        try:
            super().tick(task_id)
        except TaskNotFound:
            pass


class WritesForAnUnknownTask(WrongSpec):
    def tick(self, task_id: str, completed: Collection[str] = (), *, proven: bool = True) -> None:
        (self.folder / "log").write_text(task_id)
        super().tick(task_id)


class TidiesUp(WrongSpec):
    def tick(self, task_id: str, completed: Collection[str] = (), *, proven: bool = True) -> None:
        super().tick(task_id)
        self.rewrite(lambda text: text.replace("* [", "- ["))


class ChangesLineEndings(WrongSpec):
    def tick(self, task_id: str, completed: Collection[str] = (), *, proven: bool = True) -> None:
        super().tick(task_id)
        self.rewrite(lambda text: text.replace("\r\n", "\n").replace("\n", "\r\n"))


class KeepsALog(WrongSpec):
    def tick(self, task_id: str, completed: Collection[str] = (), *, proven: bool = True) -> None:
        super().tick(task_id)
        (self.folder / "log").write_text(task_id)


class CountsTicks(WrongSpec):
    def tick(self, task_id: str, completed: Collection[str] = (), *, proven: bool = True) -> None:
        super().tick(task_id)
        self.rewrite(lambda text: text + ".")


class MiscountsLearnings(WrongSpec):
    def write_learnings(self, learnings: Sequence[dict[str, Any]]) -> int:
        super().write_learnings(learnings)
        return 1


class WritesNoPatterns(WrongSpec):
    def write_patterns(self, patterns: Sequence[dict[str, Any]]) -> int:
        return len(patterns)


class CountsAgain(WrongSpec):
    def write_observations(self, observations: Sequence[dict[str, Any]]) -> int:
        super().write_observations(observations)
        return len(observations)


class WritesAgain(WrongSpec):
    def write_learnings(self, learnings: Sequence[dict[str, Any]]) -> int:
        with (self.folder / "notes.md").open("a") as file:
            file.write("- learnt\n")
        return super().write_learnings(learnings)


class Forges(WrongSpec):
    ending = "\n"

    def write_learnings(self, learnings: Sequence[dict[str, Any]]) -> int:
        path = self.folder / "notes.md"
        text = "".join(f"- {one['description']}\n" for one in learnings).replace("\n", self.ending)
        fresh = not path.exists()
        path.write_bytes(text.encode())
        return len(learnings) if fresh else 0


class ForgesWithCarriageReturns(Forges):
    ending = "\r\n"


class ForgesWithABlank(Forges):
    ending = "\n "


class WritesOverNotes(WrongSpec):
    """Each kind of note replaces the whole file."""

    def write_patterns(self, patterns: Sequence[dict[str, Any]]) -> int:
        path = Path(self.notes_file)
        text = "".join(f"### {one['name']}\n" for one in patterns)
        fresh = path.read_text() != text
        path.write_text(text)
        return len(patterns) if fresh else 0


@pytest.mark.parametrize(
    ("spec", "promise"),
    [
        (WrongName, "a spec has the name of its change"),
        (WrongPath, "a spec's path exists"),
        (WritesWhenRead, "reading changes nothing"),
        (WritesWhenAsked, "reading changes nothing"),
        (NoTitle, "every story has an id and a title"),
        (TwiceTheSame, "twice"),
        (NothingToDo, "the sample has at least two open tasks"),
        (TicksNothing, "ticking 1.1 ticks 1.1, and nothing else"),
        (TicksAll, "ticking 1.1 ticks 1.1, and nothing else"),
        (TicksTheWrongOne, "ticking 1.1 ticks 1.1, and nothing else"),
        (AcceptsAnyTask, "`tick` raises TaskNotFound for a task that is not there"),
        (WritesForAnUnknownTask, "an unknown task changes nothing"),
        (TidiesUp, "ticking 1.1 keeps all other bytes"),
        (ChangesLineEndings, "ticking 1.1 keeps all other bytes"),
        (KeepsALog, "ticking 1.1 changes at most one file"),
        (CountsTicks, "ticking 1.1 keeps all other bytes"),
        (MiscountsLearnings, "writing learnings returns the number of written ones"),
        (WritesNoPatterns, "writing patterns writes something"),
        (CountsAgain, "writing the same observations again writes none"),
        (WritesAgain, "writing the same learnings again changes nothing"),
        (Forges, "a note can't add a heading"),
        (ForgesWithCarriageReturns, "a note can't add a heading"),
        (ForgesWithABlank, "a note can't add a heading"),
        (WritesOverNotes, "writing patterns keeps"),
    ],
)
def test_refused_with_the_promise_named(ralph: Ralph, spec: type[WrongSpec], promise: str) -> None:
    assert promise in promise_broken(ralph, WrongAdapter(spec))
