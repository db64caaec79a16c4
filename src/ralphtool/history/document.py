"""progress.json as bytes: parsed and checked whole, measured, and added to without changing existing bytes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec
from msgspec import Raw

from ralphtool import typed
from ralphtool.errors import shorten
from ralphtool.history import records
from ralphtool.history.records import Entry, HistoryRecord, Learning, Pattern, Progress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    Read = Callable[[int, int], bytes]  # the bytes of the document from one position to another

RecordT = TypeVar("RecordT", bound=HistoryRecord)

KINDS: dict[str, type[Entry | Learning | Pattern]] = {"entries": Entry, "learnings": Learning, "patterns": Pattern}
VERSION = "1.0"
_LONGEST_NUMBER = 1000  # digits

_FIELDS = typed.build_decoder(dict[str, Raw])
_ITEMS = typed.build_decoder(list[Raw])
_NAME = rb'(?s)[ \t\r\n,{]*"(?:[^"\\]|\\.)*"[ \t\r\n]*:[ \t\r\n]*'
_GAP = rb"[ \t\r\n,]*"


class InvalidDocument(ValueError):
    """The document, or a part of it, is invalid. The message names the field."""


class VersionTooNew(InvalidDocument):
    """Only a later ralphtool can read its version."""


# --- parsing ----------------------------------------------------------------------------------------


def parse(data: bytes, is_measured: bool = False) -> Progress:
    """The document, every field checked; raises InvalidDocument. `is_measured`: whether `measure` accepted it."""
    try:
        progress = records.decode(data, Progress)
        _check_version(progress.version)
    except msgspec.ValidationError as error:
        progress = _parse_later_minor(data, error)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidDocument(_describe_syntax_error(data, error)) from None
    if not is_measured:
        measure(data)  # finds duplicate fields
    for name in KINDS:
        check_unique(name, [record.id for record in getattr(progress, name)])
    return progress


def is_plain(data: bytes) -> bool:
    """Whether it is version 1.0 and certainly has no list twice: a quick check instead of measuring it."""
    return b'"version": "1.0"' in data[:200] and all(data.count(b'"%s"' % name.encode()) <= 1 for name in KINDS)


def _describe_syntax_error(data: bytes, error: Exception) -> str:
    if data.startswith(b"\xef\xbb\xbf"):
        return "it begins with a byte order mark, which JSON does not allow: save it without one"
    if not data.strip():
        return "it is empty"
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as wrong:
        return f"it is not UTF-8 (byte {wrong.start})"
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    return f"it is not JSON ({str(error).removeprefix('JSON is malformed: ')})"


def _parse_plain(data: bytes | Raw) -> Any:
    """The document as dicts and lists, with any numbers, to explain what is wrong. Raises InvalidDocument."""
    import json

    try:
        return json.loads(bytes(data), parse_int=_parse_number, parse_constant=_reject_constant)
    except (ValueError, RecursionError) as error:
        raise InvalidDocument(_describe_syntax_error(bytes(data), error)) from None


def _parse_number(digits: str) -> int | float:
    return int(digits) if len(digits) < _LONGEST_NUMBER else float("inf")


def _reject_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _parse_later_minor(data: bytes, error: msgspec.ValidationError) -> Progress:
    """A document of a later 1.x may have unknown fields: the known ones are checked all the same."""
    value = _parse_plain(data)
    return _convert(value, Progress, error, "", lenient=_is_later(value))


def _is_later(value: object) -> bool:
    version = value.get("version") if isinstance(value, dict) else None
    if not isinstance(version, str) or not re.fullmatch(r"[0-9]+\.[0-9]+", version):
        return False  # that is reported as another error
    _check_version(version)
    return is_later_minor(version)


def _check_version(version: str) -> None:
    """Versions compare as numbers, of any length."""
    if version.partition(".")[0].lstrip("0") not in ("", "1"):
        raise VersionTooNew(
            f"version {version[:20]} is newer than the 1.x that this ralphtool reads: upgrade ralphtool"
        )


def is_later_minor(version: str) -> bool:
    return version.partition(".")[2].strip("0") != ""


def _convert(value: Any, kind: type[RecordT], error: msgspec.ValidationError, where: str, *, lenient: bool) -> RecordT:
    from ralphtool.history import schema

    if lenient:
        value = schema.keep_known_fields(value, kind)
        try:
            return typed.convert(value, kind)
        except msgspec.ValidationError as later:
            error = later
    raise InvalidDocument(schema.explain(error, value, kind, where))


def check_unique(name: str, ids: Sequence[str]) -> None:
    if len(set(ids)) == len(ids):
        return
    seen: set[str] = set()
    for number, id in enumerate(ids):
        if id in seen:
            raise build_duplicate_error(name, number, id)
        seen.add(id)


def build_duplicate_error(name: str, number: int, id: str) -> InvalidDocument:
    return InvalidDocument(f"{name}[{number}].id: {shorten(id)} already exists: ids must be unique")


def decode(data: bytes | Raw, kind: type[RecordT], where: str, lenient: bool) -> RecordT:
    """One record of the document; raises InvalidDocument, with the field's path beginning with `where`."""
    try:
        return records.decode(data, kind)
    except msgspec.ValidationError as error:
        return _convert(_parse_plain(data), kind, error, where, lenient=lenient)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidDocument(f"{where}: {_describe_syntax_error(bytes(data), error)}") from None


