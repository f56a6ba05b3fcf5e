#!/usr/bin/env bash
# Runs many seeds of the simulation, on all processors, and prints how many a second and how often each fault has
# struck. Exits with 1 when one fails; its story is printed by `SEED=n cargo test --test simulation replay`.
#
#   tests/simulation/long.sh            10,000 seeds, from 0 on
#   tests/simulation/long.sh 1000 7000  1,000 seeds, from 7000 on
set -euo pipefail
cd "$(dirname "$0")/../.."

seeds="${1:-10000}"
from="${2:-0}"
exec env SEEDS="$seeds" FROM="$from" \
    cargo test --profile gate --test simulation first_seeds_hold -- --nocapture
