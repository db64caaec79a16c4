"""`ralphtool report`: the results of a run, in four formats; for a real run, a made-up night, and bad records."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import xml.etree.ElementTree as ET
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec
import pytest
from lab import DONE, Lab
from project import COMMAND, Ralph
from views.night import RUN, STORIES, Night, a_night

from ralphtool.core import quickjson
from ralphtool.record import runs
from ralphtool.views.report import formatting, from_record, junit, markdown
from ralphtool.views.report import page as page_writer
from ralphtool.views.report.elements import Css, render_html, tag

# --- from a real run --------------------------------------------------------------------------------


TASKS = "## 1. First\n\n- [ ] 1.1 Make a\n\n## 2. Second\n\n- [ ] 2.1 Make b\n\n## 3. Third\n\n- [ ] 3.1 Make c\n"
WIDE = "wide <b>text</b> & more"


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """One run: story 1 needs two attempts and adds a learning, story 2 asks a question, story 3 fails for good."""
    lab = Lab(tmp_path_factory.mktemp("real"))
    lab.repository(TASKS, tests=["test ! -e broken"], attempts=2)
    used = {"usage": {"input_tokens": 1000, "output_tokens": 50, "cost": 0.25}}
    learn = {"learn": "never leave a file called broken behind", "type": "error-workaround"}
    bad = [used, learn, {"write": "broken", "text": WIDE}, {"tick": "all"}, {"complete": True}]
    lab.play(
        {"story": "1", "attempt": 1, "steps": bad},
        {"story": "1", "steps": [used, {"write": "a.txt", "text": f"{WIDE}\n--- not a head\n"}, *DONE[1:]]},
        {"story": "2", "told": "the vault", "steps": DONE},
        {"story": "2", "steps": [{"blocked": "REPORT_TEST_KEY is not set"}]},
        {"story": "3", "steps": [{"exit": 3}]},
    )
    assert lab.loop("--attempts", "2").exit_code == 1
    return lab


def test_a_real_run_is_told_as_it_was(real: Lab) -> None:
    told = real.run("report", "--json").json
    assert {one["id"]: one["state"] for one in told["stories"]} == {"1": "done", "2": "waiting", "3": "waiting"}
    first = told["stories"][0]
    assert [one["status"] for one in first["attempts"]] == ["failed", "completed"]
    assert first["attempts"][0]["gates"][-1]["ok"] is False
    assert first["attempts"][0]["decision"]["action"] == "retry"
    assert first["commit"] == real.git("log", "-1", "--format=%H", "--grep=Ralph-Story: 1", "ralph/add-login")
    assert told["used"]["cost"] == pytest.approx(0.5)
    assert told["verdict"] == "1 of 3 stories are done: 1 held by the existing tests; 2 need your answer."
    [learnt] = told["knowledge"]["learnt"]
    [shown] = told["knowledge"]["shown"]
    assert (learnt["text"], learnt["source"]) == ("never leave a file called broken behind", "add-login-1")
    assert (shown["id"], shown["helped"]) == (learnt["id"], 1)


def test_markdown_says_what_waits_and_how_to_answer(real: Lab) -> None:
    told = real.run("report")
    assert told.exit_code == 0, told.stderr
    lines = told.stdout.splitlines()
    assert lines[0] == "# add-login: 1 of 3 stories are done: 1 held by the existing tests; 2 need your answer."
    assert lines.index("## Needs your answer") < lines.index("## Done") < lines.index("## Time and cost")
    assert 'Answer: `ralphtool answer 2 "…"`' in lines
    assert "the variable REPORT_TEST_KEY is missing" in told.stdout
    assert "  `ralphtool diff add-login-1-2`" in lines
    assert any(line.startswith("| 1. First ") and line.endswith("| $0.50 |           $0.25 |") for line in lines)


def test_the_page_has_the_diffs_of_every_attempt(real: Lab) -> None:
    done = real.run("report", "--format", "html")
    [path] = real.root.glob(".ralph/runs/*/report.html")
    assert str(path.relative_to(real.root)) in done.stdout
    page = Page(path.read_text())
    assert "+wide <b>text</b> & more" in page.texts("plus")  # from a.txt, and from `broken`, which no checkpoint has
    assert "+--- not a head" in page.texts("plus")
    assert page.count("details", "diff") == 2
    assert page.text.count("It changed nothing.") == 3
    assert "b" not in page.tags[page.tags.index("main") : page.tags.index("pre")]


def test_a_question_is_told_as_it_stands_now(real: Lab, tmp_path: Path) -> None:
    """Answered but not yet applied; then, after the next run, no longer waiting."""
    copy = shutil.copytree(real.root, tmp_path / "copy", symlinks=True)
    [first] = runs.list_ids(str(copy))
    assert real.run("answer", "2", "it is in <b>the vault</b>", cwd=copy).exit_code == 0
    told = real.run("report", "--format", "html", "--output", "-", cwd=copy).stdout
    assert "it is in &lt;b&gt;the vault&lt;/b&gt;" in told
    assert "You have already answered" in told
    real.loop(cwd=copy)
    assert "Since the change began, all runs together: 2 runs, 6 attempts, " in real.run("report", cwd=copy).stdout
    again = real.run("report", first, cwd=copy).stdout
    assert "This question is closed" in again
    assert "Since the change began" in again


# --- from a made-up night ---------------------------------------------------------------------------


class Page(HTMLParser):
    """The elements of a page, as a parser sees them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self._open: list[tuple[str, str]] = []
        self._texts: list[tuple[str, str]] = []
        self.feed(text)
        self.close()
        assert self._open == [], "every element is closed"

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attributes]
        if tag not in ("meta", "br"):
            self._open.append((tag, dict(attributes).get("class") or ""))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop()[0] == tag

    def handle_data(self, data: str) -> None:
        self._texts.append((self._open[-1][1] if self._open else "", data))

    @property
    def text(self) -> str:
        return "".join(text for _, text in self._texts)

    def texts(self, kind: str) -> list[str]:
        return [text.rstrip("\n") for one, text in self._texts if one == kind]

    def count(self, tag: str, kind: str) -> int:
        return self.attributes.count((tag, "class", kind))


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Ralph:
    ralph = Ralph(tmp_path_factory.mktemp("night"))
    a_night().write(ralph.root)
    return ralph


