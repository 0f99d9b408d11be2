#!/usr/bin/env bash
# Prepares .venv in the project's root, and the system packages it needs. Leaves nothing running.
#
#   scripts/setup.sh
#
# PYTHON   the interpreter to make .venv from (default: the first 3.11 or newer found)
# pip, apt and Spark's resolver keep their own settings (PIP_*, pip.conf, http_proxy, ivysettings).
#
# Missing system packages are installed as root, or through sudo. Every program that the project
# starts is run once; one that does not run ends the set-up with that program's own error line.
#
# A step that takes longer than two seconds shows progress; its full output is in build/setup.log.
# Each step first checks whether it is needed, and the stamp that makes the next run short is
# written last: after an interruption, run it again.
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
  local title=$1 start=$SECONDS code=0 ticks=0 from
  shift
  printf '\n== %s\n' "$title" >>"$log"
  from=$(($(wc -c <"$log") + 1))
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
    fail "'${title#* }' ended with code $code: $(tail -c "+$from" "$log" | first_error)
All of its output is in build/setup.log."
  fi
  printf 'done, %d s\n' $((SECONDS - start))
}

# again COMMAND…: runs a command that downloads, up to three times: a connection may break. What it
# has downloaded is kept in a cache.
again() {
  local try
  for try in 1 2; do
    "$@" && return
    printf '\n== failed (attempt %d of 3); trying again\n' "$try"
    sleep 2
  done
  "$@"
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

# first_error: of a program's output on stdin, the first line that reports an error.
first_error() {
  local text word="(error|errno|fatal|failed|cannot|can't|could not|unable|not found|no such|denied)"
  text=$(grep -v '^[[:space:]]*$') || text='it printed nothing'
  # Names of packages, such as libgpg-error0, are no errors.
  grep -m 1 -iE "^E: |(^|[^[:alnum:]-])$word([^[:alnum:]-]|\$)" <<<"$text" || head -n 1 <<<"$text"
}

# runs COMMAND…: whether the program runs; if not, `why` holds its own error line.
runs() {
  local code=0
  command -v "$1" >/dev/null || { why="$1 is not on PATH"; return 1; }
  output=$("$@" 2>&1 </dev/null) || code=$?
  [ "$code" -ne 0 ] || return 0
  why="$1 ended with code $code: $(first_error <<<"$output")"
  return 1
}

# install PACKAGE…: installs Debian packages as root or through sudo; `missing` says what for.
install() {
  local as_root=() each get=(apt-get -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3)
  command -v apt-get >/dev/null ||
    fail "missing: $missing; there is no apt-get, so install them yourself, then run again"
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null ||
      fail "missing: $missing; you are not root and there is no sudo, so have root run
  apt-get install --no-install-recommends $*
then run again"
    # sudo asks for its password here: in a step the question would go to the log.
    sudo -n true 2>/dev/null || { [ -t 0 ] && sudo -v; } ||
      fail "missing: $missing; sudo does not run without a password here, so run
  sudo apt-get install --no-install-recommends $*
(or have root run it, without sudo), then run again"
    as_root=(sudo -n "DEBIAN_FRONTEND=$DEBIAN_FRONTEND")
    # sudo drops them, and they may be the only way to the package mirror.
    for each in http_proxy https_proxy no_proxy; do
      [ -z "${!each:-}" ] || as_root+=("$each=${!each}")
    done
  fi
  step "[1/5] Debian's package lists …" "${as_root[@]}" "${get[@]}" update
  # apt-get refuses to install anything while an interrupted installation is unfinished.
  step "[1/5] $* …" "${as_root[@]}" sh -c 'dpkg --configure -a && exec "$@"' - \
    "${get[@]}" install -y --no-install-recommends "$@"
}

python_fits() {
  "$1" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

find_python() {
  local name
  why='no Python 3.11 or newer with venv and ensurepip'
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
  runs "$java" -version || return 1
  version=$(sed -n 's/.*version "\([0-9]*\).*/\1/p' <<<"$output" | head -n 1)
  why="$java has version ${version:-unknown}"
  [ "${version:-0}" -ge 17 ]
}

# mariadb-install-db runs my_print_defaults, which Debian has in another package.
mariadb_fits() {
  runs mariadbd --version && runs my_print_defaults --version || return 1
  why='mariadb-install-db is not on PATH'
  [ -x "$(command -v mariadb-install-db)" ]
}

# Makes a database and throws it away: mariadb-install-db runs all other programs of MariaDB.
mariadb_makes_a_database() {
  local folder code=0 as_user=()
  [ "$(id -u)" -ne 0 ] || as_user=(--user=root)
  folder=$(mktemp -d)
  runs mariadb-install-db --no-defaults "${as_user[@]}" --datadir="$folder/data" \
    --auth-root-authentication-method=normal --skip-test-db || code=$?
  rm -rf "$folder"
  return "$code"
}

chromium_fits() {
  runs chromium --version
}

curl_fits() {
  runs curl --version
}

# The node that comes with playwright, which drives Chromium, needs it.
libatomic_fits() {
  runs ldconfig -p || return 1
  why='libatomic.so.1 is not among the libraries'
  grep -qF libatomic.so.1 <<<"$output"
}

# need NAME PACKAGE…: notes what is missing and why.
need() {
  missing="${missing:+$missing, }$1 ($why)"
  shift
  packages+=("$@")
}

system_packages() {
  local packages=() missing='' why
  find_python || {
    [ -z "${PYTHON:-}" ] || fail "PYTHON=$PYTHON is not Python 3.11 or newer with venv and ensurepip"
    need Python python3 python3-venv
  }
  java_fits || {
    [ -z "${JAVA_HOME:-}" ] ||
      fail "JAVA_HOME=$JAVA_HOME has no Java 17 or newer ($why); correct or unset it"
    need 'Java 17' openjdk-17-jre-headless
  }
  # The packages without the service: the project starts its own servers, and none on port 3306.
  mariadb_fits || need MariaDB mariadb-server-core mariadb-client-core
  # Tests open the web page in it, without a screen.
  chromium_fits || need Chromium chromium
  libatomic_fits || need libatomic libatomic1
  # Tests run the guides' commands.
  curl_fits || need curl curl
  [ -z "$missing" ] || install "${packages[@]}"

  find_python || fail "Debian's python3 is older than 3.11; set PYTHON to a newer one"
  java_fits || fail "no Java 17: $why; put a newer java first on PATH, or set JAVA_HOME"
  mariadb_fits || fail "MariaDB does not run: $why"
  mariadb_makes_a_database || fail "MariaDB does not run: $why"
  chromium_fits || fail "Chromium does not run: $why"
  libatomic_fits || fail "no libatomic: $why"
  curl_fits || fail "curl does not run: $why"
  printf '[1/5] Python, Java, MariaDB, Chromium and curl run\n'
}

python_environment() {
  # The scripts of a .venv that was moved or copied belong to the place where it was made.
  if ! grep -qsF "$venv/bin/python" "$venv/bin/pip" ||
    ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
    step '[2/5] Python environment .venv …' "$python" -m venv --clear "$venv"
  else
    printf '[2/5] Python environment .venv is there\n'
  fi
  # Python compiles the few of their 13,000 modules that are used when it first imports them.
  step '[3/5] Python packages (about 600 MB the first time) …' \
    again "$venv/bin/python" -m pip install --disable-pip-version-check --no-input --progress-bar off \
    --no-compile --editable "${root}[dev]"
  runs "$venv/bin/playwright" --version || fail "playwright does not run: $why"
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
from streamhouse.paimon.java.jars import COORDINATES, JAR_VARIABLE, cache_folder
_, name, version = COORDINATES.split(":")
given = os.environ.get(JAR_VARIABLE)
sys.exit(not os.path.isfile(given or cache_folder() / f"{name}-{version}.jar"))
PY
}

ready() {
  packages_are_there && java_fits && mariadb_fits && chromium_fits && curl_fits && jar_is_there
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
  step "[4/5] Paimon's Java core …" again "$venv/bin/python" -m streamhouse.paimon.java.jars
fi
# Halves the time that Spark takes to start; all works without it.
# shellcheck disable=SC2016  # $0 is the inner shell's: the path needs no quoting.
step "[5/5] Spark's Java classes, for quicker starts …" sh -c \
  '"$0" -m streamhouse.runtime.class_archive_maker || echo "left out: starts will be slower"' \
  "$venv/bin/python"
fingerprint >"$stamp"
echo 'Ready.'
