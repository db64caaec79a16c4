"""GitHub issues, through `gh`: an issue is a change, and so are the issues of a milestone or a label.

They are only looked up when a run starts, or when one is named: `--spec github:12`, `github:milestone:v1`,
`github:label:ralph`. Everything else reads the copy in `.ralph-issues`.
"""

from ralphtool.core import project as projects
from ralphtool.errors import ChangeNotFound, InvalidValue, shorten
from ralphtool.specs import issue_copy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ralphtool.specs.issue_copy import IssueCopy
    from ralphtool.specs.tracker import DoneStory

name = "github"
found_in = "GitHub issues (--spec github:12)"
begun_by = "create the issue with `gh issue create`, then `ralphtool run --spec github:NUMBER`"
publishes_during_run = True
_GROUPS = ("milestone", "label")


def changes(project: str) -> list[str]:
    listed = [name_change(where) for where in list_configured(project)]
    return list(dict.fromkeys([*listed, *issue_copy.list_changes(project, name)]))


def list_configured(project: str) -> list[str]:
    """The issues named in the settings: `[specs.github] changes`, and `[run] spec`."""
    from ralphtool.core import config

    listed = config.read_tracker(project, name).get("changes", [])
    if not isinstance(listed, list) or not all(isinstance(one, str) for one in listed):
        raise InvalidValue(
            f'{config.path_of(project)}: specs.github.changes must be a list of strings, as in ["12", "label:ralph"]'
        )
    return list(dict.fromkeys([*listed, *filter(None, [config.read_spec_of(project, name)])]))


def open(project: str, change: str, where: str | None = None) -> "IssueCopy":
    try:
        return issue_copy.open_copy(project, change, name, where and spell_where(where))
    except ChangeNotFound:
        known = where or next((one for one in list_configured(project) if name_change(one) == change), None)
        if known is None:
            raise
        raise ChangeNotFound(
            f"{name}:{known} is not copied yet: `ralphtool run --spec {name}:{known}` copies it, and so does "
            f"`ralphtool show {change} --spec {name}:{known}`"
        ) from None


def places(change: str, where: str | None = None) -> list[str]:
    return issue_copy.list_places(change)


def name_change(where: str) -> str:
    """`12` is the change github-12, `milestone:v1.0` is github-milestone-v1-0."""
    kind, value = parse_where(where)
    slug = value if kind == "issue" else f"{kind}-{projects.build_slug(value)}"
    return f"{name}-{slug}"[:128].rstrip("-")


def parse_where(where: str) -> tuple[str, str]:
    """What to look up: an issue by its number, or a milestone or a label by its name."""
    kind, _, value = where.partition(":")
    number = where.removeprefix("#")
    if number.isascii() and number.isdigit() and len(number) < 12 and int(number):
        return "issue", str(int(number))
    if kind in _GROUPS and projects.build_slug(value):
        return kind, value
    raise InvalidValue(
        f"{name}:{shorten(where)} does not name an issue: write {name}:12, {name}:milestone:NAME or {name}:label:NAME"
    )


def spell_where(where: str) -> str:
    """`#12` and `012` become `12`."""
    kind, value = parse_where(where)
    return value if kind == "issue" else f"{kind}:{value}"


def download(project: str, change: str, where: str | None, stop: "Callable[[], bool]") -> tuple[str, list[str]]:
    from ralphtool.specs import github_issues

    known = where or next((one for one in list_configured(project) if name_change(one) == change), None)
    if known is None:
        raise ChangeNotFound(f"there is no copy of {change}: name the issue, as in --spec {name}:12")
    return github_issues.download(project, spell_where(known), *parse_where(known), stop=stop)


def publish(
    project: str,
    change: str,
    where: str | None,
    done: "Sequence[DoneStory]",
    is_complete: bool,
    stop: "Callable[[], bool]",
) -> list[str] | None:
    from ralphtool.core import config
    from ralphtool.specs import github_issues

    if config.read_tracker(project, name).get("write") is not True or where is None:
        return None
    return github_issues.publish(project, change, parse_where(where), done, is_complete=is_complete, stop=stop)
