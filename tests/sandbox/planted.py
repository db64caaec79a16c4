"""Traps that an agent leaves for programs outside of its box: git settings, links, files of any size."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from sandbox.escapes import has_all, has_record, is_open, is_sound, keeps, lacks
from sandbox.stage import Attempt

if TYPE_CHECKING:
    from sandbox.stage import Stage

# Files of the loop, and files in the tree that it reads and writes.
ON_OURS = (
    Attempt(
        "settings",
        'echo "[run]" > .ralph/config.toml; rm -f .ralph/config.toml; echo \'workspace = "here"\' > '
        ".ralph/config.toml; "
        'for copy in "$TMPDIR"/ralph/*/* /tmp/ralph/*/*; do echo \'[run]\' > "$copy"; done; ls -lR "$TMPDIR"',
        keeps("settings"),
    ),
    Attempt(
        "other-records",
        "echo x > .ralph/runs/old-run/events.jsonl; rm -rf .ralph/runs/old-run; echo x > .ralph/standing/other.json; "
        "mv .ralph/runs .ralph/runs2",
        keeps("settings"),
    ),
    Attempt(
        "steering",
        "mkdir -p .ralph/steering/c .ralph/questions/answered; touch .ralph/steering/c/$NAME .ralph/questions/$NAME; "
        "for one in accept skip; do env -u RALPH_SESSION -u RALPH_STORY -u RALPH_TOKEN ralphtool $one 1 </dev/null; "
        "done",
        has_all(
            lacks("{base}/project/.ralph/steering/c/steering", "{base}/project/.ralph/questions/steering"), is_open
        ),
    ),
    Attempt(
        "own-record",
        "for one in .ralph/runs/*/events.jsonl; do echo x > $one; rm -f $one; done; touch .ralph/runs/new",
        has_all(keeps("settings"), has_record),
    ),
    Attempt(
        "link-for-our-folder",
        'rm -rf .ralph/[a-q]*; mv .ralph old; rmdir .ralph; ln -sfn "$REAL_HOME" .ralph; for one in questions '
        'steering locks; do rm -rf .ralph/$one; ln -s "$OUT" .ralph/$one; done',
        keeps("home", "outside", "settings"),
    ),
    Attempt(
        "link-for-tasks",
        'rm openspec/changes/c/tasks.md; ln -s "$OUT/victim.txt" openspec/changes/c/tasks.md',
        keeps("outside"),
    ),
    Attempt(
        "link-for-the-change",
        'mv openspec /tmp/openspec; ln -s "$OUT" openspec; mv /tmp/openspec/* openspec/',
        keeps("outside"),
    ),
    Attempt(
        "link-for-git",
        'rm -rf .git; mv .git old-git; ln -sfn "$OUT" .git; echo "gitdir: $OUT" > .git',
        has_all(keeps("outside", "refs"), is_sound),
    ),
    Attempt(
        "link-for-environment",
        'rm -rf .venv build; mv .venv x; mv build y; ln -s "$REAL_HOME" .venv; ln -s "$REAL_HOME" build; echo x > '
        ".venv/lib.py",
        keeps("tree", "home"),
    ),
    Attempt("link-for-copied-file", 'rm -f .env; ln -s "$REAL_HOME/.bashrc" .env', keeps("home", "tree")),
    Attempt(
        "environment",
        "echo x > .venv/lib.py; echo x > build/out.o; rm -f .venv/*; touch .venv/new; chmod 777 .venv",
        keeps("tree"),
    ),
)

# --- for the git commands of the loop ----------------------------------------------------------------

# Each attempt has its own file and driver, so they can share a run.
_SETTINGS = (
    '[filter \\"$NAME\\"]\\nclean = touch $OUT/$NAME\\nsmudge = touch $OUT/$NAME\\n[core]\\nfsmonitor = touch '
    "$OUT/$NAME\\n"
    "hooksPath = $TOP/evil-hooks\\nsshCommand = touch $OUT/$NAME\\npager = touch $OUT/$NAME\\n[diff]\\nexternal = "
    "touch $OUT/$NAME\\n"
)
_FILES = 'echo "$NAME.txt filter=$NAME diff=$NAME merge=$NAME" >> .gitattributes; echo more >> $NAME.txt; '
_HOOKS = (
    "mkdir -p evil-hooks; for one in post-index-change reference-transaction post-checkout pre-commit; do "
    'printf "#!/bin/sh\\ntouch $OUT/$NAME" > evil-hooks/$one; chmod +x evil-hooks/$one; done; '
)
_OWN = "own=$(git rev-parse --absolute-git-dir); "
PLANTED = (
    Attempt(
        "config-worktree",
        f'{_OWN}{_FILES}{_HOOKS}printf "{_SETTINGS}" >> $own/config.worktree; git config --worktree '
        f'filter.$NAME.clean "touch $OUT/$NAME; cat"',
        keeps("outside"),
    ),
    Attempt(
        "include-if",
        f'{_OWN}{_FILES}printf "{_SETTINGS}" > included; printf "[includeIf \\"gitdir:**\\"]\\npath = '
        f'$TOP/included\\n" >> $own/config.worktree; '
        "cp included ~/.gitconfig; mkdir -p ~/.config/git; cp included ~/.config/git/config",
        keeps("outside", "home"),
    ),
    Attempt("hooks-of-the-slot", f"{_OWN}{_HOOKS}mkdir -p $own/hooks; cp evil-hooks/* $own/hooks/", keeps("outside")),
    Attempt(
        "own-folder-in-git",
        f"{_OWN}ls -lA $own $own/ralph; echo x > $own/ralph/index; rm -rf $own/ralph; mkdir -p $own/ralph; "
        'printf \'{"paths": ["%s"], "files": {"%s": {"data": "ZXNjYXBlZA==", "mode": 420}}, "refs": null, "tip": '
        '""}\' "$OUT/victim.txt" '
        '"$OUT/victim.txt" > $own/ralph/internals.json; mkdir -p $own/ralph/ignored; echo x > '
        "$own/ralph/ignored/code.py; "
        'ln -sfn "$OUT" $own/ralph/environments; echo "{\\"code.py\\": 1}" > $own/ralph/ignored.json; ls -lA '
        "$own/ralph",
        has_all(keeps("outside", "tree"), lacks("{base}/project/.git/worktrees/c/ralph/environments")),
    ),
    # Git looks into a submodule if its commit is the recorded one.
    Attempt(
        "embedded-repository",
        "unset GIT_OBJECT_DIRECTORY GIT_ALTERNATE_OBJECT_DIRECTORIES; mkdir -p linked; cd linked; "
        'cp -r "$BASE/agent/linked.git" .git; git reset -q --hard; echo "* filter=$NAME" > .gitattributes; echo '
        "LINKED > read.me; "
        f'printf "{_SETTINGS}" >> .git/config; cd ..; '
        'printf "[submodule \\"s\\"]\\npath = linked\\nurl = ./linked\\nignore = none\\n" > .gitmodules',
        keeps("outside"),
    ),
    Attempt(
        "filter-in-the-tree",
        'printf "#!/bin/sh\\ntouch $OUT/$NAME\\ncat" > clean.sh; echo "*.py filter=fmt" >> .gitattributes; echo more '
        ">> code.py",
        keeps("outside"),
    ),
    Attempt(
        "links-in-the-git-folder",
        f'{_OWN}ln -s "$REAL_HOME/.bashrc" $own/index.ralph-aside; rm -rf $own/logs; mkdir $own/logs; ln -s '
        f'"$REAL_HOME/.netrc" $own/logs/HEAD; '
        'ln -s "$OUT/$NAME" $own/index.lock; ln -s "$OUT/$NAME" $own/COMMIT_EDITMSG; rm -f $own/index; ln -s '
        '"$OUT/victim.txt" $own/index; '
        'echo "ref: refs/heads/ralph/c" > $own/HEAD',
        keeps("outside", "home"),
    ),
    Attempt(
        "common-folder",
        f'{_OWN}{_FILES}mkdir -p evil.git/objects/info evil.git/refs; printf "[core]\\nrepositoryformatversion = '
        f'0\\n{_SETTINGS}" > evil.git/config; '
        'cp $own/HEAD evil.git/; echo "$TOP/.git/objects" > evil.git/objects/info/alternates; rm -f $own/commondir; '
        "mv evil.git $own/; "
        'echo "$TOP/.git/worktrees/c/evil.git" > $own/commondir; cat $own/commondir; echo "$OUT/.git" > $own/gitdir',
        has_all(keeps("outside", "refs"), is_sound),
    ),
)
CLOSED = (
    Attempt(
        "closed-folders",
        f"{_OWN}mkdir -p d/e; touch d/e/f; chmod 000 d $own/* $own $GIT_OBJECT_DIRECTORY .venv build ~/.cache .ralph; "
        "mkfifo .gitmodules src/.gitignore; rm -f .gitignore; mkfifo .gitignore; echo tried",
        lambda stage, said: _has_all_iterations(stage, said),
    ),
)
LARGE = (
    Attempt("huge-file", "truncate -s 1T huge.bin; ls -s huge.bin", lambda stage, said: _is_small(stage, said)),
    Attempt(
        "large-file",
        "head -c 300000000 /dev/zero > large.bin; ls -s large.bin",
        lambda stage, said: _is_small(stage, said),
    ),
    Attempt(
        "huge-ignored-file",
        "mkdir -p large; truncate -s 1T large/huge.bin; truncate -s 1T .env",
        lambda stage, said: _is_small(stage, said),
    ),
)


def _has_all_iterations(stage: Stage, said: str) -> None:
    """The second iteration starts like the first: nothing is closed to it."""
    assert said.count("tried") == 2, stage.output.decode("utf-8", "replace")
    keeps("tree", "settings", "refs")(stage, said)
    is_sound(stage, said)


def _is_small(stage: Stage, said: str) -> None:
    sizes = [os.path.getsize(path) for path in stage.project.glob(".git/objects/*/*") if path.is_file()]
    assert sum(sizes) < 5 << 20, said
    keeps("tree", "refs")(stage, said)
    is_sound(stage, said)
