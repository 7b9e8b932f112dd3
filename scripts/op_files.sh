#!/bin/sh
# op_files.sh OP...: which files define something about an op (entry, samples, kernel, golden values), and how many.
#
#   scripts/op_files.sh selective_scan group_norm cumsum
#
# A file counts when it names the op other than by calling it: its entry and declaration, a row of samples, a row of a
# kernel list, a family of golden values.
cd "$(dirname "$0")/.." || exit 1
[ $# -gt 0 ] || { sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 2; }
for op in "$@"; do
  {
    grep -lE "\.name = \"$op\"|\(\"$op\"," src/ops/*.cc
    grep -lE "extern const Op<[^>]*>[^;]*\b$op\b" src/ops/*.h
    grep -lzE "extern const Op<[^>]*>[^;]*\b$op\b" src/ops/*.h
    grep -lE "^$op( |$)" tests/samples/*.txt
    grep -lE "&op::$op\b[,)]" src/backend/cpu/*_kernels.cc
    grep -lE "\"$op\"" tests/golden/families/*.py
  } | sort -u > "${TMPDIR:-/tmp}/op_files.$$"
  echo "$op: $(wc -l < "${TMPDIR:-/tmp}/op_files.$$") files"
  sed 's/^/  /' "${TMPDIR:-/tmp}/op_files.$$"
  rm -f "${TMPDIR:-/tmp}/op_files.$$"
done
