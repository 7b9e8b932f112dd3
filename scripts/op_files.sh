#!/bin/sh
# op_files.sh [OP...]: which files know an op, and how many; without a name one line for each op of the table and the mean.
#
#   scripts/op_files.sh selective_scan group_norm cumsum
#
# The ops are those of `rlx ops --json` (build/release/rlx, or RLX). A file knows an op when it names it other than by calling
# it; scripts/op_files.py has the list of ways. Files that a tool writes (schema, golden values) are counted apart.
exec python3 "$(dirname "$0")/op_files.py" "$@"
