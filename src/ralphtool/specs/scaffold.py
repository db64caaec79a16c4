"""A change to start from: a spec with two example stories, in the format that the project already uses.

Each adapter builds the scaffold of its own format; the common part is here. Nothing that exists is ever overwritten.
A change of several files is written aside and put in place in one step.
"""

import os

from ralphtool import specs
from ralphtool.core import config, files, project
from ralphtool.errors import InvalidName, InvalidValue, UsageError, shorten
from ralphtool.specs import markdown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ralphtool.specs import Adapter, Spec

__all__ = ["EXAMPLES", "Scaffold", "name_for"]

_NO_CHANGES = ("archive", "readme", "changelog", "learnings")  # names that mean something else to the formats
_LONGEST_NAME = 60
_LONGEST_TITLE = 100

STORIES = """\
A story is what the agent works on at one time, with a fresh context. A good story is small (an hour of your work,
not a week), builds on the stories before it, and can be proven: by a test, or by a command that fails before the
work and passes after it. The tasks say what must be true when the story is done. Replace the two examples.
"""
# The tasks of a scaffold. While one of them is open, the scaffold is not filled in.
EXAMPLES = (
    "Describe the result: a file, a command, a response to a request",
    "Name the test that proves it, and what it checks",
    "One task for each condition that must be true",
    "What must not change, if that is not obvious",
)
FILL_IN = "replace them with your own stories"


class Scaffold:
    """The files to create: their texts, by path below `place`; for a single file, `place` is its path.

    `spec` is the value that `--spec` needs to find the change, `if_taken` says what to do if `place` already exists.
    `extend` adds the change to the text of an existing file that contains several; it raises InvalidValue if it
    can't. With `is_shared`, `place` is a folder that also contains files of other changes.
    """

    __slots__ = ("change", "extend", "format", "if_taken", "is_shared", "place", "spec", "texts")

    def __init__(
        self,
        change: str,
        place: str,
        texts: dict[str, str],
        spec: str | None = None,
        if_taken: str = "",
        extend: "Callable[[str], str] | None" = None,
        is_shared: bool = False,
    ) -> None:
        self.change = change
        self.format = ""  # set to the name that the adapter was found by
        self.place = place
        self.texts = texts
        self.spec = spec
        self.if_taken = if_taken
        self.extend = extend
        self.is_shared = is_shared

    @property
    def paths(self) -> list[str]:
        return [os.path.join(self.place, name) if name else self.place for name in self.texts]


def formats() -> list[str]:
    """The formats that a new change can be created in."""
    return [name for name in specs.names() if (found := specs.find_working(name)) and _scaffold_of(found[0])]


def _scaffold_of(adapter: "Adapter") -> "Any":
    return getattr(adapter, "scaffold", None)


def plan(
    root: str, text: str, *, format: str | None = None, name: str | None = None, file: str | None = None
) -> Scaffold:
    """What `ralphtool new` would create. `text` describes the change, `file` is the path of the file to create."""
    told = _clean_line(text)
    if not told:
        raise UsageError('the text is empty: say what the change is about, as in `ralphtool new "Add login"`')
    chosen = format or (specs.DEFAULT if file else detect_format(root))
    adapter = specs.adapter(chosen)
    if file and not getattr(adapter, "takes_file", False):
        raise InvalidValue(
            f"--file works only with the format {specs.DEFAULT}, not with {chosen}: use --file or --format"
        )
    if _scaffold_of(adapter) is None:
        hint = getattr(adapter, "begun_by", "write one by hand, or give --format")
        raise InvalidValue(f"the format {chosen} has no template for a new change: {hint}")
    if not (format or file) and _is_taken(_scaffold_of(adapter)(root, told, name, file)):
        chosen, adapter = specs.DEFAULT, specs.adapter(specs.DEFAULT)  # a format with a fixed file has only one change
    made: Scaffold = _scaffold_of(adapter)(root, told, name or _find_free_name(root, adapter, told, file), file)
    made.format = chosen
    if made.spec is None and chosen not in specs.names():
        made.spec = chosen
    _check_free(root, made)
    return made


def _is_taken(made: Scaffold) -> bool:
    return bool(made.if_taken) and _exists_in_any_case(made.place)


def _find_free_name(root: str, adapter: "Adapter", text: str, file: str | None) -> str | None:
    """The name with a number, if a change of that name already exists; None if the name is free."""
    known = {place.change for place in specs.find_all(root)}
    first: Scaffold = _scaffold_of(adapter)(root, text, None, file)
    if file or (first.change not in known and not _is_taken(first)):
        return None
    number = 2
    while f"{first.change}-{number}" in known:
        number += 1
    return f"{first.change}-{number}"


def write(scaffold: Scaffold) -> None:
    """Writes it; raises FileExistsError, and writes nothing, if another process was faster."""
    folder, name = os.path.split(scaffold.place)
    os.makedirs(folder, exist_ok=True)
    if scaffold.extend and os.path.lexists(scaffold.place):
        markdown.edit(scaffold.place, scaffold.extend)
        return
    if scaffold.is_shared and os.path.isdir(scaffold.place):
        _add_files(scaffold)
        return
    if list(scaffold.texts) == [""]:
        files.create(scaffold.place, scaffold.texts[""].encode(), 0o644)
        return
    aside = os.path.join(folder, f".{name}.ralph-aside")
    files.clear(aside)  # a killed process may have left it
    for inside, text in scaffold.texts.items():
        path = os.path.join(aside, inside)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        files.create(path, text.encode(), 0o644)
    os.rename(aside, scaffold.place)
    files.sync_folder(scaffold.place)


