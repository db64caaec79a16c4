"""Turns the work of an agent into a verdict, and a verdict into a decision."""
