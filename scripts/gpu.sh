#!/usr/bin/env bash
# Builds, tests and measures on a GPU machine, with the current python3 and no downloads.
#
#   scripts/gpu.sh [STEP]...      default: build test demo
#
#   build    the package, on all cores
#   test     ctest, and the Python tests that run on the GPU, but for the slow ones and the corpora
#   demo     examples/llama_qwen_demo.py
#   cases    every case under .gpu/cases, through its own runner, and all again with CUDA graphs
#   corpora  the tests in tests/python/corpora; FlagGems tunes its kernels, which takes minutes
#   rest     all other Python tests
#   tokens   64 greedy tokens of the full-size shapes, compared with eager's
#   decode   benchmarks/decode.py
#   prefill  benchmarks/prefill.py
#   host     benchmarks/host_overhead.py
#   flaggems benchmarks/flaggems.py
#
# One log (run.log), the cases' details and JSON go to $OUT (default build/gpu). A step that fails does
# not keep the next ones from running, unless `import trident` fails: that ends the run. Each step shows
# its last lines, and a table of all steps comes last. The exit status is 1 if a step failed.
# LIMIT is how many seconds the whole run may take (570): a step that is not done by then is ended, and
# the measuring steps share what is left among them, so each writes what it has. On a machine that is to
# be had for ten minutes a call: `build test demo cases`, `tokens decode`, `host flaggems`.
# DECODE_ARGS, PREFILL_ARGS, HOST_ARGS, FLAGGEMS_ARGS and PYTEST_ARGS are passed on; SHOW is how many
# lines a step shows (40).
#
# What the machine itself needs: CUDA, g++, CMake, ninja, and for python3 torch, Triton, transformers,
# numpy, PyYAML, pybind11, scikit-build-core, pytest and hypothesis. What it lacks beside that lies in
# .gpu, which git does not track; `source .gpu/env.sh` unpacks it and sets PYTHONPATH, before this
# script is called:
#
#   .gpu/env.sh, .gpu/torch_mlir.tar.xz   Torch-MLIR for the machine's Python
#   .gpu/wheels/*.whl     liger-kernel; for the corpora flag_gems, conch-triton-kernels, fla-core,
#                         sqlalchemy, helion and rich; pytest-xdist and execnet, to test on several cores;
#                         pytest, hypothesis, einops, packaging, typing-extensions where missing
#   .gpu/gtest/usr        googletest: `apt-get download libgtest-dev && dpkg -x libgtest-dev_*.deb gtest`
#   .gpu/cases            cases to run, with their run_case.py
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

# The Python tests run in several processes, where pytest-xdist is there.
jobs=
python3 -c 'import xdist' 2>/dev/null && jobs="-n ${TEST_JOBS:-8}"

# The environment of `make VENV=`: the package lies in build/site, not among the machine's own.
python=(env "PYTHONPATH=$PWD/build/site${PYTHONPATH:+:$PYTHONPATH}" python3)

left() { echo $((${LIMIT:-570} - SECONDS)); } # seconds until the run has to be over
share() { # of what is left, for the first of the measuring steps that are still to come
  local step count=0
  for step in "${steps[@]:$position}"; do [[ $step =~ ^(tokens|decode|prefill|host|flaggems)$ ]] && count=$((count + 1)); done
  echo $(($(left) / count - 10))
}

summary=() failed=0 position=0
run() { # run NAME COMMAND...: times it, logs it, notes its status and last telling line
  local name=$1 started=$SECONDS status limit=()
  shift
  if (($(left) < 10)); then
    failed=1
    note "$name" 124 0 "not run: no time was left"
    return 124
  fi
  # Interrupted, so that Python can end what it started.
  declare -F "$1" >/dev/null || limit=(timeout --signal=INT --kill-after=10 "$(left)")
  echo
  echo "==> $name: $*"
  echo "==> $name: $*" >>"$out/run.log"
  "${limit[@]}" "$@" 2>&1 | tee -a "$out/run.log" >"$scratch/$name.log"
  status=${PIPESTATUS[0]}
  ((status)) && failed=1
  tail -n "${SHOW:-40}" "$scratch/$name.log" | cut -c -200
  note "$name" "$status" $((SECONDS - started)) "$(telling_line "$scratch/$name.log")"
  return "$status"
}
imported=
check_import() { # once, after the build: without the package every other step would only waste time
  [[ $imported ]] && return
  run import "${python[@]}" -P -c 'import trident; print("imports:", trident.__file__)' || finish
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

cases() { # cases WITH: each in a process of its own, several at a time; one line each, and a count
  local folder=.gpu/cases log status
  [[ -d $folder ]] || { echo "skipped: there are no cases in $folder"; return 0; }
  rm -rf "$scratch/cases"
  mkdir "$scratch/cases"
  printf '%s\n' "$folder"/[0-9]*.py | CASE_DEVICE=${CASE_DEVICE:-cuda} \
    "${python[@]:0:2}" xargs -P "${CASE_JOBS:-8}" -I{} bash -c '
      log=$3/cases/$(basename "$1" .py).log
      left=$(($4 - $(date +%s)))
      ((left < 120)) || left=120
      ((left > 0)) || { printf "not run: no time was left\nstatus 124\n" >"$log"; exit; }
      PYTHONPATH=$PYTHONPATH:$PWD/tests/python timeout "$left" \
        python3 "$2/run_case.py" "$1" --with "$5" >"$log" 2>&1
      echo "status $?" >>"$log"' _ {} "$folder" "$scratch" $(($(date +%s) + $(left))) "$1"
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
  cat "$scratch"/cases/*.log >>"$out/cases.log"
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
      run gpu make VENV= pytest PYTEST_ARGS="-m 'gpu and not slow' $jobs ${PYTEST_ARGS:-}"
      run device make VENV= pytest PYTEST_ARGS="-m 'device and not (gpu or slow)' --ignore=tests/python/corpora $jobs ${PYTEST_ARGS:-}"
      ;;
    demo) run demo "${python[@]}" examples/llama_qwen_demo.py ;;
    cases)
      rm -f "$out/cases.log"
      run cases cases trident:optimize
      run graphs cases graph_mode:optimize
      ;;
    corpora) run corpora make VENV= pytest PYTEST_ARGS="tests/python/corpora $jobs ${PYTEST_ARGS:-}" ;;
    rest)
      run rest make VENV= pytest PYTEST_ARGS="-m 'slow or not (gpu or device)' --ignore=tests/python/corpora $jobs ${PYTEST_ARGS:-}"
      ;;
    tokens) run tokens "${python[@]}" benchmarks/decode.py --check-tokens 64 --limit "$(share)" --output "$out/tokens.json" ;;
    decode) run decode "${python[@]}" benchmarks/decode.py --limit "$(share)" --output "$out/decode.json" ${DECODE_ARGS:-} ;;
    prefill) run prefill "${python[@]}" benchmarks/prefill.py --limit "$(share)" --output "$out/prefill.json" ${PREFILL_ARGS:-} ;;
    host) run host "${python[@]}" benchmarks/host_overhead.py --limit "$(share)" --output "$out/host.json" ${HOST_ARGS:-} ;;
    flaggems) run flaggems "${python[@]}" benchmarks/flaggems.py --limit "$(share)" --output "$out/flaggems.json" ${FLAGGEMS_ARGS:-} ;;
    *)
      echo "Unknown step '$step'; there are: build test demo cases corpora rest tokens decode prefill host flaggems" >&2
      exit 2
      ;;
  esac
  position=$((position + 1))
done
finish
