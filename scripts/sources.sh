#!/usr/bin/env bash
# Notices by content which of the package's sources changed since the last build.
#
#   scripts/sources.sh LIST      writes LIST, checksums of all sources, only if something changed
#
# Times do not tell: a checkout, an archive or a copy can bring a file that is older than the last
# build. Ninja goes by times, so such files get the present one.
set -euo pipefail
cd "$(dirname "$0")/.."
list=$1

now=$(find CMakeLists.txt pyproject.toml README.md csrc third_party trident -type f \
  -not -path '*/__pycache__/*' -not -name '*.so' -print0 | sort -z | xargs -0 sha256sum)
[[ -e $list ]] || { mkdir -p "$(dirname "$list")" && echo "$now" >"$list" && exit; }
then=$(<"$list")
[[ $now != "$then" ]] || exit 0
comm -13 <(sort <<<"$then") <(sort <<<"$now") | cut -c 67- | xargs -r -d '\n' touch
echo "$now" >"$list"
