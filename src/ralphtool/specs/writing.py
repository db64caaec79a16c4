"""How to write a change in each format, for an agent that drafts one: what examples don't show.

An adapter of another package may have its own `guide`, a text; without one, its scaffold must be enough.
"""

from ralphtool import specs


class WritingGuide:
    """What an agent must know to write a format."""

    __slots__ = ("has_scenarios", "text")

    def __init__(self, text: str, *, has_scenarios: bool) -> None:
        self.text = text
        self.has_scenarios = has_scenarios  # the format supports them, so a change without any is incomplete


_HEADINGS = """\
- A story that depends on others names their numbers in its heading: `(depends on 1, 2)`.
- An optional story has `(optional)` in its heading, and comes last.
"""

_GUIDES = {
    "openspec": WritingGuide(
        f"""\
- `tasks.md` has the stories: `## 1. Title`, `## 2. Title`. Below each are its tasks: `- [ ] 1.1 Text`.
{_HEADINGS}- `proposal.md` says why, what changes, and what is affected.
- `specs/<capability>/spec.md` has the requirements (`### Requirement: …`, with SHALL or MUST) below
  `## ADDED Requirements` or `## MODIFIED Requirements`. Each has at least one `#### Scenario: …` with lines that begin
  with **GIVEN**, **WHEN** and **THEN**. Name the folder after the capability; `openspec/specs` has the existing ones.
""",
        has_scenarios=True,
    ),
    "speckit": WritingGuide(
        """\
- `tasks.md` has the stories: `## Phase 1: User Story 1 - Title`. Below each are its tasks: `- [ ] T001 [US1] Text`,
  numbered through the whole file.
- Phases called Setup and Foundational come before all others. A phase waits for another if one of its tasks says
  `(depends on T001)`.
- An optional phase has `(optional)` in its heading, and comes last.
- `spec.md` has a `### User Story 1 - Title (Priority: P1)` for each user story, with numbered acceptance scenarios:
  `1. **Given** …, **When** …, **Then** …`.
""",
        has_scenarios=True,
    ),
    "prd": WritingGuide(
        """\
- `userStories` are the stories, and the `acceptanceCriteria` of each are its tasks: write each so that it can be
  checked, with given, when and then where that helps.
- `priority` is the order: 1 comes first. `passes` is false.
- A story that depends on others names their ids: `"dependsOn": ["US-001"]`.
- An optional story has `"optional": true`, and comes last.
- Leave `branchName` as it is.
""",
        has_scenarios=False,
    ),
    "checklist": WritingGuide(
        f"""\
- Each heading `## Title` is a story, numbered by position. Below it are its tasks: `- [ ] Text`.
{_HEADINGS}- A few lines between the heading and the boxes may describe the story, with an example that shows
  that it works: given …, when …, then ….
""",
        has_scenarios=False,
    ),
}


def find_guide(format: str) -> WritingGuide:
    """The guide of a format, by its name or by the path of its adapter."""
    if format in _GUIDES:
        return _GUIDES[format]
    return WritingGuide(str(getattr(specs.adapter(format), "guide", "") or ""), has_scenarios=False)
