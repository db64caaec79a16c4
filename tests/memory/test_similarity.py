"""When two texts say the same: repeats are found; other learnings and contradictions are not repeats."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from project import DATA

from ralphtool.memory.similarity import LIKELY, RELATED, SAME, Match, match_texts
from ralphtool.memory.word_frequency import find_weight


def level(one: str, other: str, same_fingerprint: bool = False) -> str:
    return match_texts(one, other, find_weight, same_fingerprint).level


@pytest.mark.parametrize(("file", "found"), [("repeats.jsonl", 0.97), ("repeats_held_out.jsonl", 0.95)])
def test_repeats_are_found_and_others_are_not_taken_for_them(file: str, found: float) -> None:
    total: Counter[str] = Counter()
    taken: Counter[str] = Counter()
    for line in (DATA / file).read_text(encoding="utf-8").splitlines():
        pair = json.loads(line)
        total[pair["kind"]] += 1
        taken[pair["kind"]] += level(pair["one"], pair["other"]) == "same"
    shares = {kind: taken[kind] / number for kind, number in total.items()}
    assert min(total["repeat"], total["different"]) > 350
    assert total["opposite"] > 150
    assert shares["repeat"] >= found
    assert shares["different"] <= 0.01
    assert shares["opposite"] <= 0.05


@pytest.mark.parametrize("file", ["negations.jsonl", "negations_held_out.jsonl"])
def test_a_text_and_its_negation_are_told_apart(file: str) -> None:
    taken: dict[str, list[bool]] = {"repeat": [], "opposite": []}
    for line in (DATA / file).read_text(encoding="utf-8").splitlines():
        pair = json.loads(line)
        taken[pair["kind"]].append(level(pair["one"], pair["other"]) == "same")
    assert sum(taken["repeat"]) >= 0.93 * len(taken["repeat"])
    assert sum(taken["opposite"]) <= 0.05 * len(taken["opposite"])


@pytest.mark.parametrize("kind", ["repeat", "different", "opposite"])
def test_it_does_not_matter_which_text_comes_first(kind: str) -> None:
    pairs = [json.loads(line) for line in (DATA / "repeats.jsonl").read_text(encoding="utf-8").splitlines()]
    for pair in pairs:
        if pair["kind"] == kind:
            forth = match_texts(pair["one"], pair["other"], find_weight)
            back = match_texts(pair["other"], pair["one"], find_weight)
            assert (forth.level, forth.is_opposite) == (back.level, back.is_opposite), pair
            assert forth.score == pytest.approx(back.score)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Run `make db` before the tests.", "Before the tests, run `make db`."),
        ("Run migrations before the tests.", "Run the tests after the migrations."),
        ("Do not commit .env files", "- **Never** commit `.env` files!"),
        ("Use the Clock interface, not time.Now().", "Never call time.Now(), use the Clock interface."),
        ("The tests need Redis.", "The tests fail without Redis."),
        ("`src/app/main.py` line 42 raises KeyError", "src/app/main.py:57 raises a KeyError"),
        ("/builds/acme/runner/checkout/src/app/main.py is generated", "/home/bob/projects/app/main.py is generated"),
        ("Lesson learned: the cache is shared", "TIL the cache is shared"),
        ("The tokeniser normalises colours", "The tokenizer normalizes colors"),
        ("Retry at most forty-five times", "Retry at most 45 times"),
        ("Calls take 15 minutes", "Calls take fifteen mins"),
        ("The importer retuns no rows", "The importer returns no rows"),
        ("Don’t read the settings early", "Do not read the settings early"),
        ("Перед запуском тестов нужны миграции", "миграции нужны перед запуском тестов!"),
        ("테스트 전에 마이그레이션을 실행하세요", "마이그레이션을 테스트 전에 실행하세요"),
        ("The worker died (run 7f3a9c2e1b4d, 2025-03-14T09:26:53Z)", "The worker died"),
    ],
)
def test_another_wording_is_a_repeat(one: str, other: str) -> None:
    assert level(one, other) == "same"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("run `make db` before tests", "run `make lint` before tests"),
        ("run make db before tests", "run make lint before tests"),
        ("The server listens on port 8080", "The server listens on port 9090"),
        ("No module named 'yaml'", "No module named 'toml'"),
        ("TS2345 when building the app", "TS2322 when building the app"),
        ("Set the timeout to 30", "Set the timeout to 60"),
        ("Set the timeout to 30s", "Set the timeout to 60s"),
        ("Use Python 3.11 for the build", "Use Python 3.12 for the build"),
        ("Release 3.4.0 of the client", "Release 3.3.4 of the client"),
        ("Use --fast for local builds", "Use --frozen for local builds"),
        ("config.yaml overrides the defaults", "settings.toml overrides the defaults"),
        ("The users table has soft deletes", "The orders table has soft deletes"),
        ("`lock --all` keeps versions, a plain `lock` not", "`lock --all` keeps versions, a plain `tidy` not"),
        (
            'Error: Reference to undeclared resource on main.tf line 33, in output "web":',
            'Error: Reference to undeclared module on main.tf line 67, in output "web":',
        ),
        ("java.lang.OutOfMemoryError: Java heap space", "java.lang.OutOfMemoryError: Metaspace"),
    ],
)
def test_a_text_of_the_same_make_is_another_one(one: str, other: str) -> None:
    for found in (match_texts(one, other, find_weight), match_texts(one, other, find_weight, "0" in one)):
        assert found.level != "same"
        assert not found.is_opposite


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Use tabs in Makefiles.", "Don't use tabs in Makefiles."),
        ("The cache is persistent.", "The cache is not persistent."),
        ("Always format generated code.", "Never format generated code."),
        ("Migrations are run at startup.", "Migrations are no longer run at startup."),
        ("Start the server with the proxy.", "Start the server without the proxy."),
        ("Retries are enabled for uploads.", "Retries are disabled for uploads."),
        ("Seed the data before starting the worker.", "Seed the data after starting the worker."),
        ("The token must be sent.", "The token must not be sent."),
        ("The worker can write to the cache.", "The worker can't write to the cache."),
        ("The worker can write to the cache.", "The worker can’t write to the cache."),
        ("The worker can write to the cache.", "The worker cannot write to the cache."),
        ("Set `debug` to true in staging.", "Set `debug` to false in staging."),
        ("The firewall allows SSH.", "The firewall forbids SSH."),
        ("Increase the pool size for load tests.", "Decrease the pool size for load tests."),
        ("The tenant header is required on all routes.", "The tenant header is optional on all routes."),
        ("Add the flag to the build script.", "Remove the flag from the build script."),
        ("The flag is added to the build script.", "The flag is removed from the build script."),
        ("The smoke tests pass on ARM.", "The smoke tests fail on ARM."),
        ("Hot reload works with symlinks.", "Hot reload doesn't work with symlinks."),
        ("Scale the workers up at night.", "Scale the workers down at night."),
        ("The auth filter runs first in the chain.", "The auth filter runs last in the chain."),
        ("Include the vendor folder in coverage.", "Exclude the vendor folder in coverage."),
        ("The storage client is sync.", "The storage client is async."),
        ("The formatter is safe for threads.", "The formatter is unsafe for threads."),
        ("An empty list is valid here.", "An empty list is invalid here."),
        ("The column is nullable.", "The column is non-nullable."),
        ("The two clients are connected.", "The two clients are disconnected."),
        ("Ids are ordered.", "Ids are unordered."),
        ("Turn on strict mode in CI.", "Turn off strict mode in CI."),
        ("Use the v2 client instead of the v1 client.", "Use the v1 client instead of the v2 client."),
        ("Prefer composition over inheritance.", "Prefer inheritance over composition."),
        ("The CLI logs to stderr, so stdout can be piped.", "The CLI logs to stdout, so stderr can be piped."),
        ("Тесты нужно запускать с базой.", "Тесты не нужно запускать с базой."),
    ],
)
def test_a_denial_is_no_repeat(one: str, other: str) -> None:
    found = match_texts(one, other, find_weight)
    assert (found.level, found.is_opposite) == ("related", True)
    assert RELATED <= found.score < LIKELY


def test_a_denial_of_a_denial_is_none() -> None:
    assert (
        level("The setup is not invalid when the list is empty", "The setup is valid when the list is empty") == "same"
    )
    assert level("`unwrap` is not allowed in the library code", "`unwrap` is forbidden in the library code") == "same"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("It is safe to always retry here.", "It is safe to never retry here."),
        ("The loader reads the file twice.", "The loader fails to read the file twice."),
        ("The flag is needed for local builds.", "The flag is unnecessary for local builds."),
        ("Use star imports in the package.", "Star imports are forbidden in the package."),
        ("Generated code is linted in CI.", "Linting skips generated code in CI."),
        ("The `id` is a number, or else a word.", "The `id` isn't a number, or else a word."),
    ],
)
def test_what_denies_in_other_words_is_no_repeat(one: str, other: str) -> None:
    assert level(one, other) != "same"
    assert level(other, one) != "same"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Did not hear from 10.2.3.4", "Did not hear from 192.168.7.8"),
        ("Not enough room for rdd_21_2 (4.2 KB so far)", "Not enough room for rdd_3_40 (17 MB so far)"),
        ("attempt_1445_0020_m_000001_0: Committed", "attempt_1502_0001_m_000321_1: Committed"),
        ("opened for the user by (uid=0)", "opened for the user by (uid=500)"),
        ("size of the lower part of a.........0 (0M)", "size of the lower part of a.........3 (8M)"),
        ("lent the card 00:1a:2b:3c:4d:5e to a port", "lent the card 00:1a:2b:3c:4d:5f to a port"),
    ],
)
def test_a_line_of_a_program_is_known_by_its_fingerprint(one: str, other: str) -> None:
    assert level(one, other, same_fingerprint=True) == "same"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Running task 3.0 in stage 61.0 (TID 352)", "Running check 3.0 in stage 61.0 (TID 352)"),
        ("interrupt: illegal instruction 0", "interrupt: privileged instruction 0"),
        ("Closed the channel to 10.2.3.4 at once", "Closed the session to 10.2.3.4 at once"),
        ("FATAL ERROR: Reached heap limit in zone 7", "FATAL ERROR: Reached stack limit in zone 7"),
        ("relay: link to 10.2.3.4 closed", "relay: link from 10.2.3.4 closed"),
        ("ClusterDisk: There is no mirror for pool disk7", "ClusterDisk: There is no server for pool disk7"),
        ("Alarm{aa90550 type 3 when 50914} was set", "Alarm{aa90550 type 3 when 50914} was lost"),
        ("page fault", "page fault: write to read-only memory.....1"),
        ("startUpload begin", "startUpload end"),
        ("onKey code=3 flags=2b000002 down true", "onKey code=3 flags=2b000002 down false"),
        ("showPanel,inCall =false,isOn = true", "showPanel,inCall =false,isOn = false"),
        ("initConsent the consent is true", "initConsent the consent switch is open, start push consent data!"),
        ("countSteps steps is 0", "countSteps steps is 0, syncs is 0"),
        ("Starting PackageInstaller finalization.", "PackageInstaller service starts successfully."),
        ("total of 1 disk error(s) corrected", "total of 1 disk error(s) corrected over 2487 seconds"),
        ("tar: b.tar: Cannot open: No such file or directory", "tar: a/a.tar: Cannot open: No such file or directory"),
        ("a.c:3: error: expected ')' before '}' token", "a.c:9: error: expected ',' before '}' token"),
    ],
)
def test_lines_of_programs_are_not_the_same_by_likeness(one: str, other: str) -> None:
    assert level(one, other) != "same"


def test_equal_fingerprints_decide_for_output_and_not_for_advice() -> None:
    one, other = "Error: request 4711 failed after 30 s", "Error: request 4712 failed after 31 s"
    assert level(one, other) != "same"
    assert level(one, other, same_fingerprint=True) == "same"
    assert level("Set the timeout to 30 s", "Set the timeout to 60 s", same_fingerprint=True) != "same"
    for advice in (
        "It works with (size=%s)",
        "The pool has max=%s, min=1",
        "max=%s, min=1 is enough for all of the tests",
    ):
        assert level(advice % 10, advice % 20, same_fingerprint=True) != "same"
    swapped = "Node 18 is needed, Node 20 breaks it", "Node 20 is needed, Node 18 breaks it"
    assert level(*swapped, same_fingerprint=True) != "same"


@pytest.mark.parametrize("text", ["", " \n", "\t\r\n"])
def test_nothing_is_no_repeat_of_nothing(text: str) -> None:
    assert match_texts(text, text, find_weight) == Match("new", 0.0)
    assert match_texts(text, "", find_weight) == match_texts("", "make db", find_weight) == Match("new", 0.0)


@pytest.mark.parametrize(
    "text",
    [
        "a",
        "!!!",
        "the of and",
        "\ud800",
        "\x00\x1b[31m",
        "x" * 1_000_000,
        "foo bar " * 125_000,
        "'`\"" * 300_000,
        "- " * 500_000,
        "1:" * 500_000,
        "note: " * 170_000,
        "/" * 1_000_000,
        "not " * 250_000,
        "データ" * 300_000,
    ],
    ids=lambda text: repr(text[:6]),
)
def test_any_text_is_answered(text: str) -> None:
    assert match_texts(text, text, find_weight).level == "same"
    assert match_texts(text, "Run `make db` before the tests", find_weight).level == "new"
    assert match_texts("Run `make db` before the tests", text, find_weight).level == "new"


def test_a_match_is_a_value() -> None:
    found = Match("likely", 0.5)
    assert found == Match("likely", 0.5, False)
    assert found != Match("likely", 0.5, True)
    assert len({found, Match("likely", 0.5)}) == 1
    assert repr(found) == "Match(level='likely', score=0.500, is_opposite=False)"
    with pytest.raises(AttributeError):
        found.score = 1.0
    assert 1 > SAME > LIKELY > RELATED > 0
