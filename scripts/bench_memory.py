"""The cost of the memory, which is a part of `scripts/bench`, and whether it helps: `scripts/bench memory`.

The latter starts whole runs of the real loop with the scripted agent, on projects that are generated from
`bench_memory.toml`. Some stories learn facts, later ones can't be done without them, and hundreds of learnings don't
matter. The agent does such a story only if the fact's code word is in its prompt; otherwise the project's test fails,
and on its third attempt it finds out by itself. The runs differ only in what fills the prompt's memory section.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import accumulate, count
from pathlib import Path
from typing import Any

import msgspec
from bench_history import MOMENT, Sample

from ralphtool.cli import main as people
from ralphtool.history import History
from ralphtool.history.records import Learning, Progress
from ralphtool.loop import loop, prompt
from ralphtool.memory import Memory
from ralphtool.memory.knowledge import KnowledgeBase, KnowledgeQuery, KnownItem, RelevantKnowledge
from ralphtool.specs import Story, Task

SEEDS = (1, 2, 3, 4, 5, 6)
KNOWN = 400  # irrelevant learnings in the history
NOTED = 3  # and in each story
LEARNING, NEEDING = 3, 8  # stories that learn a fact, and that need one
FROM_BEFORE = 3  # facts that are in the history when a run begins
BUDGET = 600  # tokens of the prompt's memory section
WORDINGS = ("near", "long", "other", "far")
WEIGHTS = Path(__file__).resolve().parent.parent / ".tools/weights"
CODES = (
    "quartz",
    "heron",
    "maple",
    "cobalt",
    "ember",
    "willow",
    "onyx",
    "falcon",
    "saffron",
    "tundra",
    "velvet",
    "zephyr",
)


# --- kinds of memory --------------------------------------------------------------------------------


class Nothing(KnowledgeBase):
    """No memory at all, not even for recovery."""

    def select_for_story(self, wanted: KnowledgeQuery) -> RelevantKnowledge:
        return RelevantKnowledge((), 0)

    def search(self, text: str, limit: int = 10) -> list[KnownItem]:
        return []


class NewestFirst(KnowledgeBase):
    """Everything that is known, the newest first, as far as the prompt's budget allows."""

    def select_for_story(self, wanted: KnowledgeQuery) -> RelevantKnowledge:
        found = self._newest()
        return RelevantKnowledge(tuple(found), len(found))

    def search(self, text: str, limit: int = 10) -> list[KnownItem]:
        return self._newest()[:limit]

    def _newest(self) -> list[KnownItem]:
        told = {one.text: one for one in self._told(dict.fromkeys(self.memory.held(), 0.0))}
        return sorted(told.values(), key=lambda one: one.created_at, reverse=True)


class ByWords(KnowledgeBase):
    def __init__(self, history: History) -> None:
        super().__init__(history, by_meaning=False)


class ByMeaning(KnowledgeBase):
    def __init__(self, history: History) -> None:
        super().__init__(history, by_meaning=True)


WAYS: dict[str, type[KnowledgeBase]] = {
    "no memory": Nothing,
    "newest first": NewestFirst,
    "ours": ByWords,
    "ours, by meaning too": ByMeaning,
}


def run_in_this_way(way: str) -> int:
    """`ralphtool run --json`, in a separate process."""
    if WAYS[way] is ByMeaning:
        sys.path.append(str(WEIGHTS))
    setattr(loop, "KnowledgeBase", WAYS[way])  # noqa: B010 - what a module imports is not its to give, say the types
    return people.main(["run", "--json"])


# --- projects ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fact:
    text: str
    wordings: dict[str, list[str]]  # the title and description of each
    fails: str
    code: str


@dataclass(frozen=True)
class Need:
    """A story that can't be done without a fact."""

    story: str
    fact: Fact
    wording: str


