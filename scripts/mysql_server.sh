#!/usr/bin/env bash
# Prepares a real MySQL server for the tests of change data capture, in build/mysql, without
# installing anything else: Debian's packages of MySQL, unpacked. Prints the path of its mysqld,
# which tests take from STREAMHOUSE_TEST_MYSQLD:
#
#   export STREAMHOUSE_TEST_MYSQLD=$(scripts/mysql_server.sh)
#   make test ARGS=tests/integration/mysql
#   make soak ARGS=tests/integration/mysql
#
# MYSQL_SUITE   the suite of Debian whose MySQL it is (default: sid)
#
# Needs Debian's apt-get, and leave to make root file systems (root, or user namespaces); as root
# it installs mmdebstrap where it is missing. The packages come from the machine's own mirror.
set -euo pipefail

project=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
suite=${MYSQL_SUITE:-sid}
folder=$project/build/mysql/$suite
packages=mysql-server-core,mysql-client-core,libc-bin

cannot() {
  printf 'A MySQL server cannot be prepared here: %s.\n' "$1" >&2
  exit 69
}

# The first mirror of Debian in the machine's apt sources.
mirror() {
  apt-get indextargets --format '$(REPO_URI) $(ORIGIN) $(LABEL)' 'Created-By: Packages' |
    awk '$2 == "Debian" && $3 == "Debian" { print $1; exit }'
}

unpack() {
  local uri settings
  command -v apt-get >/dev/null || cannot 'it needs apt-get'
  if ! command -v mmdebstrap >/dev/null; then
    [ "$(id -u)" -eq 0 ] || cannot 'mmdebstrap is not installed'
    apt-get -qq update
    DEBIAN_FRONTEND=noninteractive \
      apt-get -qq install -y --no-install-recommends mmdebstrap >/dev/null
  fi
  uri=$(mirror)
  [ -n "$uri" ] || cannot "apt's sources name no mirror of Debian, or apt-get update has not run"
  mkdir -p "$folder"
  settings=$folder/apt.conf
  apt-config dump Acquire |
    grep -E '^Acquire::(https?|ForceIPv|Retries|Max-)' >"$settings" || true
  rm -rf --one-file-system "$folder/root.part"
  mmdebstrap --quiet --variant=extract --format=directory --include="$packages" \
    --aptopt="$settings" --aptopt='Acquire::Check-Valid-Until "false"' \
    "$suite" "$folder/root.part" "deb $uri $suite main" >&2 ||
    cannot "mmdebstrap could not unpack $packages of $suite"
  rm -rf "$folder/root.part/var"
  mv "$folder/root.part" "$folder/root"
}

# A program that runs the server with the libraries and files that were unpacked with it.
wrap() {
  local root=$folder/root loader libraries
  # Not the link to it in lib64, which has no libraries beside it.
  loader=$(find "$root" -path '*-linux-gnu*/ld-linux*.so.*' -print -quit)
  libraries=$(dirname "$loader")
  cat >"$folder/mysqld.part" <<END
#!/bin/sh
exec '$loader' --library-path '$libraries' '$root/usr/sbin/mysqld' "\$@" \\
  --basedir='$root/usr' --lc-messages-dir='$root/usr/share/mysql' \\
  --character-sets-dir='$root/usr/share/mysql/charsets' --plugin-dir='$root/usr/lib/mysql/plugin'
END
  chmod +x "$folder/mysqld.part"
  "$folder/mysqld.part" --no-defaults --version >&2 || cannot 'the unpacked mysqld does not run'
  mv "$folder/mysqld.part" "$folder/mysqld"
}

[ $# -eq 0 ] || { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0" >&2; exit 64; }
mkdir -p "$folder"
exec 9>"$folder/lock"
flock 9
if [ ! -x "$folder/mysqld" ]; then
  [ -d "$folder/root" ] || unpack
  wrap
fi
printf '%s\n' "$folder/mysqld"