def check_head(data: bytes) -> bool:
    """Checks everything but the records; returns whether those may have unknown fields. Raises InvalidDocument."""
    try:
        data.decode("utf-8")  # unknown fields are skipped without a check
        fields = _FIELDS.decode(data)
    except msgspec.ValidationError:
        raise InvalidDocument("the document: it is not an object") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidDocument(_describe_syntax_error(data, error)) from None
    lists = {name: Raw(b"[]") for name, raw in fields.items() if name in KINDS and bytes(memoryview(raw)[:1]) == b"["}
    head = parse(msgspec.json.encode(fields | lists))
    return is_later_minor(head.version)


# --- positions --------------------------------------------------------------------------------------


class Span(NamedTuple):
    """The start of a list, at its bracket, and its end."""

    open: int
    end: int


Layout = dict[str, Span]


class FieldSpan(NamedTuple):
    """The positions of a field's name and value."""

    name: str
    begin: int
    start: int
    end: int


def find_fields(data: bytes) -> list[FieldSpan]:
    """The fields of a parsed object, in order; raises InvalidDocument if one occurs twice."""
    try:
        decoded = _FIELDS.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:  # in a part that the lenient check skipped
        raise InvalidDocument(_describe_syntax_error(data, error)) from None
    fields: list[FieldSpan] = []
    pattern, position = re.compile(_NAME), 0
    for name, raw in decoded.items():
        found = pattern.match(data, position)
        text = memoryview(raw)
        if found is None or data[found.end() : found.end() + len(text)] != text:
            break
        begin = data.index(b'"', position)
        position = found.end() + len(text)
        fields.append(FieldSpan(name, begin, found.end(), position))
    if data[position:].strip(b" \t\r\n{") != b"}":
        raise InvalidDocument("a field occurs twice in the document")
    return fields


def measure(data: bytes) -> Layout:
    """The positions of the three lists in a parsed document."""
    return {field.name: Span(field.start, field.end) for field in find_fields(data) if field.name in KINDS}


def iterate_items(section: bytes) -> Iterator[tuple[Raw, int]]:
    """Each item of a list, and its offset in the list."""
    pattern, position = re.compile(_GAP), 1
    for raw in _ITEMS.decode(section):
        start = pattern.match(section, position).end()  # type: ignore[union-attr]
        position = start + len(memoryview(raw))
        yield raw, start


# --- adding -----------------------------------------------------------------------------------------


class Edit(NamedTuple):
    """Replaces the bytes from `start` to `end` by `text`."""

    start: int
    end: int
    text: bytes


class DocumentUpdate(NamedTuple):
    """The edits that turn a document into its next version, and the positions in that."""

    edits: list[Edit]
    layout: Layout
    places: list[tuple[int, int]]  # of each added entry: its offset from the list's bracket, and its length


def build_empty(created_at: str, project_name: str) -> bytes:
    progress = Progress(version=VERSION, created_at=created_at, project_name=project_name, entries=())
    return msgspec.json.format(msgspec.json.encode(progress), indent=2) + b"\n"


def build_update(read: Read, layout: Layout, added: dict[str, list[bytes]], replaced: list[Edit]) -> DocumentUpdate:
    """The edits that add records to a document's lists; `replaced` are edits inside lists, by position."""
    edits = list(replaced)
    fresh: Layout = {}
    places: list[tuple[int, int]] = []
    after = layout["entries"].end
    for name in KINDS:
        texts = [_indent(text) for text in added.get(name, ())]
        span = layout.get(name)
        if texts and span:
            edits.append(_append_items(read, span, texts))
        elif texts:
            edits.append(_add_list(name, after, texts))
            fresh[name] = Span(after, after)
        after = span.end if span else after
        if name == "entries" and texts and span:
            places = _locate_items(edits[-1], span, texts)
    edits.sort(key=lambda edit: edit.start)
    return DocumentUpdate(edits, _shift_layout(layout, fresh, edits), places)


_CHANGING = ("context", "times_referenced", "still_valid")
_FIELD_NAMES = Learning.__struct_fields__


def edit_learnings(read: Read, span: Span, changed: dict[str, bytes]) -> list[Edit]:
    """Edits that update learnings: only the bytes of changed values."""
    edits = []
    for raw, start in iterate_items(read(span.open, span.end)):
        old = _FIELDS.decode(raw)
        if text := changed.get(msgspec.json.decode(old["id"])):
            new = {name: value for name, value in _FIELDS.decode(text).items() if name in _CHANGING}
            fields = {name: value for name, value in new.items() if _is_different(value, old.get(name), name)}
            edits += _edit_record(bytes(raw), span.open + start, fields)
    return edits


