"""Classifies the text of a learning or a pattern by its words."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ralphtool.history.records import LearningType, Observation, PatternType

# The first row with a matching word decides, so the clearest words come first.
_LEARNINGS: tuple[tuple[LearningType, str], ...] = (
    (
        "error-workaround",
        r"work ?-?arounds?|instead of|avoids?|fails? (with|unless|because)|fix(ed)? by|errors? (when|if)",
    ),
    (
        "dependency-quirk",
        r"dependenc(y|ies)|pinned?|peer|lock ?files?|incompatible|deprecated|version [0-9.]+|v[0-9]+\.[0-9]",
    ),
    ("test-pattern", r"tests?|testing|fixtures?|mocks?|mocked|assertions?|pytest|jest|vitest|coverage"),
    (
        "build-command",
        r"builds?|compiles?|compiled|npm run|make|cargo build|go build|migrations?|install(ed)?|bundler?",
    ),
    ("api-convention", r"apis?|endpoints?|requests?|responses?|https?|urls?|headers?|status codes?|graphql|json|oauth"),
    ("tool-usage", r"lint(er)?|formatter|eslint|ruff|mypy|docker|git|cli|commands?|flags?|scripts?|editor"),
    (
        "architecture-constraint",
        r"must(n't)?|never|only|always|constraint|architecture|layers?|boundar(y|ies)|forbidden",
    ),
    ("codebase-pattern", r"patterns?|conventions?|reuse|uses?"),
)
_PATTERNS: tuple[tuple[PatternType, str], ...] = (
    ("test-pattern", r"tests?|testing|fixtures?|mocks?|assertions?"),
    ("error-handling", r"errors?|exceptions?|fail(s|ures?)?|retry|retries|raise|panic"),
    ("naming-convention", r"nam(e|es|ed|ing)|prefix|suffix|camelcase|snake_case|kebab-case|pascalcase"),
    ("state-management", r"state|store|redux|reducers?|context provider|session|cache|signals?"),
    ("build-pattern", r"builds?|compiles?|bundler?|webpack|vite|makefile|codegen|generated"),
    ("deployment-pattern", r"deploy(s|ed|ment)?|releases?|docker|kubernetes|helm|terraform|rollout|staging|production"),
    ("api-pattern", r"apis?|endpoints?|requests?|responses?|routes?|http|graphql"),
    (
        "file-structure",
        r"folders?|director(y|ies)|layout|files? (live|go|are|in)|modules?|packages?|structure|architecture",
    ),
)
_BY_CATEGORY: dict[str, LearningType] = {
    "architecture": "architecture-constraint",
    "api-issue": "api-convention",
    "bug": "error-workaround",
    "dependency": "dependency-quirk",
    "test-failure": "test-pattern",
    "tooling-friction": "tool-usage",
}


def _has_word(words: str, text: str) -> bool:
    return re.search(rf"(?<![\w-])(?:{words})(?![\w-])", text, re.IGNORECASE) is not None


def find_learning_type(text: str) -> LearningType:
    return next((kind for kind, words in _LEARNINGS if _has_word(words, text)), "codebase-pattern")


def find_pattern_type(text: str) -> PatternType:
    return next((kind for kind, words in _PATTERNS if _has_word(words, text)), "api-pattern")


def find_observation_type(observation: Observation) -> LearningType:
    """The type of learning from an observation: a codebase pattern if it says so, else by category, else by words."""
    text = observation.description or observation.title
    if _has_word("patterns?|conventions?", text):
        return "codebase-pattern"
    return _BY_CATEGORY.get(observation.category or "") or find_learning_type(text)
