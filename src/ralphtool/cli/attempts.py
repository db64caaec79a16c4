"""Commands that show what a run did: explain, attempts, diff."""

from __future__ import annotations

import os
import shlex
import subprocess
from typing import TYPE_CHECKING, Any

import click
import msgspec

from ralphtool import specs
from ralphtool.cli import arguments, targets
from ralphtool.cli.help_text import FittingCommand
from ralphtool.core import layout, project, quickjson
from ralphtool.core.amounts import format_cost, format_tokens
from ralphtool.core.text import make_printable
from ralphtool.errors import GitError, RalphError
from ralphtool.history import History
from ralphtool.record import decisions, iterations, kept_attempts, overview, questions, receipts, runs
from ralphtool.record.lines import LineReader, parse_fields
from ralphtool.views.terminal import changes, phrases, tables
from ralphtool.views.terminal.wrapping import echo, glue
from ralphtool.workspace.git import Repository

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ralphtool.history.records import Entry
    from ralphtool.judging.receipt import Receipt

_CHANGE = click.option("--change", help="The change, if there is more than one.", **arguments.ARGUMENT)
_OLD_TESTS = ("replay", "guarded")  # gates that run tests as they were
_MOST_DENIED = 20  # hosts and ports
_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object, for programs.")


def find_repository(root: str) -> Repository:
    """The repository of a project, or an error."""
    found = Repository.find(root)
    if found is None:
        raise GitError(
            f"{root} is not in a git repository: attempts are kept only with git. Run `git init` before the next run"
        )
    return found


def _find_entry(root: str, history: History, name: str, change: str | None) -> Entry:
    """The entry with this id, or the last one of the story with this id."""
    known = targets.find_history(root, name, change)
    found = history.last_entry(known.prd_id) if known else None
    if found is None or known is None or not known.has(found.id):
        id = known.earlier if known and known.earlier else name
        found = next((one for one in history.entries(prd_id=id.rpartition("-")[0]) if one.id == id), None)
    if found is None:
        raise targets.build_no_attempt_error(root, name, change, known.prd_id if known else None)
    return found


# --- explain ----------------------------------------------------------------------------------------


@click.command(cls=FittingCommand)
@click.argument("name", metavar="STORY|ENTRY", shell_complete=targets.complete_story)
@_CHANGE
@_JSON
def explain(name: str, change: str | None, as_json: bool) -> None:
    """Explain the verdict on an attempt and the decision that followed, from the records.

    STORY selects the story's last attempt, ENTRY one particular attempt.

    \b
    Examples:
      ralphtool explain 2
      ralphtool explain add-login-2-1
      ralphtool explain add-login-2-1 --json | jq .decision
    """
    root = project.find()
    history = History(root)
    found = _find_entry(root, history, name, change)
    record = _find_record(root, found.id)
    later = [one for one in history.entries(prd_id=found.prd_id) if one.iteration == found.iteration + 1]
    if as_json:
        told = {"entry": msgspec.to_builtins(found), **record, "next_entry": later[0].id if later else None}
        click.echo(quickjson.dumps(told))
        return
    echo("\n".join(_explain_lines(found, record, later[0] if later else None)).rstrip("\n"))


def _find_record(root: str, entry: str) -> dict[str, Any]:
    """The record of the run that created the entry; if there are several, the newest with a verdict."""
    for iteration in iterations.find_by_entry(root, entry):
        found = _read_record(layout.events(root, iteration.run), entry)
        if found["verdict"]:
            run = runs.read_summary(root, iteration.run)
            newer, is_accused = _find_newer_receipt(root, run.change, entry)
            told = {"proof": newer or found["proof"], "accused": is_accused, "change": run.change, "branch": run.branch}
            told["since"] = _list_decisions(root, run.change, entry)
            return {**found, **told, "directory": iteration.folder}
    nothing: dict[str, Any] = {"verdict": None, "decision": None, "gates": [], "accused": False, "directory": None}
    nothing |= {"since": [], "denied": []}
    return {**nothing, **_find_decision_of_person(root, entry)}


def _find_decision_of_person(root: str, entry: str) -> dict[str, Any]:
    """Entries that `ralphtool accept` created are in no run's record."""
    for change in overview.list_names(root):
        if receipt := _find_newer_receipt(root, change, entry)[0]:
            return {"proof": receipt, "change": change}
    return {"proof": None, "change": None}


