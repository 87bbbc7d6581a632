#!/usr/bin/env bash
# Builds the C++ tests in the package's own build folder and runs them.
#
#   scripts/ctest.sh BUILD install   gets googletest with apt-get where it is missing and the user may
#   scripts/ctest.sh BUILD skip      leaves the C++ tests out, with a notice, where googletest is missing
#
# CMAKE_PREFIX_PATH may name another place that googletest is installed in.
set -euo pipefail
cd "$(dirname "$0")/.."
build=$1 mode=$2

has_googletest() {
  local -a include=()
  local prefix
  for prefix in $(tr ':;' '  ' <<<"${CMAKE_PREFIX_PATH:-}"); do include+=("-I$prefix/include"); done
  echo '#include <gtest/gtest.h>' | "${CXX:-g++}" "${include[@]}" -std=c++20 -E -x c++ -o /dev/null - 2>/dev/null
}

if ! has_googletest; then
  if [[ $mode == skip ]]; then
    echo "skipped: the C++ tests, because googletest is not installed (apt-get install libgtest-dev)"
    exit
  fi
  if [[ $(id -u) != 0 ]] || ! command -v apt-get >/dev/null; then
    echo "trident: googletest is missing. Run: sudo apt-get install libgtest-dev" >&2
    exit 1
  fi
  apt-get install -y --no-install-recommends libgtest-dev ||
    { apt-get update && apt-get install -y --no-install-recommends libgtest-dev; }
fi

cmake -S . -B "$build" -DTRIDENT_TESTS=ON
cmake --build "$build"
ctest --test-dir "$build" --output-on-failure --no-tests=error -j "${CMAKE_BUILD_PARALLEL_LEVEL:-2}"
