"""Bad input: prd.json."""

from __future__ import annotations

import json
from typing import Any

import pytest
from cli.bad_input.calls import INIT, check_harmless, flush_twice, ok, refused
from project import Ralph

STORY: dict[str, Any] = {"id": "US-1", "title": "Cart", "acceptanceCriteria": ["can add"], "passes": False}


def prd(*stories: object, **more: Any) -> bytes:
    return json.dumps({"branchName": "ralph/shop", **more, "userStories": list(stories)}, indent=2).encode()


INIT_SHOP = ("session", "init", "--change", "shop")


NOT_JSON = {
    "empty": b"",
    "line comment": prd(STORY).replace(b"{", b"{ // ours\n", 1),
    "block comment": b"/* ours */ " + prd(STORY),
    "hash comment": b"# ours\n" + prd(STORY),
    "trailing comma in an object": prd(STORY).replace(b"false\n", b"false,\n"),
    "trailing comma in a list": prd(STORY).replace(b"    }\n", b"    },\n"),
    "NaN": prd({**STORY, "priority": float("nan")}),
    "Infinity": prd({**STORY, "priority": float("inf")}),
    "single quotes": b"{'userStories': []}",
    "unquoted key": b"{userStories: []}",
    "truncated": prd(STORY)[:-20],
    "twice": prd(STORY) * 2,
    "binary": bytes(range(256)),
    "not UTF-8": prd(STORY).replace(b"Cart", b"C\xe4rt"),
    "UTF-16": prd(STORY).decode().encode("utf-16"),
    "raw line feed in a text": prd(STORY).replace(b"Cart", b"Ca\nrt"),
    "deep nesting": b'{"userStories": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "deep nesting of objects": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
}


WRONG_TYPES: dict[str, tuple[bytes, str]] = {
    "a text at the top": (b'"shop"', "object"),
    "null at the top": (b"null", "object"),
    "no stories": (b'{"branchName": "shop"}', "userStories"),
    "stories are null": (b'{"branchName": "shop", "userStories": null}', "userStories"),
    "stories are an object": (b'{"branchName": "shop", "userStories": {}}', "userStories"),
    "stories are a text": (b'{"branchName": "shop", "userStories": "x"}', "userStories"),
    "a story is a text": (prd("Cart"), "userStories[0]"),
    "a story is null": (prd(STORY, None), "userStories[1]"),
    "id is a list": (prd({**STORY, "id": ["US-1"]}), "userStories[0].id"),
    "id is a fraction": (prd({**STORY, "id": 1.5}), "userStories[0].id"),
    "id is a bool": (prd({**STORY, "id": True}), "userStories[0].id"),
    "title is a number": (prd({**STORY, "title": 5}), "userStories[0].title"),
    "description is a list": (prd({**STORY, "description": []}), "userStories[0].description"),
    "criteria are a text": (prd({**STORY, "acceptanceCriteria": "x"}), "userStories[0].acceptanceCriteria"),
    "a criterion is a number": (prd({**STORY, "acceptanceCriteria": ["x", 5]}), "acceptanceCriteria[1]"),
    "a criterion is null": (prd({**STORY, "acceptanceCriteria": [None]}), "acceptanceCriteria[0]"),
    "priority is a list": (prd({**STORY, "priority": ["high"]}), "userStories[0].priority"),
    "priority is a bool": (prd({**STORY, "priority": True}), "userStories[0].priority"),
    "passes is a text": (prd({**STORY, "passes": "yes"}), "userStories[0].passes"),
    "passes is a number": (prd({**STORY, "passes": 1}), "userStories[0].passes"),
    "optional is a text": (prd({**STORY, "optional": "no"}), "userStories[0].optional"),
    "labels are a text": (prd({**STORY, "labels": "optional"}), "userStories[0].labels"),
    "a label is an object": (prd({**STORY, "labels": [{}]}), "labels[0]"),
    "dependsOn is a text": (prd({**STORY, "dependsOn": "US-2"}), "userStories[0].dependsOn"),
    "dependsOn holds an object": (prd({**STORY, "dependsOn": [{}]}), "dependsOn[0]"),
    "depends on nothing": (prd({**STORY, "dependsOn": ["US-9"]}), "US-9"),
    "waits for itself": (prd({**STORY, "dependsOn": ["US-1"]}), "US-1"),
}


