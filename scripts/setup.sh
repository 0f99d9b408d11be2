#!/usr/bin/env bash
# Prepares .venv in the project's root, and what it needs of the system. Starts nothing.
#
#   scripts/setup.sh
#
# PYTHON   the interpreter to make .venv from (default: the first 3.11 or newer found)
# pip, apt and Spark's resolver keep their own settings (PIP_*, pip.conf, http_proxy, ivysettings).
#
# Whatever runs longer than two seconds shows progress; its full output is in build/setup.log. All
# steps look before they act, and the stamp that makes the next run short is written last: an
# interrupted run is simply run again.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
venv=$root/.venv
stamp=$venv/.streamhouse-setup
log=$root/build/setup.log
child=

# Debian keeps servers in sbin, which is not on every user's PATH.
PATH=$PATH:/usr/sbin:/sbin
export DEBIAN_FRONTEND=noninteractive

fail() {
  printf '\nset-up failed: %s\n' "$1" >&2
  exit 1
}

stop_child() {
  [ -z "$child" ] || kill "$child" 2>/dev/null || true
}
trap 'stop_child; printf "\nset-up interrupted; run it again to go on\n" >&2; exit 130' INT TERM

# step TITLE COMMAND…: runs it with its output in the log, and time passing on the screen.
step() {
  local title=$1 start=$SECONDS code=0 ticks=0
  shift
  printf '\n== %s\n' "$title" >>"$log"
  printf '%s ' "$title"
  "$@" >>"$log" 2>&1 </dev/null &
  child=$!
  while kill -0 "$child" 2>/dev/null; do
    sleep 0.2
    ticks=$((ticks + 1))
    [ $((ticks % 10)) -ne 0 ] || progress "$title" $((SECONDS - start))
  done
  wait "$child" || code=$?
  child=
  if [ -t 1 ]; then
    printf '\r\033[K%s ' "$title"
  elif [ "$ticks" -ge 10 ]; then
    printf ' '
  fi
  if [ "$code" -ne 0 ]; then
    printf 'failed\n\n'
    tail -n 15 "$log" >&2
    fail "'${title#* }' ended with code $code; all of its output is in build/setup.log"
  fi
  printf 'done, %d s\n' $((SECONDS - start))
}

progress() {
  if [ -t 1 ]; then
    local doing
    doing=$(tail -n 1 "$log" | tr -cd '[:print:]' | cut -c1-60)
    printf '\r\033[K%s %d s  %s' "$1" "$2" "$doing"
  else
    printf '.'
  fi
}

# install PURPOSE PACKAGE…: installs Debian packages, after one apt-get update a run.
updated=
install() {
  local purpose=$1 sudo=()
  shift
  command -v apt-get >/dev/null ||
    fail "$purpose is missing, and there is no apt-get; install it yourself, then run again"
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null ||
      fail "$purpose is missing; run as root: apt-get install $*"
    # Asked here, since a question would be lost in the log.
    sudo -n true 2>/dev/null || { [ -t 0 ] && sudo -v; } ||
      fail "$purpose is missing and sudo wants a password; run: sudo apt-get install $*"
    sudo=(sudo -n DEBIAN_FRONTEND=noninteractive)
  fi
  local get=("${sudo[@]}" apt-get -o DPkg::Lock::Timeout=300)
  if [ -z "$updated" ]; then
    step "$position Debian's package lists …" "${get[@]}" update
    updated=yes
  fi
  # What an interrupted installation left half done would refuse every later one.
  step "$position $purpose …" "${sudo[@]}" sh -c 'dpkg --configure -a && exec "$@"' - \
    "${get[@]:${#sudo[@]}}" install -y --no-install-recommends "$@"
}

