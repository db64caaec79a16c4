"""The diff guard: what an attempt did to the tests, to what runs them, and to the spec.

Everything here is a pure function: changed files in, findings out. Nothing is run and nothing is read from disk.
`model` says which findings decide, which are suspicions that running the tests as they were clears or confirms, and
which are warnings. Tests of before are matched with tests of after, first by name, then by what is in them, and each
pair is compared: so that moving, renaming, merging, splitting and parametrizing are no findings, and gutting is one.
Python is read by its own parser, most other languages by tree-sitter, the rest line by line. What is too long, too
deep or too broken for that is read coarsely, by names and counts. The page for users is docs/guard.md.

    test_files ── which files      python ◄── python_assertions
    model ── what a test is        tree_reader ◄── languages/*, source_tree ◄── grammars     chunks     fallback
      pairs ──► compare ──► diff ◄── configs ◄── commands, config_code     lints              spec
    inline, mixed ── the new file with its tests, or what configures them, as they were

Their tables of patterns take long to compile: import all but `model` where something is looked at, not before.
"""