@pytest.fixture(scope="module")
def page(night: Ralph) -> str:
    done = night.run("report", "--format", "html", "--output", "-")
    assert done.exit_code == 0, done.stderr
    return done.stdout


SEEN = r"<script>alert(1)</script></style><img src=x onerror=alert(2)> ]]> \x00 \ud800 \u202eevil \ufffe & | `x`"


def test_the_page_stands_alone_and_runs_nothing(page: str) -> None:
    seen = Page(page)
    assert not {"script", "img", "link", "iframe", "form", "object"} & set(seen.tags)
    addresses = [value for _, name, value in seen.attributes if name in ("href", "src", "action", "data", "srcset")]
    assert addresses
    assert all(one.startswith("#") for one in addresses)
    assert not [name for _, name, _ in seen.attributes if name.startswith("on")]
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    assert ("meta", "content", policy) in seen.attributes
    assert ("html", "lang", "en") in seen.attributes
    style = page.partition("<style>")[2].partition("</style>")[0]
    assert "--paper" in style
    assert [word for word in ("url(", "@import", "http") if word in style] == []


def test_hostile_text_stays_text_in_every_format(night: Ralph, page: str) -> None:
    assert SEEN in Page(page).text
    assert "\u202e" not in page
    told = all_formats(night)
    suites = ET.fromstring(told["junit"])
    [failure] = suites.iter("failure")
    assert failure.attrib["message"] == SEEN
    assert (failure.text or "").startswith(SEEN)
    assert "<script" not in told["markdown"].replace("\\<script", "")
    assert "\u202e" not in told["markdown"]
    assert json.loads(told["json"])["stories"][5]["attempts"][2]["summary"] == SEEN


