"""From what an agent left to a verdict, and from a verdict to a decision."""