def _edit_record(record: bytes, position: int, fields: dict[str, Raw]) -> list[Edit]:
    try:
        return _edit_fields(record, position, fields)
    except InvalidDocument:  # a duplicate field, for example after a merge: only the last one counts, and is kept
        whole = _indent(msgspec.json.encode(_FIELDS.decode(record) | fields))
        return [Edit(position, position + len(record), whole)]


def _is_different(new: Raw, old: Raw | None, name: str) -> bool:
    absent = {"times_referenced": 0, "still_valid": True}.get(name)
    return bool(msgspec.json.decode(new) != (absent if old is None else msgspec.json.decode(old)))


def _edit_fields(record: bytes, position: int, fields: dict[str, Raw]) -> list[Edit]:
    """Edits of a learning's fields; a missing one is added at its usual place, with the same spacing as the others."""
    known = find_fields(record)
    edits = []
    for name, value in fields.items():
        place = next((field for field in known if field.name == name), None)
        if place:
            edits.append(Edit(position + place.start, position + place.end, bytes(value)))
        else:
            before = _FIELD_NAMES[: _FIELD_NAMES.index(name)]
            after = max((field for field in known if field.name in before), key=lambda field: field.end)
            edits.append(Edit(position + after.end, position + after.end, _format_field(record, known, name, value)))
    return edits


def _format_field(record: bytes, known: list[FieldSpan], name: str, value: Raw) -> bytes:
    """A further field, with the same spaces around it as the second one: every learning has at least two."""
    first, second = known[:2]
    blanks = record[first.end : second.begin]
    colon = record[second.begin : second.start].rpartition(b'"')[2]
    return b'%b"%b"%b%b' % (blanks, name.encode(), colon, bytes(value))


def _indent(text: bytes) -> bytes:
    # JSON strings contain no raw newlines, so every newline is formatting.
    return msgspec.json.format(text, indent=2).replace(b"\n", b"\n    ")


def _append_items(read: Read, span: Span, texts: list[bytes]) -> Edit:
    """Adds after the last item of a list; an empty list is split into lines."""
    last = _find_end_of_items(read, span)
    text = b",".join(b"\n    " + one for one in texts)
    if last == span.open + 1:
        return Edit(last, span.end - 1, text + b"\n  ")
    return Edit(last, last, b"," + text)


def _find_end_of_items(read: Read, span: Span) -> int:
    end = span.end - 1
    while end > span.open + 1:
        start = max(span.open + 1, end - 4096)
        if kept := read(start, end).rstrip(b" \t\r\n"):
            return start + len(kept)
        end = start
    return end


def _add_list(name: str, position: int, texts: list[bytes]) -> Edit:
    items = b",".join(b"\n    " + one for one in texts)
    return Edit(position, position, b',\n  "%s": [%s\n  ]' % (name.encode(), items))


def _locate_items(edit: Edit, span: Span, texts: list[bytes]) -> list[tuple[int, int]]:
    comma = 0 if edit.start == span.open + 1 else 1
    position = edit.start - span.open + comma
    places = []
    for text in texts:
        places.append((position + len(b"\n    "), len(text)))
        position += len(b"\n    ") + len(text) + len(b",")
    return places


def _shift_layout(layout: Layout, fresh: Layout, edits: list[Edit]) -> Layout:
    growths = [(edit.start, len(edit.text) - (edit.end - edit.start)) for edit in edits]
    moved = {
        name: Span(
            span.open + sum(growth for start, growth in growths if start <= span.open),
            span.end + sum(growth for start, growth in growths if start < span.end),
        )
        for name, span in layout.items()
    }
    for name, span in fresh.items():
        moved[name] = _locate_new_list(name, span.open, edits, growths)
    return moved


def _locate_new_list(name: str, position: int, edits: list[Edit], growths: list[tuple[int, int]]) -> Span:
    head = b',\n  "%s": ' % name.encode()
    before = 0
    for edit, (start, growth) in zip(edits, growths, strict=True):
        if start == position and edit.text.startswith(head):
            return Span(position + before + len(head), position + before + len(edit.text))
        before += growth
    raise AssertionError(f"{name} was not added")


def apply_edits(read: Read, size: int, edits: Iterable[Edit]) -> Iterator[bytes]:
    """The next version of a document, piece by piece: it may be too large for the memory."""
    position = 0
    for edit in edits:
        yield from _copy_range(read, position, edit.start)
        yield edit.text
        position = edit.end
    yield from _copy_range(read, position, size)


def _copy_range(read: Read, start: int, end: int) -> Iterator[bytes]:
    for position in range(start, end, 1 << 20):
        yield read(position, min(position + (1 << 20), end))
