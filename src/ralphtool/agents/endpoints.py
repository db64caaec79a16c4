"""The endpoints of an agent's model, if the environment or its configuration names others than the default."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_VARIABLES = (
    *("ANTHROPIC_BASE_URL", "ANTHROPIC_BEDROCK_BASE_URL", "ANTHROPIC_VERTEX_BASE_URL", "ANTHROPIC_FOUNDRY_BASE_URL"),
    *("ANTHROPIC_API_BASE", "OPENAI_BASE_URL", "OPENAI_API_BASE", "AZURE_API_BASE", "AZURE_OPENAI_ENDPOINT"),
    *("GOOGLE_GEMINI_BASE_URL", "GOOGLE_VERTEX_BASE_URL", "CODE_ASSIST_ENDPOINT", "GEMINI_API_BASE"),
    *("OPENROUTER_API_BASE", "DEEPSEEK_API_BASE", "GROQ_API_BASE", "MISTRAL_API_BASE", "XAI_API_BASE"),
    *("OLLAMA_API_BASE", "OLLAMA_HOST", "LM_STUDIO_API_BASE"),
)
_FILES = ("config.toml", "opencode.json", "opencode.jsonc")
_ADDRESS = re.compile(r"""\bbase_?url["']?\s*[:=]\s*["'](https?://[^\s"']+)""", re.IGNORECASE)
_NAME = re.compile(r"\b[A-Z][A-Z0-9_]+\b")
_MOST = 1 << 20  # characters of a file
_PORTS = {"http": 80, "https": 443}


def list_endpoints(env: Mapping[str, str]) -> Iterator[tuple[str, int]]:
    """The host and port of each address in these variables."""
    for name in _VARIABLES:
        if found := _parse(env.get(name, "").strip()):
            yield found


def list_configured(folders: Iterable[str]) -> Iterator[tuple[str, int]]:
    """The host and port of each address in the agents' own configuration, in these folders."""
    for text in _read_configuration(folders):
        yield from filter(None, map(_parse, _ADDRESS.findall(text)))


def list_named_variables(folders: Iterable[str], names: Iterable[str]) -> list[str]:
    """Those of the variables that the agents' own configuration mentions, as in `env_key = "MY_KEY"`."""
    words = {word for text in _read_configuration(folders) for word in _NAME.findall(text)}
    return [name for name in names if name in words]


def _read_configuration(folders: Iterable[str]) -> Iterator[str]:
    known = list(folders)
    for path in [*filter(os.path.isfile, known), *(os.path.join(one, name) for one in known for name in _FILES)]:
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                yield file.read(_MOST)
        except OSError:
            continue


def _parse(text: str) -> tuple[str, int] | None:
    try:
        parts = urlsplit(text if "://" in text else f"//{text}")
        port = parts.port or _PORTS.get(parts.scheme, 80)
    except ValueError:
        return None  # the agent will report it
    return (parts.hostname, port) if parts.hostname else None
