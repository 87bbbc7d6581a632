#!/usr/bin/env bash
# Random examples of the property-based soundness tests, in processes of at most 1,000 each.
#
#   scripts/fuzz.sh PYTHON EXAMPLES SEED JOBS [PYTEST_ARG]...
#
# The first process has the seed SEED, the next one SEED + 1, and so on: a process that fails is repeated with
# `make fuzz SEED=... EXAMPLES=...` of its own line. JOBS processes run at a time: examples get slower in a
# process that has tried many. One line for each process; a log that tells of a failure is shown.
set -uo pipefail
cd "$(dirname "$0")/.."
python=$1 examples=$2 first=$3 jobs=$4
shift 4
each=1000
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT

run() { # run SEED EXAMPLES PYTEST_ARG...
  local seed=$1 count=$2 log=$LOGS/$1.log started=$SECONDS
  shift 2
  if TRIDENT_FUZZ_EXAMPLES=$count PYTHONSAFEPATH=1 "$PYTHON_OF_TESTS" -P -m pytest -q -p no:cacheprovider \
    tests/python/test_soundness_property.py --hypothesis-profile=fuzz --hypothesis-seed="$seed" "$@" >"$log" 2>&1; then
    echo "seed $seed, $count examples: ok, $((SECONDS - started)) s"
  else
    cat "$log"
    echo "seed $seed, $count examples: FAILED; to repeat: make fuzz SEED=$seed EXAMPLES=$count"
    return 1
  fi
}
export -f run
export LOGS=$logs PYTHON_OF_TESTS=$python

left=$examples seed=$first
while ((left > 0)); do
  count=$((left < each ? left : each))
  printf '%s %s\n' "$seed" "$count"
  left=$((left - count)) seed=$((seed + 1))
done | xargs -P "$jobs" -L 1 bash -c 'run "${@: -2}" "${@:1:$#-2}"' _ "$@" |
  sed -u 's/^/  /'
failed=${PIPESTATUS[1]}
((failed == 0)) && echo "$examples examples: all ok"
exit $((failed != 0))
