#!/usr/bin/env bash
# What to measure on a machine with a GPU, in about five minutes: needs JAX, NumPy and what `rrjax.study` needs, no
# installation of rrjax, no network, no DuckDB. Each part writes its table to benchmarks/results as it ends.
#
#   benchmarks/gpu.sh                     the most important first; all but shrinkage, which compiles for minutes
#   benchmarks/gpu.sh agreement samplers  some parts
#   benchmarks/gpu.sh --quick             tries it at small sizes, on a CPU, too; with --out FOLDER it writes
#
# PYTHON names the interpreter (python3). A part that takes longer than its seconds is stopped, and the others go on.
set -u
cd "$(dirname "$0")/.."
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1
python=${PYTHON:-python3}

declare -A seconds=([agreement]=120 [closed]=75 [estimators]=80 [samplers]=50 [grid]=40 [em]=30 [shrinkage]=150)
declare -A commands=(
  [agreement]="agreement.py"
  [closed]="closed_forms.py"
  [estimators]="estimators.py --device-only --rounds 7"
  [samplers]="study.py --parts samplers"
  [grid]="study.py --parts grid --rounds 1 --paper-seconds 1 --stride 29"
  [em]="em.py --settings 1 --channels 1 --plain-settings 0 --other-iters 500"
  [shrinkage]="shrinkage.py --skip-solvers"
)
parts=()
passed=()
while [ $# -gt 0 ]; do
  case $1 in
    --quick) passed+=("$1"); for part in "${!seconds[@]}"; do seconds[$part]=300; done ;;
    --out) [ $# -gt 1 ] || { echo "--out needs a folder" >&2; exit 2; }; passed+=("$1" "$2"); shift ;;
    *)
      [ -n "${commands[$1]:-}" ] || { echo "there is no part '$1'; parts: agreement closed estimators samplers grid em shrinkage" >&2; exit 2; }
      parts+=("$1")
      ;;
  esac
  shift
done
[ ${#parts[@]} -gt 0 ] || parts=(agreement closed estimators samplers grid em)

failed=()
for part in "${parts[@]}"; do
  printf '\n== %s (%s s so far)\n' "$part" "$SECONDS"
  # shellcheck disable=SC2086 # the words of a command are its arguments
  timeout --kill-after=5 "${seconds[$part]}" "$python" benchmarks/${commands[$part]} "${passed[@]}"
  code=$?
  [ $code = 124 ] && echo "stopped after ${seconds[$part]} s: its table is not written"
  [ $code = 0 ] || failed+=("$part ($code)")
done
printf '\n== %s s; failed: %s\n' "$SECONDS" "${failed[*]:-none}"
[ ${#failed[@]} = 0 ]
