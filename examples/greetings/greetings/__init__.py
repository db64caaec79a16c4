"""Greetings, one module for each language."""