class Project:
    """A project and its change, the same for the same seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        source = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
        self._noise = source["noise"]
        codes = self._random.sample(CODES, LEARNING + FROM_BEFORE)
        told = self._random.sample(source["fact"], LEARNING + FROM_BEFORE)
        facts = [self._fact(one, code) for one, code in zip(told, codes, strict=True)]
        self.learnt, self.before = facts[:LEARNING], facts[LEARNING:]
        self.needs = self._needs(facts)
        self.noted = {str(number): self._useless(NOTED) for number in range(1, LEARNING + NEEDING + 1)}
        self.known = [*self._useless(KNOWN), *(one.text for one in self.before)]
        self._random.shuffle(self.known)

    def _fact(self, one: dict[str, Any], code: str) -> Fact:
        code = f"{code}-{self._random.randrange(100, 1000)}"
        return Fact(one["text"].format(code=code), {name: one[name] for name in WORDINGS}, one["fails"], code)

    def _needs(self, facts: list[Fact]) -> list[Need]:
        """Every fact is needed once, some twice, each time in another wording."""
        pairs = [(fact, wording) for fact in facts for wording in WORDINGS]
        while True:
            chosen = self._random.sample(pairs, NEEDING)
            wordings = [wording for _, wording in chosen]
            is_even = len({wordings.count(one) for one in WORDINGS}) == 1
            if is_even and {fact.code for fact, _ in chosen} == {fact.code for fact in facts}:
                return [Need(str(LEARNING + place), *one) for place, one in enumerate(chosen, 1)]

    def _useless(self, number: int) -> list[str]:
        found: set[str] = set()
        while len(found) < number:
            words = {
                name: self._random.choice(self._noise[name]) for name in ("things", "module", "place", "tool", "file")
            }
            template = self._random.choice(self._noise["templates"])
            text = template.format(number=self._random.randrange(2, 90), **words)
            found.add(text[0].upper() + text[1:])
        return sorted(found, key=lambda text: self._random.random())

    # --- on disk ---

    def write(self, top: Path, way: str, env: dict[str, str]) -> Path:
        root, needs = top / "project", top / "needs"
        for folder in (root / ".ralph", root / "parts", needs):
            folder.mkdir(parents=True)
        (root / "prd.json").write_text(json.dumps({"name": "shop", "userStories": self._stories()}, indent=2))
        (root / "parts/0").write_text("the first part\n")
        (top / "script.json").write_text(json.dumps({"turn": self._turns(top)}))
        for need in self.needs:
            (needs / f"{need.story}.code").write_text(f"{need.fact.code}\n")
            (needs / f"{need.story}.fails").write_text(f"{need.fact.fails}\n")
        (top / "try.sh").write_text(TRY.format(needs=needs))
        (top / "gate.sh").write_text(GATE.format(needs=needs))
        (root / ".ralph/config.toml").write_text(CONFIG.format(top=top, budget=0 if way == "no memory" else BUDGET))
        for words in (["init", "-q"], ["add", "--", ".", ":!.ralph"], ["commit", "-qm", "first"]):
            subprocess.run(["git", *words], cwd=root, env=env, check=True)
        History(str(root)).add([_learning(number, text) for number, text in enumerate(self.known)])
        return root

    def _stories(self) -> list[dict[str, Any]]:
        plain = [["Groundwork", f"Part {n} of what the rest is built on."] for n in range(1, LEARNING + 1)]
        told = [*plain, *(need.fact.wordings[need.wording] for need in self.needs)]
        return [
            {"id": n, "title": title, "description": text, "acceptanceCriteria": ["It is there"], "priority": n}
            for n, (title, text) in enumerate(told, 1)
        ]

    def _turns(self, top: Path) -> list[dict[str, Any]]:
        finish = [{"tick": "all"}, {"complete": True}]
        needed = {need.story: need.fact for need in self.needs}
        turns: list[dict[str, Any]] = []
        for story, noted in self.noted.items():
            taught = [{"learn": text} for text in noted]
            if story in needed:
                work = [{"run": f"sh {top}/try.sh {story} $PPID"}]
                found = [{"write": f"parts/{story}", "text": needed[story].code + "\n"}, {"learn": needed[story].text}]
                turns.append({"story": story, "attempt": 3, "steps": [*found, *finish]})
                turns.append({"story": story, "attempt": 2, "steps": [*work, *finish]})
            else:
                work = [{"write": f"parts/{story}", "text": "done\n"}]
                taught.insert(1, {"learn": self.learnt[int(story) - 1].text})
            turns.append({"story": story, "steps": [*work, *taught, *finish]})
        return turns


# The prompt is the scripted agent's standard input, which is a file.
TRY = """\
if grep -qF -f {needs}/$1.code /proc/$2/fd/0; then cp {needs}/$1.code parts/$1; else echo a guess >parts/$1; fi
"""
GATE = """\
for part in parts/*; do
  story=${{part##*/}}
  [ ! -e {needs}/$story.code ] || cmp -s {needs}/$story.code $part || {{ cat {needs}/$story.fails; exit 1; }}
