"""Only what the agent's commands need: files that survive a kill, names, locks, sessions."""
