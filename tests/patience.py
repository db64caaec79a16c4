"""How long a test waits for what has to come."""

from __future__ import annotations

# Seconds. Only what hangs needs them: on a machine that others use too, a second's work has taken minutes.
PATIENCE = 900.0