def test_the_night_is_drawn(page: str) -> None:
    seen = Page(page)
    verdicts = {name: seen.count("g", f"bar v-{name}") for name in ("completed", "partial", "failed", "blocked")}
    assert verdicts == {"completed": 4, "partial": 1, "failed": 5, "blocked": 1}
    assert seen.count("text", "lane") == 7  # stories that were done before the run have none
    assert seen.count("g", "wait") == 2
    assert seen.count("g", "mark mark-question") == 1
    assert "waited 1 h 10 min" in seen.text
    assert "»" in seen.texts("key mark-you")
    assert "<span>5 of 9 stories are done;</span> <span>" in page  # no line starts with a semicolon
    assert [text for text in seen.texts("axis") if ":" in text][:2] == ["22:00", "23:00"]


def test_junit_is_what_programs_expect(night: Ralph) -> None:
    told = night.run("report", "--format", "junit", TZ="Asia/Tokyo").stdout
    suites = ET.fromstring(told)
    [suite] = suites
    assert suites.tag == "testsuites"
    counts = {name: suite.attrib[name] for name in ("name", "tests", "failures", "errors", "skipped")}
    assert counts == {"name": "add-login", "tests": "9", "failures": "1", "errors": "1", "skipped": "7"}
    assert suite.attrib["timestamp"] == "2026-03-01T22:00:00"
    cases = {case.attrib["name"]: case for case in suite.iter("testcase")}
    assert [child.tag for child in cases["4. Payment provider"]] == ["error", "system-out"]
    assert [child.tag for child in cases["9. Documentation for operators"]] == ["skipped"]
    assert [child.tag for child in cases["1. Set up the project"]] == ["skipped"]  # this record has no proofs
    assert cases["2. Login form"].attrib["time"] == f"{(31 + 14 + 6) * 60}.000"
    assert all_formats(night)["junit"] == told


def test_time_is_told_where_the_reader_is(night: Ralph) -> None:
    assert "from Mon 2 Mar 2026, 07:00 JST" in night.run("report", TZ="Asia/Tokyo").stdout


def test_a_terminal_without_unicode_gets_none(night: Ralph, page: str) -> None:
    done = night.run("report", PYTHONIOENCODING="ascii")
    assert done.exit_code == 0, done.stderr
    assert done.stdout.isascii()
    assert "## Needs your answer" in done.stdout
    for form, unicode in (("html", page), ("junit", night.run("report", "--format", "junit").stdout)):
        ascii = night.run("report", "--format", form, "--output", "-", PYTHONIOENCODING="ascii").stdout
        assert ascii.isascii()
        assert ascii == unicode.encode("ascii", "xmlcharrefreplace").decode() != unicode


def test_tables_are_not_padded_beyond_the_terminal(night: Ralph) -> None:
    facts = from_record.read_facts(runs.find(str(night.root), None))
    wide, narrow = markdown.render(facts), markdown.render(facts, 60)
    assert "| 2. Login form                |        2 |     31 min" in wide
    assert "| 2. Login form |   2 | 31 min | 14 min |" in narrow
    assert "| add-login-2-1 | 22:00 | failed    | 31 min" in wide
    assert markdown.render(facts, 300) == wide


def test_markdown_text_is_text() -> None:
    assert markdown.escape_text("# *a* [b](c) <i> _d_ e_f &amp; `g`") == (
        r"\# \*a\* \[b\](c) \<i\> \_d\_ e_f \&amp; `g`"
    )
    assert markdown.escape_text("``a`` `b|c` `<i>` d`") == r"\`\`a\`\` \`b\|c\` \`\<i\>\` d\`"
    assert markdown.quote_code("a `` b") == "```a `` b```"