def _list_decisions(root: str, change: str, entry: str) -> list[str]:
    """What a person has decided about the story since."""
    try:
        return decisions.describe_since_attempt(root, change, entry) if change else []
    except RalphError:
        return []  # then only what the record says


def _find_newer_receipt(root: str, change: str, entry: str) -> tuple[Any, bool]:
    """The receipt in the change's state: a person may have accepted the attempt since its run."""
    try:
        found, is_accused = receipts.find_by_entry(root, change, entry)
    except RalphError:
        return None, False  # the record of the run has the receipt of that time
    return msgspec.to_builtins(found) if found else None, is_accused


def _read_record(path: str, entry: str) -> dict[str, Any]:
    told: dict[str, Any] = {"verdict": None, "decision": None, "gates": [], "returns": [], "proof": None, "denied": []}
    is_ours, numbers = False, [0]  # of its iterations; old records have none
    denied: list[dict[str, Any]] = []
    for event in filter(None, map(parse_fields, LineReader(path).new_without_prose())):
        kind, number = event["type"], event.get("iteration") or 0
        if kind == "iteration_started":
            is_ours = event.get("entry") == entry
            told["gates"] = [] if is_ours else told["gates"]
            numbers += [number] if is_ours else []
        elif kind == "gate" and (number == numbers[-1] if number else is_ours):
            told["gates"].append(event)
        elif kind == "sent_back" and number in numbers[1:]:
            told["returns"].append(_describe_return(event))
        elif kind == "denied":
            denied.append(event)
        elif kind in ("verdict", "decision") and event.get("entry") == entry:
            told[kind] = event
            told["denied"] = [one for one in denied if one.get("story") == event.get("story")]
        elif kind == "proof" and event.get("entry") == entry:
            told[kind] = event.get("receipt")
    return told


def _describe_return(event: dict[str, Any]) -> str:
    from ralphtool.record.events import SentBack  # most commands don't need it

    others, files, tests = (tuple(map(str, event.get(name) or ())) for name in ("others", "files", "tests"))
    return phrases.describe_return(SentBack(others=others, files=files, tests=tests), lambda text, most: text[:most])


def _explain_lines(entry: Entry, record: dict[str, Any], later: Entry | None) -> list[str]:
    verdict, decision = record["verdict"] or {}, record["decision"] or {}
    receipt = receipts.parse_receipt(record["proof"])
    lines = [click.style(f"{entry.id}: {entry.status}", bold=True), f"  {make_printable(entry.summary or '')}", ""]
    lines += _build_section("Since then", list(map(make_printable, record["since"])))
    lines += _describe_recovery(entry)
    lines += _build_section("Sent back to the agent first", list(map(make_printable, record.get("returns", ()))))
    lines += _build_section("Reasons for the verdict", _list_reasons(entry, verdict, receipt))
    lines += _describe_receipt(entry, receipt)
    lines += _build_section("Gates", [_describe_gate(one) for one in record["gates"]])
    for log, failed in _list_red_logs(record, receipt):
        lines += _build_section(f"Last output of {glue(log)}", _read_excerpt(log, failed))
    lines += _build_section("Sandbox", _describe_denied(record))
    decided = (
        make_printable(f"{_describe_action(decision['action'])}: {decision.get('reason', '')}") if decision else ""
    )
    guidance = (
        (f"{phrases.name_guidance(decision['action'], entry.status)}: {make_printable(str(decision['guidance']))}")
        if decision.get("guidance")
        else ""
    )
    lines += _build_section("Decision", [one for one in (decided, guidance) if one])
    lines += _build_section("Usage", _describe_usage(verdict))
    if not verdict and not receipt:
        lines += _build_section("Records", ["the run's records are gone; this is all that the history contains"])
    if later:
        lines += _build_section("Next attempt", [f"{later.id}: {later.status}"])
    more = _list_choices(entry, receipt, record) + (_list_more(entry, record) if record["directory"] else [])
    return lines + _build_section("More", more)


def _describe_receipt(entry: Entry, receipt: Receipt | None) -> list[str]:
    """The proof of its "done"; if the attempt was refused, the test results."""
    if receipt is None:
        return []
    lines = changes.render_receipt(receipt)
    if entry.status == "completed" or receipt.state == "accepted":
        return _build_section("Proof", lines)
    return _build_section("Test results", [line.strip() for line in lines[1:]])


