"""Measures how well the memory finds texts: the figures of docs/memory.md.

    .venv/bin/python scripts/quality.py [--data FOLDER] [--by-meaning]

FOLDER has labelled third-party text, which can't be published here: `same-problem*.jsonl` with lines of {id, project,
title, detail, cluster}, where reports that share a cluster are about one problem, `message-advice*.jsonl` with
{id, query, doc}, and `*_structured.csv`, logs with the columns Content and EventId, as in the LogHub collection.
Error lines and near-repeats are measured on tests/data. Some figures have required bounds, and are printed with them.
"""

from __future__ import annotations

import argparse
import csv
import json
import random
import re
from collections import Counter, defaultdict
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ralphtool.memory import Memory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

TESTS = Path(__file__).resolve().parent.parent / "tests/data"
Rows = list[dict[str, Any]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="the folder with labelled third-party text")
    parser.add_argument("--by-meaning", action="store_true", help="with sentence vectors, which must be installed")
    asked = parser.parse_args()
    for path in sorted(asked.data.glob("same-problem*.jsonl")) if asked.data else ():
        show_same_problem(path, asked.by_meaning)
    for path in sorted(asked.data.glob("message-advice*.jsonl")) if asked.data else ():
        rows = read(path)
        documents = [(row["id"], row["doc"]) for row in rows]
        queries = [(row["query"], {row["id"]}, "") for row in rows]
        _, recall = searched(documents, queries, asked.by_meaning)
        print(f"{path.name}: message to advice: recall@5 {recall:.3f} ({len(rows)} messages)")
    if logs := sorted(asked.data.glob("*_structured.csv")) if asked.data else ():
        show_logs(logs)
    for name in ("error_lines.jsonl", "error_lines_held_out.jsonl"):
        show_error_lines(TESTS / name)
    for name in ("repeats.jsonl", "repeats_held_out.jsonl"):
        show_repeats(TESTS / name, asked.by_meaning)
    for half in ("", "_held_out"):
        show_same_lines(TESTS / f"log_lines{half}.jsonl")
        show_negations(TESTS / f"negations{half}.jsonl")


def read(path: Path) -> Rows:
    return [json.loads(line) for line in path.read_text().splitlines()]


# --- searching --------------------------------------------------------------------------------------


def show_same_problem(path: Path, by_meaning: bool) -> None:
    """The mean over the projects, each searched separately."""
    by_project: dict[str, Rows] = defaultdict(list)
    for row in read(path):
        by_project[row["project"]].append(row)
    for what, text in (("title and detail", whole), ("title to title", title)):
        found = [same_problem(rows, text, by_meaning) for rows in by_project.values()]
        mrr, recall = (sum(numbers) / len(found) for numbers in zip(*found, strict=True))
        print(f"{path.name}: same problem, {what}: MRR {mrr:.3f}, recall@5 {recall:.3f} ({len(found)} projects)")


def whole(row: dict[str, Any]) -> str:
    return f"{row['title']}. {row['detail'] or ''}"


def title(row: dict[str, Any]) -> str:
    return str(row["title"])


def same_problem(rows: Rows, text: Callable[[dict[str, Any]], str], by_meaning: bool) -> tuple[float, float]:
    clusters: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        if row["cluster"]:
            clusters[row["cluster"]].add(row["id"])
    queries = [(text(row), clusters[row["cluster"]] - {row["id"]}, row["id"]) for row in rows if row["cluster"]]
    return searched([(row["id"], text(row)) for row in rows], [one for one in queries if one[1]], by_meaning)


def searched(
    documents: list[tuple[str, str]], queries: list[tuple[str, set[str], str]], by_meaning: bool
) -> tuple[float, float]:
    """The mean reciprocal rank of the first right result, and the share of the right ones among the first five."""
    memory = Memory(by_meaning=by_meaning)
    memory.add_all(documents)
    ranks = recalls = 0.0
    for text, right, itself in queries:
        found = [id for id, _ in memory.search(text, 51) if id != itself]
        ranks += next((1 / place for place, id in enumerate(found, 1) if id in right), 0.0)
        recalls += len(right & set(found[:5])) / len(right)
    return ranks / len(queries), recalls / len(queries)


# --- repeats ----------------------------------------------------------------------------------------


def show_error_lines(path: Path) -> None:
    """Over all pairs: are the fingerprints equal if the failures are the same?"""
    rows, memory = read(path), Memory(by_meaning=False)
    prints = [(row["group"], memory.fingerprint(row["text"])) for row in rows]
    same = pairs(group for group, _ in prints)
    equal = pairs(print_ for _, print_ in prints)
    right = pairs(prints)
    precision, recall = right / equal, right / same
    f1 = 2 * precision * recall / (precision + recall)
    print(f"{path.name}: F1 {f1:.3f}, precision {precision:.3f}, recall {recall:.3f} ({len(rows)} lines)")