def test_an_element_can_neither_run_nor_load() -> None:
    for refused in (
        lambda: tag("script", "x"),
        lambda: tag("a", href="https://example.org"),
        lambda: tag("a", href="javascript:x"),
        lambda: tag("p", onclick="x"),
        lambda: render_html(tag("style", Css("</style>"))),
    ):
        with pytest.raises(ValueError, match=r"page|itself"):
            refused()
    assert (
        render_html(tag("p", '<"\x00', class_='a"b')) == '<!doctype html>\n<p class="a&quot;b">&lt;&quot;\\x00</p>\n\n'
    )


# --- bad records ------------------------------------------------------------------------------------


def write(ralph: Ralph, data: bytes, run: str = RUN) -> Path:
    return ralph.write(f".ralph/runs/{run}/events.jsonl", data)


def all_formats(ralph: Ralph) -> dict[str, str]:
    """What the command writes, without starting it; every format is valid, whatever was read."""
    facts = from_record.read_facts(runs.find(str(ralph.root), None))
    told = {
        "markdown": markdown.render(facts),
        "junit": junit.render(facts),
        "html": page_writer.render(facts, {}),
        "json": quickjson.dumps(msgspec.to_builtins(facts)),
    }
    ET.fromstring(told["junit"])
    Page(told["html"])
    return told


def test_without_a_run_there_is_one_clear_error(project: Ralph) -> None:
    done = project.run("report")
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr == "Error: there are no runs yet: `ralphtool run` starts one\n"
    assert project.run("report", "--json").code == "INVALID_VALUE"


def test_a_run_that_died_is_told_as_far_as_it_got(ralph: Ralph) -> None:
    lines = a_night().lines
    cut = next(number for number, line in enumerate(lines) if b'"entry":"add-login-6-1"' in line) + 2
    write(ralph, b"\n".join(lines[:cut]) + b'\n{"at":"2026-03-02T03:00:00.000000Z","type":"verd')
    told = all_formats(ralph)
    assert ": the run died; 4 of 9 stories are done; 1 needs your answer; 4 are open." in told["html"]
    assert ": the run died; 4 of 9 stories are done" in told["markdown"].splitlines()[0]
    facts = json.loads(told["json"])
    assert facts["state"] == "died"
    assert facts["stories"][5]["attempts"][0]["status"] == "cut off"
    assert facts["next"][-1]["run"] == "ralphtool run add-login"
    assert 'name="ralphtool run"' in told["junit"]
    assert '<error message="The run died; ' in told["junit"]


def test_an_empty_record_does_not_say_that_there_was_nothing_to_do(ralph: Ralph) -> None:
    write(ralph, b"")
    told = all_formats(ralph)
    assert json.loads(told["json"])["verdict"] == "The run died; its record names no stories."


def test_a_run_that_goes_on_says_so(ralph: Ralph) -> None:
    night = Night()
    night.now = datetime.now(UTC)
    night.start(pid=os.getpid())
    night.attempt(2, 1, "failed", 0)
    night.add("iteration_started", number=2, story="2", title="x", entry="add-login-2-2", attempt=2, agent="claude")
    write(ralph, b"".join(line + b"\n" for line in night.lines))
    told = all_formats(ralph)
    assert ": still running: 1 of 9 stories are done; 8 are open." in told["html"]
    assert json.loads(told["json"])["stories"][1]["attempts"][1]["status"] == "running"
    assert f"ralphtool watch {RUN}" in told["markdown"]
    assert "not counted" not in told["markdown"]  # a column without a value is left out


def told_of(ralph: Ralph, night: Night) -> dict[str, Any]:
    write(ralph, b"".join(line + b"\n" for line in night.lines))
    told: dict[str, Any] = json.loads(all_formats(ralph)["json"])
    return told


