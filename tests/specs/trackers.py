"""Stand-ins for `gh`, `bd` and `br`, and a fake GitHub for the real `gh`: all of them keep their issues in a file.

Their output was checked against the documentation of each program. The real `gh` is used too, if it is
installed: it talks to the fake GitHub through a socket, and the tests of reading and writing run with both.
"""

from __future__ import annotations

import http.server
import json
import os
import shutil
import socketserver
import stat
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from project import Ralph

START = """\
#!{python} -I
import json, os, sys, time
FOLDER = {folder!r}
def load(name, default):
    try:
        return json.load(open(os.path.join(FOLDER, name)))
    except FileNotFoundError:
        return default
def save(name, value):
    path = os.path.join(FOLDER, name)
    json.dump(value, open(path + ".new", "w"))
    os.replace(path + ".new", path)
arguments = sys.argv[1:]
with open(os.path.join(FOLDER, "calls"), "a") as calls:
    calls.write(json.dumps(arguments) + "\\n")
how = load("behaviour", "")
if how == "hang":
    time.sleep(3600)
if how == "rubbish":
    print("Welcome! <html>"); raise SystemExit(0)
if how == "fail":
    print("dial tcp: lookup api.github.com: no such host", file=sys.stderr); raise SystemExit(1)
if how == "latin1":
    sys.stdout.buffer.write(b'[{{"id": "\\xe9"}}]'); raise SystemExit(0)
if how == "flood":
    while True:
        sys.stdout.write("x" * 2**20)
if how == "wrong types":
    print('[{{"number": "twelve", "id": 12, "title": [], "body": 3}}]'); raise SystemExit(0)
if how == "no objects":
    print("[1, 2]"); raise SystemExit(0)
options = {{one.split("=", 1)[0]: one.split("=", 1)[1] for one in arguments if one.startswith("--") and "=" in one}}
words = [one for one in arguments if not one.startswith("--")]
"""

GH = """\
issues = load("issues", {})
if words == ["auth", "token"]:
    if how == "logged out":
        print("no oauth token", file=sys.stderr); raise SystemExit(1)
    print("a-token"); raise SystemExit(0)
assert words[0] == "issue", words
verb = words[1]
def pick(issue):
    return {name: issue.get(name) for name in options["--json"].split(",")}
if verb == "list":
    wanted = [one for one in issues.values() if options.get("--milestone", "") == one.get("milestone")
              or options.get("--label") in one.get("labels", [])]
    wanted = [one for one in wanted if options["--state"] == "all" or one["state"] == "OPEN"]
    print(json.dumps([pick(one) for one in wanted][: int(options["--limit"])])); raise SystemExit(0)
if words[2] not in issues:
    print("GraphQL: Could not resolve to an issue with the number of " + words[2] + ".", file=sys.stderr)
    raise SystemExit(1)
issue = issues[words[2]]
if verb == "view":
    print(json.dumps(pick(issue)))
elif verb == "edit":
    issue["body"] = sys.stdin.buffer.read().decode()
    print(issue["url"])
elif verb == "comment":
    issue["comments"].append({"body": sys.stdin.read()})
    print(issue["url"] + "#issuecomment-1")
elif verb == "close":
    issue["state"] = "CLOSED"
else:
    raise SystemExit(2)
if verb != "view":
    save("issues", issues)
"""

