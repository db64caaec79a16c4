"""Generates `docs/events.md` from the types of the events; `docs/events.jsonl` has an example of each."""

from __future__ import annotations

import ast
import inspect
import json
import textwrap
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, get_args, get_origin

import msgspec
from msgspec import NODEFAULT, Struct, structs

from ralphtool import agents
from ralphtool.judging import receipt
from ralphtool.record import event_parts, events

FIRST = "\n## "


def events_page(docs: Path) -> str:
    """The page; the text before its first section is kept."""
    before, _, _ = (docs / "events.md").read_text().partition(FIRST)
    lines = (docs / "events.jsonl").read_bytes().splitlines()
    examples = {type(event): event for line in lines if (event := events.decode(line))}
    return before + "".join(FIRST + section(kind, examples[kind]) for kind in get_args(events.Event))


def section(kind: type[Struct], example: events.Event) -> str:
    about = textwrap.fill(sentence(kind), 100, break_long_words=False, break_on_hyphens=False)
    parts = [str(kind.__struct_config__.tag), about]
    fields = [field for field in structs.fields(kind) if field.name != "at"]
    if fields:
        parts.append(table(("field", "what"), [(field.encode_name, describe(kind, field)) for field in fields]))
    if kind is events.Agent:
        parts.append(
            table(("kind", "fields"), [(kind_of(said), describe_said(said)) for said in get_args(events.AgentEvent)])
        )
    parts.append(f"```json\n{json.dumps(msgspec.to_builtins(events.encode_fields(example, example.at)))}\n```\n")
    return "\n\n".join(parts)


def table(head: tuple[str, str], rows: list[tuple[str, str]]) -> str:
    lines = [f"| {head[0]} | {head[1]} |", "|---|---|", *(f"| `{name}` | {about} |" for name, about in rows)]
    return "\n".join(lines)


def describe(kind: type[Struct], field: structs.FieldInfo) -> str:
    """The description of a field, with its inner fields, if it has any."""
    about = documented(kind)[field.name]
    if get_origin(field.type) is tuple and is_struct(item := get_args(field.type)[0]):
        return f"{about}: [{inside(item)}]"
    members = [one for one in get_args(field.type) or [field.type] if one is not type(None)]
    return f"{inside(members[0])}; {about}" if len(members) == 1 and is_struct(members[0]) else about


def inside(kind: type[Struct]) -> str:
    return ", ".join(f"`{field.name}` ({describe_inner(kind, field)})" for field in structs.fields(kind))


def describe_inner(kind: type[Struct], field: structs.FieldInfo) -> str:
    about = documented(kind)[field.name]
    if get_origin(field.type) is tuple and is_struct(item := get_args(field.type)[0]):
        return f"{about}; of each: {', '.join(f'`{name}`' for name in item.__struct_fields__)}"
    return about


def describe_said(kind: type[Struct]) -> str:
    fields = ", ".join(f"`{field.name}`{default(field)}" for field in structs.fields(kind))
    more = "".join(f" `{name}`: {about}." for name, about in documented(kind).items())
    return f"{fields}: {sentence(kind)}{more}"


def kind_of(said: type[Struct]) -> str:
    return str(said.__struct_config__.tag)


def default(field: structs.FieldInfo) -> str:
    return "" if field.default is NODEFAULT else f" ({json.dumps(field.default)})"


def is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Struct)


def sentence(kind: type[Struct]) -> str:
    return " ".join((kind.__doc__ or "").split())


def documented(kind: type[Struct]) -> dict[str, str]:
    """The docstring under each field of a type."""
    modules: tuple[ModuleType, ...] = (events, event_parts, receipt, agents)
    [module] = [one for one in modules if one.__name__ == kind.__module__]
    return docstrings(module)[kind.__name__]


@cache
def docstrings(module: ModuleType) -> dict[str, dict[str, str]]:
    classes = [node for node in ast.parse(inspect.getsource(module)).body if isinstance(node, ast.ClassDef)]
    return {node.name: dict(fields(node)) for node in classes}


def fields(node: ast.ClassDef) -> list[tuple[str, str]]:
    pairs = zip(node.body, node.body[1:], strict=False)
    return [
        (field.target.id, " ".join(text.value.value.split()))
        for field, text in pairs
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant) and isinstance(text.value.value, str)
    ]