def test_what_an_earlier_run_asked_is_told_while_the_next_goes_on(ralph: Ralph) -> None:
    """Even if the record lacks the states of its stories; questions of a later run are left out."""
    asked = {"name": "add-login-3.md", "missing": "which server?", "why": "it is not said", "asked": "2026-03-01"}
    later = {**asked, "asked": "2026-03-05T00:00:00Z"}
    questions = {"3": {"question": asked}, "4": {"question": asked}, "5": {"question": later}}
    ralph.write(".ralph/standing/add-login.json", json.dumps({"stories": questions}))
    night = Night()
    night.start()
    first = json.loads(night.lines[0])
    first["stories"][2]["state"], first["stories"][5]["state"] = "waiting", "skipped"
    night.lines[0] = json.dumps(first, separators=(",", ":")).encode()
    facts = told_of(ralph, night)
    states = ["done", "open", "waiting", "waiting", "open", "skipped", "open"]
    assert [one["state"] for one in facts["stories"]][:7] == states
    assert [one["question"]["missing"] for one in facts["stories"][2:4]] == ["which server?"] * 2
    night.end({3: "open", 4: "open"})
    assert [one["state"] for one in told_of(ralph, night)["stories"]][2:4] == ["open", "open"]


def test_what_a_person_said_since_is_how_a_story_stands(ralph: Ralph) -> None:
    night = Night()
    night.start()
    night.attempt(2, 1, "failed", 3)
    night.add("steered", action="retry", story="2", text="")
    night.attempt(3, 1, "blocked", 3, action="manual")
    night.add("question", story="3", prd_id="add-login-3", path="/p/q.md", missing="which one?")
    night.add("answered", story="3", prd_id="add-login-3", text="the blue one")
    night.add("iteration_started", story="4", entry="add-login-4-1", attempt=1)
    night.add("steered", action="skip", story="4", text="not now")
    night.add("verdict", story="4", entry="add-login-4-1", attempt=1, status="interrupted", summary="interrupted")
    night.add("decision", story="4", entry="add-login-4-1", action="stop", reason="the run was interrupted")
    night.attempt(5, 1, "transient", 3, action="wait")
    night.add("steered", action="skip", story="5", text="")
    night.attempt(5, 1, "failed", 3)
    night.add("steered", action="skip", story="no such story", text="")
    facts = told_of(ralph, night)
    assert [(one["state"], one["why"]) for one in facts["stories"][1:5]] == [
        ("open", "you asked to try it again; it is next"),
        ("open", "you answered; it is next"),
        ("skipped", "you skipped it: not now"),
        ("failed", "attempts are left"),
    ]
    assert len(facts["stories"]) == len(STORIES)
    night.end({2: "failed", 3: "waiting", 4: "open", 5: "failed"})
    assert [one["state"] for one in told_of(ralph, night)["stories"][1:5]] == ["open", "open", "skipped", "failed"]


def test_what_is_no_attempt_is_not_counted_and_what_it_used_is(ralph: Ralph) -> None:
    night = Night()
    night.start()
    night.attempt(2, 1, "transient", 10, action="wait")
    night.attempt(2, 1, "interrupted", 10, action="wait")
    night.attempt(2, 1, "failed", 10)
    night.add("iteration_started", story="2", entry="add-login-2-2", attempt=2)
    night.add("agent", event={"kind": "usage", "input_tokens": 100, "output_tokens": 5, "cost": 1.5})
    night.add("agent", minutes=2, event={"kind": "usage", "input_tokens": 20})
    write(ralph, b"".join(line + b"\n" for line in night.lines))
    told = all_formats(ralph)
    work = json.loads(told["json"])["stories"][1]["attempts"][3]["work"]
    assert work == {"seconds": 120.0, "input_tokens": 120, "output_tokens": 5, "cost": 1.5}
    assert " 1 attempt, 3 not counted, 41 min, $3.60)\n" in told["markdown"]
    assert "<dd>1<small>3 not counted</small></dd>" in told["html"]
    assert told["junit"].count("not counted as an attempt: add-login-2-1") == 2


