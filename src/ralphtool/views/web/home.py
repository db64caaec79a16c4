"""The first page: every project with its changes and its last runs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ralphtool.core import locks
from ralphtool.core.amounts import format_cost, pluralize
from ralphtool.errors import RalphError, from_os_error
from ralphtool.record import runs
from ralphtool.record.view_parts import parse_time
from ralphtool.views import project_data
from ralphtool.views.report import formatting
from ralphtool.views.report.elements import build_bar, tag
from ralphtool.views.web.panels import build_button, build_moment, build_sign, build_state

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ralphtool.record.runs import RunSummary
    from ralphtool.views.project_data import ChangeItem
    from ralphtool.views.report.elements import Element

_clean = formatting.clean_line


def build_sections(projects: Mapping[str, str], *, read_only: bool) -> dict[str, Element]:
    """`projects` are folders by id. Reads specs and calls git, so it takes a moment."""
    return {"home": tag("div", [_build_project(id, root, read_only) for id, root in projects.items()])}


def read_fingerprint(projects: Mapping[str, str]) -> tuple[object, ...]:
    """Changes whenever there is something new to show; costs next to nothing."""
    held = [_list_owners(root) for root in projects.values()]
    return (*(project_data.read_fingerprint(root) for root in projects.values()), *held)


def _list_owners(root: str) -> tuple[object, ...]:
    """The newest run, the sessions that hold locks, and whether they are alive. Folder times don't show these."""
    try:
        newest = next(iter(runs.list_ids(root)), "")
        found = [locks.read_lock(root, change) for change in locks.list_locked_changes(root)]
    except (RalphError, OSError):
        return ()
    return newest, *((lock.session_id, lock.has_dead_owner) for lock in found if lock)


def _build_project(id: str, root: str, read_only: bool) -> Element:
    name = _clean(os.path.basename(root) or root, 100)
    try:
        parts = [_build_changes(id, root, read_only), _build_runs(id, project_data.list_recent_runs(root))]
    except RalphError as error:
        parts = [tag("p", _clean(str(error), 1000), class_="notice is-failed")]
    except OSError as error:
        parts = [tag("p", _clean(str(from_os_error(error)), 1000), class_="notice is-failed")]
    return tag("section", tag("h2", name), tag("p", _clean(root, 300), class_="soft"), parts, data_key=id)


def _build_changes(id: str, root: str, read_only: bool) -> Element:
    found = project_data.list_changes(root)
    if not found:
        return tag("p", "There are no changes yet. ", tag("code", "ralphtool new"), " creates one.", class_="soft")
    return tag("ul", [_build_change(id, one, read_only) for one in found], class_="rows cards")


def _build_change(id: str, one: ChangeItem, read_only: bool) -> Element:
    total, done = one.overview.stories_total, one.overview.stories_done or 0
    counted = f"{done} of {pluralize(total, 'story', 'stories')} done" if total else "no stories yet"
    words = [text for text in (counted, _clean(one.status, 200), _clean(one.overview.problem or "", 400)) if text]
    title = tag("span", _clean(one.title, 200), class_="name")
    link = tag("a", title, href=f"#/{id}/{one.run.id}") if one.run else title
    can_start = total and done < total and not one.is_alive and not one.overview.problem and not read_only
    start = build_button("Run", "run", change=one.name, project=id) if can_start else None
    return tag(
        "li",
        build_sign(one.state),
        tag("div", link, tag("p", " · ".join(words), class_="soft"), _build_bar(done, total or 0)),
        start,
        class_="change",
        data_key=one.name,
    )


def _build_bar(done: int, total: int) -> Element | None:
    return build_bar([("done", done), ("open", total - done)], aria_hidden="true") if total else None


def _build_runs(id: str, found: list[RunSummary]) -> Element | None:
    if not found:
        return None
    rows = [_build_run(id, one) for one in found]
    return tag("div", tag("h3", "Runs"), tag("ul", rows, class_="rows runs"), data_key="runs")


def _count_stories(one: RunSummary) -> str:
    if one.purpose == "plan" or not one.stories_total:
        return one.purpose
    return f"{one.stories_done} of {pluralize(one.stories_total, 'story', 'stories')}"


def _build_run(id: str, one: RunSummary) -> Element:
    began = parse_time(one.began)
    cost = format_cost(one.spent.get("cost", 0.0))
    about = " · ".join(filter(None, (_clean(one.agent, 60), _count_stories(one), cost)))
    return tag(
        "li",
        tag("a", tag("span", _clean(one.change or one.id, 100), class_="name"), href=f"#/{id}/{one.id}"),
        tag("span", build_state(one.state), class_="state"),
        tag("span", about, class_="soft"),
        tag("span", build_moment("at", began), class_="soft", title=_clean(one.id, 200)) if began else None,
        data_key=one.id,
    )
