"""The provider of an agent's models, as OpenTelemetry names it, guessed from names."""

from __future__ import annotations

_AGENTS = {"claude": "anthropic", "codex": "openai", "gemini": "gcp.gemini"}
_MODELS = {
    "claude": "anthropic",
    "gpt": "openai",
    "codex": "openai",
    "gemini": "gcp.gemini",
    "mistral": "mistral_ai",
    "deepseek": "deepseek",
    "grok": "x_ai",
    "command-r": "cohere",
}


def find_provider(agent: str, model: str = "") -> str:
    """The provider of a model; if its name says nothing, that of the agent, or else the agent's own name."""
    name = model.lower().rpartition("/")[2]
    found = next((provider for start, provider in _MODELS.items() if name.startswith(start)), "")
    return found or _AGENTS.get(agent.lower(), agent or "_OTHER")
