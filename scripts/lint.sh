#!/usr/bin/env bash
# Format check, lint and types of the whole repository; reports every finding before it fails.
#
#   scripts/lint.sh required      a missing tool is an error
#   scripts/lint.sh optional      a missing tool, or another version than pyproject.toml's, is skipped with a notice
#   scripts/lint.sh --cxx-files   prints the C++ files that are checked
set -euo pipefail
cd "$(dirname "$0")/.."

cxx_files() { find csrc tests/cpp \( -name '*.cpp' -o -name '*.h' \) | sort; }
if [[ ${1:-required} == --cxx-files ]]; then
  cxx_files
  exit
fi
mode=${1:-required}
failed=()

# The style of formatters and the findings of linters change with their versions.
usable() { # usable TOOL
  local tool=$1 wanted
  wanted=$(sed -n "s/^ *\"$tool==\([^\"]*\)\".*/\1/p" pyproject.toml)
  if ! command -v "$tool" >/dev/null; then
    [[ $mode == optional ]] && echo "skipped: $tool is not installed" && return 1
    echo "trident: $tool is missing. Run: pip install $tool==$wanted" >&2
    failed+=("$tool")
    return 1
  fi
  if [[ $mode == optional && $("$tool" --version) != *"$wanted"* ]]; then
    echo "skipped: $tool is $("$tool" --version | grep -oE '[0-9]+(\.[0-9]+)+' | head -n1), the project uses $wanted"
    return 1
  fi
}

check() { # check COMMAND...
  echo "+ $*" | cut -c -100
  "$@" || failed+=("$1")
}

if usable ruff; then
  check ruff format --check .
  check ruff check .
fi
if usable clang-format; then
  mapfile -t files < <(cxx_files)
  check clang-format --dry-run -Werror "${files[@]}"
fi
if usable mypy; then check mypy; fi

if ((${#failed[@]})); then
  echo "trident: failed: ${failed[*]}. 'make format' mends the format." >&2
  exit 1
fi