def _list_choices(entry: Entry, receipt: Receipt | None, record: dict[str, Any]) -> list[str]:
    """The decisions that a person can make about it."""
    accept = f"to accept it as it is: {glue(f'ralphtool accept {entry.id}')}"
    if entry.status != "completed":
        return [accept] if record["accused"] else []
    if receipt is None or receipt.state != "unproven" or not record["verdict"]:
        return []
    about = f"{shlex.quote(str(record['verdict'].get('story')))} --change {shlex.quote(record['change'])}"
    reject = make_printable(f'ralphtool reject {about} --why "…"')
    return [accept, f"to reject it: {glue(reject)}"] if record["branch"] else [accept]


def _list_more(entry: Entry, record: dict[str, Any]) -> list[str]:
    return [
        f"agent log: ralphtool logs {entry.id}",
        *([f"diff: ralphtool diff {entry.id}"] if record["branch"] else []),  # nothing is kept without git
        f"prompt and transcript: {glue(record['directory'])}",
    ]


def _describe_usage(verdict: dict[str, Any]) -> list[str]:
    read, written = verdict.get("input_tokens") or 0, verdict.get("output_tokens") or 0
    cost = format_cost(verdict.get("cost") or 0.0)
    tokens = f"{format_tokens(read)} tokens in, {format_tokens(written)} out" if read or written else ""
    return [", ".join(filter(None, (tokens, cost)))] if tokens or cost else []


def _describe_recovery(entry: Entry) -> list[str]:
    context = entry.context
    if not context or not context.recovery_action:
        return []
    told = [
        f"{_describe_action(context.recovery_action)}, after: {make_printable(context.previous_failure_reason or '')}"
    ]
    return _build_section("Background", told)


def _describe_action(name: object) -> str:
    return phrases.ACTIONS.get(str(name), str(name))


def _list_reasons(entry: Entry, verdict: dict[str, Any], receipt: Receipt | None) -> list[str]:
    reasons = [make_printable(str(one)) for one in verdict.get("reasons") or []]
    if receipt and receipt.state == "accepted" and not verdict:
        return [make_printable(entry.summary or "")]  # by a person: no agent has completed it
    if entry.status == "completed":
        reasons = ["the agent exited normally and gave this iteration's promise", make_printable(entry.summary or "")]
        reasons += _describe_guard(verdict, receipt)
    for one in verdict.get("findings") or []:
        reasons.append(make_printable(f"diff: {one.get('kind')} {one.get('path')} {one.get('detail')}"))
    if verdict.get("blocker_check"):
        reasons.append(make_printable(f"the blocker was checked: {verdict['blocker_check']}"))
    return reasons or [make_printable(entry.summary or entry.status)]


def _describe_guard(verdict: dict[str, Any], receipt: Receipt | None) -> list[str]:
    """The guard's result for the diff; empty if the attempt's records are gone."""
    if verdict.get("guard") == "off":
        return ["the guard was off: the diff was not checked"]
    if verdict.get("findings") or (receipt and receipt.suspicions and verdict.get("guard") == "warn"):
        return ["the guard was set to warn only"]
    if receipt and receipt.suspicions:
        return ["the guard suspected cheating in the diff; the result is below"]
    return ["the guard found no cheating in the diff"] if verdict.get("guard") else []


def _describe_gate(event: dict[str, Any]) -> str:
    mark, when = "green" if event.get("ok") else "red", str(event.get("when") or "")
    if mark == "red" and phrases.is_expected(when, False):
        mark = "red, as expected,"
    new = f"; newly red: {', '.join(map(str, event.get('new') or []))}" if event.get("new") else ""
    return make_printable(f"{mark} {phrases.describe_gate_time(when)}: {event.get('command')}{new}")


def _list_red_logs(record: dict[str, Any], receipt: Receipt | None) -> list[tuple[str, list[str]]]:
    """The logs of the gates that are newly red, and of the old tests that fail, with the names of these tests."""
    red = [one for one in record["gates"] if one.get("when") == "after" and one.get("new")]
    given = (record["decision"] or {}).get("given") or {}
    lost = {*((given.get("verdict") or {}).get("lost") or ()), *(receipt.lost if receipt else ())}
    old = {_name_old_run(one): one for one in record["gates"] if lost and _name_old_run(one)}  # the last ones
    failed = [one for one in old.values() if not one.get("ok")]
    named = [one for one in failed if lost & set(one.get("failed") or ())]
    shown = [(one, one["new"]) for one in red] + [(one, one.get("failed") or ()) for one in named or failed]
    return [
        (f"{record['directory']}/{os.path.basename(str(one.get('log')))}", list(map(str, new))) for one, new in shown
    ]


