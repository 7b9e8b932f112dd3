#!/usr/bin/env bash
# Does the suite notice? Copies the tree, breaks it in five places one at a time, builds the tests that should notice and runs
# them: each must fail. Prints a table; ends with an error when a mutant survives or a place to break is not found any more.
#
#   scripts/mutate.sh [scratch folder]        CMAKE and JOBS may be set
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
scratch=${1:-$(mktemp -d)}
cmake=${CMAKE:-cmake}
jobs=${JOBS:-$(nproc)}
tests=(ops_table_test llvm_emitter_test random_graph_test)

# what | file | text | replacement | the test that must notice
mutants=(
  "wrong derivative|src/ops/elementwise.cc|Expr(b, t) * op::cos(X(b, a))|Expr(b, t) * op::sin(X(b, a))|ops_table_test"
  "wrong vmap axis|src/ops/reduce_rules.h|for (int64_t& axis : attrs.axes) ++axis;|for (int64_t& axis : attrs.axes) axis += 0;|ops_table_test"
  "overlapping buffers|src/lower/memory_plan.cc|chain_end(o) < chain_begin(at(b))|chain_end(o) <= chain_begin(at(b))|random_graph_test"
  "mask dropped in the tail|src/backend/cpu/llvm_emitter.cc|b_.CreateMaskedStore(x, p.pointer, align, shape_.mask);|b_.CreateAlignedStore(x, p.pointer, align);|llvm_emitter_test"
  "tail one lane too long|src/backend/cpu/llvm_emitter.cc|b_.CreateICmpSLT(iota(i32, 0, 1), splat(n))|b_.CreateICmpSLE(iota(i32, 0, 1), splat(n))|llvm_emitter_test"
)

mkdir -p "$scratch/tree"
(cd "$root" && git ls-files -z --cached --others --exclude-standard | tar --null --ignore-failed-read -T - -cf - 2>/dev/null) | tar -xf - -C "$scratch/tree"
cd "$scratch/tree"
$cmake --preset release >"$scratch/configure.log"
build() { $cmake --build build/release -j"$jobs" --target "$@" >"$scratch/build.log" 2>&1; }
# Fewer than the 1,000 programs of the fast suite; memory that a mutant ruins may also end the test by a signal.
passes() { (cd tests && RLX_RANDOM_COUNT=200 timeout 600 "../build/release/tests/$1" >"$scratch/$1.log" 2>&1) 2>/dev/null; }

build "${tests[@]}" || { tail -20 "$scratch/build.log"; exit 1; }
for test in "${tests[@]}"; do
  passes "$test" || { echo "$test fails without a mutant: $scratch/$test.log"; exit 1; }
done

survivors=0
printf '%-26s %-34s %-20s %s\n' mutant file test outcome
for row in "${mutants[@]}"; do
  IFS='|' read -r what file text replacement test <<<"$row"
  cp "$file" "$scratch/original"
  TEXT=$text REPLACEMENT=$replacement perl -0pi -e 's/\Q$ENV{TEXT}\E/$ENV{REPLACEMENT}/' "$file"
  if cmp -s "$file" "$scratch/original"; then
    outcome="text not found"
    survivors=$((survivors + 1))
  elif ! build "$test"; then
    outcome="does not compile"
    survivors=$((survivors + 1))
  elif passes "$test"; then
    outcome="SURVIVED"
    survivors=$((survivors + 1))
  else
    outcome=noticed
  fi
  printf '%-26s %-34s %-20s %s\n' "$what" "$file" "$test" "$outcome"
  cp "$scratch/original" "$file"
done
exit $((survivors > 0))
