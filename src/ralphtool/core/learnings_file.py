"""The free-form learnings file of a change (not the buffer of a session): agents write in it as they like.

It lies under the temporary directory, is made once and never overwritten or removed. A prompt names its
path, and carries its content when there is some beyond the template.
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
    """Makes the file, and its folder, if it is missing; tells what it made."""
    path = path_of(change)
    return [] if exists(path) else _create(path, change)


def exists(path: str) -> bool:
    """Whether the file is there, and ours."""
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
            return made  # somebody was quicker: theirs is as good
        undo.made([path])
        files.finish_publish(aside, path)
    return [*made, path]


def read(change: str) -> str | None:
    """The content beyond the template, or None. What is not UTF-8 in it is replaced: agents wrote it."""
    try:
        text = files.read_private(path_of(change)).decode("utf-8", "replace")
    except FileNotFoundError:
        return None
    return extract_content(text, change)


def extract_content(text: str, change: str) -> str | None:
    """What stands in a learnings file besides the template; an edited template is none."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    template = _TEMPLATE.format(change=change)
    if text.startswith(template):
        text = text[len(template) :]
    return text.strip("\n") if _strip_template(text) else None


def _strip_template(text: str) -> str:
    """Comments and the title at the top are the template's, however they were edited."""
    while "<!--" in text:
        before, _, after = text.partition("<!--")
        inside, closed, rest = after.partition("-->")
        if not closed:  # a comment that never ends: rather show too much than lose a learning
            return before + inside
        text = before + rest
    first, _, rest = text.strip().partition("\n")
    return rest.strip() if first.startswith("# ") else text.strip()


def format_for_prompt(text: str, budget: int, path: str) -> str:
    """The content for a prompt: within a fence that it can't close, and within `budget` characters.

    Agents add at the end, so the end is what is kept.
    """
    shown, notice = text, ""
    if len(text) > budget:
        shown = text[len(text) - budget :]
        shown = shown.partition("\n")[2] or shown
        notice = f"[{len(text) - len(shown)} characters left out; the whole file is {path}]\n"
    return fence(f"{notice}{shown}", "markdown")
