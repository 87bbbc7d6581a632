#!/usr/bin/env bash
# Builds the C++ tests with AddressSanitizer and UndefinedBehaviorSanitizer and runs them.
#
#   scripts/sanitize.sh BUILD PYTHON
#
# A finding fails the test that met it. Leaks count; scripts/leaks.supp names those of CPython.
set -euo pipefail
cd "$(dirname "$0")/.."
build=$1 python=$2

cmake -S . -B "$build" -G Ninja -DPython_EXECUTABLE="$(command -v "$python")" \
  -Dpybind11_DIR="$("$python" -m pybind11 --cmakedir)" -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG=-O1 \
  -DTRIDENT_TESTS=ON -DTRIDENT_SANITIZE=address,undefined
cmake --build "$build" --target cpp_tests

export ASAN_OPTIONS=detect_leaks=1
export LSAN_OPTIONS=suppressions=$PWD/scripts/leaks.supp:print_suppressions=0
export UBSAN_OPTIONS=print_stacktrace=1
ctest --test-dir "$build" --output-on-failure --no-tests=error -j "${CMAKE_BUILD_PARALLEL_LEVEL:-2}"
