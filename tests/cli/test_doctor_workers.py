"""What `ralphtool doctor` says about runs on other machines."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from lab import wait_until
from project import COMMAND, Ralph

from ralphtool.cli import checks, executor_checks
from ralphtool.core.install_hint import build_install_command
from ralphtool.executors.temporal.dev_server import DevServer
from ralphtool.settings import load

NOBODY = "127.0.0.1:9"  # the discard port: nothing listens there
REFUSING_SSH = """\
#!/bin/sh
for command; do :; done
case $command in *receive-pack*) echo "you may only read here" >&2; exit 1;; esac
eval "$command"
"""


@pytest.fixture
def repository(ralph: Ralph) -> Ralph:
    run_git(ralph, "init", "--quiet")
    run_git(ralph, "-c", "user.name=t", "-c", "user.email=t@localhost", "commit", "-q", "--allow-empty", "-m", "one")
    return ralph


def run_git(ralph: Ralph, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ralph.root, env=ralph.env, check=True, capture_output=True, text=True)
    return done.stdout


def configure(ralph: Ralph, *, uses: str = "temporal", **values: str) -> None:
    lines = [f'{name} = "{value}"' for name, value in values.items()]
    ralph.write(".ralph/config.toml", "\n".join([f'[run]\nexecutor = "{uses}"\n[executor]', *lines]))


def make_bare(ralph: Ralph) -> Path:
    place = ralph.root.parent / "shared.git"
    run_git(ralph, "init", "--quiet", "--bare", str(place))
    return place


def find(ralph: Ralph, about: str = "executor") -> list[tuple[str, str, str]]:
    told = json.loads(ralph.run("doctor", "--no-gates", "--json").stdout)["findings"]
    return [(one["state"], one["text"], one["mend"]) for one in told if one["about"] == about]


def test_projects_that_run_here_are_told_nothing(repository: Ralph) -> None:
    assert find(repository) == []
    repository.write(".ralph/config.toml", "[run]\nside_by_side = 4\n")
    assert find(repository) == []


@pytest.mark.parametrize(("uses", "state"), [("temporal", "wrong"), ("local", "warning")])
def test_no_server(repository: Ralph, uses: str, state: str) -> None:
    configure(repository, uses=uses, address=NOBODY)
    [server, remote] = find(repository)
    assert server[0] == state
    assert f"no Temporal server answers at {NOBODY}" in server[1]
    assert "`ralphtool worker --dev`" in server[2]
    assert remote[0] == "ok"
    assert "executor.remote is not set" in remote[1]
    assert not (repository.root / ".git/ralph/exchange.git").exists(), "looking changes nothing"


def test_a_server_elsewhere_needs_a_safe_connection_and_a_remote(repository: Ralph) -> None:
    configure(repository, address="build.example.org:7233")
    [server, remote] = find(repository)
    assert server[0] == remote[0] == "wrong"
    assert "set executor.tls = true, or an API key in TEMPORAL_API_KEY" in server[1]
    assert remote[1] == "executor.remote is not set, and the server is on another machine"
    assert remote[2] == "set executor.remote to a git repository that you and all workers can push to"


def test_without_the_package(repository: Ralph, monkeypatch: pytest.MonkeyPatch) -> None:
    configure(repository, address=NOBODY)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    project = checks.DoctorContext(str(repository.root))
    project.settings = load(str(repository.root))
    [package, _] = executor_checks.check_executor(project)
    assert (package.state, package.mend) == ("wrong", build_install_command("temporal"))


def test_a_queue_without_workers_and_with_one(repository: Ralph, server: DevServer) -> None:
    configure(repository, address=server.address, queue="of the doctor")
    [found, workers, _] = find(repository)
    assert found[:2] == ("ok", f"a Temporal server answers at {server.address}, with the namespace default")
    assert workers[:2] == ("wrong", "no worker is connected to the queue of the doctor")
    assert workers[2] == f"on each worker, run: ralphtool worker --address {server.address} --queue 'of the doctor'"
    command = [COMMAND, "worker", "--name", "anna"]
    with subprocess.Popen(command, cwd=repository.root, env=repository.env, stdout=subprocess.PIPE) as worker:
        assert worker.stdout
        assert worker.stdout.readline().startswith(b"anna takes work from of the doctor")
        wait_until(lambda: "1 worker is connected" in find(repository)[1][1])
        assert find(repository)[1][1].endswith(": anna")
        worker.terminate()


def test_a_namespace_that_is_not_there(repository: Ralph, server: DevServer) -> None:
    configure(repository, address=server.address, namespace="nowhere")
    [(state, text, _), _] = find(repository)
    assert state == "wrong"
    assert "create the namespace nowhere there, or correct executor.namespace" in text


class OldServer(DevServer):
    """A server without a feature that ralphtool needs; before 1.32 that is off by default."""

    def _list_arguments(self) -> list[str]:
        return [*super()._list_arguments(), "--dynamic-config-value", "activity.enableStandalone=false"]


def test_a_server_that_is_too_old(repository: Ralph, tmp_path: Path) -> None:
    (tmp_path / "server").mkdir()
    with OldServer(str(tmp_path / "server")) as server:
        configure(repository, address=server.address)
        [(state, text, mend), _] = find(repository)
    assert (state, "Standalone activity is disabled" in text) == ("wrong", True)
    assert "set activity.enableStandalone" in mend


def test_a_remote_that_may_be_pushed_to_is_left_as_it_is(repository: Ralph) -> None:
    shared = make_bare(repository)
    configure(repository, address=NOBODY, remote=str(shared))
    [_, remote] = find(repository)
    assert remote == ("ok", f"commits are exchanged through {shared}; pushing works", "")
    assert run_git(repository, "-C", str(shared), "for-each-ref") == ""


def test_a_remote_that_is_not_there(repository: Ralph) -> None:
    configure(repository, address=NOBODY, remote="https://me:secret@127.0.0.1:9/work.git")
    [_, (state, text, mend)] = find(repository)
    assert state == "wrong"
    assert "the git repository https://127.0.0.1:9/work.git can't be reached" in text
    assert "`git ls-remote https://127.0.0.1:9/work.git`" in mend
    assert "secret" not in text + mend


def test_a_remote_that_may_only_be_read(repository: Ralph) -> None:
    shared, ssh = make_bare(repository), repository.root.parent / "ssh"
    ssh.write_text(REFUSING_SSH)
    ssh.chmod(0o755)
    run_git(repository, "config", "core.sshCommand", str(ssh))
    configure(repository, address=NOBODY, remote=f"git@build.example.org:{shared}")
    [_, (state, text, mend)] = find(repository)
    assert state == "wrong"
    assert "can't push to" in text
    assert "you may only read here" in text
    assert "to push there" in mend


def test_a_remote_without_a_repository_of_ours(ralph: Ralph) -> None:
    configure(ralph, address=NOBODY)
    [_, (state, _, mend)] = find(ralph)
    assert (state, "git init" in mend) == ("wrong", True)


def test_an_agent_has_to_be_on_the_workers_only(repository: Ralph) -> None:
    repository.write(".ralph/config.toml", '[run]\nexecutor = "temporal"\nagent = "mine"\n[agents.mine]\n')
    assert find(repository, "agents")[0][0] == "wrong", "an agent that nobody can make"
    named = '[run]\nexecutor = "temporal"\nagent = "mine"\n[agents.mine]\ncommand = ["only-on-workers"]\n'
    repository.write(".ralph/config.toml", named)
    assert find(repository, "agents")[0][:2] == (
        "ok",
        "mine runs on workers: it must be installed and logged in there",
    )
    repository.write(".ralph/config.toml", named.replace("temporal", "local"))
    assert find(repository, "agents")[0][0] == "wrong"


def test_the_users_own_folder_is_nothing_to_workers(repository: Ralph) -> None:
    repository.write(".ralph/config.toml", '[run]\nexecutor = "temporal"\nworkspace = "here"\n')
    assert find(repository)[-1][0] == "warning"
