#!/usr/bin/env bash
# Builds, tests and measures on a GPU machine, with the current python3 and no downloads.
#
#   scripts/gpu.sh [build] [test] [demo] [cases] [tokens] [decode] [host] [flaggems]      default: build test demo
#
#   build    the package and the C++ tests, on all cores
#   test     ctest and pytest
#   demo     examples/llama_qwen_demo.py
#   cases    every case under .gpu/cases, through its own runner
#   tokens   64 greedy tokens of the full-size shapes, compared with eager's
#   decode   benchmarks/decode.py
#   host     benchmarks/host_overhead.py
#   flaggems benchmarks/flaggems.py
#
# If the machine lacks Torch-MLIR and the like, unpack them and `source .gpu/env.sh` first; the wheels
# of the corpora (extra `corpora`, group `no-deps` and what they need) belong among .gpu/wheels. One log
# (run.log), the cases' details and JSON go to $OUT (default build/gpu). A step that fails does not
# keep the next ones from running, unless `import trident` fails: that ends the run. The exit status
# is 1 if a step failed. Each step shows its last lines, and a table of all steps comes last.
# DECODE_ARGS, HOST_ARGS, FLAGGEMS_ARGS and PYTEST_ARGS are passed on; SHOW is how many lines a step shows (40).
set -uo pipefail
cd "$(dirname "$0")/.."
out=${OUT:-build/gpu}
mkdir -p "$out"
: >"$out/run.log"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
steps=("$@")
((${#steps[@]})) || steps=(build test demo)

export PYTHONUNBUFFERED=1
# googletest that was brought along, where the machine has none.
[[ -d .gpu/gtest/usr ]] && export CMAKE_PREFIX_PATH=$PWD/.gpu/gtest/usr${CMAKE_PREFIX_PATH:+:$CMAKE_PREFIX_PATH}

summary=() failed=0
run() { # run NAME COMMAND...: times it, logs it, notes its status and last telling line
  local name=$1 started=$SECONDS status
  shift
  echo
  echo "==> $name: $*"
  echo "==> $name: $*" >>"$out/run.log"
  "$@" 2>&1 | tee -a "$out/run.log" >"$scratch/$name.log"
  status=${PIPESTATUS[0]}
  ((status)) && failed=1
  tail -n "${SHOW:-40}" "$scratch/$name.log" | cut -c -200
  note "$name" "$status" $((SECONDS - started)) "$(telling_line "$scratch/$name.log")"
  return "$status"
}
imported=
check_import() { # once, after the build: without the package every other step would only waste time
  [[ $imported ]] && return
  run import python_run -P -c 'import trident; print("imports:", trident.__file__)' || finish
  imported=1
}
finish() {
  echo
  echo "step     status   time  last line"
  printf '%s\n' "${summary[@]}" | tee "$out/summary.txt"
  exit "$failed"
}
note() { summary+=("$(printf '%-8s %-6s %5ss  %s' "$1" "$([[ $2 == 0 ]] && echo ok || echo "FAIL $2")" "$3" "$4")"); }
telling_line() { # the line that says how it went, or else the last that names an error
  { grep -E '[Ee]rror' "$1" | tail -n 1
    grep -E 'tests passed|^=+ .*(passed|failed|error).* =+$|[Aa]ll (agree|equal)|^cases: |^Written: |^skipped: |^imports: |^ *Successfully installed|need an NVIDIA' "$1" | tail -n 1
  } | tail -n 1 | cut -c -100
}

# The environment of `make VENV=`: the package lies in build/site, not among the machine's own.
python_run() { PYTHONPATH=$PWD/build/site${PYTHONPATH:+:$PYTHONPATH} python3 "$@"; }

cases() { # every case in a process of its own, several at a time; one line each, and a count
  local folder=.gpu/cases log status
  [[ -d $folder ]] || { echo "skipped: there are no cases in $folder"; return 0; }
  mkdir "$scratch/cases"
  printf '%s\n' "$folder"/[0-9]*.py | CASE_DEVICE=${CASE_DEVICE:-cuda} \
    PYTHONPATH=$PWD/build/site${PYTHONPATH:+:$PYTHONPATH} xargs -P 4 -I{} sh -c '
      timeout 180 python3 "$2/run_case.py" "$1" --with trident:optimize >"$3/cases/$(basename "$1" .py).log" 2>&1
      echo "status $?" >>"$3/cases/$(basename "$1" .py).log"' _ {} "$folder" "$scratch"
  local passed=0 skipped=0 wrong=0
  for log in "$scratch"/cases/*.log; do
    status=$(tail -n 1 "$log")
    case ${status#status } in
      0) passed=$((passed + 1)) ;;
      2) skipped=$((skipped + 1)) ;;
      *) wrong=$((wrong + 1)) ;;
    esac
    grep -hE '^(OK|FAIL|SKIP|BROKEN) ' "$log" || echo "FAIL $(basename "$log" .log): $status, $(tail -n 2 "$log" | head -n 1)"
    grep -hE '^  call ' "$log"
  done
  echo "cases: $passed passed, $wrong failed, $skipped skipped"
  cat "$scratch"/cases/*.log >"$out/cases.log"
  ((wrong == 0))
}

for step in "${steps[@]}"; do
  [[ $step == build ]] || check_import
  case $step in
    build)
      # An older installation must not stand in for one that failed.
      rm -rf build/site build/system.stamps/built
      run build make VENV= build
      check_import
      ;;
    test)
      run ctest make VENV= ctest
      run pytest make VENV= pytest PYTEST_ARGS="${PYTEST_ARGS:-}"
      ;;
    demo) run demo python_run examples/llama_qwen_demo.py ;;
    cases) run cases cases ;;
    tokens) run tokens python_run benchmarks/decode.py --check-tokens 64 --output "$out/tokens.json" ;;
    decode) run decode python_run benchmarks/decode.py --output "$out/decode.json" ${DECODE_ARGS:-} ;;
    host) run host python_run benchmarks/host_overhead.py --output "$out/host.json" ${HOST_ARGS:-} ;;
    flaggems) run flaggems python_run benchmarks/flaggems.py --output "$out/flaggems.json" ${FLAGGEMS_ARGS:-} ;;
    *)
      echo "Unknown step '$step'; there are: build test demo cases tokens decode host flaggems" >&2
      exit 2
      ;;
  esac
done
finish
