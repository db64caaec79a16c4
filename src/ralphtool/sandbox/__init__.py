"""The box: agents and gates run in a sandbox that mounts a worktree at the project's own path. See docs/sandbox.md."""
