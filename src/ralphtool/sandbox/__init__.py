"""The box: agents and gates run in a sandbox that shows a worktree at the project's own path. See docs/sandbox.md."""
