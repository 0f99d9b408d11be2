#!/usr/bin/env bash
# Runs the demo on a fresh machine, a minimal Debian 12 that has only what README.md asks for: once
# as root without sudo, once as an unprivileged user with sudo, who also runs the unit tests, and
# once from an installed wheel.
#
#   scripts/fresh.sh [root|user|wheel] [-- COMMAND…]
#   scripts/fresh.sh --possible
#   scripts/fresh.sh --prepare
#
# root, user   only as this user (default: all three)
# wheel        an unprivileged user with sudo, who installs the wheel and has no checkout set up
# COMMAND      what to run in the fresh checkout (default: the demo, then the user's unit tests)
# --possible   only tell whether it can run on this machine
# --prepare    only install what it needs on this machine; after that it uses no apt-get of it
#
# FRESH_DIR    the folder for the root file systems, about 8 GB (default: /var/tmp)
# FRESH_TESTS  the tests that the user runs (default: tests/unit)
# FRESH_KEEP   1: leave them there
#
# Needs root, Debian's apt-get, and leave to mount; installs mmdebstrap where it is missing. The
# working tree is copied without .git and without what git ignores. Of this machine's settings the
# fresh one gets only those by which it reaches package registries: apt's sources and download
# settings, certificates, proxy variables, and the files of settings of pip, Maven and Ivy.
#
# Exit code: 0 all passed, 1 something failed, 69 it cannot run on this machine.
set -euo pipefail

project=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
logs=$project/build/fresh
suite=bookworm
# README.md: "a Debian machine with Python 3.11, Java 17 and make".
packages=python3.11,python3.11-venv,openjdk-17-jre-headless,make,ca-certificates,sudo
variables=(http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY
  PIP_INDEX_URL PIP_EXTRA_INDEX_URL PIP_TRUSTED_HOST PIP_PROXY PIP_DEFAULT_TIMEOUT PIP_RETRIES
  DEFAULT_ARTIFACT_REPOSITORY JAVA_TOOL_OPTIONS)
# These name files, which are copied to the same place.
file_variables=(PIP_CERT SSL_CERT_FILE REQUESTS_CA_BUNDLE STREAMHOUSE_PAIMON_JAR)
home_files=(.config/pip/pip.conf .pip/pip.conf .netrc .m2/settings.xml .ivy2/ivysettings.xml)
system_files=(/etc/pip.conf /etc/apt/auth.conf /etc/apt/auth.conf.d)

say() {
  printf '%5d s  %-4s | %s\n' "$SECONDS" "$1" "$2"
}

# Prints the lines of stdin as they come, and every 30 seconds the line that is not complete yet.
progress() {
  local line part='' code
  while true; do
    code=0
    IFS= read -r -t 30 line || code=$?
    part+=$line
    if [ "$code" -gt 128 ]; then
      say "$1" "$part …"
    elif [ "$code" -eq 0 ] || [ -n "$part" ]; then
      say "$1" "$part"
      part=''
    fi
    [ "$code" -eq 0 ] || [ "$code" -gt 128 ] || return 0
  done
}

# A minimal Debian in $1.
make_base() {
  local sources=() each
  apt-config dump Acquire |
    grep -E '^Acquire::(https?|ForceIPv|Retries|Check-|Max-)' >"$work/apt.conf" || true
  if grep -qs "^VERSION_CODENAME=$suite\$" /etc/os-release; then
    for each in /etc/apt/sources.list /etc/apt/sources.list.d/debian.sources; do
      [ ! -s "$each" ] || sources+=("$each")
    done
  fi
  # Certificates have to be there before Java's store of them is made.
  cat >"$work/settings.sh" <<'HOOK'
#!/bin/sh
set -e
root=$1
for each in /usr/local/share/ca-certificates /etc/apt/auth.conf /etc/apt/auth.conf.d; do
  [ ! -e "$each" ] || { mkdir -p "$root${each%/*}"; cp -r "$each" "$root${each%/*}"; }
done
HOOK
  chmod +x "$work/settings.sh"
  # Without fsync: nobody needs these files after a crash.
  mmdebstrap --mode=root --format=directory --variant=minbase --include="$packages" \
    --aptopt="$work/apt.conf" --dpkgopt=force-unsafe-io --setup-hook="$work/settings.sh" \
    "$suite" "$1" "${sources[@]}"
}

# The working tree, without what git ignores.
copy_project() {
  local list=(git -c safe.directory='*' -C "$project" ls-files -z --cached --others
    --exclude-standard --deduplicate)
  mkdir -p "$1"
  if "${list[@]}" >"$work/files" 2>/dev/null; then
    tar -C "$project" --null --no-recursion --ignore-failed-read -T "$work/files" -cf - |
      tar -C "$1" -xf -
  else
    tar -C "$project" --exclude-from="$project/.gitignore" --exclude=.git -cf - . | tar -C "$1" -xf -
  fi
}

