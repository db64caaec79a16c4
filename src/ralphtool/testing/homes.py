"""A fresh home for a real agent program, in which only the scripted model is configured."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_KEY = "no-key-is-needed-here"


def environment(agent: str, url: str, home: str) -> dict[str, str]:
    os.makedirs(home, exist_ok=True)
    return {"HOME": home, **_HOMES[agent](url, home)}


def _claude(url: str, home: str) -> dict[str, str]:
    return {
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": _KEY,
        "CLAUDE_CONFIG_DIR": os.path.join(home, ".claude"),
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_MAX_RETRIES": "2",
    }


def _codex(url: str, home: str) -> dict[str, str]:
    folder = os.path.join(home, ".codex")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "config.toml"), "w", encoding="utf-8") as file:
        file.write(_CODEX.format(url=url))
    return {"CODEX_HOME": folder, "SCRIPTED_MODEL_KEY": _KEY}


_CODEX = """\
model = "scripted"
model_provider = "scripted"
check_for_update_on_startup = false

[analytics]
enabled = false

[model_providers.scripted]
name = "scripted"
base_url = "{url}/v1"
env_key = "SCRIPTED_MODEL_KEY"
wire_api = "responses"
request_max_retries = 1
stream_max_retries = 1
"""


def _gemini(url: str, home: str) -> dict[str, str]:
    settings = {
        "general": {"maxAttempts": 2, "enableAutoUpdate": False, "enableAutoUpdateNotification": False},
        "privacy": {"usageStatisticsEnabled": False},
        "security": {"auth": {"selectedType": "gemini-api-key"}},
    }
    folder = os.path.join(home, ".gemini")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "settings.json"), "w", encoding="utf-8") as file:
        json.dump(settings, file)
    return {
        "GEMINI_API_KEY": _KEY,
        "GOOGLE_GEMINI_BASE_URL": url,
        "GEMINI_TELEMETRY_ENABLED": "false",
        "GEMINI_CLI_TRUST_WORKSPACE": "true",
        "GEMINI_MODEL": "gemini-2.5-pro",
    }


def _opencode(url: str, home: str) -> dict[str, str]:
    models = {"x": {"name": "x", "limit": {"context": 128_000, "output": 8_000}}}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "scripted",
        "options": {"baseURL": f"{url}/v1", "apiKey": _KEY},
        "models": models,
    }
    path = os.path.join(home, "opencode.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"model": "scripted/x", "provider": {"scripted": provider}}, file)
    folders = {f"XDG_{kind}_HOME": os.path.join(home, kind.lower()) for kind in ("CACHE", "CONFIG", "DATA", "STATE")}
    return {
        **folders,
        "OPENCODE_CONFIG": path,
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
    }


def _aider(url: str, home: str) -> dict[str, str]:
    price = {"input_cost_per_token": 1e-06, "output_cost_per_token": 1e-05, "mode": "chat"}
    folder = os.path.join(home, ".aider", "caches")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "model_prices_and_context_window.json"), "w", encoding="utf-8") as file:
        json.dump({_MODEL: price | {"litellm_provider": "openai"}}, file)
    return {"AIDER_MODEL": _MODEL, "AIDER_EDIT_FORMAT": "diff", **_litellm(url)}


def _mini(url: str, home: str) -> dict[str, str]:
    own = {
        "MSWEA_CONFIGURED": "true",
        "MSWEA_MODEL_NAME": _MODEL,
        "MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT": "2",
        "XDG_CONFIG_HOME": os.path.join(home, ".config"),
    }
    return own | _litellm(url)


_MODEL = "openai/scripted"


def _litellm(url: str) -> dict[str, str]:
    """For programs that use litellm: the address of the model, and no prices from the network."""
    return {
        "OPENAI_API_BASE": f"{url}/v1",
        "OPENAI_API_KEY": _KEY,
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }


_HOMES: dict[str, Callable[[str, str], dict[str, str]]] = {
    "aider": _aider,
    "claude": _claude,
    "codex": _codex,
    "gemini": _gemini,
    "mini": _mini,
    "opencode": _opencode,
}
