"""The page in a real browser: a run is watched and steered through it, from its first event to its report."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lab import DONE, Lab, wait_until
from playwright.sync_api import expect
from properties import THOROUGH
from views.night import HOSTILE, RUN, Night, a_night
from views.web.pages import AXE, Server, Tab

Serve = Callable[..., Server]
Look = Callable[..., Tab]
MANY = 1_000_000 if THOROUGH else 50_000  # creating a million takes a while
WAIT = {"run": "while [ ! -e ../go ]; do sleep 0.05; done"}  # until the test says so


def let_go(lab: Lab) -> None:
    (lab.root.parent / "go").touch()


def find_steering(lab: Lab) -> list[dict[str, Any]]:
    return [one for one in lab.events() if one["type"] in ("steered", "answered")]


def write_night(lab: Lab, night: Night) -> Path:
    lab.openspec()
    night.write(lab.root)
    return lab.root / ".ralph/runs" / RUN / "events.jsonl"


def open_run(tab: Tab) -> None:
    tab.page.locator(".runs a").first.click()
    tab.page.locator("#log .e").first.wait_for()


def test_a_run_is_started_and_watched_to_its_report(lab: Lab, serve: Serve, look: Look) -> None:
    first = [{"say": "I look around"}, {"tick": "1.1"}, WAIT, *DONE]
    lab.repository(tests=["echo seen by the gate >&2"]).play({"story": "1", "steps": first}, default=DONE)
    tab = look(serve(lab).address)
    page = tab.page
    assert "token" not in page.url
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.locator("h1")).to_contain_text("running")
    expect(page.locator(".tasks li", has_text="1.1").locator(".sign")).to_have_class(re.compile("is-done"))
    expect(page.locator(".tasks li", has_text="1.2").locator(".sign")).to_have_class(re.compile("is-open"))
    expect(page.locator(".lane")).to_contain_text("attempt 1 of 3")
    expect(page.locator("#log")).to_contain_text("I look around")
    let_go(lab)
    expect(page.locator("h1 .chip")).to_have_text("done")
    expect(page.locator(".lane")).to_have_count(0)
    assert [one["type"] for one in lab.events()][-1] == "run_ended"
    page.get_by_role("link", name="2. Second").click()
    page.locator("#story summary", has_text="diff").first.wait_for(state="attached")
    page.locator("#story [data-load] summary").first.click()
    expect(page.locator("#story .output").first).to_contain_text("seen by the gate")
    page.locator("#timeline summary").click()
    expect(page.locator("#s-timeline .bar")).to_have_count(2)
    page.get_by_role("link", name="Report").click()
    expect(page.locator(".report h1")).to_contain_text("2 of 2 stories are done")
    assert tab.complaints == []


def test_a_question_is_answered_and_its_story_goes_on(lab: Lab, serve: Serve, look: Look) -> None:
    asking = [{"blocked": "which port?"}]
    lab.repository(attempts=1, wait_for_answers="10m")
    lab.play({"story": "1", "told": "8123", "steps": DONE}, {"story": "1", "steps": asking}, default=DONE)
    running = lab.start()
    tab = look(serve(lab).address)
    open_run(tab)
    card = tab.page.locator("#s-ask .card")
    expect(card).to_contain_text("which port?")
    tab.page.keyboard.press("a")
    tab.page.keyboard.type("Take 8123 <b>not bold</b>")
    card.get_by_role("button", name="Answer").click()
    expect(tab.page.locator("h1 .chip")).to_have_text("done")
    expect(card).to_have_count(0)
    said = find_steering(lab)
    assert [(one["text"], one["via"]) for one in said] == [("Take 8123 <b>not bold</b>", "web")]
    expect(tab.page.locator("#log")).to_contain_text("Take 8123 <b>not bold</b>")
    assert running.wait() == 0
    assert tab.complaints == []


def test_what_is_not_proven_is_accepted_and_rejected(lab: Lab, serve: Serve, look: Look) -> None:
    lab.repository(accept="held").play(default=DONE)
    lab.loop()
    tab = look(serve(lab).address)
    open_run(tab)
    cards = tab.page.locator("#s-ask .card")
    expect(cards).to_have_count(2)
    cards.first.get_by_role("button", name="Accept").click()
    tab.page.locator("dialog textarea").fill("I read it")
    tab.page.locator("dialog").get_by_role("button", name="OK").click()
    expect(cards).to_have_count(1)
    cards.first.get_by_role("button", name="Reject").click()
    tab.page.locator("dialog").get_by_role("button", name="OK").click()
    expect(cards).to_have_count(0)
    expect(tab.page.locator(".numbers")).to_contain_text("1 of 2")
    expect(tab.page.locator("#s-stories li").first).to_contain_text("accepted by you")
    expect(tab.page.locator("#s-stories > ul > li").last).to_contain_text("you rejected it")
    shown = {one["id"]: one for one in lab.run("show", "add-login", "--json").json["stories"]}
    assert shown["1"]["proof"]["state"] == "accepted"
    assert "I read it" in json.dumps(shown["1"]["proof"])
    assert not shown["2"]["done"]


def test_a_run_is_paused_guided_and_stopped(lab: Lab, serve: Serve, look: Look) -> None:
    lab.repository().play(default=[WAIT, *DONE])
    running = lab.start()
    tab = look(serve(lab).address)
    open_run(tab)
    page = tab.page
    expect(page.get_by_role("button", name="Pause")).to_be_enabled()
    page.keyboard.press("p")
    expect(page.get_by_role("button", name="Resume")).to_be_visible()
    page.keyboard.press("g")
    page.keyboard.type("Mind the gap")
    page.locator("dialog").get_by_role("button", name="OK").click()
    expect(page.locator("#log")).to_contain_text("your guidance: Mind the gap")
    page.get_by_role("button", name="Stop now").click()
    page.locator("dialog").get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Stop now").click()
    page.locator("dialog").get_by_role("button", name="OK").click()
    expect(page.locator("h1 .chip")).to_have_text("interrupted")
    assert [(one["action"], one["via"]) for one in find_steering(lab)] == [
        ("pause", "web"),
        ("guide", "web"),
        ("stop", "web"),
    ]
    assert running.wait() == 130
    assert tab.complaints == []


def test_two_tabs_show_the_same_and_a_restart_loses_and_repeats_nothing(lab: Lab, serve: Serve, look: Look) -> None:
    record = write_night(lab, a_night())
    lines = record.read_bytes().splitlines(keepends=True)
    record.write_bytes(b"".join(lines[:20]))
    server = serve(lab)
    tab = look(server.address, viewport={"width": 360, "height": 740})
    open_run(tab)
    other = tab.open_another(server.address.partition("#")[0] + tab.page.evaluate("location.hash"))
    expect(other.locator("#log .e")).to_have_count(tab.page.locator("#log .e").count())
    server.end(signal.SIGKILL)
    expect(tab.page.locator("#link")).to_contain_text("connection lost")
    assert tab.page.evaluate("document.querySelector('.bar').clientHeight") < 120, "two rows on a phone"
    record.write_bytes(b"".join(lines))
    again = serve(lab, "--port", str(server.port))
    assert again.address == server.address
    expect(tab.page.locator("#link")).to_have_text("live")
    expect(tab.page.locator("#log .e").last).to_contain_text("stories are done")
    fresh = look(again.address)
    open_run(fresh)
    expect(fresh.page.locator("#log .e").last).to_contain_text("stories are done")
    assert tab.read_log() == fresh.read_log()
    expect(other.locator("#log .e")).to_have_count(len(tab.read_log()))


def test_a_field_keeps_the_focus_when_a_card_before_it_goes(lab: Lab, serve: Serve, look: Look) -> None:
    tab = look(serve(lab.openspec()).address)
    tab.page.locator(".change").first.wait_for()
    has_focus = tab.page.evaluate("""() => {
        const card = key => ["article", {"data-key": key}, ["textarea", {}]];
        const box = make(["div", {}, card("1"), card("2")]);
        document.body.append(box);
        const field = box.lastChild.firstChild;
        field.focus();
        patch(box, ["div", {}, card("2"), card("3")]);
        return document.activeElement === field && box.children.length === 2;
    }""")
    assert has_focus


def test_hostile_text_stays_text(lab: Lab, serve: Serve, look: Look) -> None:
    write_night(lab, hostile_night())
    tab = look(serve(lab).address)
    page = tab.page
    page.on("dialog", lambda dialog: tab.complaints.append(dialog.message))
    open_run(tab)
    expect(page.locator("#s-stories")).to_contain_text("<script>alert(1)</script>")
    expect(page.locator("#log")).to_contain_text("<img src=x onerror=alert(2)>")
    page.locator("#s-stories a").first.click()
    page.locator("#story .attempt").first.wait_for()
    page.locator("#timeline summary").click()
    page.locator("#s-timeline svg").wait_for()
    page.get_by_role("link", name="Report").click()
    page.locator(".report h1").wait_for()
    made = page.evaluate("document.querySelectorAll('img, iframe, object, form, #view script, #view style').length")
    assert made == 0
    assert "\u202e" not in page.content()
    assert tab.complaints == []


def hostile_night() -> Night:
    """Every field that an agent, a test program or an author fills has a text that would run if it were not escaped."""
    night = Night()
    night.start((HOSTILE, "two"))
    about: dict[str, Any] = {"story": "1", "iteration": 1}
    night.add("iteration_started", number=1, title=HOSTILE, entry="add-login-1-1", attempt=1, agent=HOSTILE, **about)
    said: dict[str, dict[str, Any]] = {
        "message": {"text": HOSTILE},
        "tool": {"name": HOSTILE, "detail": HOSTILE},
        "result": {"text": HOSTILE},
        "failure": {"trouble": "other", "text": HOSTILE},
        "quota": {"used": 0.5, "name": HOSTILE},
    }
    for kind, fields in said.items():
        night.add("agent", event={"kind": kind, **fields}, **about)
    night.add(
        "gate", when="after", command=HOSTILE, failed=[HOSTILE], new=[HOSTILE], tally=HOSTILE, log="../x", **about
    )
    night.add("verdict", entry="add-login-1-1", attempt=1, status="failed", summary=HOSTILE, reasons=[HOSTILE], **about)
    night.add("decision", entry="add-login-1-1", action="retry", guidance=HOSTILE, reason=HOSTILE, **about)
    night.add("question", prd_id="add-login-1", path=HOSTILE, missing=HOSTILE, **about)
    night.add("notice", text=HOSTILE)
    return night


def test_a_million_events_are_shown_at_once_and_can_be_scrolled_back(lab: Lab, serve: Serve, look: Look) -> None:
    record = write_night(lab, a_night())
    lines = record.read_bytes().splitlines(keepends=True)
    record.write_bytes(b"".join([*lines[:20], *(say(f"word {number}") for number in range(MANY))]))
    tab = look(serve(lab).address)
    open_run(tab)
    page = tab.page
    expect(page.locator("#log")).to_contain_text(f"word {MANY - 1}")
    assert page.locator("#log .e").count() <= 2000
    oldest = tab.read_log()[0]
    page.eval_on_selector("#log", "log => { log.scrollTop = 0 }")
    wait_until(lambda: tab.read_log()[0] != oldest)
    numbers = [int(row.rpartition(" ")[2]) for row in tab.read_log()]
    assert numbers == list(range(numbers[0], numbers[-1] + 1))
    with record.open("ab") as file:
        file.write(b"".join(say(f"late {number}") for number in range(5000)))
    page.locator("#newest").click()
    expect(page.locator("#log")).to_contain_text("late 4999")
    assert page.locator("#log .e").count() <= 2000
    assert tab.complaints == []


def test_the_log_of_one_story_and_then_of_all_misses_nothing(lab: Lab, serve: Serve, look: Look) -> None:
    record = write_night(lab, a_night())
    lines = record.read_bytes().splitlines(keepends=True)
    words = [say(f"word {number}", story="2" if number % 500 == 0 else "3") for number in range(8000)]
    record.write_bytes(b"".join([*lines[:20], *words]))
    tab = look(serve(lab).address)
    open_run(tab)
    tab.page.locator("#filter").select_option("2")
    expect(tab.page.locator("#log .e:visible").first).to_contain_text("2. Login form")
    seen = tab.page.locator("#log .e:visible", has_text="word").all_text_contents()
    assert [int(row.rpartition(" ")[2]) for row in seen] == list(range(0, 8000, 500))
    tab.page.locator("#filter").select_option("")
    assert wait_until(lambda: has_no_gap(read_words(tab), 7999)), read_words(tab)
    assert tab.complaints == []


def read_words(tab: Tab) -> list[int]:
    return [int(row.rpartition(" ")[2]) for row in tab.read_log() if "word" in row]


def has_no_gap(words: list[int], last: int) -> bool:
    """The old rows stay until those of the new choice arrive."""
    return words != [] and words == list(range(words[0], last + 1))


def say(text: str, story: str = "2") -> bytes:
    said = {"kind": "message", "text": text}
    event = {"at": "2026-03-01T23:00:00.000000Z", "type": "agent", "event": said, "iteration": 1, "story": story}
    return json.dumps(event, separators=(",", ":")).encode() + b"\n"


@pytest.mark.parametrize(("width", "scheme"), [(360, "light"), (1280, "dark"), (2560, "light")])
def test_everybody_can_use_it(lab: Lab, serve: Serve, look: Look, width: int, scheme: str) -> None:
    write_night(lab, a_night())
    tab = look(serve(lab).address, viewport={"width": width, "height": 900}, color_scheme=scheme)
    page = tab.page
    page.locator(".change").first.wait_for()
    check_page(tab)
    open_run(tab)
    page.locator("#s-stories a").nth(2).click()
    page.locator("#story .attempt").first.wait_for()
    page.locator("#timeline summary").click()
    page.locator("#s-timeline svg").wait_for()
    check_page(tab)
    page.keyboard.press("Escape")
    expect(page.locator("#s-stories a").nth(2)).to_be_focused()
    page.get_by_role("link", name="Report").click()
    page.locator(".report h1").wait_for()
    check_page(tab)


def check_page(tab: Tab) -> None:
    """The page never scrolls sideways, and axe finds nothing serious."""
    page = tab.page
    assert page.evaluate("document.scrollingElement.scrollWidth <= window.innerWidth")
    page.evaluate(AXE.read_text())
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    serious = [one for one in found["violations"] if one["impact"] in ("serious", "critical")]
    assert [(one["id"], [node["html"][:200] for node in one["nodes"][:3]]) for one in serious] == []


def test_somebody_without_the_key_sees_nothing_and_can_paste_it(lab: Lab, serve: Serve, look: Look) -> None:
    write_night(lab, a_night())
    server = serve(lab)
    tab = look(server.address.partition("#")[0])
    page = tab.page
    expect(page.locator("h1")).to_have_text("Open your address")
    assert "add-login" not in page.content()
    page.locator("#login").fill(server.address)
    page.keyboard.press("Enter")
    page.locator(".change").first.wait_for()
    page.reload()
    page.locator(".change").first.wait_for()


def test_the_address_can_be_pasted_into_a_tab_that_is_open(lab: Lab, serve: Serve, look: Look) -> None:
    write_night(lab, a_night())
    server = serve(lab)
    tab = look(server.address.partition("#")[0])
    expect(tab.page.locator("h1")).to_have_text("Open your address")
    tab.page.goto(server.address)
    tab.page.locator(".change").first.wait_for()
    assert "token" not in tab.page.url


def test_a_run_that_is_not_there_is_said_to_be_none(lab: Lab, serve: Serve, look: Look) -> None:
    write_night(lab, a_night())
    tab = look(serve(lab).address)
    tab.page.locator(".change").first.wait_for()
    tab.page.evaluate("location.hash = '#/nowhere/never'")
    expect(tab.page.locator(".notice")).to_contain_text("there is no such run")


def test_a_page_that_is_for_looking_has_nothing_to_press(lab: Lab, serve: Serve, look: Look) -> None:
    lab.repository(accept="held").play(default=DONE)
    lab.loop()
    tab = look(serve(lab, "--read-only").address)
    assert tab.page.locator(".change").first.text_content()
    open_run(tab)
    expect(tab.page.locator("#s-ask .card")).to_have_count(2)
    tab.page.locator("#s-stories a").first.click()
    tab.page.locator("#story .attempt").first.wait_for()
    assert tab.page.locator("[data-do]").count() == 0


def test_a_branch_that_was_rewritten_is_compared_again_at_once(lab: Lab, serve: Serve, look: Look) -> None:
    """The state of the change stays the same: only the branch moves, and moves back."""
    lab.repository(accept="held").play(default=DONE)
    lab.loop()
    newest = lab.git("rev-parse", "ralph/add-login")
    tab = look(serve(lab).address)
    open_run(tab)
    stories, numbers = tab.page.locator("#s-stories > ul > li"), tab.page.locator(".numbers")
    expect(numbers).to_contain_text("2 of 2")
    lab.git("branch", "--force", "ralph/add-login", "ralph/add-login~1")
    expect(numbers).to_contain_text("1 of 2")
    expect(stories.last).to_contain_text("its checkpoint is gone from the branch: open again")
    lab.git("branch", "--force", "ralph/add-login", newest)
    expect(numbers).to_contain_text("2 of 2")
    expect(stories.last).to_contain_text("not proven")
