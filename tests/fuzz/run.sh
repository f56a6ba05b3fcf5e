#!/usr/bin/env bash
# Runs fuzz targets, one after the other: tests/fuzz/run.sh [TARGET [SECONDS]]
#
# Without sanitizers, for there is no unsafe code of ours to watch, and a target is twice as fast.
set -euo pipefail
cd "$(dirname "$0")"

seconds="${2:-60}"
found="${CARGO_TARGET_DIR:-target}/found"
targets=("${1:-}")
if [ -z "${1:-}" ]; then mapfile -t targets < <(cargo +nightly fuzz list --fuzz-dir .); fi
for target in "${targets[@]}"; do
    mkdir -p "$found/$target"
    cargo +nightly fuzz run --fuzz-dir . --sanitizer none --target-dir "${CARGO_TARGET_DIR:-target}" \
        "$target" "$found/$target" "corpus/$target" -- -max_total_time="$seconds" -print_final_stats=1
done