def pairs(items: Iterable[object]) -> int:
    return sum(number * (number - 1) // 2 for number in Counter(items).values())


def show_repeats(path: Path, by_meaning: bool) -> None:
    """Each pair in a memory with all the first texts: does the second one count as a repeat of the first?"""
    rows = read(path)
    memory = Memory(by_meaning=by_meaning)
    memory.add_all({row["one"]: row["one"] for row in rows}.items())
    taken: Counter[str] = Counter()
    for row in rows:
        found = memory.repeat_of(row["other"])
        taken[row["kind"]] += found is not None if row["kind"] == "repeat" else found == row["one"]
    every = Counter(row["kind"] for row in rows)
    shares = ", ".join(f"{kind} {taken[kind]}/{number} = {taken[kind] / number:.3f}" for kind, number in every.items())
    print(f"{path.name}: taken for repeats: {shares}")


def show_same_lines(path: Path) -> None:
    """With `same`, over all pairs of lines that share a word."""
    show_same(path.name, compare_pairs([(row["group"], row["text"]) for row in read(path)]))


def show_logs(paths: Sequence[Path]) -> None:
    """The same for logs, each alone: at most six different lines of an event."""
    counts: Counter[tuple[bool, bool]] = Counter()
    for path in paths:
        by_event: dict[str, set[str]] = defaultdict(set)
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                by_event[row["EventId"]].add(row["Content"])
        dice = random.Random(7)
        lines = [(event, text) for event in sorted(by_event) for text in choose(dice, by_event[event])]
        counts += compare_pairs(lines, may_be_same=differ_in_numbers)
    show_same(f"{len(paths)} logs", counts)


def choose(dice: random.Random, lines: set[str]) -> list[str]:
    every = sorted(lines)
    dice.shuffle(every)
    return every[:6]


def differ_in_numbers(one: str, other: str) -> bool:
    """Whether each word that differs has digits on both sides: lines that differ in a name are different failures."""
    words, words_there = one.split(), other.split()
    differing = [pair for pair in zip(words, words_there, strict=False) if pair[0] != pair[1]]
    return len(words) == len(words_there) and all(is_number_changed(*pair) for pair in differing)


def is_number_changed(one: str, other: str) -> bool:
    has_digits = any(map(str.isdigit, one)) and any(map(str.isdigit, other))
    return has_digits and (mask_numbers(one) == mask_numbers(other) or not re.search(r"[g-zG-Z]{3,}[./]", one + other))


def mask_numbers(word: str) -> str:
    return re.sub(r"[0-9]+|[0-9a-f]{6,}", "0", word)


def compare_pairs(
    lines: list[tuple[str, str]], may_be_same: Callable[[str, str], bool] = lambda one, other: True
) -> Counter[tuple[bool, bool]]:
    """Pairs by whether they are the same, and whether they are taken for the same. Lines without a common word are
    left out, since they can't be confused."""
    memory, counts = Memory(by_meaning=False), Counter[tuple[bool, bool]]()
    known = [(group, text, set(text.lower().split())) for group, text in lines]
    for (one, text, words), (other, text_there, words_there) in combinations(known, 2):
        if may_be_same(text, text_there) if one == other else words & words_there:
            counts[one == other, memory.same(text, text_there).level == "same"] += 1
    return counts


def show_same(name: str, counts: Counter[tuple[bool, bool]]) -> None:
    right = counts[True, True]
    precision, recall = right / (right + counts[False, True]), right / (right + counts[True, False])
    show_bound(name, "the same error lines, F1", 2 * precision * recall / (precision + recall), 0.94)
    show_bound(name, "the same error lines, precision", precision, 0.98)


def show_negations(path: Path) -> None:
    """Pair by pair: a rewording is a repeat, a denial is not."""
    memory = Memory(by_meaning=False)
    taken: dict[str, list[bool]] = defaultdict(list)
    for row in read(path):
        taken[row["kind"]].append(memory.same(row["one"], row["other"]).level == "same")
    shares = {kind: sum(found) / len(found) for kind, found in taken.items()}
    show_bound(path.name, "near-repeats found", shares["repeat"], 0.93)
    show_bound(path.name, "negations taken for repeats", shares["opposite"], 0.10, at_most=True)


def show_bound(name: str, what: str, value: float, bound: float, *, at_most: bool = False) -> None:
    is_met = value <= bound if at_most else value >= bound
    asked = f"at {'most' if at_most else 'least'} {bound:.2f}"
    print(f"{name}: {what} {value:.3f} (asked: {asked}): {'ok' if is_met else 'MISSED'}")


if __name__ == "__main__":
    main()
