"""What runs and people write down for each other: events, runs, the state of a change, questions, steering."""
