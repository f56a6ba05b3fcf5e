#!/usr/bin/env bash
# What takes too long for the gate: run it at night, or before a release.
#
#   the black-box scripts against the release binary, with testssl.sh and slowhttptest
#   10,000 seeds of the simulation; all drills with Redis; kill -9 200 times; 100,000 requests to an upstream that fails
#   the program built and installed from its packed crates
#   10,000 requests in each form of log, written by the programs themselves where they are installed
#   each property with 10,000 cases
#   what a request costs, beside what was kept (tests/bench/instructions.sh); it warns only
#   each fuzz target for a minute, where there is cargo-fuzz with a nightly toolchain
#   both commands of the README on a bare Debian (tests/bare.sh), as root where there is debootstrap
#
# The tests that are ignored are not among them: they are programs that other tests start, and one
# that writes files for people. Installs what is missing, as tests/run.sh does. All parts run even when
# one fails. It takes about two hours on two cores.
set -euo pipefail
cd "$(dirname "$0")/.."
exec </dev/null
source tests/parts.sh

command -v cargo >/dev/null || PATH="${HOME:-/root}/.cargo/bin:$PATH"
target="${CARGO_TARGET_DIR:-target}"
binary="$target/release/tollgate"
python="$target/test-venv/bin/python"

main() {
    part 'scripts, release' counted \
        env TOLLGATE_PROFILE=release TOLLGATE_SCANNERS=1 TOLLGATE_STATIC=1 tests/run.sh scripts || true
    part 'tests/deploy/crates.py, installed' counted \
        "$python" -Bu tests/deploy/crates.py --build || true
    local histories="$target/drill-histories"
    rm -rf "$histories"
    part drills counted "$python" -Bu tests/drills/run.py --tollgate "$binary" --histories "$histories" || true
    part 'histories of drills' env HISTORIES="$(realpath "$histories")" \
        cargo test --profile gate --test simulation histories_hold -- --quiet || true
    part '10,000 seeds of the simulation' tests/simulation/long.sh || true
    part 'tests/disk/kill.py' counted \
        env KILLS=200 "$python" -Bu tests/disk/kill.py --tollgate "$binary" || true
    part 'tests/disk/kill.py, slow syncs' counted \
        env KILLS=50 SYNC_DELAYS=0,400,2000 "$python" -Bu tests/disk/kill.py --tollgate "$binary" \
        || true
    part 'tests/edge/faults.py' counted \
        env REQUESTS=100000 "$python" -Bu tests/edge/faults.py --tollgate "$binary" || true
    command -v apache2 >/dev/null || part 'apt-get install apache2' apt_install apache2 || true
    part 'tests/simulate/forms.py' counted \
        "$python" -Bu tests/simulate/forms.py --tollgate "$binary" || true
    part properties env PROPTEST_CASES=10000 \
        cargo test --profile gate --workspace --no-fail-fast --lib -- --quiet prop_ || true
    part costs tests/bench/instructions.sh || true
    if cargo +nightly fuzz --version >/dev/null 2>&1; then
        part fuzz tests/fuzz/run.sh || true
    else
        part fuzz skip_part 'cargo-fuzz or a nightly toolchain is not installed'
    fi
    if [ "$(id -u)" -eq 0 ] && command -v debootstrap >/dev/null; then
        part 'tests/bare.sh' counted tests/bare.sh || true
    else
        part 'tests/bare.sh' skip_part 'it needs root and debootstrap'
    fi
    conclude_parts
}

main
