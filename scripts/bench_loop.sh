#!/usr/bin/env bash
# A typical loop with bash, jq and git that does what ralphtool does in an iteration: look back, build a prompt with the
# known learnings, run the agent, check its promise and its ticks, commit, keep the attempt, record the entry.
# Usage: bench_loop.sh AGENT   (in the project's folder; works through tasks.md until no task is open)
set -euo pipefail
agent=$1
tasks=openspec/changes/add-login/tasks.md
progress=.ralph/progress.json
run=.ralph/runs/bash
mkdir -p "$run"
[ -e "$progress" ] || printf '{"version":"1.0","created_at":"2026-01-31T09:30:00Z","entries":[],"learnings":[],"patterns":[]}' >"$progress"
git checkout -q -B ralph/add-login

event() { jq -nc --arg type "$1" --arg story "$2" --arg text "$3" '{at: (now | todate), type: $type, story: $story, text: $text}' >>"$run/events.jsonl"; }

while story=$(sed -n 's/^- \[ \] \([0-9]*\)\..*/\1/p' "$tasks" | head -n 1) && [ -n "$story" ]; do
  prd=add-login-$story
  token=$(head -c 16 /dev/urandom | od -An -tx1 | tr -d ' \n')
  iteration=$(jq --arg prd "$prd" '[.entries[] | select(.prd_id == $prd)] | length + 1' "$progress")
  {
    printf '# Your task\n\n'; sed -n "/^## $story\\. /,/^## $((story + 1))\\. /p" "$tasks"
    printf '\n# What we know\n\n'; jq -r '.learnings[] | select(.still_valid) | "- " + .content' "$progress"
    printf '\n# How to finish\n\ntoken: %s\n' "$token"
  } >"$run/prompt.md"
  event iteration_started "$story" "attempt $iteration"
  RALPH_STORY=$story timeout 3600 "$agent" <"$run/prompt.md" >"$run/transcript.log" 2>"$run/transcript.err" && code=0 || code=$?
  status=failed
  if [ "$code" = 0 ] && [ "$(grep . "$run/transcript.log" | tail -n 1)" = "<promise>COMPLETE:$token</promise>" ] &&
    ! grep -q "^- \[ \] $story\." "$tasks"; then status=completed; fi
  git add --all -- . ':!.ralph'
  files=$(git diff --cached --name-only | jq -Rsc 'split("\n") | map(select(length > 0))')
  git commit -q --allow-empty -m "story $story" -m "Ralph-Story: $story"
  commit=$(git rev-parse HEAD)
  git update-ref "refs/ralph/attempts/$prd-$iteration" "$commit"
  event verdict "$story" "$status"
  jq --arg prd "$prd" --argjson n "$iteration" --arg status "$status" --argjson files "$files" --arg commit "$commit" \
    '.entries += [{id: "\($prd)-\($n)", timestamp: (now | todate), prd_id: $prd, iteration: $n, status: $status,
      observations: [], files_modified: $files, git_commits: [$commit], context: {retry_count: 0}}]' "$progress" >"$progress.new"
  sync "$progress.new"
  mv "$progress.new" "$progress"
done
git checkout -q -
