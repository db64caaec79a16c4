"""Attempts to escape from a box: what an agent runs, and what must be true outside of the box afterwards."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

from sandbox.stage import HOME_FILES, SECRET, VARIABLES, WAYS_OUT, Attempt, list_processes

if TYPE_CHECKING:
    from collections.abc import Callable

    from sandbox.stage import Stage

    Check = Callable[[Stage, str], None]

GIT = "/run/ralph/git"
# Mounts by system calls: the programs have rules of their own.
MOUNT = """\
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
def call(name, *words):
    code = getattr(libc, name)(*[word.encode() if isinstance(word, str) else word for word in words])
    print(name, words, code, os.strerror(ctypes.get_errno()) if code else "done")
def write(path):
    try:
        open(path, "w").write("escaped")
        print("wrote", path)
    except OSError as error:
        print(error)
top, out, name = (os.environ[one] for one in ("TOP", "OUT", "NAME"))
"""
_REMOUNT = """\
for place in ("/", os.path.dirname(top), "/var", "/var/lib", "/run/ralph/git", "/etc"):
    call("mount", "none", place, None, 32 | 4096, None)
write(out + "/" + name)
write("/run/ralph/git/" + name)
"""
_UMOUNT = """\
inside = (top + "/.git", top + "/.ralph", top + "/.venv", top, top)
for place in (*inside, "/run/ralph/git", "/run", "/tmp", os.environ["HOME"]):
    call("umount2", place, 2)
os.chdir("/")
write(top + "/user.txt")
write(top + "/" + name)
write(out + "/" + name)
print(os.path.exists(top + "/user.txt") and open(top + "/user.txt").read())
"""


def python(text: str) -> str:
    return f"python3 - <<'END'\n{text}\nEND\n"


# --- checks -----------------------------------------------------------------------------------------


def _leave_out(area: Any, stage: Stage) -> Any:
    """Without the marks of other attempts: each is checked for its own."""
    if not isinstance(area, dict):
        return area
    others = set(stage.said) - {stage.looked_at}
    return {path: data for path, data in area.items() if os.path.basename(path) not in others}


def keeps(*areas: str) -> Check:
    """The state outside is the same before and after the run."""

    def check(stage: Stage, said: str) -> None:
        for area in areas:
            assert _leave_out(stage.after[area], stage) == stage.before[area], (
                f"{area} is another now; the agent saw:\n{said}"
            )

    return check


def lacks(*paths: str) -> Check:
    """There is no such file outside."""

    def check(stage: Stage, said: str) -> None:
        for path in paths:
            full = path.format(token=stage.token, base=stage.base)
            assert not os.path.lexists(full), f"{full} was made; the agent saw:\n{said}"

    return check


def hides(*words: str) -> Check:
    """The agent did not see these words."""

    def check(stage: Stage, said: str) -> None:
        assert said, "the attempt was not made"
        for word in words:
            assert word.format(base=stage.base) not in said, said

    return check


def is_alone(name: str) -> Check:
    """Nothing connected to a socket."""

    def check(stage: Stage, said: str) -> None:
        assert stage.listeners[name].visitors == 0, said

    return check


def ends(word: str) -> Check:
    """No process is left with a word in its command."""

    def check(stage: Stage, said: str) -> None:
        assert list_processes(word.format(token=stage.token)) == [], said

    return check


def is_sound(stage: Stage, said: str) -> None:
    """The repository is intact."""
    stage.git("fsck", "--full", "--no-dangling")
    assert stage.git("show", "main:code.py") == "x = 1\n", said


def has_record(stage: Stage, said: str) -> None:
    """The run's own record is complete, from its first event to its last."""
    for path in stage.project.glob(".ralph/runs/c-*/events.jsonl"):
        types = [json.loads(line)["type"] for line in path.read_text().splitlines()]
        assert (types[0], types[-1]) == ("run_started", "run_ended"), said
    assert not (stage.project / ".ralph/runs/new").exists()


