"""Elements of HTML, SVG and XML, built from values: text is always escaped, and nothing can run or load.

    tag("td", story.title, class_="n")      <td class="n">a &lt; b</td>

Elements can't be written as text. Everything that could run (a script, an attribute like `onclick`) is refused, and so
is every address outside the page.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape
from typing import NamedTuple

from ralphtool.core.text import make_printable

AttributeValue = str | int | float | bool | None

_VOID = {"br", "hr", "link", "meta", "wbr"}  # no end tag in HTML
_ON_LINES = {"article", "details", "li", "p", "section", "testcase", "testsuite", "tr"}  # one per line, for readers
_REFUSED = {"script", "iframe", "object", "embed", "base", "form", "link", "img", "image", "use", "foreignObject"}
_ADDRESSES = {"href", "src", "action", "data", "srcset", "poster", "background"}
_NAMES = {"class_": "class", "for_": "for"}


class Element(NamedTuple):
    name: str
    attributes: dict[str, str]
    children: tuple[object, ...]


class Css(str):
    """A style sheet of ralphtool: the only text that is not escaped."""

    __slots__ = ()


def tag(name: str, /, *children: object, **attributes: AttributeValue) -> Element:
    """An element. An attribute with `None` or `False` is omitted, one with `True` has no value."""
    if name in _REFUSED:
        raise ValueError(f"a page has no {name}")
    given = {
        _format_attribute(key): "" if value is True else str(value)
        for key, value in attributes.items()
        if value is not None and value is not False
    }
    for key, value in given.items():
        if key.lower().startswith("on") or (key in _ADDRESSES and not value.startswith("#")):
            raise ValueError(f"{key} may lead out of the page")
    return Element(name, given, children)


def _format_attribute(key: str) -> str:
    return _NAMES.get(key) or key.replace("_", "-")


def render_html(root: Element) -> str:
    return "<!doctype html>\n" + "".join(_render(root, is_xml=False)) + "\n"


def build_bar(parts: Iterable[tuple[str, int]], **attributes: AttributeValue) -> Element:
    """A bar of parts in the colours of their states; widths are proportional to the numbers."""
    bars = [tag("i", class_=f"is-{state}", style=f"flex-grow:{number}") for state, number in parts if number]
    return tag("div", bars, class_="progress", **attributes)


def build_tree(child: object) -> object:
    """The element as lists and texts (name, attributes, children), for a page that builds the elements itself."""
    if isinstance(child, Element):
        attributes = {key: _make_text_printable(value) for key, value in child.attributes.items()}
        return [child.name, attributes, *_list_subtrees(child.children)]
    return _make_text_printable(str(child))


def _list_subtrees(children: Iterable[object]) -> Iterator[object]:
    for child in children:
        if isinstance(child, Iterable) and not isinstance(child, str | Element):
            yield from _list_subtrees(child)
        elif child is not None:
            yield build_tree(child)


def render_xml(root: Element) -> str:
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + "".join(_render(root, is_xml=True)) + "\n"


def _render(child: object, *, is_xml: bool) -> Iterator[str]:
    if isinstance(child, Element):
        yield from _render_element(child, is_xml=is_xml)
    elif isinstance(child, Css):
        if "<" in child:
            raise ValueError("a style sheet that could end itself")
        yield str(child)
    elif isinstance(child, Iterable) and not isinstance(child, str):
        for one in child:
            yield from _render(one, is_xml=is_xml)
    elif child is not None:
        yield escape_text(str(child))


def _render_element(element: Element, *, is_xml: bool) -> Iterator[str]:
    name, attributes, children = element
    told = "".join(f' {key}="{escape_text(value)}"' for key, value in attributes.items())
    if not children and (is_xml or name in _VOID):
        yield f"<{name}{told}/>" if is_xml else f"<{name}{told}>"
        return
    yield f"<{name}{told}>"
    for child in children:
        yield from _render(child, is_xml=is_xml)
    yield f"</{name}>\n" if name in _ON_LINES else f"</{name}>"


def escape_text(text: str) -> str:
    """Escapes a text. Control characters, and those that change the writing direction, become visible."""
    return escape(_make_text_printable(text))


def _make_text_printable(text: str) -> str:
    return text if text.isprintable() else "\n".join(make_printable(line) for line in text.split("\n"))
