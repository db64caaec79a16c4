"""One run from start to end: pick a story, brief, execute, judge, settle."""
