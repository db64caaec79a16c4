"""The output on a terminal. Nothing here makes decisions or writes files."""
