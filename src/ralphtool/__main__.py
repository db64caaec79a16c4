"""The command `ralphtool`: the agent's commands take a fast path that skips the imports of the others."""

import sys


def main() -> int:
    if sys.platform == "win32":
        sys.stderr.write("ralphtool runs on Linux and macOS; on Windows, use it inside WSL.\n")
        return 2
    if sys.argv[1:2] == ["agent"]:
        from ralphtool.cli import agent

        return agent.start()
    import gc

    gc.disable()  # until a command starts: importing creates no garbage worth collecting
    from ralphtool.cli import main as people

    return people.start()


if __name__ == "__main__":
    sys.exit(main())
