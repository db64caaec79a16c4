"""The free-form learnings file of a change (not the buffer of a session): agents write in it as they like.

It is under the temporary directory, is created once and never overwritten or removed. A prompt names its
path, and includes its content if there is any beyond the template.

Its name has only the change in it, so it also names its project: if another project has a change of that name, that one
gets a file of its own. A file that names no project, or one that no longer exists, belongs to whoever asks.
"""

import os

from ralphtool.core import files, project
from ralphtool.core.text import fence

_TEMPLATE = """\
# Learnings: {change}

<!--
Notes from one story to the next. Write below, in free form, what will help the next agent:

- Discoveries: how this code base really works, where things are, commands that proved useful
- Decisions: what you chose, and why
- Gotchas: what went wrong or took long, and how to avoid it

Correct or remove what turned out to be wrong.
{owner}-->
"""
_OWNER = "Project: "
_HEAD = 8192  # bytes: the template is in them, with the longest path


def path_of(change: str, root: str = "") -> str:
    """`root` is the project's; without it, the path is that of the first project with such a change."""
    project.check_name(change, "a change's name")
    path = files.private_path("ralphtool", f"{change}-learnings.md")
    owner = _read_owner(path) if root else ""
    if not owner or owner == (own := project.find_users_folder(root)) or not os.path.isdir(owner):
        return path  # a project that was moved keeps its file
    import zlib  # rarely needed

    mark = zlib.crc32(os.fsencode(own))
    return files.private_path("ralphtool", f"{change}-{mark:08x}-learnings.md")


def _read_owner(path: str) -> str:
    """The project that a file names; empty if it names none."""
    try:
        fd = files.open_private(path)
    except FileNotFoundError:
        return ""
    try:
        head = os.read(fd, _HEAD).decode("utf-8", "replace")
    finally:
        os.close(fd)
    return _find_owner(head)


def _find_owner(text: str) -> str:
    lines = text.partition("-->")[0].splitlines()
    return next((line[len(_OWNER) :] for line in lines if line.startswith(_OWNER)), "")


def _build_template(change: str, owner: str) -> str:
    return _TEMPLATE.format(change=change, owner=f"\n{_OWNER}{owner}\n" if owner else "")


def ensure(change: str, root: str = "") -> list[str]:
    """Creates the file and its folder if missing; returns what it created."""
    made: list[str] = []
    while not exists(path := path_of(change, root)):  # another project may be faster, and get the first name
        made += _create(path, change, root)
    return made


def exists(path: str) -> bool:
    """Whether the file exists; raises UnsafePath if it is not ours."""
    try:
        os.close(files.open_private(path))
    except FileNotFoundError:
        return False
    return True


def _create(path: str, change: str, root: str) -> list[str]:
    owner = project.find_users_folder(root) if root else ""
    text = _build_template(change, owner if owner.isprintable() and "-->" not in owner else "")
    with files.Undo() as undo:
        made = files.make_private_folders(path)
        undo.made(made)
        aside = files.prepare(path, text.encode("utf-8"))
        undo.made([aside])
        try:
            files.publish(aside, path)
        except FileExistsError:
            files.remove(aside)
            return made  # another process was faster: its file is as good
        undo.made([path])
        files.finish_publish(aside, path)
    return [*made, path]


def read(change: str, root: str = "") -> str | None:
    """The content beyond the template, or None. Agents write it, so invalid UTF-8 in it is replaced."""
    try:
        text = files.read_private(path_of(change, root)).decode("utf-8", "replace")
    except FileNotFoundError:
        return None
    return extract_content(text, change)


def extract_content(text: str, change: str) -> str | None:
    """The content of a learnings file besides the template; an edited template does not count as content."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    template = _build_template(change, _find_owner(text))
    if text.startswith(template):
        text = text[len(template) :]
    return text.strip("\n") if _strip_template(text) else None


def _strip_template(text: str) -> str:
    """Comments and the title at the top belong to the template, even if edited."""
    while "<!--" in text:
        before, _, after = text.partition("<!--")
        inside, closed, rest = after.partition("-->")
        if not closed:  # an unclosed comment: better to show too much than to lose a learning
            return before + inside
        text = before + rest
    first, _, rest = text.strip().partition("\n")
    return rest.strip() if first.startswith("# ") else text.strip()


def format_for_prompt(text: str, budget: int, path: str) -> str:
    """The content for a prompt: inside a fence that it can't close, and at most `budget` characters.

    Agents append, so the end is kept.
    """
    shown, notice = text, ""
    if len(text) > budget:
        shown = text[len(text) - budget :]
        shown = shown.partition("\n")[2] or shown
        notice = f"[{len(text) - len(shown)} characters left out; the whole file is {path}]\n"
    return fence(f"{notice}{shown}", "markdown")
