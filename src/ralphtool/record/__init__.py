"""The files that runs and people exchange: events, runs, the state of a change, questions, steering."""
