"""How well the memory finds: the figures of docs/memory.md.

    .venv/bin/python scripts/quality.py [--data FOLDER] [--by-meaning]

FOLDER holds labelled text that is not ours to ship: `same-problem*.jsonl` with lines of {id, project, title, detail,
cluster}, where reports that share a cluster are about one problem, and `message-advice*.jsonl` with {id, query, doc}.
Error lines and near-repeats are measured on tests/data. Four figures have bounds that were asked for; each is printed
with its bound.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter, defaultdict
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ralphtool.memory import Memory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

TESTS = Path(__file__).resolve().parent.parent / "tests/data"
Rows = list[dict[str, Any]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="the folder with labelled text of others")
    parser.add_argument("--by-meaning", action="store_true", help="with sentence vectors, which have to be installed")
    asked = parser.parse_args()
    for path in sorted(asked.data.glob("same-problem*.jsonl")) if asked.data else ():
        show_same_problem(path, asked.by_meaning)
    for path in sorted(asked.data.glob("message-advice*.jsonl")) if asked.data else ():
        rows = read(path)
        documents = [(row["id"], row["doc"]) for row in rows]
        queries = [(row["query"], {row["id"]}, "") for row in rows]
        _, recall = searched(documents, queries, asked.by_meaning)
        print(f"{path.name}: message to advice: recall@5 {recall:.3f} ({len(rows)} messages)")
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
    """With `same`, over all pairs of lines that share a word: others can't be confused."""
    rows, memory = read(path), Memory(by_meaning=False)
    lines = [(row["group"], row["text"], set(row["text"].lower().split())) for row in rows]
    counts: Counter[tuple[bool, bool]] = Counter()
    for (one, text, words), (other, text_there, words_there) in combinations(lines, 2):
        if one == other or words & words_there:
            counts[one == other, memory.same(text, text_there).level == "same"] += 1
    right = counts[True, True]
    precision, recall = right / (right + counts[False, True]), right / (right + counts[True, False])
    show_bound(path.name, "the same error lines, F1", 2 * precision * recall / (precision + recall), 0.94)
    show_bound(path.name, "the same error lines, precision", precision, 0.98)


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
