"""Symbols, colours and words for states: one table, for the terminal, the full screen, the report and the page."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console
from rich.style import Style
from views.night import BEGAN, Night

import ralphtool
from ralphtool.record import events
from ralphtool.record.runs import RUN_STATES
from ralphtool.record.view_parts import COUNTED, STORY_STATES
from ralphtool.views import look
from ralphtool.views.terminal import phrases
from ralphtool.views.terminal.picture import RunDisplay
from ralphtool.views.web.page import answer_page

VIEWS = Path(ralphtool.__file__).parent / "views"
TABLES = (look.STORIES, look.ATTEMPTS, look.RUNS, look.GATES)
CSS = (VIEWS / "report/page.css").read_text()


def test_every_state_has_a_look() -> None:
    assert set(look.STORIES) == {*STORY_STATES, "unproven", "current"}
    assert set(look.ATTEMPTS) == {*COUNTED, "running", "other"}
    assert set(look.RUNS) == set(RUN_STATES)


@pytest.mark.parametrize("table", TABLES)
def test_looks_can_be_drawn_everywhere(table: dict[str, look.Look]) -> None:
    for one in table.values():
        assert one.plain.isascii()
        assert len(one.plain) == len(one.symbol) == 1
        assert one.colour in ("", *look.COLOURS)
        assert Style.parse(one.colour or "none") is not None


def test_no_two_states_of_a_story_look_the_same() -> None:
    assert len({one.symbol for one in look.STORIES.values()}) == len(look.STORIES)
    assert len({one.plain for one in look.STORIES.values()}) == len(look.STORIES)
    assert len({one.words for one in look.STORIES.values()}) == len(look.STORIES)


def test_a_state_has_one_meaning_in_all_tables() -> None:
    """Stories and runs share a class of the style sheet."""
    for name in set(look.STORIES) & set(look.RUNS):
        assert look.STORIES[name][:3] == look.RUNS[name][:3]


def test_the_style_sheet_has_each_colour_in_light_and_dark() -> None:
    for colour in look.COLOURS:
        assert len(re.findall(rf"--{colour}: #[0-9a-f]{{6}};", CSS)) == 2, colour


def test_every_class_that_the_views_draw_has_a_colour() -> None:
    style = look.build_css()
    for prefix, table in (("is", look.STORIES), ("is", look.RUNS), ("v", look.ATTEMPTS), ("gate", look.GATES)):
        for name, one in table.items():
            rule = next(line for line in style.split("\n") if re.search(rf"\.{prefix}-{name}\b", line))
            assert f"--tone: var(--{one.colour or 'ink'});" in rule


def test_the_page_has_the_same_rules_as_the_report() -> None:
    page = answer_page().body.decode()
    for rule in look.build_css().split("\n")[:-1]:
        assert re.sub(r"\s*([{},;])\s*|: ", lambda found: found[1] or ":", rule).replace(";}", "}") in page


def test_no_style_sheet_says_otherwise() -> None:
    for path in VIEWS.rglob("*.css"):
        assert not re.search(r"\.(?:is|v)-\w+[^{}]*\{ *--tone", path.read_text()), path


def test_no_view_has_symbols_of_its_own() -> None:
    symbols = re.compile("[✓✗▸½]")
    files = [*VIEWS.rglob("*.py"), *VIEWS.rglob("*.js"), VIEWS.parent / "cli/doctor.py"]
    found = [path.name for path in files if path.name != "look.py" and symbols.search(path.read_text())]
    assert found == []


@pytest.mark.parametrize(("status", "name"), [("partial", "partial"), ("transient", "other"), ("cut off", "other")])
def test_what_is_no_attempt_looks_like_nothing_to_worry_about(status: str, name: str) -> None:
    assert look.find_attempt_name(status) == name
    assert phrases.render_attempt_mark(status)[1] == look.ATTEMPTS[name].colour


@pytest.mark.parametrize(
    ("text", "longest", "short"),
    [("ralph/login", 20, "ralph/login"), ("ralph/abcdefghijklmnop/end", 12, "ralph/…p/end"), ("abc", 3, "abc")],
)
def test_paths_and_branches_lose_their_middle(text: str, longest: int, short: str) -> None:
    assert phrases.shorten_middle(text, longest) == short
    assert len(short) <= longest


@pytest.mark.parametrize("width", [30, 60, 79, 119])
def test_long_names_take_one_line_each(width: int) -> None:
    night = Night()
    night.start(titles=("Pay 請求書払い 🧾 " * 20, "Short"), branch=f"ralph/{'very-long-' * 15}end")
    view = RunDisplay(lambda: BEGAN.timestamp() + 60)
    for line in night.lines:
        event = events.decode(line)
        assert event
        view.feed(event)
    written = io.StringIO()
    screen = Console(width=width, file=written, force_terminal=False)
    screen.print(view.render(width, 30))
    head, progress, first, second = written.getvalue().rstrip("\n").split("\n")
    assert all(cell_len(line) <= width for line in (head, progress, first, second))
    assert head.endswith("01:00")
    assert ("ralph/" in head, head.count("…")) == ((True, 1) if width > 30 else (False, 0))
    assert ("…" in first, "Short" in second) == (True, True)