BEADS = """\
issues = load("issues", {})
def parents(issue):
    return [one for one in issue.get("dependencies", [])]
def details(issue):
    own = {name: value for name, value in issue.items() if name != "dependencies"}
    def relation(other, kind):
        return {"id": other["id"], "title": other["title"], "status": other["status"], "priority": 2,
                "dependency_type": kind}
    own["dependencies"] = [relation(issues[one["depends_on_id"]], one["type"]) for one in parents(issue)
                           if one["depends_on_id"] in issues]
    own["dependents"] = [relation(other, one["type"]) for other in issues.values() for one in parents(other)
                         if one["depends_on_id"] == issue["id"]]
    return own
def fail(id):
    if PROGRAM == "br":
        error = {"error": {"code": "ISSUE_NOT_FOUND", "message": "Issue not found: " + id, "retryable": False}}
    else:
        error = {"schema_version": 1, "error": "issue not found: " + id, "code": "not_found"}
    print(json.dumps(error), file=sys.stderr); raise SystemExit(3 if PROGRAM == "br" else 1)
verb, ids = words[0], words[1:]
if verb == "export" and PROGRAM == "bd":
    for issue in issues.values():
        print(json.dumps({"_type": "issue", **issue}))
    print(json.dumps({"_type": "memory", "key": "k", "value": "v"}))
elif verb == "show":
    for id in ids:
        if id not in issues:
            fail(id)
    found = [details(issues[id]) for id in ids]
    if PROGRAM == "bd":
        for one in found:
            del one["dependents"]
        print("BD_JSON_ENVELOPE=1 will be the default", file=sys.stderr)
        print(json.dumps({"schema_version": 1, "data": found} if how == "envelope" else found))
    else:
        print(json.dumps(found, indent=2))
elif verb == "close":
    [id] = ids
    if id not in issues:
        fail(id)
    issues[id]["status"] = "closed"
    issues[id]["close_reason"] = options["--reason"]
    save("issues", issues)
    print(json.dumps([issues[id]]))
else:
    print("unknown command", file=sys.stderr); raise SystemExit(2)
"""


class Tracker:
    """One of the programs, on the PATH of a project, and the issues that it knows."""

    def __init__(self, ralph: Ralph, program: str) -> None:
        self.ralph = ralph
        self.program = program
        self.folder = ralph.root.parent / f"{program}-state"
        self.folder.mkdir()
        self.bin = ralph.root.parent / "bin"
        self.bin.mkdir(exist_ok=True)
        body = GH if program == "gh" else f"PROGRAM = {program!r}\n{BEADS}"
        self.write_program(START.format(python=sys.executable, folder=str(self.folder)) + body)
        ralph.env["PATH"] = f"{self.bin}{os.pathsep}{ralph.env['PATH']}"

    def write_program(self, text: str) -> None:
        path = self.bin / self.program
        path.write_text(text)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def behave(self, how: str) -> None:
        (self.folder / "behaviour").write_text(json.dumps(how))

    @property
    def issues(self) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = json.loads((self.folder / "issues").read_text())
        return found

    def put(self, **fields: Any) -> None:
        """Creates an issue, or changes one."""
        path = self.folder / "issues"
        issues = self.issues if path.exists() else {}
        key = str(fields.get("number", fields.get("id")))
        issues[key] = {**issues.get(key, {}), **fields}
        path.write_text(json.dumps(issues))

    def calls(self) -> list[list[str]]:
        path = self.folder / "calls"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def put_issue(tracker: Tracker, number: int, title: str, body: str, **more: Any) -> None:
    url = f"https://github.com/owner/name/issues/{number}"
    fields = {"state": "OPEN", "comments": [], "labels": [], **more}
    tracker.put(number=number, title=title, body=body, url=url, **fields)


def put_bead(
    tracker: Tracker, id: str, title: str, parent: str = "", blocks: list[str] | None = None, **more: Any
) -> None:
    made = [*([(parent, "parent-child")] if parent else []), *((one, "blocks") for one in blocks or [])]
    dependencies = [{"issue_id": id, "depends_on_id": other, "type": kind} for other, kind in made]
    fields = {"status": "open", "priority": 2, "issue_type": "task", "created_at": "2026-01-01T00:00:00Z", **more}
    tracker.put(id=id, title=title, **({"dependencies": dependencies} if dependencies else {}), **fields)


def export(tracker: Tracker, ralph: Ralph) -> Path:
    """The exported file, as `br` commits it."""
    lines = "".join(f"{json.dumps(issue)}\n" for issue in tracker.issues.values())
    return ralph.write(".beads/issues.jsonl", lines)


# --- a fake GitHub for the real gh ------------------------------------------------------------------


