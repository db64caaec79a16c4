"""How long a test waits for something that must happen."""

from __future__ import annotations

# Seconds, used up only by something that hangs. On a shared machine, a second's work has taken minutes.
PATIENCE = 900.0
