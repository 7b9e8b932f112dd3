#!/usr/bin/env bash
# Installs what is missing to build RLX on Debian 12, and nothing else. Safe to run again: when nothing is missing it
# only asks dpkg and returns.
#
#   scripts/setup.sh          what building and testing need
#   scripts/setup.sh check    and what `make check` needs (clang-format, clang-tidy, clang)
#   scripts/setup.sh report   and what `make test-report` needs (a browser and its driver)
#
# RLX_SKIP_SETUP=1 turns it off, for machines whose packages somebody else looks after.
set -euo pipefail

build_packages=(
  g++ cmake ninja-build ccache pkg-config lld-19  # tools
  libfmt-dev nlohmann-json3-dev libcli11-dev      # core and command line
  libgtest-dev libgmock-dev                       # tests
  llvm-19-dev libdnnl-dev                         # CPU backend: code generation, matrix products
  libopenblas0-pthread liblapacke                 # CPU backend: linear algebra, loaded when it is used
  python3 python3-dev python3-venv                # Python package; the rest of it comes from PyPI
)
check_packages=(clang-19 clang-format-19 clang-tidy-19 libclang-rt-19-dev)
report_packages=(chromium chromium-driver)

case "${1:-build}" in
  build) wanted=("${build_packages[@]}") ;;
  check) wanted=("${build_packages[@]}" "${check_packages[@]}") ;;
  report) wanted=("${build_packages[@]}" "${report_packages[@]}") ;;
  *) echo "usage: scripts/setup.sh [build|check|report]" >&2; exit 2 ;;
esac

if [ "${RLX_SKIP_SETUP:-0}" = 1 ]; then exit 0; fi
if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  echo "setup: no apt-get here; please see to these yourself (Debian's names): ${wanted[*]}" >&2
  exit 0
fi

installed=$(dpkg-query -W -f='${db:Status-Status} ${Package}\n' 2>/dev/null | sed -n 's/^installed //p')
missing=()
for package in "${wanted[@]}"; do
  grep -qxF -- "$package" <<<"$installed" || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

as_root=()
if [ "$(id -u)" != 0 ]; then
  command -v sudo >/dev/null || { echo "setup: needs root or sudo to install: ${missing[*]}" >&2; exit 1; }
  as_root=(sudo)
fi
apt() { "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y "$@"; }

echo "setup: installing ${missing[*]}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! { apt update && apt install --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
  tail -n 30 "$log" >&2
  echo "setup: apt-get failed" >&2
  exit 1
fi
echo "setup: done"