# Makes the copy of the base in $1 the machine of user $2.
make_machine() {
  local root=$1 user=$2 home=/root each
  cp -L /etc/resolv.conf "$root/etc/resolv.conf"
  echo fresh >"$root/etc/hostname"
  { cat /etc/hosts; echo '127.0.1.1 fresh'; } >"$root/etc/hosts"
  for each in "${system_files[@]}"; do
    [ ! -f "$each" ] || cp "$each" "$root$each"
  done
  for each in "${file_variables[@]}"; do
    each=${!each:-}
    [ ! -f "$each" ] || [ -e "$root$each" ] || install -D -m 644 "$each" "$root$each"
  done
  if [ "$user" = root ]; then
    SUDO_FORCE_REMOVE=yes chroot "$root" dpkg --purge sudo >>"$logs/base.log" 2>&1
  else
    home=/home/$user
    chroot "$root" useradd --create-home --shell /bin/bash "$user"
    echo "$user ALL=(ALL) NOPASSWD: ALL" >"$root/etc/sudoers.d/$user"
  fi
  for each in "${home_files[@]}"; do
    [ ! -f "$HOME/$each" ] || install -D "$HOME/$each" "$root$home/$each"
  done
  copy_project "$root$home/streamhouse"
  chroot "$root" chown -R "$user:" "$home"
}

# Runs a command on the machine in $1 as user $2, in the checkout there. Its processes and mounts
# end with it.
on_machine() {
  local root=$1 user=$2 home=/root path each
  shift 2
  path=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
  if [ "$user" != root ]; then
    home=/home/$user
    path=/usr/local/bin:/usr/bin:/bin
  fi
  local environment=(HOME="$home" USER="$user" LOGNAME="$user" SHELL=/bin/bash PATH="$path"
    TERM=dumb)
  for each in "${variables[@]}" "${file_variables[@]}"; do
    [ -z "${!each:-}" ] || environment+=("$each=${!each}")
  done
  unshare --mount --uts --pid --fork --kill-child "$0" --enter "$work" "$root" "$user" \
    "${environment[@]}" sh -c 'cd ~/streamhouse && exec "$@"' - "$@"
}

# The same in namespaces of its own: makes the machine's root that of all processes, and stays as
# process 1, which reaps the processes that others leave behind.
enter() {
  local root=$1 user=$2 each
  shift 2
  # Wherever the folder is: sudo and devices must work in it.
  mount --bind "$root" "$root"
  mount -o remount,bind,suid,dev,exec "$root"
  mount -t proc proc "$root/proc"
  mount -t sysfs -o ro sysfs "$root/sys"
  mount -t tmpfs -o mode=755 tmpfs "$root/dev"
  mkdir "$root/dev/pts" "$root/dev/shm"
  mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts "$root/dev/pts"
  mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
  for each in null zero full random urandom tty; do
    : >"$root/dev/$each"
    mount --bind "/dev/$each" "$root/dev/$each"
  done
  ln -s pts/ptmx "$root/dev/ptmx"
  ln -s /proc/self/fd "$root/dev/fd"
  ln -s /proc/self/fd/0 "$root/dev/stdin"
  ln -s /proc/self/fd/1 "$root/dev/stdout"
  ln -s /proc/self/fd/2 "$root/dev/stderr"
  hostname fresh
  # Not chroot: in one Chromium could not make its sandbox.
  cd "$root"
  pivot_root . .
  umount -l .
  local code=0 line
  # A shell starts commands in the background with Ctrl-C ignored.
  runuser -u "$user" -- env --default-signal=INT,QUIT -i "$@" || code=$?
  times >/dev/shm/times
  # Of all processes: this one has reaped them.
  { read -r line; read -r line; } </dev/shm/times
  echo "(processor time, user and system: $line)"
  return "$code"
}