REAL_GH = shutil.which("gh")  # found before a test puts a stand-in in its place


class Answer(http.server.BaseHTTPRequestHandler):
    """Answers the queries that `gh issue` makes, from the file of the stand-in."""

    tracker: Tracker

    def log_message(self, format: str, *arguments: Any) -> None:
        pass

    def address_string(self) -> str:
        return "socket"

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.reply(self.answer(asked["query"], asked["variables"]))

    def reply(self, value: dict[str, Any]) -> None:
        data = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def answer(self, query: str, variables: dict[str, Any]) -> dict[str, Any]:
        issues = self.tracker.issues
        if "mutation" in query:
            return {"data": self.change(query, variables["input"])}
        if "search(" in query:
            return {"data": {"repository": {"hasIssuesEnabled": True}, "search": self.search(variables["query"])}}
        if "CommentsForIssue" in query:
            return {"data": {"node": {"comments": self.comments(issues[variables["id"]])}}}
        issue = issues.get(str(variables["number"]))
        if issue is None:
            error = f"Could not resolve to an issue or pull request with the number of {variables['number']}."
            return {"data": {"repository": {"issue": None}}, "errors": [{"type": "NOT_FOUND", "message": error}]}
        known = {name: issue[name] for name in ("number", "title", "body", "state", "url")}
        known |= {"id": str(issue["number"]), "__typename": "Issue"}
        if "comments(" in query:
            known = {"id": known["id"], "__typename": "Issue", "comments": self.comments(issue)}
        else:
            known = {name: value for name, value in known.items() if name == "__typename" or name in query}
        return {"data": {"repository": {"hasIssuesEnabled": True, "issue": known}}}

    def comments(self, issue: dict[str, Any]) -> dict[str, Any]:
        nodes = [{"id": str(number), "body": one["body"]} for number, one in enumerate(issue["comments"])]
        return {"nodes": nodes, "totalCount": len(nodes), "pageInfo": {"hasNextPage": False, "endCursor": ""}}

    def search(self, query: str) -> dict[str, Any]:
        found = []
        for issue in self.tracker.issues.values():
            named = f"milestone:{issue.get('milestone')} " in query
            labelled = any(f"label:{label} " in query for label in issue["labels"])
            if (named or labelled) and ("state:open" not in query or issue["state"] == "OPEN"):
                found.append({name: issue[name] for name in ("number", "title", "body", "state", "url")})
        return {"issueCount": len(found), "nodes": found, "pageInfo": {"hasNextPage": False, "endCursor": ""}}

    def change(self, query: str, given: dict[str, Any]) -> dict[str, Any]:
        id = given.get("id") or given.get("subjectId") or given.get("issueId")
        issue = self.tracker.issues[str(id)]
        if "updateIssue" in query:
            self.tracker.put(number=issue["number"], body=given["body"])
            return {"updateIssue": {"__typename": "UpdateIssuePayload"}}
        if "addComment" in query:
            self.tracker.put(number=issue["number"], comments=[*issue["comments"], {"body": given["body"]}])
            return {"addComment": {"commentEdge": {"node": {"url": issue["url"]}}}}
        self.tracker.put(number=issue["number"], state="CLOSED")
        return {"closeIssue": {"issue": {"id": str(id)}}}


class SocketServer(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True


@contextmanager
def real_gh(tracker: Tracker) -> Iterator[None]:
    """The installed `gh` in place of the stand-in, with the fake GitHub behind it."""
    (tracker.bin / "gh").unlink()
    (tracker.bin / "gh").symlink_to(str(REAL_GH))
    path = tracker.folder / "s"
    config = tracker.folder / "config"
    config.mkdir()
    (config / "config.yml").write_text(f"http_unix_socket: {path}\n")
    tracker.ralph.env |= {"GH_CONFIG_DIR": str(config), "GH_TOKEN": "a-token", "GH_REPO": "owner/name"}
    answer = type("BoundAnswer", (Answer,), {"tracker": tracker})
    with SocketServer(str(path), answer) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()