done
"""
CONFIG = """\
[run]
agent = "scripted"
[agents.scripted]
args = ["{top}/script.json"]
[verify]
checks = []
tests = ["sh {top}/gate.sh"]
[memory]
budget_tokens = {budget}
"""


def _learning(number: int, text: str) -> Learning:
    moment = f"2026-01-{number // 60 + 1:02}T09:{number % 60:02}:00.000000Z"
    value = {"id": "learning-0001", "type": "codebase-pattern", "content": text, "created_at": moment}
    return msgspec.convert({**value, "source_prd_id": f"change-{number // 12}"}, Learning)


# --- whether it helps -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Played:
    """The results of one run."""

    way: str
    seed: int
    iterations: int
    at_first: int  # stories that were done in their first attempt
    tokens: float  # of the memory section, averaged over all prompts
    found: dict[str, int]  # needed facts that were in the first prompt, by the story's wording


def play(top: Path, way: str, seed: int) -> Played:
    project = Project(seed)
    env = _environment(top)
    root = project.write(top, way, env)
    command = [sys.executable, __file__, "--way", way]
    done = subprocess.run(command, cwd=root, env=env, capture_output=True, text=True)
    events = [json.loads(line) for line in done.stdout.splitlines()]
    if done.returncode or events[-1]["result"] != "done":
        raise SystemExit(f"the run with {way} and seed {seed} did not come to its end:\n{done.stdout}{done.stderr}")
    verdicts = [one for one in events if one["type"] == "verdict"]
    first = {one["story"] for one in verdicts if one["attempt"] == 1 and one["status"] == "completed"}
    found = {word: sum(n.story in first for n in project.needs if n.wording == word) for word in WORDINGS}
    prompts = [path.read_text() for path in root.glob(".ralph/runs/*/*/prompt.md")]
    shutil.rmtree(top)
    return Played(way, seed, len(verdicts), len(first), statistics.mean(map(_memory_tokens, prompts)), found)


def _environment(top: Path) -> dict[str, str]:
    (top / "tmp").mkdir(parents=True)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    names = {"GIT_AUTHOR_NAME": "n", "GIT_AUTHOR_EMAIL": "e", "GIT_COMMITTER_NAME": "n", "GIT_COMMITTER_EMAIL": "e"}
    return {**names, "PATH": path, "LANG": "C.UTF-8", "HOME": str(top), "TMPDIR": str(top / "tmp")}


_SECTION = re.compile(
    r"^## (?:Learnings from earlier iterations|Patterns of this code base)\n\n(`{3,})text\n.*?\n\1$", re.S | re.M
)


def _memory_tokens(text: str) -> float:
    return sum(len(found[0]) for found in _SECTION.finditer(text)) / 4


def compare(top: Path, *, by_meaning: bool) -> list[Played]:
    """Every way with every seed, two at a time: nothing is timed."""
    ways = [way for way in WAYS if by_meaning or WAYS[way] is not ByMeaning]
    runs = [(top / f"{number}-{seed}", way, seed) for number, way in enumerate(ways) for seed in SEEDS]
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(lambda one: play(*one), runs))


def summed_up(played: list[Played]) -> list[dict[str, Any]]:
    table = []
    for way in dict.fromkeys(one.way for one in played):
        mine = [one for one in played if one.way == way]
        found = {
            word: sum(one.found[word] for one in mine) / (NEEDING // len(WORDINGS) * len(mine)) for word in WORDINGS
        }
        row = {"way": way, "iterations": statistics.mean(one.iterations for one in mine)}
        row |= {"per_seed": {one.seed: one.iterations for one in mine}}
        row |= {"done_at_first": statistics.mean(one.at_first for one in mine)}
        row |= {"memory_tokens": statistics.mean(one.tokens for one in mine), "found_at_first": found}
        table.append(row)
    return table


def helps(*, as_json: bool, by_meaning: bool) -> int:
    """`scripts/bench memory`: returns 1 if ours is not the best."""
    if by_meaning and not WEIGHTS.exists():
        raise SystemExit("the model's weights are not in .tools/weights: `scripts/bench` puts them there")
    with tempfile.TemporaryDirectory(prefix="ralphtool-bench-") as top:
        print(f"{len(SEEDS)} projects, each worked through in every way: about three minutes …", file=sys.stderr)
        table = summed_up(compare(Path(top), by_meaning=by_meaning))
    if as_json:
        print(json.dumps({"stories": LEARNING + NEEDING, "budget_tokens": BUDGET, "rows": table}, indent=2))
    else:
        show(table)
    iterations = {row["way"]: row["iterations"] for row in table}
    return 0 if iterations["ours"] < min(iterations["no memory"], iterations["newest first"]) else 1


def show(table: list[dict[str, Any]]) -> None:
    stories = LEARNING + NEEDING
    print(f"{stories} stories, {NEEDING} of which need a fact; {KNOWN} learnings that don't matter; {BUDGET} tokens\n")
    head = f"{'':22}{'iterations':>10}  {'per seed':24}{'at first':>8}  {'tokens':>6}"
    print(f"{head}   found at first: {', '.join(WORDINGS)}")
    for row in table:
        seeds = " ".join(map(str, row["per_seed"].values()))
        found = "  ".join(f"{row['found_at_first'][word]:4.0%}" for word in WORDINGS)
        numbers = f"{row['iterations']:10.1f}  {seeds:24}{row['done_at_first']:8.1f}  {row['memory_tokens']:6.0f}"
        print(f"{row['way']:22}{numbers}   {found}")


# --- cost -------------------------------------------------------------------------------------------

COMMON = """\
the of to and in a is that it for was on are with as be by this which or from at not have an but if when can has they
we all there one only after before into so then than must does no more run needs file test error value instead"""
SYLLABLES = "ba co de fi gra hel in ju ka lo men no pro qui re sta ti un ver wo xy zen tor lis mat"
VOCABULARY = 40_000
FEW, SOME, MANY = 100, 1_000, 100_000
ASKED = 300  # searches
ADDED = 40  # in each round of ADD_ROUNDS
ADD_ROUNDS = 10


class Texts:
    """Learnings of 15 to 60 words; few words are very common and most are rare, as in any language."""

    def __init__(self, seed: int = 11) -> None:
        self._random = random.Random(seed)
        self._syllables = SYLLABLES.split()
        made: dict[str, None] = dict.fromkeys(COMMON.split())
        while len(made) < VOCABULARY:
            made[self._word()] = None
        self._words = list(made)
        self._weights = list(accumulate(1 / (rank + 2.7) for rank in range(VOCABULARY)))

    def _word(self) -> str:
        parts = self._random.choices(self._syllables, k=self._random.choice((2, 2, 3, 3, 4)))
        shape = self._random.random()
        if shape < 0.05:
            return f"{parts[0]}_{''.join(parts[1:])}"
        if shape < 0.1:
            return parts[0] + "".join(map(str.capitalize, parts[1:]))
        return "".join(parts)

    def one(self) -> str:
        words = self._random.choices(self._words, cum_weights=self._weights, k=self._random.randint(15, 60))
        sentences = [" ".join(words[start : start + 14]) for start in range(0, len(words), 14)]
        return ". ".join(sentence[0].upper() + sentence[1:] for sentence in sentences) + "."


class Bench:
    """Projects with a given number of learnings, and an entry for every tenth, each created on first use."""

    def __init__(self, top: Path) -> None:
        self.top = top / "memory"
        self.texts = Texts()
        self._numbers = count(1)
        self._projects: dict[int, Path] = {}

    def project(self, learnings: int) -> Path:
        if learnings not in self._projects:
            root = self._projects[learnings] = self.top / str(learnings)
            (root / ".ralph").mkdir(parents=True)
            (root / ".ralph/progress.json").write_bytes(msgspec.json.encode(self._progress(learnings)) + b"\n")
            knowledge = KnowledgeBase(History(str(root)), by_meaning=False)
            knowledge.history.append(self._entry(), [self._learning()])  # creates the index of a large one
            knowledge.sync()
            knowledge.close()
            os.sync()
        return self._projects[learnings]

    def _progress(self, learnings: int) -> Progress:
        entries = Sample()
        return Progress(
            version="1.0",
            created_at=MOMENT,
            entries=tuple(entries.entry(number, 1) for number in range(learnings // 10)),
            learnings=tuple(self._learning(number) for number in range(1, learnings + 1)),
        )

    def _learning(self, number: int = 1) -> Learning:
        value = {"id": f"learning-{number:04}", "type": "codebase-pattern", "content": self.texts.one()}
        return msgspec.convert({**value, "source_prd_id": f"change-{number % 999}", "created_at": MOMENT}, Learning)

    def _entry(self) -> Any:
        return Sample().entry(900_000 + next(self._numbers), 1)

    def teach(self, root: Path, learnings: int) -> None:
        """Gives a project a history with this many learnings."""
        History(str(root)).add([self._learning() for _ in range(learnings)])

    # --- rows ---

    @cached_property
    def searches(self) -> tuple[float, float]:
        """The 95th percentile of a search's seconds, with many and with some learnings, in turns."""
        memories = [Memory(_index(self.project(size)), by_meaning=False) for size in (MANY, SOME)]
        spent: list[list[float]] = [[], []]
        for number in range(ASKED + 20):
            text = self.texts.one()
            for memory, took in zip(memories, spent, strict=True):
                took.append(_cpu(partial(memory.search, text)))
            if number == 19:  # the caches are warm now
                spent[0].clear()
                spent[1].clear()
        many, some = (statistics.quantiles(took, n=20)[-1] for took in spent)
        return many, some

    def search(self) -> float:
        many, some = self.searches
        return many / some

    def search_cpu(self) -> float:
        return self.searches[0] * 1000

    def add(self) -> float:
        """Over a few hundred adds; the small memory is a new one in each round, otherwise it would not stay small."""
        shutil.copy(_index(self.project(MANY)), self.top / "many.index")
        many = Memory(str(self.top / "many.index"), by_meaning=False)
        spent = {"many": 0.0, "few": 0.0}
        for number in range(ADD_ROUNDS):
            shutil.copy(_index(self.project(FEW)), self.top / f"few-{number}.index")
            few = Memory(str(self.top / f"few-{number}.index"), by_meaning=False)
            texts = [(f"new-{number}-{place}", self.texts.one()) for place in range(ADDED)]
            turns = [("many", many), ("few", few)]
            for name, memory in turns if number % 2 else turns[::-1]:
                spent[name] += _cpu(partial(_add_each, memory, texts))
            few.close()
        many.close()
        return spent["many"] / spent["few"]

    def section(self, rounds: int) -> float:
        """The loop's work for it in an iteration: the last one has left an entry, a learning, and a note."""
        rooms = [self._section_of(size) for size in (MANY, FEW)]
        pairs = [[next(room) for room in rooms] for _ in range(rounds + 3)][3:]
        return statistics.median(many / few for many, few in pairs)

    def _section_of(self, size: int) -> Iterator[float]:
        knowledge = KnowledgeBase(History(str(self.project(size))), by_meaning=False)
        notes: list[dict[str, str]] = []
        while True:
            knowledge.history.append(self._entry(), [self._learning()])
            notes.append({"description": self.texts.one(), "story_id": "1", "timestamp": MOMENT})
            story, failure = self.texts.one(), self.texts.one()
            yield _cpu(partial(_section, knowledge, notes, story, failure))