def _add_files(scaffold: Scaffold) -> None:
    """Adds files to an existing folder: all are written aside before the first one is put in place."""
    asides: list[tuple[str, str]] = []
    with files.Undo() as undo:
        try:
            for path, text in zip(scaffold.paths, scaffold.texts.values(), strict=True):
                os.makedirs(os.path.dirname(path), exist_ok=True)
                asides.append((files.prepare(path, text.encode()), path))
            for aside, path in asides:
                os.chmod(aside, 0o644)
                files.publish(aside, path)
                undo.made([path])
        finally:
            for aside, _ in asides:
                files.remove(aside)
    for path in scaffold.paths:
        files.sync_folder(path)


def detect_format(root: str) -> str:
    """The format that the project uses: the one in its settings, else the first one that is found."""
    told = config.read_spec(root)
    if told and specs.is_path(specs.file_of(told) or told):
        return (specs.parse_ref(root, told) or told).partition(":")[0]
    if told and ("." in told or told.partition(":")[0] in specs.names()):
        return told if "." in told else told.partition(":")[0]
    return next((name for name in formats() if _is_used(specs.adapter(name), root)), specs.DEFAULT)


def list_used(root: str) -> list[str]:
    """The formats that a project uses. Checklists count only if there is no other: many projects have a TODO.md."""
    used = [name for name in formats() if _is_used(specs.adapter(name), root)]
    return [name for name in used if name != specs.DEFAULT] or used


def _is_used(adapter: "Adapter", root: str) -> bool:
    own = getattr(adapter, "is_used", None)
    return bool(own(root) if own else adapter.changes(root))


# --- names ------------------------------------------------------------------------------------------


def _clean_line(text: str) -> str:
    """Removes control characters, line ends and leading heading or list markers."""
    whole = text.encode("utf-8", "replace").decode()
    shown = "".join(mark if mark.isprintable() else " " for mark in whole)
    return " ".join(shown.split()).lstrip("#-*+> ")


def title_of(text: str) -> str:
    if len(text) <= _LONGEST_TITLE:
        return text
    return text[:_LONGEST_TITLE].rpartition(" ")[0] or text[:_LONGEST_TITLE]


def name_for(text: str, name: str | None) -> str:
    """The change's name: the given one, else one built from the text."""
    import unicodedata

    if name is not None:
        return check_change(name)
    plain = unicodedata.normalize("NFKD", text[: 10 * _LONGEST_NAME]).casefold()
    slug = project.build_slug("".join(mark for mark in plain if not unicodedata.combining(mark)))
    if not slug and any(mark.isalnum() for mark in text):
        slug = "change"  # no letter of the text is allowed in a name; the title describes the change
    if not slug:
        raise InvalidName(f"{shorten(text)} has no letters for a name: give a name, as in --name add-login")
    short = slug if len(slug) <= _LONGEST_NAME else slug[: _LONGEST_NAME + 1].rpartition("-")[0]
    return check_change(short or slug[:_LONGEST_NAME])


def check_change(name: str) -> str:
    """Refuses a text that can't be a change's name, or has another meaning."""
    project.check_name(name, "a change's name")
    is_taken = name.lower() in _NO_CHANGES or name.lower().endswith("-learnings")
    if is_taken or not project.can_be_branch(name):
        raise InvalidName(f"a change can't be called {name}: give another name with --name")
    return name


def _check_free(root: str, made: Scaffold) -> None:
    near = os.path.relpath(made.place, root)
    if (made.extend or made.is_shared) and os.path.lexists(made.place):
        check_addition(made)
    elif made.if_taken and _exists_in_any_case(made.place):
        raise InvalidValue(f"{near} already exists: {made.if_taken}")
    known = {place.change: place.ref for place in specs.find_all(root) if not place.error}
    is_taken = os.path.lexists(made.place) and not (made.extend or made.is_shared)
    if is_taken or made.change in known:
        where = near if is_taken else known[made.change]
        raise InvalidValue(f"there is already a change {made.change} ({where}): give another name with --name")


def check_addition(made: Scaffold) -> None:
    """Refuses to add a change if that would overwrite something."""
    if made.extend:
        made.extend(markdown.load_required(made.place))
    for path in made.paths if made.is_shared else []:
        if os.path.lexists(path):
            raise InvalidValue(f"{path} already exists: move it away, or give another name with --name")


def _exists_in_any_case(path: str) -> bool:
    """Ignores case, since some file systems treat PLAN.md and plan.md as the same file."""
    folder, name = os.path.split(path)
    return os.path.isdir(folder) and name.lower() in (one.lower() for one in os.listdir(folder))


# --- scaffolds that are not filled in ---------------------------------------------------------------


def check_filled_in(spec: "Spec") -> None:
    """Refuses a scaffold that is not filled in: it would cost attempts, and could only fail."""
    if is_unfilled(spec):
        raise InvalidValue(f"{describe_unfilled(spec)}: {FILL_IN}")


def is_unfilled(spec: "Spec") -> bool:
    own = getattr(spec, "is_untouched", None)
    return bool(own() if own else _has_examples(spec))


def describe_unfilled(spec: "Spec") -> str:
    return f"{spec.path} still has the examples of `ralphtool new`"


def _has_examples(spec: "Spec") -> bool:
    texts = [task.text for story in spec.stories() for task in story.tasks if not task.done]
    return any(example in text for text in texts for example in EXAMPLES)
