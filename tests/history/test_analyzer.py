"""Looking back, recording, and drawing learnings: values in, values out, no file is touched."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET, structs
from patience import PATIENCE

from ralphtool.history import History
from ralphtool.history.analyzer import EntryLearnings, draw_learnings, look_back, record
from ralphtool.history.records import Entry, IterationContext, Learning, Observation

Fields = dict[str, Any]
NOW = "2025-01-15T10:30:00Z"

# --- the example from the format's design -----------------------------------------------------------


def entry(prd_id: str, number: int, status: str, summary: str, *observations: Fields, retries: int = 0) -> Fields:
    made = {"id": f"{prd_id}-{number}", "timestamp": NOW, "prd_id": prd_id, "iteration": number, "status": status}
    return made | {"summary": summary, "observations": list(observations), "context": {"retry_count": retries}}


def seen(kind: str, title: str, category: str, action: str = "none", **more: str) -> Fields:
    return {"type": kind, "title": title, "category": category, "action_taken": action, **more}


def learnt(number: int, kind: str, content: str, entry_id: str, **more: object) -> Fields:
    source = {"source_prd_id": entry_id.rpartition("-")[0], "source_entry_id": entry_id, "created_at": NOW}
    return {"id": f"learning-{number:04}", "type": kind, "content": content, **source, **more}


# Two stories that needed a second attempt, one that did not; every learning names its entry.
EXAMPLE: Fields = {
    "version": "1.0",
    "created_at": "2025-01-15T10:00:00Z",
    "entries": [
        entry("auth-login", 1, "completed", "login by token", seen("finding", "Middleware", "architecture")),
        entry("auth-oauth", 1, "blocked", "no credentials", seen("blocker", "Credentials", "dependency", "escalated")),
        entry("auth-oauth", 2, "completed", "credentials came", seen("finding", "Exact URL", "api-issue"), retries=1),
        entry("user-profile", 1, "failed", "the bucket refuses", seen("finding", "CORS", "api-issue", "deferred")),
    ],
    "learnings": [
        learnt(1, "architecture-constraint", "tokens are bearer tokens", "auth-login-1", times_referenced=2),
        learnt(2, "api-convention", "callbacks end with a slash", "auth-oauth-2"),
        learnt(3, "codebase-pattern", "images go through one module", "user-profile-1", times_referenced=1),
        learnt(4, "error-workaround", "sign URLs first", "user-profile-1"),
        learnt(5, "error-workaround", "open the bucket to all", "user-profile-1", still_valid=False),
    ],
    "patterns": [
        {"id": "pattern-0001", "name": "Layers", "type": "file-structure", "discovered_at": NOW},
        {"id": "pattern-0002", "name": "Errors", "type": "error-handling", "discovered_at": NOW},
    ],
}


def opened(folder: Path, fields: Fields | None = None) -> History:
    if fields is not None:
        (folder / ".ralph").mkdir(exist_ok=True)
        (folder / ".ralph/progress.json").write_text(json.dumps(fields))
    return History(str(folder))


def files_in(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# --- looking back -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prd_id", "attempt", "retries", "failure"),
    [
        ("auth-login", 2, 0, None),
        ("auth-oauth", 3, 0, None),
        ("user-profile", 2, 1, "the bucket refuses"),
        ("never-tried", 1, 0, None),
        ("auth", 1, 0, None),
    ],
)
def test_looking_back_on_the_example(
    tmp_path: Path, prd_id: str, attempt: int, retries: int, failure: str | None
) -> None:
    found = look_back(opened(tmp_path, EXAMPLE), prd_id)
    assert (found.prd_id, found.attempt, found.iteration) == (prd_id, attempt, attempt)
    assert (found.retry_count, found.previous_failure) == (retries, failure)
    assert found.warnings == ()


def test_retries_count_from_the_last_attempt_that_completed(tmp_path: Path) -> None:
    history = opened(tmp_path)
    counted = []
    for status in ("failed", "blocked", "partial", "completed", "failed", "failed"):
        before = look_back(history, "a-1")
        counted.append((before.attempt, before.retry_count))
        made = record(before, status, summary=f"attempt {before.attempt}")
        assert made.context is not UNSET
        assert made.context.retry_count == before.retry_count
        history.append(made)
    assert counted == [(1, 0), (2, 1), (3, 2), (4, 3), (5, 0), (6, 1)]
    after = look_back(history, "a-1")
    assert (after.attempt, after.retry_count, after.previous_failure) == (7, 2, "attempt 6")


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        ({"summary": "why"}, "why"),
        ({"summary": "", "observations": [seen("finding", "no", "bug"), seen("blocker", "the key", "bug")]}, "the key"),
        ({"summary": "", "status": "partial"}, "partial"),
        ({"context": {}}, "s"),
    ],
)
def test_a_failure_always_has_a_reason(tmp_path: Path, last: Fields, expected: str) -> None:
    history = opened(tmp_path, EXAMPLE | {"entries": [entry("a-1", 1, "failed", "s") | last]})
    found = look_back(history, "a-1")
    assert found.previous_failure is not None
    assert expected in found.previous_failure
    assert found.retry_count == 1


FRICTION = seen("finding", "slow", "tooling-friction")


@pytest.mark.parametrize(
    ("statuses", "warned"),
    [
        (["failed"] * 3, False),
        (["failed"] * 4, True),
        (["blocked", "failed", "blocked", "failed"], True),
        (["failed", "failed", "failed", "completed", "partial", "completed"], False),
    ],
)
def test_more_than_three_frictions_in_what_failed_warn(tmp_path: Path, statuses: list[str], warned: bool) -> None:
    """In any story: all stories share the tools."""
    entries = [entry(f"story-{number}", 1, status, "", FRICTION) for number, status in enumerate(statuses)]
    history = opened(tmp_path, EXAMPLE | {"entries": entries})
    found = look_back(history, "other").warnings
    assert len(found) == warned
    assert not warned or "4 times" in found[0]


def test_frictions_of_one_entry_are_counted_one_by_one(tmp_path: Path) -> None:
    other = seen("finding", "x", "bug")
    history = opened(tmp_path, EXAMPLE | {"entries": [entry("a-1", 1, "failed", "", *[FRICTION] * 4, other)]})
    assert len(look_back(history, "a-1").warnings) == 1


def test_a_merge_leaves_gaps_that_are_not_filled(tmp_path: Path) -> None:
    entries = [entry("a-1", 5, "failed", "ours"), entry("a-1", 2, "completed", "theirs")]
    history = opened(tmp_path, EXAMPLE | {"entries": entries})
    before = look_back(history, "a-1")
    assert (before.attempt, before.iteration) == (3, 6)
    assert history.append(record(before, "completed")).entries[0].id == "a-1-6"
    assert look_back(history, "a-1").iteration == 7


# --- recording --------------------------------------------------------------------------------------


def test_a_record_is_the_entry_that_comes_next(tmp_path: Path) -> None:
    history = opened(tmp_path, EXAMPLE)
    before = look_back(history, "user-profile")
    made = record(
        before,
        "blocked",
        observations=[Observation(type="blocker", title="t")],
        duration_seconds=0,
        summary="",
        files_modified=["a.py"],
        git_commits=["abc1234"],
        timestamp="2026-02-01T00:00:00+01:00",
        recovery_action="retry",
        recovery_guidance=None,
        dependencies_completed=["auth-login"],
        blocker_verified=True,
        blocker_valid=False,
    )
    assert made == Entry(
        id="user-profile-2",
        timestamp="2026-02-01T00:00:00+01:00",
        prd_id="user-profile",
        iteration=2,
        status="blocked",
        duration_seconds=0,
        summary="",
        observations=(Observation(type="blocker", title="t"),),
        files_modified=("a.py",),
        git_commits=("abc1234",),
        context=IterationContext(
            retry_count=1,
            previous_failure_reason="the bucket refuses",
            recovery_action="retry",
            dependencies_completed=("auth-login",),
            blocker_verified=True,
            blocker_valid=False,
        ),
    )
    history.append(made)
    assert history.last_entry("user-profile") == made


def test_a_record_of_little_leaves_out_the_rest(tmp_path: Path) -> None:
    made = record(look_back(opened(tmp_path), "a-1"), "completed")
    assert (made.id, made.iteration, made.observations) == ("a-1-1", 1, ())
    assert (made.summary, made.duration_seconds) == (UNSET, UNSET)
    assert made.context == IterationContext(retry_count=0)
    assert made.timestamp.endswith("Z")
    assert opened(tmp_path).append(made).entries == (made,)


# --- drawing learnings ------------------------------------------------------------------------------


def observed(*observations: Observation, prd_id: str = "a-1", number: int = 1) -> Entry:
    made = {"id": f"{prd_id}-{number}", "timestamp": NOW, "prd_id": prd_id, "iteration": number}
    return Entry(**made, status="completed", observations=observations)  # type: ignore[arg-type]


def note(title: str = "Title", action: Any = "documented", category: Any = UNSET, **more: Any) -> Observation:
    return Observation(type="finding", title=title, action_taken=action, category=category, **more)


@pytest.mark.parametrize(
    ("action", "category", "drawn"),
    [
        ("documented", UNSET, True),
        ("documented", "bug", True),
        ("none", "architecture", True),
        (UNSET, "architecture", True),
        ("fixed", "architecture", True),
        ("fixed", "api-issue", False),
        ("deferred", "bug", False),
        (UNSET, UNSET, False),
    ],
)
def test_only_what_was_documented_or_is_architecture_teaches(action: Any, category: Any, drawn: bool) -> None:
    assert len(draw_learnings(observed(note("x", action, category))).learnings) == drawn


@pytest.mark.parametrize(
    ("category", "text", "kind"),
    [
        ("architecture", "Layers import downwards", "architecture-constraint"),
        ("architecture", "Follow the pattern of the image module", "codebase-pattern"),
        ("api-issue", "Callbacks end with a slash", "api-convention"),
        ("bug", "Start it twice", "error-workaround"),
        ("dependency", "Two of them clash", "dependency-quirk"),
        ("test-failure", "One at a time", "test-pattern"),
        ("tooling-friction", "Slow on Mondays", "tool-usage"),
        ("documentation", "npm run build makes it", "build-command"),
        (UNSET, "Tests want a fixture", "test-pattern"),
        (UNSET, "The sky is blue", "codebase-pattern"),
    ],
)
def test_a_learning_has_a_sensible_type(category: Any, text: str, kind: str) -> None:
    [drawn] = draw_learnings(observed(note("Title", "documented", category, description=text))).learnings
    assert (drawn.type, drawn.content) == (kind, text)


def test_drawn_learnings_are_numbered_and_linked_both_ways() -> None:
    first, plain, last = note("one", description="first"), note("none", "fixed"), note("no description")
    made = observed(first, plain, last, prd_id="shop-2", number=3)
    drawn = draw_learnings(made, first=9999)
    assert [(one.id, one.content) for one in drawn.learnings] == [
        ("learning-9999", "first"),
        ("learning-10000", "no description"),
    ]
    for one in drawn.learnings:
        assert (one.source_prd_id, one.source_entry_id, one.created_at) == ("shop-2", "shop-2-3", NOW)
        assert one.context is not UNSET
        assert "shop-2" in one.context
        assert (one.still_valid, one.times_referenced) == (True, 0)
    links = [one.related_learning_id for one in drawn.entry.observations]
    assert links == ["learning-9999", UNSET, "learning-10000"]
    assert structs.replace(drawn.entry, observations=made.observations) == made, "and nothing else changed"
    assert draw_learnings(drawn.entry).learnings == (), "what has taught already does not teach again"


def known(number: int, content: str, *, still_valid: bool = True) -> Learning:
    id = f"learning-{number:04}"
    return Learning(
        id=id, type="tool-usage", content=content, source_prd_id="a", created_at=NOW, still_valid=still_valid
    )


def test_what_is_known_is_not_drawn() -> None:
    made = observed(note("known"), note("outdated"), note("twice"), note("twice"), note(" \n"))
    drawn = draw_learnings(made, [known(7, "known"), known(3, "outdated", still_valid=False)])
    assert [(one.id, one.content) for one in drawn.learnings] == [
        ("learning-0008", "outdated"),
        ("learning-0009", "twice"),
    ]
    assert len({one.id for one in drawn.learnings}) == 2


def test_drawing_from_nothing_gives_nothing() -> None:
    assert draw_learnings(observed()) == EntryLearnings(observed(), ())


# --- a history shared with other processes ----------------------------------------------------------

TAKE = """
import sys
from ralphtool.history import History
from ralphtool.history.records import Learning
made = Learning(id="learning-0001", type="tool-usage", content=sys.argv[2], source_prd_id="b", created_at=sys.argv[3])
History(sys.argv[1]).add([made])
"""


def taken_elsewhere(folder: Path, content: str) -> None:
    """Another process adds a learning."""
    subprocess.run([sys.executable, "-c", TAKE, str(folder), content, NOW], check=True, timeout=PATIENCE)


def links(history: History, entry_id: str) -> dict[str, str]:
    """The text of the learning that each observation of an entry is linked to."""
    words = {one.id: one.content for one in history.learnings(valid_only=False)}
    [found] = [one for one in history.entries() if one.id == entry_id]
    return {one.title: words[one.related_learning_id] for one in found.observations if one.related_learning_id}


@pytest.mark.parametrize("meanwhile", [(), ("theirs",), ("theirs", "more"), ("first",), ("second",), ("x", "second")])
def test_links_follow_when_another_process_took_the_number(tmp_path: Path, meanwhile: tuple[str, ...]) -> None:
    history = opened(tmp_path)
    made = observed(note("first"), note("between", "none"), note("second"))
    drawn = draw_learnings(made, history.learnings(valid_only=False), history.next_learning_number())
    assert [one.id for one in drawn.learnings] == ["learning-0001", "learning-0002"]
    for content in meanwhile:
        taken_elsewhere(tmp_path, content)
    batch = history.append(drawn.entry, drawn.learnings)
    assert links(opened(tmp_path), "a-1-1") == {"first": "first", "second": "second"}
    assert links(history, "a-1-1") == {"first": "first", "second": "second"}
    contents = [one.content for one in opened(tmp_path).learnings()]
    assert sorted(contents) == sorted({"first", "second", *meanwhile}), "and nothing is there twice"
    for one in batch.learnings:
        assert one.source_entry_id == "a-1-1"
    assert not history.append(drawn.entry, drawn.learnings), "done again, it is all there already"


def test_an_invalidated_learning_may_be_drawn_and_appended_again(tmp_path: Path) -> None:
    history = opened(tmp_path)
    for number in (1, 2, 3):
        made = structs.replace(observed(note("lesson"), number=number), timestamp=f"2026-01-0{number}T00:00:00Z")
        drawn = draw_learnings(made, history.learnings(valid_only=False), history.next_learning_number())
        history.append(drawn.entry, drawn.learnings)
        if number == 1:
            history.invalidate("learning-0001", "not any more")
    assert [(one.id, one.still_valid) for one in history.learnings(valid_only=False)] == [
        ("learning-0001", False),
        ("learning-0002", True),
    ]
    assert links(history, "a-1-2") == {"lesson": "lesson"}


def test_references_are_counted_each_time(tmp_path: Path) -> None:
    history = opened(tmp_path, EXAMPLE)
    for _ in range(3):
        history.count_references(["learning-0003", "learning-0004"])
    opened(tmp_path).count_references(["learning-0001", "learning-0099", "learning-0005"])
    found = {one.id[-1]: one.times_referenced for one in opened(tmp_path).learnings(valid_only=False)}
    assert found == {"1": 3, "2": 0, "3": 4, "4": 3, "5": 1}
    before = files_in(tmp_path)
    history.count_references([])
    assert files_in(tmp_path) == before


# --- purity -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("fields", [None, EXAMPLE])
def test_no_file_is_touched(tmp_path: Path, fields: Fields | None) -> None:
    history = opened(tmp_path, fields)
    before = files_in(tmp_path)
    found = look_back(history, "user-profile")
    made = record(found, "failed", observations=[note("a lesson")])
    drawn = draw_learnings(made, history.learnings(valid_only=False))
    assert look_back(history, "user-profile") == found, "the same question has the same answer"
    assert draw_learnings(made, history.learnings(valid_only=False)) == drawn
    assert files_in(tmp_path) == before
    assert fields or not any(tmp_path.iterdir()), "not even a lock is made"
    assert made.observations[0].related_learning_id is UNSET, "values are not changed, new ones are made"