def _name_old_run(event: dict[str, Any]) -> tuple[str, str] | None:
    """Tests as they were may be run once more, to tell a flaky one: that is the same run."""
    when = str(event.get("when")).removesuffix("-again")
    return (when, str(event.get("command"))) if when in _OLD_TESTS else None


def _describe_denied(record: dict[str, Any]) -> list[str]:
    """A host is recorded once in a run, so the story's earlier attempts count, too."""
    from ralphtool.record.events import Denied, decode_fields  # most commands don't need it

    found = [one for one in map(decode_fields, record["denied"]) if isinstance(one, Denied)][:_MOST_DENIED]
    return [
        phrases.describe_denial(phrases.flatten(one.host, 100), one.port, phrases.flatten(one.allow)) for one in found
    ]


def _read_excerpt(log: str, failed: Sequence[str]) -> list[str]:
    from ralphtool.executors.gate_run import read_excerpt  # most explanations need no output

    return [make_printable(line) for line in read_excerpt(log, failed).splitlines()]


def _build_section(title: str, lines: list[str]) -> list[str]:
    return [click.style(title, bold=True), *(f"  {line}" for line in lines), ""] if lines else []


# --- attempts ---------------------------------------------------------------------------------------


@click.command(cls=FittingCommand)
@click.argument("change", **arguments.OPTIONAL)
@_JSON
def attempts(change: str | None, as_json: bool) -> None:
    """List the kept attempts and their commits.

    \b
    Examples:
      ralphtool attempts
      ralphtool attempts add-login --json | jq -r '.attempts[] | select(.status == "failed") | .id'
    """
    root = project.find()
    wanted, history = _list_prd_ids(root, change) if change else None, History(root)
    entries = [one for one in history.entries() if wanted is None or one.prd_id in wanted]
    kept = kept_attempts.read_own(find_repository(root), root, history, (one.id for one in entries))
    found = [one for one in entries if one.id in kept]
    rows = [{"id": one.id, "status": one.status, "commit": kept[one.id], "summary": one.summary or ""} for one in found]
    if as_json:
        click.echo(quickjson.dumps({"attempts": rows}))
        return
    if not rows:
        tables.print_line("There are no attempts yet: `ralphtool run` keeps every attempt.")
    for row in rows:
        echo(make_printable(f"{row['id']}  {row['status']:9}  {row['commit'][:10]}  {row['summary']}"), 4)


def _list_prd_ids(root: str, change: str) -> set[str]:
    spec = specs.open(root, change, questions.load_change_state(root, change).get("spec") or None)
    return {specs.prd_id(spec, story.id) for story in spec.stories()}


@click.command(cls=FittingCommand)
@click.argument("name", metavar="STORY|ENTRY", shell_complete=targets.complete_story)
@_CHANGE
@click.option("--stat", is_flag=True, help="Show only which files changed, and by how much.")
def diff(name: str, change: str | None, stat: bool) -> int:
    """Show what an attempt changed.

    STORY selects the story's last attempt, ENTRY one particular attempt.

    \b
    Examples:
      ralphtool diff 2
      ralphtool diff add-login-2-1
      ralphtool diff add-login-2-1 --stat
    """
    root = project.find()
    repository = find_repository(root)
    commit = _find_attempt(repository, root, name, change)
    before = repository.resolve(f"{commit}^") or repository.empty_tree
    command = ["git", "diff", *(["--stat"] if stat else []), before, commit]
    return subprocess.run(command, cwd=repository.top, check=False).returncode


def _find_attempt(repository: Repository, root: str, name: str, change: str | None) -> str:
    """The commit of an attempt: of the one with this name, or of the last one that was kept of a story."""
    history = History(root)
    if commit := repository.resolve(f"{layout.ATTEMPTS}{name}"):
        if own := kept_attempts.read_own(repository, root, history, [name]):
            return own[name]
        raise kept_attempts.build_lost_error(repository, name, commit)
    known = targets.find_history(root, name, change)
    there = [one for one in kept_attempts.read_all(repository) if known and (known.has(one) or one == known.earlier)]
    kept = kept_attempts.read_own(repository, root, history, there)
    numbered = {int(one.rpartition("-")[2]): commit for one, commit in kept.items() if known and known.has(one)}
    if not numbered and known and known.earlier in kept:
        return kept[known.earlier]
    if not numbered:
        raise targets.build_no_attempt_error(root, name, change, known.prd_id if known else None)
    return numbered[max(numbered)]