def both_at_once(night: Night) -> None:
    """Two stories of one hour each, in parallel lanes."""
    for number in (2, 3):
        night.add(
            "iteration_started", number=number, iteration=number, story=str(number), entry=f"add-login-{number}-1"
        )
    for number, minutes in ((2, 60), (3, 5)):
        night.add(
            "verdict",
            minutes=minutes,
            iteration=number,
            story=str(number),
            entry=f"add-login-{number}-1",
            status="completed",
            seconds={"agent": 3480.0, "gates": 120.0},
        )


def test_waiting_to_be_merged_is_nobodys_work(ralph: Ralph) -> None:
    night = Night()
    night.start()
    night.add("iteration_started", number=2, iteration=2, story="2", entry="add-login-2-1")
    night.add("queued", minutes=5, iteration=2, story="2", waiting=1)
    night.add("sent_back", minutes=30, iteration=2, story="2", why="conflict", others=["3"], files=["a"])
    story = told_of(ralph, night)["stories"][1]
    [attempt] = story["attempts"]
    assert (attempt["status"], attempt["work"]["seconds"]) == ("sent back", 300.0)
    assert (story["state"], story["why"]) == ("open", "sent back to its agent because of story 3: both change a")


@pytest.mark.parametrize("is_side_by_side", [True, False])
def test_what_side_by_side_saved_is_told(ralph: Ralph, is_side_by_side: bool) -> None:
    night = Night()
    night.start()
    if is_side_by_side:
        both_at_once(night)
    else:
        night.attempt(2, 1, "completed", 60)
        night.attempt(3, 1, "completed", 60)
    night.end(dict.fromkeys(range(4, 10), "open"))
    write(ralph, b"".join(line + b"\n" for line in night.lines))
    told = all_formats(ralph)
    said = "Agents and gates worked for 2 h: side by side that took about 54 min less than one by one."
    assert [said in told[kind] for kind in ("markdown", "html")] == [is_side_by_side] * 2
    assert ("side by side" in told["markdown"]) == is_side_by_side


@pytest.mark.parametrize(("result", "steps"), [("done", []), ("interrupted", ["ralphtool run add-login"])])
def test_without_git_there_are_no_diffs_and_what_is_done_needs_no_more(
    ralph: Ralph, result: str, steps: list[str]
) -> None:
    night = Night()
    night.start(branch=None)
    night.attempt(2, 1, "completed", 3)
    night.attempt(3, 1, "failed", 3)
    night.add("run_ended", result=result, reason=result, stories=[], next=[])
    write(ralph, b"".join(line + b"\n" for line in night.lines))
    told = all_formats(ralph)
    assert [one["run"] for one in json.loads(told["json"])["next"]] == steps
    assert not [form for form in told if "ralphtool diff" in told[form]]
    assert told["markdown"].lower().count("interrupted") == (result == "interrupted"), "it is said once"
    assert "ralphtool explain add-login-3-1" in told["markdown"]


def test_what_is_no_name_of_a_change_comes_into_no_command(ralph: Ralph) -> None:
    night = Night()
    night.start(change="x; rm -rf ~")
    write(ralph, b"".join(line + b"\n" for line in night.lines))
    told = all_formats(ralph)
    assert json.loads(told["json"])["next"][-1]["run"] == "ralphtool run"
    assert told["markdown"].startswith("# unknown: ")


JUNK: tuple[Any, ...] = (
    None,
    True,
    -1,
    1e300,
    "",
    "x" * 5000,
    [],
    [None, 3, {}, "\ud800"],
    {"a": []},
    "9999-12-31T23:59:59Z",
)


def test_no_field_has_to_be_what_it_should(tmp_path: Path) -> None:
    """Every field of every event, in turn, as something else, or missing; and unknown events."""
    events = [json.loads(line) for line in a_night().lines if b'"agent","event"' not in line]
    for number, junk in enumerate([*JUNK, "missing"]):
        night = Night()
        for position, event in enumerate(events):
            names = [name for name in event if name != "type"]
            name = names[(position + number) % len(names)]
            changed = {key: value for key, value in event.items() if key != name}
            night.lines.append(json.dumps(changed if junk == "missing" else {**changed, name: junk}).encode())
        night.lines += [b"not json", b"[]", b'{"type": 3}', b'{"type":"from-the-future","at":"x"}', b"\xff\xfe"]
        (tmp_path / str(number)).mkdir()
        ralph = Ralph(tmp_path / str(number))
        night.write(ralph.root)
        assert len(json.loads(all_formats(ralph)["json"])["stories"]) >= 8, junk


