"""The diff guard: what an attempt did to the tests, to what runs them, and to the spec.

Everything here is a pure function: changed files in, findings out. Nothing is run and nothing is read from disk.
Tests of before are matched with tests of after, first by name, then by what is in them, and each pair is compared:
so that moving, renaming, merging, splitting and parametrizing are no findings, and gutting is one.
Python is read as a syntax tree, other languages as text whose comments and strings are told apart. What is too
long or too deep for that is read coarsely, by names and counts. The page for users is docs/guard.md.

    test_files ── which files      python ◄── python_assertions
    model ── what a test is        languages ◄── test_blocks, text_assertions ◄── masked_text        fallback
      pairs ──► compare ──► diff ◄── configs ◄── commands                       spec

Their tables of patterns take long to compile: import all but `model` where something is looked at, not before.
"""
