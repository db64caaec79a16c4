"""What an agent's command needs, and nothing else: files that survive a kill, names, locks, sessions."""
