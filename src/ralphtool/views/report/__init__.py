"""The report of a run: read from the record into facts, and written in four formats.

`facts.py` has the types, `from_record.py` fills them from a run's events, `learnt.py` from the history, `diffs.py` from
git. `markdown.py`, `junit.py` and `page.py` only format the facts.
"""