python_fits() {
  "$1" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

find_python() {
  local name
  for name in ${PYTHON:-python3.11 python3 python3.12 python3.13 /usr/bin/python3}; do
    if python_fits "$name"; then
      python=$name
      return 0
    fi
  done
  return 1
}

java_fits() {
  local java=${JAVA_HOME:+$JAVA_HOME/bin/}java version
  version=$("$java" -version 2>&1) || return 1
  version=$(sed -n 's/.*version "\([0-9]*\).*/\1/p' <<<"$version" | head -n 1)
  [ "${version:-0}" -ge 17 ]
}

mariadb_fits() {
  [ -x "$(command -v mariadbd)" ] && [ -x "$(command -v mariadb-install-db)" ]
}

chromium_fits() {
  [ -x "$(command -v chromium)" ]
}

system_packages() {
  position='[1/5]'
  if ! find_python; then
    [ -z "${PYTHON:-}" ] || fail "PYTHON=$PYTHON is not Python 3.11 or newer with venv and ensurepip"
    install "Python" python3 python3-venv
    find_python || fail "Debian's python3 is older than 3.11; set PYTHON to a newer one"
  fi
  if ! java_fits; then
    [ -z "${JAVA_HOME:-}" ] || fail "JAVA_HOME=$JAVA_HOME has no Java 17 or newer; correct or unset it"
    install "Java 17" openjdk-17-jre-headless
    java_fits || fail "'java' is older than 17; put a newer one first on PATH, or set JAVA_HOME"
  fi
  # The package without the service: nothing of ours listens on port 3306.
  mariadb_fits || install "MariaDB's server" mariadb-server-core
  mariadb_fits || fail "mariadb-server-core is installed, and mariadbd is not on PATH"
  # The tests open the web page in it, without a screen.
  chromium_fits || install "Chromium (the tests open the page in it)" chromium
  chromium_fits || fail "the package chromium is installed, and chromium is not on PATH"
  printf '[1/5] Python, Java, MariaDB and Chromium are there\n'
}

python_environment() {
  # The scripts of a .venv that was moved or copied belong to the place where it was made.
  if ! grep -qsF "$venv/bin/python" "$venv/bin/pip" ||
    ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
    step '[2/5] Python environment .venv …' "$python" -m venv --clear "$venv"
  else
    printf '[2/5] Python environment .venv is there\n'
  fi
  step '[3/5] Python packages (about 600 MB the first time) …' \
    "$venv/bin/python" -m pip install --disable-pip-version-check --no-input --progress-bar off \
    --editable "$root[dev]"
}

# What the packages depend on.
fingerprint() {
  { sha256sum <pyproject.toml; sha256sum <scripts/setup.sh; echo "$root"; } | sha256sum
}

packages_are_there() {
  [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$(fingerprint)" ] &&
    "$venv/bin/streamhouse" --version >/dev/null 2>&1
}

# Asked of the code itself, which knows the places; it fetches when the cache was emptied.
jar_is_there() {
  "$venv/bin/python" - <<'PY' 2>/dev/null
import os, sys
from streamhouse.paimon.jars import COORDINATES, JAR_VARIABLE, cache_folder
_, name, version = COORDINATES.split(":")
given = os.environ.get(JAR_VARIABLE)
sys.exit(not os.path.isfile(given or cache_folder() / f"{name}-{version}.jar"))
PY
}

ready() {
  packages_are_there && java_fits && mariadb_fits && chromium_fits && jar_is_there
}

ready && exit 0
# One set-up at a time; the lock ends with this process, whatever ends it.
exec 9<"$root/pyproject.toml"
flock --nonblock 9 || { echo 'another set-up is running; waiting for it …'; flock 9; }
ready && exit 0

mkdir -p "$root/build"
: >"$log"
echo 'Setting up; done once, and again when pyproject.toml changes.'
system_packages
if packages_are_there; then
  printf '[2/5] Python environment .venv is there\n[3/5] Python packages are there\n'
else
  rm -f "$stamp"
  python_environment
fi
if jar_is_there; then
  printf "[4/5] Paimon's Java core is there\n"
else
  step "[4/5] Paimon's Java core …" "$venv/bin/python" -m streamhouse.paimon.jars
fi
# Halves the time that Spark takes to start; all works without it.
step "[5/5] Spark's Java classes, for quicker starts …" sh -c \
  '"$0" -m streamhouse.runtime.class_archive || echo "left out: starts will be slower"' \
  "$venv/bin/python"
fingerprint >"$stamp"
echo 'Ready.'
