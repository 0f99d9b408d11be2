#!/usr/bin/env bash
# What somebody without a checkout does: installs the wheel into a virtual environment, runs
# `streamhouse setup`, installs the system packages that it names, and runs the demo.
#
#   scripts/fresh_wheel.sh
#
# It runs on a fresh machine (scripts/fresh.sh wheel), as a user with sudo, since it installs packages.
set -euo pipefail

project=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
  printf 'FAILED: %s\n' "$1" >&2
  exit 1
}

# one_line TEXT COMMAND…: the command must fail at once, with one line that has the text.
one_line() {
  local text=$1 start=$SECONDS
  shift
  if "$@" >"$work/said" 2>&1; then fail "$* ended well"; fi
  cat "$work/said"
  [ "$(wc -l <"$work/said")" -eq 1 ] || fail "$* printed more than one line"
  grep -qF -- "$text" "$work/said" || fail "$* does not say '$text'"
  [ $((SECONDS - start)) -le 10 ] || fail "$* took $((SECONDS - start)) s"
}

echo '== builds the wheel'
python3.11 -m venv "$work/build"
"$work/build/bin/pip" --quiet --disable-pip-version-check wheel --no-deps --wheel-dir "$work/dist" "$project"

echo '== installs it (about 600 MB)'
cd "$work"
python3.11 -m venv "$work/env"
# A connection may break; what pip has downloaded is kept in its cache.
for try in 1 2 3; do
  "$work/env/bin/pip" --quiet --disable-pip-version-check install "$work"/dist/*.whl && break
  [ "$try" -lt 3 ] || fail 'pip could not install the wheel'
done
export PATH=$work/env/bin:$PATH
place=$(python -c 'import streamhouse; print(streamhouse.__file__)')
[[ $place == "$work/env/"* ]] || fail "it imports $place"

echo '== it has all files, and what all modules import'
files() { (cd "$1" && find . -type f ! -path '*/__pycache__/*' | sort); }
diff <(files "$project/src/streamhouse") <(files "${place%/*}") || fail 'the wheel has other files than src'
python - <<'PY'
import importlib, pkgutil, streamhouse
for each in pkgutil.walk_packages(streamhouse.__path__, "streamhouse."):
    # pytest imports its plugin, and is no requirement.
    if each.name != "streamhouse.testing.pytest_plugin":
        importlib.import_module(each.name)
PY

echo '== without Java or MariaDB, one line says what is missing'
JAVA_HOME=/nowhere one_line 'has no bin/java' streamhouse demo --json --seconds 5
one_line 'apt-get install' streamhouse demo --json --seconds 5

echo '== streamhouse setup'
streamhouse setup --no-demo
if streamhouse setup --json >"$work/setup.json"; then fail 'setup does not miss MariaDB'; fi
install=$(python -c 'import json, sys; print(json.load(sys.stdin)["install"])' <"$work/setup.json")
echo "== $install"
sudo apt-get -qq update
DEBIAN_FRONTEND=noninteractive sh -c "$install -y" >"$work/apt.log" 2>&1 || { tail "$work/apt.log"; fail 'apt-get'; }
streamhouse setup

echo '== streamhouse demo'
streamhouse demo --json --seconds 5 | tee "$work/demo.json"
grep -q '"equal": true' "$work/demo.json" || fail 'the view is not what its orders give'
