"""The free-form learnings file of a change (not the buffer of a session): agents write in it as they like.

It is under the temporary directory, is created once and never overwritten or removed. A prompt names its
path, and includes its content if there is any beyond the template.
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
-->
"""


def path_of(change: str) -> str:
    project.check_name(change, "a change's name")
    return files.private_path("ralphtool", f"{change}-learnings.md")


def ensure(change: str) -> list[str]:
    """Creates the file and its folder if missing; returns what it created."""
    path = path_of(change)
    return [] if exists(path) else _create(path, change)


def exists(path: str) -> bool:
    """Whether the file exists; raises UnsafePath if it is not ours."""
    try:
        os.close(files.open_private(path))
    except FileNotFoundError:
        return False
    return True


def _create(path: str, change: str) -> list[str]:
    with files.Undo() as undo:
        made = files.make_private_folders(path)
        undo.made(made)
        aside = files.prepare(path, _TEMPLATE.format(change=change).encode("utf-8"))
        undo.made([aside])
        try:
            files.publish(aside, path)
        except FileExistsError:
            files.remove(aside)
            return made  # another process was faster: its file is as good
        undo.made([path])
        files.finish_publish(aside, path)
    return [*made, path]


def read(change: str) -> str | None:
    """The content beyond the template, or None. Agents write it, so invalid UTF-8 in it is replaced."""
    try:
        text = files.read_private(path_of(change)).decode("utf-8", "replace")
    except FileNotFoundError:
        return None
    return extract_content(text, change)


def extract_content(text: str, change: str) -> str | None:
    """The content of a learnings file besides the template; an edited template does not count as content."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    template = _TEMPLATE.format(change=change)
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
