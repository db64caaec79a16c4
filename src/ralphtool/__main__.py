"""The command `ralphtool`: the agent's commands go one way, quickly; those for people the other."""

import sys


def main() -> int:
    if sys.platform == "win32":
        sys.stderr.write("ralphtool runs on Linux and macOS; on Windows, use it inside WSL.\n")
        return 2
    if sys.argv[1:2] == ["agent"]:
        import gc

        from ralphtool import agentcli

        gc.disable()  # the process ends before there is anything worth collecting
        return agentcli.main(sys.argv[2:])
    from ralphtool import cli

    return cli.main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