class TestBrokenPrd:
    @pytest.mark.parametrize("how", NOT_JSON)
    def test_not_json(self, ralph: Ralph, how: str) -> None:
        path = ralph.write("prd.json", NOT_JSON[how])
        error = refused(ralph, *INIT_SHOP)
        assert error["code"] == "SPEC_ERROR"
        assert str(path) in error["error"]

    @pytest.mark.parametrize("how", NOT_JSON)
    def test_not_json_any_more(self, ralph: Ralph, how: str) -> None:
        ralph.write("prd.json", prd(STORY))
        ralph.begin("shop")
        ralph.write("prd.json", NOT_JSON[how])
        for command in (("status",), ("task", "done", "US-1.1")):
            assert refused(ralph, *command)["code"] == "SPEC_ERROR"

    @pytest.mark.parametrize("how", WRONG_TYPES)
    def test_wrong_types(self, ralph: Ralph, how: str) -> None:
        content, named = WRONG_TYPES[how]
        path = ralph.write("prd.json", content)
        error = refused(ralph, *INIT_SHOP)
        assert error["code"] == "SPEC_ERROR"
        assert str(path) in error["error"]
        assert named in error["error"]

    def test_a_folder_in_its_place(self, ralph: Ralph) -> None:
        (ralph.root / "prd.json").mkdir()
        error = refused(ralph, *INIT_SHOP)
        assert error["code"] in ("CHANGE_NOT_FOUND", "SPEC_ERROR", "IO_ERROR")
        assert str(ralph.root) in error["error"]

    @pytest.mark.parametrize("content", [b"{", b"[]", b"\xff"])
    def test_a_broken_one_does_not_keep_other_changes_from_working(self, project: Ralph, content: bytes) -> None:
        project.write("prd.json", content)
        assert ok(project, *INIT)["change_name"] == "add-login"


class TestUnusualPrdThatWorks:
    def finish(self, ralph: Ralph, content: bytes) -> bytes:
        """Completes the only task of the only story; returns the new content of the file."""
        path = ralph.write("prd.json", content)
        ralph.begin("shop")
        [task] = ok(ralph, "context")["tasks"]
        assert ok(ralph, "task", "done", task["id"])["story_complete"] is True
        return path.read_bytes()

    def test_unknown_keys_and_spacing_are_kept(self, ralph: Ralph) -> None:
        content = (
            b'{"zeta":1.50 , "branchName"\t:"ralph/shop",\r\n"userStories":[ {"passes":false,"extra":{"passes":false},'
            b'"n":1E+2,"id":"US-1","title":"Caf\\u00e9 \xe2\x82\xac \\/"} ],"passes":false}\r\n\r\n'
        )
        assert self.finish(ralph, content) == content.replace(b'{"passes":false,"extra"', b'{"passes":true,"extra"')

    def test_byte_order_mark(self, ralph: Ralph) -> None:
        content = b"\xef\xbb\xbf" + prd(STORY)
        assert self.finish(ralph, content) == content.replace(b"false", b"true")

    def test_missing_passes_is_added(self, ralph: Ralph) -> None:
        after = self.finish(ralph, prd({"id": "US-1", "title": "Cart"}))
        assert json.loads(after)["userStories"] == [{"id": "US-1", "title": "Cart", "passes": True}]

    @pytest.mark.parametrize("priority", [None, 0, -1, 2.5, 10**400, 1e308])
    def test_any_number_is_a_priority(self, ralph: Ralph, priority: object) -> None:
        after = self.finish(ralph, prd({**STORY, "priority": priority}))
        assert json.loads(after)["userStories"][0] == {**STORY, "priority": priority, "passes": True}

    def test_nulls_count_as_absent(self, ralph: Ralph) -> None:
        nulls = dict.fromkeys(["description", "acceptanceCriteria", "passes", "labels", "dependsOn", "optional"])
        after = self.finish(ralph, prd({"id": "US-1", "title": "Cart", **nulls}))
        assert json.loads(after)["userStories"][0]["passes"] is True

    @pytest.mark.parametrize(
        "id",
        ["a b", "a #", "../x", "1\n## Forged", "\x1b[31m", "\ud800", "é", "x" * 5000],
        ids=lambda text: ascii(text)[:20],
    )
    def test_any_text_is_an_id(self, ralph: Ralph, id: str) -> None:
        """It is not used as a file name, and is written out safely."""
        path = ralph.write("prd.json", prd({**STORY, "id": id}))
        ralph.begin("shop")
        assert ok(ralph, "status")["story"]["id"] == id
        ok(ralph, "learn", "x")
        assert flush_twice(ralph, ralph.root / "shop-learnings.md")["learnings_written"] == 1
        check_harmless(ralph.root / "shop-learnings.md", ["## Learnings", "### "])
        assert sorted(ralph.root.iterdir()) == [ralph.root / ".ralph", path, ralph.root / "shop-learnings.md"]
