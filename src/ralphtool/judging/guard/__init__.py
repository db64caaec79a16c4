"""The diff guard: what an attempt did to the tests, to their configuration, and to the spec.

Everything here is a pure function: changed files in, findings out. Nothing is run and nothing is read from disk.
`model` says which findings are decisive, which are suspicions that replay clears or confirms, and which are warnings.
Old tests are matched with new ones, first by name, then by content, and each pair is compared: so moving, renaming,
merging, splitting and parametrizing tests is not a finding, but gutting them is. Python is read by its own parser,
most other languages by tree-sitter, the rest line by line. A file that is too long, too deep or too broken for that
is read coarsely, by names and counts. The page for users is docs/guard.md.

    test_files ── which files      python ◄── python_assertions
    model ── what a test is        tree_reader ◄── languages/*, source_tree ◄── grammars     chunks     fallback
      pairs ──► compare ──► diff ◄── configs ◄── commands, config_code     lints              spec
    inline, mixed ── the new file with the old version of its tests, or of their configuration

Their tables of patterns take long to compile: import every module but `model` only where it is used.
"""