def _add_each(memory: Memory, texts: list[tuple[str, str]]) -> None:
    for id, text in texts:
        memory.add(id, text)


def _section(knowledge: KnowledgeBase, notes: list[dict[str, str]], story: str, failure: str) -> None:
    knowledge.sync("session", notes)
    files = ("src/handlers/login.py", "tests/test_login.py")
    found = knowledge.select_for_story(KnowledgeQuery(prd_id="change-7", story=story, failure=failure, files=files))
    told = Story("1", "Part", [Task("1.1", "Do it", False)])
    material = prompt.Material(
        change="c", story=told, token="t", attempt=1, attempts=3, memory=found.items, known=found.known
    )
    prompt._select_memory(material, prompt._CharacterBudget(120_000))


def _index(root: Path) -> str:
    return str(root / ".ralph/memory.index")


def _cpu(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def measure(top: Path, rounds: int, word: str) -> list[dict[str, Any]]:
    bench = Bench(top)
    rows: dict[str, tuple[str, Callable[[], float], float]] = {
        "memory: search at 100,000 learnings, 95th percentile / at 1,000": ("CPU", bench.search, 10),
        "memory: search at 100,000 learnings, 95th percentile": ("ms of CPU", bench.search_cpu, 100),
        "memory: add one at 100,000 learnings / at 100": ("CPU", bench.add, 1.5),
        "memory: section of a prompt at 100,000 learnings / at 100": ("CPU", lambda: bench.section(rounds), 3),
    }
    results = []
    for what, (kind, work, at_most) in rows.items():
        if word in what:
            found = work()
            ok = found <= at_most
            results.append({"what": what, "measure": kind, "measured": round(found, 3), "at_most": at_most, "ok": ok})
    return results


def main() -> int:
    parser = argparse.ArgumentParser(description="Runs the change of the folder that it is called in.")
    parser.add_argument("--way", choices=list(WAYS), help="what fills the memory section, in a process of the bench")
    chosen = parser.parse_args()
    if not chosen.way:
        parser.error("use scripts/bench, or scripts/bench memory")
    return run_in_this_way(chosen.way)


if __name__ == "__main__":
    sys.exit(main())