# One stage of a user: its output goes to a log, and with the time to the screen.
stage() {
  local title=$1 root=$2 user=$3 start=$SECONDS code=0 log
  shift 3
  log=$logs/$user-${title// /-}.log
  say "$user" "== $title: $*"
  on_machine "$root" "$user" "$@" </dev/null 2>&1 | tee "$log" | progress "$user" || code=$?
  [ "$code" -eq 0 ] || { say "$user" "== $title FAILED, code $code, after $((SECONDS - start)) s"; return 1; }
  say "$user" "== $title: passed in $((SECONDS - start)) s"
}

# downloads to|from ROOT USER: links the archives that apt and pip have downloaded.
downloads() {
  local home=/root kept=$work/downloads
  [ "$3" = root ] || home=/home/$3
  mkdir -p "$kept/apt" "$kept/pip" "$2$home/.cache/pip"
  if [ "$1" = from ]; then
    cp -alf "$2/var/cache/apt/archives/." "$kept/apt"
    cp -alf "$2$home/.cache/pip/." "$kept/pip"
  else
    cp -alf "$kept/apt/." "$2/var/cache/apt/archives"
    cp -alf "$kept/pip/." "$2$home/.cache/pip"
    # pip uses no cache that somebody else owns.
    chroot "$2" chown -R "$3:" "$home/.cache"
  fi
}

# What a stranger does: set up, then run the demo and the unit tests.
check() {
  local root=$1 user=$2
  if [ "$user" = wheel ]; then
    { flock 8; downloads to "$root" "$user"; } 8>"$work/setup.lock"
    stage 'wheel' "$root" "$user" scripts/fresh_wheel.sh
    return
  fi
  {
    # One after the other: the second need not download again what the first has downloaded.
    flock 8
    downloads to "$root" "$user"
    stage 'set-up' "$root" "$user" make setup || return 1
    downloads from "$root" "$user"
  } 8>"$work/setup.lock"
  demo "$root" "$user" || return 1
  [ "$user" != root ] || return 0
  # Whether tests need root shows only without it.
  stage 'unit tests' "$root" "$user" make test "ARGS=${FRESH_TESTS:-tests/unit}"
}

demo() {
  local root=$1 user=$2
  stage 'demo' "$root" "$user" make demo 'ARGS=--json --seconds 5' || return 1
  grep -q '"equal": true' "$logs/$user-demo.log" || {
    say "$user" '== demo FAILED: its view is not what its orders give ("equal": true is missing)'
    return 1
  }
}

# Runs in namespaces of its own, so that whatever it starts and mounts ends with it.
inside() {
  local user pids=() failed=0
  mount --make-rprivate /
  say base "== a minimal Debian, $suite: $packages"
  make_base "$work/base" </dev/null 2>&1 | tee "$logs/base.log" | sed -un '/^[IEW]: /p' |
    progress base || {
    tail -n 20 "$logs/base.log" >&2
    say base '== FAILED; all of its output is in build/fresh/base.log'
    return 1
  }
  for user in "${users[@]}"; do
    cp -a "$work/base" "$work/$user"
    make_machine "$work/$user" "$user"
  done
  rm -rf "$work/base"
  say base "== made $(IFS=,; echo "${users[*]}")"
  for user in "${users[@]}"; do
    if [ "${#command[@]}" -gt 0 ]; then
      stage command "$work/$user" "$user" "${command[@]}" &
    else
      check "$work/$user" "$user" &
    fi
    pids+=($!)
  done
  for user in "${!users[@]}"; do
    verdict[user]=passed
    wait "${pids[$user]}" || { verdict[user]=FAILED; failed=1; }
  done
  printf '\nA fresh machine, after %d s (output: build/fresh):\n' "$SECONDS"
  for user in "${!users[@]}"; do printf '  %-5s %s\n' "${users[$user]}" "${verdict[$user]}"; done
  return "$failed"
}

check_possible() {
  [ "$(id -u)" -eq 0 ] || cannot 'it needs root'
  [ -f /etc/debian_version ] || cannot 'it needs Debian'
  command -v apt-get >/dev/null || cannot 'it needs apt-get'
  unshare --mount --uts --pid --fork mount --make-rprivate / 2>/dev/null ||
    cannot 'it needs leave to mount, which a container has with CAP_SYS_ADMIN'
}

cannot() {
  printf 'The fresh-machine check cannot run here: %s.\n' "$1" >&2
  exit 69
}

install_mmdebstrap() {
  echo 'Installing mmdebstrap …'
  apt-get -qq update
  DEBIAN_FRONTEND=noninteractive \
    apt-get -qq install -y --no-install-recommends mmdebstrap >/dev/null
}

# shellcheck disable=SC2317  # called by the trap
clean_up() {
  # The namespaces end with this process, and the mounts with the namespaces.
  [ -z "$child" ] || kill -KILL "$child" 2>/dev/null || true
  wait 2>/dev/null || true
  if [ "${FRESH_KEEP:-}" = 1 ]; then
    echo "kept: $work"
  else
    rm -rf --one-file-system "$work"
  fi
}

users=() command=() verdict=() work='' child=''

main() {
  local mode='' code=0
  case ${1:-} in
    --enter | --inside) mode=$1 work=$2; shift 2 ;;
    --possible | --prepare) mode=$1; shift ;;
  esac
  [ "$mode" != --enter ] || { enter "$@"; exit; }
  while [ $# -gt 0 ]; do
    case $1 in
      root | user | wheel) users+=("$1") ;;
      --) shift; command=("$@"); break ;;
      *) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0" >&2; exit 64 ;;
    esac
    shift
  done
  [ "${#users[@]}" -gt 0 ] || users=(root user wheel)
  [ "$mode" != --inside ] || { inside; exit; }

  check_possible
  [ "$mode" != --possible ] || exit 0
  command -v mmdebstrap >/dev/null || install_mmdebstrap
  [ "$mode" != --prepare ] || exit 0
  mkdir -p "$logs"
  work=$(mktemp -d "${FRESH_DIR:-/var/tmp}/streamhouse-fresh-XXXXXX")
  chmod 755 "$work"
  trap clean_up EXIT
  trap 'exit 130' INT TERM HUP
  unshare --mount --pid --fork --kill-child --mount-proc \
    "$0" --inside "$work" "${users[@]}" -- "${command[@]}" &
  child=$!
  wait "$child" || code=$?
  child=''
  exit "$code"
}

main "$@"
