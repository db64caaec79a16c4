#!/usr/bin/env bash
# `ralphtool agent learn TEXT` as a careful shell script: the yardstick of scripts/bench. It starts as few programs as
# possible, and leaves everything else to bash itself.
# usage: bench_learn.sh SESSION_FILE TEXT
set -euo pipefail
session=$1 text=$2
folder=${session%/*}
aside=$folder/.aside.$$

exec 9>"$session.lock"
flock 9

now=$EPOCHREALTIME
TZ=UTC printf -v timestamp '%(%Y-%m-%dT%H:%M:%S)T.%sZ' "${now%[.,]*}" "${now#*[.,]}"

# One jq call produces both: the state to store, and the answer to print.
mapfile -t made < <(
  jq -c --arg text "$text" --arg timestamp "$timestamp" '
    {description: $text, task_id: null, story_id: .current_story_id, iteration: .iteration, timestamp: $timestamp} as $learning
    | .learnings += [$learning]
    | ., {success: true, learning: $learning, total_learnings: (.learnings | length)}
  ' "$session"
)
[ "${#made[@]}" -eq 2 ] || { echo "$session can't be read" >&2; exit 1; }

umask 077
printf '%s\n' "${made[0]}" >"$aside"
sync "$aside"
mv -f "$aside" "$session"
sync "$folder"
printf '%s\n' "${made[1]}"
