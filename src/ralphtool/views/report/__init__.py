"""What a run came to, for whoever slept meanwhile: read from the record into facts, and told in four formats.

`facts.py` is what there is to tell, `reading.py` finds it in a run's events, `learnt.py` in the history, `work.py` in
git. `markdown.py`, `junit.py` and `page.py` only write down what the facts say.
"""
