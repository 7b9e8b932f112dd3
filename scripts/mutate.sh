#!/usr/bin/env bash
# Does the suite notice? Plants the bugs of scripts/mutants.txt, all into one copy of the tree, each behind a switch; builds
# the tests that should notice, once; then runs each mutant's tests, which must fail. Prints a table.
#
#   scripts/mutate.sh                        all of them
#   scripts/mutate.sh --only wrong-tail,...  some
#   scripts/mutate.sh --check                only whether every place to break and every test is still there
#
# Works in build/mutants. CMAKE and JOBS may be set, and RLX_PYTHON_VENV for the mutants of the Python package (without one,
# build/python-venv is taken; where there is none, they are left out and said to be).
exec python3 "$(dirname "$0")/mutate.py" "$@"