def test_a_long_record_needs_little_memory(ralph: Ralph) -> None:
    """What agents print, one line that never ends, and more of everything than a report can hold."""
    night = Night()
    night.start()
    noise = json.dumps({"kind": "output", "text": "x" * 300}).encode()
    with write(ralph, b"").open("wb") as file:
        file.write(night.lines[0] + b"\n")
        file.write(b'{"at":"2026-03-01T22:00:00.000000Z","type":"agent","event":%s}\n' % noise * 100_000)
        file.write(b"y" * (64 << 20) + b"\n")
        file.write(b'{"at":"2026-03-01T23:00:00.000000Z","type":"notice","text":"%s"}\n' % (b"z" * 3000) * 3000)
    code = (
        "import sys; from ralphtool.record import runs; from ralphtool.views.report import from_record\n"
        "def most():\n"
        "    lines = open('/proc/self/status').read().splitlines()\n"
        "    return int(next(line for line in lines if line.startswith('VmHWM')).split()[1])\n"
        "run = runs.find(sys.argv[1], None); before = most(); facts = from_record.read_facts(run)\n"
        "print(most() - before, facts.left_out, len(facts.happenings))"
    )
    python = str(Path(COMMAND).with_name("python"))
    done = subprocess.run([python, "-c", code, str(ralph.root)], capture_output=True, text=True, check=True)
    kilobytes, left_out, kept = map(int, done.stdout.split())
    assert (left_out, kept) == (2700, 300)
    assert kilobytes < 48 << 10


def test_a_title_of_a_megabyte_is_cut(ralph: Ralph) -> None:
    night = Night()
    night.start(("Set up", "x" * 1_000_000, *STORIES[2:]))
    write(ralph, b"".join(line + b"\n" for line in night.lines))
    assert {form: len(text) < 60_000 for form, text in all_formats(ralph).items()} == dict.fromkeys(
        ("markdown", "junit", "html", "json"), True
    )
    assert formatting.clean_line("ab" * 500, 10) == "ababababab…"


# --- where it is written ----------------------------------------------------------------------------


def test_the_file_is_written_whole_and_its_name_tells_the_format(night: Ralph, tmp_path: Path) -> None:
    path = tmp_path / "out.xml"
    path.write_text("old")
    path.chmod(0o640)
    link = tmp_path / "link.xml"
    link.symlink_to(path)
    assert str(link) in night.run("report", "--output", str(link)).stdout
    assert link.is_symlink()
    assert path.stat().st_mode & 0o777 == 0o640
    assert ET.fromstring(path.read_text()).tag == "testsuites"
    assert night.run("report", "add-login", "--output", str(tmp_path / "new.md")).exit_code == 0
    assert (tmp_path / "new.md").read_text().startswith("# add-login: ")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["link.xml", "new.md", "out.xml"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--output", "."), "is a folder: name the file"),
        (("--output", "no/such/x.html"), "there is no folder no/such: create it"),
        (("--output", "/dev/null"), "not a regular file"),
        (("--json", "--format", "html"), "can't be combined"),
        (("nothing",), "there is no run nothing"),
        (("--format", "pdf"), "is not one of"),
        (("--output", ""), "--output needs the name of a file"),
        (("--output", "x.pdf"), "use .md, .html, .xml or .json"),
    ],
)
def test_what_can_not_be_is_refused(night: Ralph, arguments: tuple[str, ...], said: str) -> None:
    done = night.run("report", *arguments)
    assert done.exit_code in (1, 2)
    assert said in done.stderr
    assert done.stdout == ""
