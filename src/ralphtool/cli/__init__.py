"""The commands: parse, wire, exit code."""
