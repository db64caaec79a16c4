"""A box as a value: its command line, what it shows, and why none is available."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from msgspec import structs

from ralphtool.sandbox import shown, trial
from ralphtool.sandbox.bubblewrap import BoxPlan, Layer, build_command
from ralphtool.sandbox.confinement import AgentPlaces, Confinement
from ralphtool.sandbox.layers import build_folder, find_ignored

PLAN = BoxPlan(top="/home/me/shop", slot="/home/me/shop/.git/ralph/worktrees/c", home="/home/me")
OVERLAY = Layer(source="/s/.venv", place="/s/.venv", upper="/u", work="/w", merged="/m")


def find_mounts(command: list[str]) -> list[tuple[str, ...]]:
    """Every mount, in order: `("--bind", from, to)`."""
    return [
        tuple(command[at : at + (2 if word == "--tmpfs" else 3)])
        for at, word in enumerate(command)
        if word in ("--bind", "--ro-bind", "--ro-bind-try", "--tmpfs")
    ]


def test_the_worktree_is_shown_over_the_project_and_after_the_empty_home() -> None:
    mounts = find_mounts(build_command(PLAN, ["make"], "/home/me/shop"))
    assert mounts[0] == ("--ro-bind", "/", "/")
    assert mounts.index(("--tmpfs", "/home/me")) < mounts.index(("--bind", PLAN.slot, PLAN.top))
    writable = [one[2] for one in mounts if one[0] == "--bind"]
    assert writable == [PLAN.top]


def test_a_worktree_can_be_read_only_but_for_one_folder() -> None:
    plan = structs.replace(PLAN, slot=PLAN.top, is_read_only=True, write=("/home/me/shop/draft",))
    mounts = find_mounts(build_command(plan, ["agent"], PLAN.top))
    assert mounts.index(("--ro-bind", PLAN.top, PLAN.top)) < mounts.index(("--bind", *["/home/me/shop/draft"] * 2))
    assert [one[2] for one in mounts if one[0] == "--bind"] == ["/home/me/shop/draft"]


def test_a_layer_that_can_not_be_an_overlay_is_read_only() -> None:
    layer = build_folder("/home/me/shop", ".venv", "/store", with_overlay=False).build_layer(is_attempt=True)
    command = build_command(structs.replace(PLAN, layers=(layer,)), ["make"], "/home/me/shop")
    assert command[0].endswith("bwrap")
    assert ("--ro-bind", "/home/me/shop/.venv", "/home/me/shop/.venv") in find_mounts(command)


@pytest.mark.parametrize("user", [None, (1000, 1000)])
def test_an_overlay_is_mounted_in_a_namespace_of_its_own(user: tuple[int, int] | None) -> None:
    plan = structs.replace(PLAN, layers=(OVERLAY,), as_user=user)
    command = build_command(plan, ["make"], "/home/me/shop")
    assert command[0].endswith("unshare")
    assert ("--user" in command, "userxattr" in " ".join(command)) == (bool(user), bool(user))
    assert ("--uid" in command) == bool(user)
    assert ("--bind", "/m", "/s/.venv") in find_mounts(command)


@pytest.mark.parametrize("layers", [(), (OVERLAY,)])
def test_a_socket_that_is_gone_meanwhile_keeps_no_box_from_starting(layers: tuple[Layer, ...]) -> None:
    plan = structs.replace(PLAN, layers=layers, sockets=("/var/lib/d/it's.sock",))
    command = build_command(plan, ["make"], "/p")
    is_mounted = ("--ro-bind", "/dev/null", "/var/lib/d/it's.sock") in find_mounts(command)
    assert is_mounted == (not layers)
    assert any("|| test ! -e '/var/lib/d/it'" in word for word in command) == bool(layers)


def test_odd_paths_stay_one_option() -> None:
    layer = Layer(source="/a:b,c", place="/a:b,c", upper="/u", work="/w", merged="/m'x")
    script = build_command(structs.replace(PLAN, layers=(layer,)), ["make"], "/p")
    [mount] = [word for word in script if "overlay" in word]
    assert r"lowerdir=/a\:b\,c," in mount
    assert "'/m'\"'\"'x'" in mount


def test_paths_of_the_worktree_become_those_of_the_project() -> None:
    argv = ["agent", f"--dir={PLAN.slot}/src"]
    command, cwd, env = Confinement(PLAN).confine(argv, PLAN.slot, {"HERE": PLAN.slot, "SSH_AUTH_SOCK": "/x"}, [])
    assert command[-2:] == ["agent", "--dir=/home/me/shop/src"]
    assert command[command.index("--chdir") + 1] == PLAN.top
    assert (cwd, env) == ("/", {"HERE": PLAN.top})


def test_an_attempt_writes_over_what_its_checkpoint_has() -> None:
    folder = build_folder("/home/me/shop", "target", "/store")
    before, attempt = (folder.build_layer(is_attempt=one) for one in (False, True))
    assert (before.above, before.upper) == ((), "/store/target/base")
    assert (attempt.above, attempt.upper) == (("/store/target/base",), "/store/target/upper")
    script = " ".join(build_command(structs.replace(PLAN, layers=(attempt,)), ["make"], "/p"))
    assert "lowerdir=/store/target/base:/home/me/shop/target,upperdir=/store/target/upper" in script


def test_a_program_is_shown_with_its_environment_and_never_a_whole_home(tmp_path: Path) -> None:
    home = tmp_path / "home"
    for name in (".venv/bin", "bin", ".local/bin", ".ssh", ".cargo/bin", "scripts"):
        (home / name).mkdir(parents=True)
    for name in (
        ".venv/pyvenv.cfg",
        ".venv/bin/python",
        "bin/tool",
        "scripts/agent.sh",
        ".cargo/credentials.toml",
        "alone.sh",
    ):
        (home / name).write_text("")
    env = {"PATH": f"{home}/bin:{home}/.cargo/bin"}
    found = shown.list_shown(str(home), env, [f"{home}/.venv/bin/python {home}/scripts/agent.sh", f"{home}/alone.sh"])
    ours = [path for path in found if path.startswith(str(home))]
    assert ours == [f"{home}/{name}" for name in (".cargo", ".local/bin", ".venv", "alone.sh", "bin", "scripts")]
    assert shown.list_secrets(str(home), ours) == [f"{home}/.cargo/credentials.toml"]


def test_a_folder_of_programs_is_no_environment_by_itself(tmp_path: Path) -> None:
    home = tmp_path / "home"
    for name in (
        ".fly/bin/flyctl",
        ".fly/config.yml",
        "sdk/bin/tool",
        "sdk/lib/x",
        "sdk/credentials",
        "sdk/bin/id_rsa",
    ):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("")
    found = shown.list_shown(str(home), {"PATH": f"{home}/.fly/bin:{home}/sdk/bin"}, [])
    assert [path for path in found if path.startswith(str(home))] == [
        f"{home}/{name}" for name in (".fly/bin", "sdk/bin", "sdk/lib")
    ]
    assert shown.list_secrets(str(home), found) == [f"{home}/sdk/bin/id_rsa"]


def test_a_program_that_a_folder_in_path_links_to_is_shown(tmp_path: Path) -> None:
    home = tmp_path / "home"
    for name in ("opt/node/bin/node", "opt/node/include/node/x", "secret/plan.sh", "secret/notes.txt", "secret/data"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).touch(0o644 if name.endswith(("x", "txt", "data")) else 0o755)
    for name in ("linked/bin/cli.js", "linked/package.json", "linked/.env", "linked/src/x"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).touch(0o755)
    (home / "bin").mkdir()
    for name in ("opt/node/bin/node", "secret/plan.sh", "secret/data", "nothing", "linked/bin/cli.js"):
        (home / "bin" / os.path.basename(name)).symlink_to(f"../{name}")
    found = shown.list_shown(str(home), {"PATH": f"/usr/bin:{home}/bin"}, [])
    assert [path for path in found if path.startswith(str(home))] == [
        f"{home}/{name}" for name in ("bin", "linked/bin/cli.js", "opt/node", "secret/plan.sh")
    ]


def test_secret_folders_are_hidden_in_what_is_shown(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    assert shown.list_secrets(str(home), [str(home)]) == [f"{home}/.ssh"]
    assert shown.list_secrets(str(home), [f"{home}/.ssh"]) == []


def test_which_variables_a_box_has(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GITHUB_TOKEN", "NPM_TOKEN", "OWN_API_KEY"):
        monkeypatch.setenv(name, f"{name} is long")
    env = {**os.environ, "MAX_TOKENS": "64000", "RALPH_TOKEN": "in every prompt", "SET_KEY": "by the agent's table"}
    places = AgentPlaces(variables=frozenset(["OWN_API_KEY"]))
    confinement = Confinement(PLAN, places=places, variables=["NPM_TOKEN"])
    names = ("GITHUB_TOKEN", "NPM_TOKEN", "OWN_API_KEY", "MAX_TOKENS", "RALPH_TOKEN", "SET_KEY")
    for purpose, expected in (("agent", names[1:]), ("gate", (names[1], *names[3:]))):
        _, _, inside = confinement.confine(["x"], PLAN.slot, env, [], purpose)
        assert [name for name in names if name in inside] == list(expected)


def test_in_a_home_only_environments_are_taken_from_what_git_ignores() -> None:
    listed = [".ssh/", "Documents/", "work/.venv/", ".netrc", ".aws/"]
    assert find_ignored(listed, lambda path: False, is_home=True) == (["work/.venv"], [])
    assert find_ignored(listed, lambda path: False).folders == ["Documents", "work/.venv"]


def test_which_ignored_things_a_box_has() -> None:
    listed = [".venv/", "node_modules/", "__pycache__/", "a/__pycache__/", ".ralph/", ".env", "x.pyc", "debug.log"]
    found = find_ignored(listed, lambda path: path == ".ralph")
    assert (found.folders, found.files) == ([".venv", "node_modules"], [".env"])


@pytest.mark.parametrize(
    ("files", "cause", "helps"),
    [
        ({"kernel/apparmor_restrict_unprivileged_userns": "1"}, "AppArmor", "sysctl kernel.apparmor"),
        ({"kernel/unprivileged_userns_clone": "0"}, "turned off", "unprivileged_userns_clone=1"),
        ({"user/max_user_namespaces": "0"}, "turned off", "max_user_namespaces"),
    ],
)
def test_why_there_is_no_box(monkeypatch: pytest.MonkeyPatch, files: dict[str, str], cause: str, helps: str) -> None:
    monkeypatch.setattr(trial, "_read", lambda path: files.get(path.removeprefix("/proc/sys/"), ""))
    found = trial.explain("bwrap: setting up uid map: Permission denied")
    assert cause in found.why
    assert helps in found.help


def test_what_bubblewrap_says_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "_read", lambda path: "")
    monkeypatch.setattr(os.path, "exists", lambda path: False)
    assert "Operation not permitted" in trial.explain("bwrap: Operation not permitted").why


def test_without_bubblewrap_the_command_that_installs_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "_find_program", lambda name: "")
    found = trial.try_box()
    assert isinstance(found, trial.NoBox)
    assert found.help == "sudo apt install bubblewrap"


def test_another_folder_for_temporary_files_is_the_boxs_own_too(tmp_path: Path) -> None:
    """A command may name it, which would show it read-only."""
    plan = structs.replace(PLAN, home=str(tmp_path / "home"))
    env = {"TMPDIR": str(tmp_path), "PATH": "/usr/bin"}
    command, _, _ = Confinement(plan).confine(["make", f"DIR={tmp_path}"], PLAN.slot, env, ())
    mounts = find_mounts(command)
    assert ("--tmpfs", str(tmp_path)) in mounts
    assert not any(one[-1] == str(tmp_path) for one in mounts if one[0] != "--tmpfs")


def test_a_silent_failure_is_not_blamed_on_a_container(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "_read", lambda path: "")
    monkeypatch.setattr(os.path, "exists", lambda path: path == "/.dockerenv")
    assert "container" in trial.explain("bwrap: Operation not permitted").why
    found = trial.explain("")
    assert "container" not in found.why
    assert "bwrap --unshare-all" in found.help, "a command that everybody can try, and no page that is not installed"


def test_an_attempt_begins_with_empty_folders(tmp_path: Path) -> None:
    folder = build_folder("/project", ".venv", str(tmp_path), source="/project/.venv")
    folder.prepare()
    upper, work = Path(folder.upper), Path(folder.store, "work")
    untouched = (upper.stat().st_ino, work.stat().st_ino)
    folder.begin_attempt()
    assert (upper.stat().st_ino, work.stat().st_ino) == untouched, "what nothing has used is not made anew"
    (upper / "left").write_text("x")  # also if a cache is not an overlay
    folder.begin_attempt()
    assert list(upper.iterdir()) == []
    (work / "work").mkdir()
    upper.chmod(0o500)  # what an agent did to the folder itself
    folder.begin_attempt()
    assert list(work.iterdir()) == []
    assert upper.stat().st_mode & 0o700 == 0o700