def is_open(stage: Stage, said: str) -> None:
    """The story is neither done nor skipped."""
    for path in stage.project.glob(".ralph/runs/c-*/events.jsonl"):
        ended = json.loads(path.read_text().splitlines()[-1])
        states = [one["state"] for one in ended["stories"]]
        assert states == ["waiting"], (states, said)
    assert list(stage.project.glob(".ralph/steering/*/*")) == [], said


def has_all(*checks: Check) -> Check:
    def check(stage: Stage, said: str) -> None:
        for one in checks:
            one(stage, said)

    return check


# --- attempts that may follow one another in one run ------------------------------------------------

_ATTEMPTS_ON_GIT = (
    Attempt(
        "branch",
        'git commit -q --allow-empty -m "$NAME"; git branch -f main HEAD; git branch new-branch',
        keeps("refs"),
    ),
    Attempt("update-ref", "git update-ref refs/heads/main $(git commit-tree -m x HEAD^{tree})", keeps("refs")),
    Attempt("delete-ref", "git branch -D other; git update-ref -d refs/heads/other; git tag -d v1", keeps("refs")),
    Attempt("tag", "git tag -f v1 HEAD; git tag v2", keeps("refs")),
    Attempt(
        "refs-by-hand", f"echo > {GIT}/packed-refs; echo $(git rev-parse HEAD) > {GIT}/refs/heads/main", keeps("refs")
    ),
    Attempt(
        "push-by-path",
        f'for to in "$TOP" "$TOP/.git" {GIT} file://{GIT}; do git push --force "$to" HEAD:refs/heads/main '
        f"HEAD:pushed; done",
        keeps("refs"),
    ),
    Attempt(
        "hooks",
        f'for folder in {GIT}/hooks "$TOP/.git/hooks"; do echo "touch $OUT/$NAME" > $folder/post-commit; done; '
        f"chmod +x {GIT}/hooks/*; mv {GIT}/hooks {GIT}/old",
        keeps("hooks", "outside"),
    ),
    Attempt(
        "config",
        f'git config user.name Evil; echo "[core]" >> {GIT}/config; git config core.fsmonitor "touch $OUT/$NAME"',
        keeps("config", "outside"),
    ),
    Attempt(
        "global-config",
        'git config --global core.fsmonitor "touch $OUT/$NAME"; echo x >> "$REAL_HOME/.gitconfig"',
        keeps("home", "outside"),
    ),
    Attempt(
        "delete-objects",
        f"chmod -R u+w {GIT}/objects; rm -rf {GIT}/objects; rm -rf {GIT}/*",
        has_all(keeps("packs"), is_sound),
    ),
    Attempt(
        "overwrite-pack",
        f"for pack in {GIT}/objects/pack/*; do chmod u+w $pack; echo x > $pack; truncate -s 0 $pack; done",
        has_all(keeps("packs"), is_sound),
    ),
    Attempt(
        "objects-past-quarantine",
        f"env -u GIT_OBJECT_DIRECTORY git hash-object -w code.py; echo escaped | env "
        f"GIT_OBJECT_DIRECTORY={GIT}/objects "
        "git hash-object -w --stdin",
        lacks("{base}/project/.git/objects/" + "78/981922613b2afb6025042ff6bd878ac1994e85"),
    ),
    Attempt(
        "another-slot",
        f'echo x > {GIT}/worktrees/slot/HEAD; echo x > "$BASE/slot/code.py"; rm -rf "$BASE/slot"; git worktree '
        f"remove --force slot; "
        f'git -C "$BASE/slot" commit --allow-empty -m x; rm -rf {GIT}/worktrees/slot',
        keeps("slot", "refs"),
    ),
)
_ATTEMPTS_ON_FILES = (
    Attempt("users-tree", 'echo escaped > "$TOP/user.txt"; echo x > "$TOP/$NAME"; rm -f "$TOP/code.py"', keeps("tree")),
    Attempt(
        "users-tree-by-tricks",
        'cd /; ln -s "$BASE" /tmp/way; for way in "$TOP/../project" /proc/self/cwd"$TOP" /proc/1/root"$TOP" '
        '/proc/1/cwd"$TOP" '
        '/tmp/way/project /proc/self/root/"$TOP"; do echo x > "$way/$NAME"; echo x > "$way/user.txt"; rm -f '
        '"$way/clean.sh"; done',
        keeps("tree"),
    ),
    Attempt(
        "tree-by-the-git-file",
        'to=$(sed "s/gitdir: //" .git); for up in .. ../.. ../../.. ../../../..; do echo x > "$to/$up/user.txt"; '
        'echo x > "$to/$up/$NAME"; done; echo "$to"; cat "$to/gitdir"',
        has_all(
            keeps("tree", "outside"), lacks("{base}/project/.git/tree-by-the-git-file", "{base}/tree-by-the-git-file")
        ),
    ),
    Attempt(
        "open-files",
        python(
            """\
import glob, os
for link in glob.glob("/proc/[0-9]*/fd/*"):
    try:
        to = os.readlink(link)
        if os.path.isdir(link):
            print("FOLDER", link, to)
            open(link + "/" + os.environ["NAME"], "w").close()
            open(link + "/.." * 9 + os.environ["OUT"] + "/" + os.environ["NAME"], "w").close()
    except OSError as error:
        print(error)
print("looked")"""
        ),
        has_all(keeps("outside", "tree"), hides("FOLDER")),
    ),
    *(
        Attempt(
            f"home-{name.strip('.').replace('/', '-')}",
            f'cat "$REAL_HOME/{name}"; cat ~/{name}; ls -lA ~; echo x >> "$REAL_HOME/{name}"; echo tried',
            has_all(keeps("home"), hides(SECRET)),
        )
        for name in HOME_FILES
    ),
    Attempt(
        "other-homes",
        "ls -dA /root/.[bgns]* /root/.aws /root/.config /home/*/.[a-z]* | sed s/^/SAW/; touch /root/$NAME-$TOKEN; "
        "echo tried",
        has_all(lacks("/root/other-homes-{token}"), hides("SAW")),
    ),
    Attempt(
        "etc", "touch /etc/$NAME-$TOKEN; echo x >> /etc/hosts-$TOKEN", lacks("/etc/etc-{token}", "/etc/hosts-{token}")
    ),
    Attempt(
        "usr",
        "touch /usr/bin/$NAME-$TOKEN /usr/local/bin/$NAME-$TOKEN",
        lacks("/usr/bin/usr-{token}", "/usr/local/bin/usr-{token}"),
    ),
    Attempt(
        "own-programs",
        'touch "$(dirname "$(command -v ralphtool)")/$NAME-$TOKEN"',
        lacks(os.path.join(os.path.dirname(os.path.abspath(sys.executable)), "own-programs-{token}")),
    ),
    Attempt(
        "temporary-folder",
        'touch "/tmp/$NAME-$TOKEN" "/var/tmp/$NAME-$TOKEN" "$SHARED/$NAME"; ls -A /tmp "$SHARED"',
        lacks("/tmp/temporary-folder-{token}", "/var/tmp/temporary-folder-{token}"),
    ),
    Attempt("shared-memory", "echo x > /dev/shm/$NAME-$TOKEN; ls /dev/shm", lacks("/dev/shm/shared-memory-{token}")),
    Attempt(
        "devices",
        'for one in 8 252 253 254 259 7; do mknod "disk$one" b $one 0 && head -c 16 "disk$one" > /dev/null && echo '
        "READ; done; "
        "for one in /dev/sda /dev/vda /dev/nvme0n1 /dev/mem /dev/kmsg; do test -e $one && echo FOUND $one; done; "
        "echo tried",
        hides("READ", "FOUND"),
    ),
    Attempt(
        "kernel-settings",
        python(
            """\
import os, re, stat
paths = ["/proc/sysrq-trigger", "/sys/kernel/uevent_helper", "/sys/power/state", "/sys/fs/cgroup/cgroup.procs"]
for top in os.listdir("/proc"):
    if not top.isdigit() and not top.endswith("self"):
        paths.append("/proc/" + top)
        for folder, _, names in os.walk("/proc/" + top):
            paths += [os.path.join(folder, name) for name in names]
# Of its own namespaces:
own = "/proc/(pressure/.*|sys/fs/mqueue/.*|sys/kernel/(auto_msgmni|msg.*|ns_last_pid|pid_max|sem|shm.*))"
for path in filter(lambda path: not re.fullmatch(own, path), paths):
    try:
        if stat.S_ISREG(os.stat(path).st_mode):
            os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
            print("OPENED", path)
    except OSError:
        pass
print("tried", len(paths))"""
        ),
        hides("OPENED"),
    ),
)
_ATTEMPTS_ON_THE_MACHINE = (
    Attempt(
        "ssh-agent",
        'python3 -c "import socket, sys; socket.socket(1).connect(sys.argv[1])" "$SSH_SOCKET"; ssh-add -l',
        is_alone("ssh"),
    ),
    Attempt(
        "docker-socket",
        'python3 -c "import socket, sys; socket.socket(1).connect(sys.argv[1])" "$DOCKER_SOCKET"',
        is_alone("docker"),
    ),
    Attempt(
        "abstract-socket",
        "python3 -c \"import os, socket; socket.socket(1).connect(chr(0) + os.environ['ABSTRACT_SOCKET'][1:])\"",
        is_alone("abstract"),
    ),
    Attempt(
        "daemon-socket",
        'python3 -c "import socket, sys; socket.socket(1).connect(sys.argv[1])" "$DAEMON_SOCKET"',
        is_alone("daemon"),
    ),
    # By name: the values are kept out of the record anyway.
    Attempt("secret-variables", "env; echo tried", hides(*(f"\n{name}=" for name in VARIABLES))),
    Attempt(
        "login-beside-a-program",
        'ls -lA ~/tool; cat ~/tool/*.* ~/tool/bin/auth.json; test -e "$REAL_HOME/tool/bin/tool" && echo tried',
        has_all(hides(SECRET), lambda stage, said: _has_word(said, "tried")),
    ),
    Attempt("variables", "env; echo tried", hides(*(f"\n{name}=" for name in WAYS_OUT))),
    Attempt(
        "outlive-setsid",
        'setsid bash -c "exec -a outlive-$TOKEN sleep 3600" >/dev/null 2>&1 & nohup bash -c "exec -a outlive-$TOKEN '
        'sleep 3600" '
        ">/dev/null 2>&1 & sleep 0.1",
        ends("outlive-{token}"),
    ),
    Attempt(
        "outlive-double-fork",
        python(
            """\
import os
token = os.environ["TOKEN"]
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.chdir("/")
        os.closerange(0, 50)
        os.environ.clear()
        os.execv("/bin/sleep", ["daemon-" + token, "300"])
    os._exit(0)"""
        ),
        ends("daemon-{token}"),
    ),
    Attempt(
        "fork-bomb",
        python(
            """\
import os
made = 0
null = os.open("/dev/null", os.O_RDWR)
for _ in range(200):
    try:
        if os.fork() == 0:
            os.setsid()
            os.dup2(null, 1), os.dup2(null, 2)
            os.execv("/bin/sleep", ["bomb-" + os.environ["TOKEN"], "300"])
        made += 1
    except OSError as error:
        print(error)
print("made", made)"""
        ),
        ends("bomb-{token}"),
    ),
    Attempt(
        "root-of-another-process",
        'for pid in "$NEIGHBOUR" "$TESTER" 1 2 3; do ls "/proc/$pid/root/$BASE/home/.ssh" "/proc/$pid/cwd"; '
        'echo x > "/proc/$pid/root/$OUT/$NAME"; cat "/proc/$pid/root$REAL_HOME/.netrc"; done; echo tried',
        has_all(keeps("outside", "home"), hides(SECRET)),
    ),
    Attempt(
        "ptrace",
        python(
            MOUNT
            + """\
for pid in (int(os.environ["NEIGHBOUR"]), int(os.environ["TESTER"]), os.getppid() + 0):
    if pid not in (os.getpid(), os.getppid()):
        call("ptrace", 16, pid, None, None)
        print("SAW", os.path.exists(f"/proc/{pid}/mem") and open(f"/proc/{pid}/comm").read() == "sleep\\n")"""
        ),
        has_all(keeps("neighbour"), hides("SAW True")),
    ),
    Attempt("kill", 'kill -9 "$NEIGHBOUR"; echo tried', keeps("neighbour")),
    Attempt(
        "setuid",
        'timeout 0.3 su root -c "touch $OUT/$NAME"; timeout 0.3 sudo -n touch "$OUT/$NAME"; cp /bin/bash sh; chmod '
        "6755 sh; "
        './sh -p -c "touch $OUT/$NAME"; grep -E "CapEff|CapBnd|NoNewPrivs" /proc/self/status',
        has_all(keeps("outside"), hides("CapEff:\t000001", "CapBnd:\t000001", "NoNewPrivs:\t0")),
    ),
    Attempt("remount", python(MOUNT + _REMOUNT), has_all(keeps("outside"), lacks("{base}/project/.git/remount"))),
    Attempt("umount", python(MOUNT + _UMOUNT), keeps("tree", "outside")),
    Attempt(
        "own-namespaces",
        "cat > /tmp/inner.py <<'END'\n" + MOUNT + _REMOUNT + _UMOUNT + "END\n"
        "unshare --user --map-root-user --mount python3 /tmp/inner.py; "
        "unshare --user --map-root-user --mount --pid --fork --mount-proc python3 /tmp/inner.py; "
        "unshare --mount python3 /tmp/inner.py; nsenter --target 1 --mount python3 /tmp/inner.py",
        has_all(keeps("tree", "outside"), lacks("{base}/project/.git/own-namespaces")),
    ),
    Attempt(
        "bind-the-tree-again",
        "unshare --user --map-root-user --mount bash -c 'mkdir /tmp/again; mount --bind / /tmp/again; mount --bind "
        '"$BASE" /tmp/again; '
        'mount --rbind / /tmp/again; cat "/tmp/again$TOP/user.txt" "/tmp/again/project/user.txt"; echo x > '
        '"/tmp/again$TOP/user.txt"; '
        'echo x > /tmp/again/project/user.txt; rm -f "/tmp/again$TOP/.git"\'; echo tried',
        has_all(keeps("tree", "outside"), hides("the user's")),
    ),
    Attempt(
        "terminal-input",
        python(
            """\
import fcntl, os
for path in ("/dev/tty", "/proc/self/fd/0", "/proc/self/fd/1", "/dev/console", "/dev/pts/0"):
    try:
        fd = os.open(path, os.O_RDWR | os.O_NOCTTY)
        for letter in b"touch x\\n":
            fcntl.ioctl(fd, 0x5412, bytes([letter]))
        print("PUSHED", path)
    except OSError as error:
        print(error)"""
        ),
        hides("PUSHED"),
    ),
    Attempt(
        "ipc",
        "ipcmk -M 4096 -p 0666; ipcs -m | grep -c 0x; echo tried",
        lambda stage, said: _has_no_new_ipc(stage, said),
    ),
)
TOGETHER = (*_ATTEMPTS_ON_GIT, *_ATTEMPTS_ON_FILES, *_ATTEMPTS_ON_THE_MACHINE)


def _has_word(said: str, word: str) -> None:
    assert word in said, said


def _has_no_new_ipc(stage: Stage, said: str) -> None:
    with open("/proc/sysvipc/shm", encoding="ascii") as file:
        rows = [line.split() for line in file.read().splitlines()[1:]]
    assert [row for row in rows if int(row[7]) == stage.user.pw_uid and row[3] == "4096"] == [], said
