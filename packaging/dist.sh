#!/usr/bin/env bash
# Builds what is shipped: target/dist/tollgate, of the profile `dist`, guided by a profile of the
# requests that it is made for.
#
#   packaging/dist.sh [--static] [--plain]
#
#   --static   the binary that needs no library: target/ARCH-unknown-linux-musl/dist/tollgate
#   --plain    without that profile, in half of the time
#
# The profile is made by a build that counts what is executed, while packaging/train sends it the
# requests of the benchmark's workloads W1 to W9, always the same ones. The compiler then lays out,
# and puts into each other, what these requests run through: a fifth fewer instructions for most of
# them.
#
# It needs `llvm-profdata` of the compiler's own LLVM: of Debian's package `llvm-N`, which it
# installs as root, or of the component `llvm-tools`, which it adds. Where neither can be had, or a
# guided build fails, it says so, and builds without a profile: that program does the same, and does
# it slower. Counters in Redis are trained only where there is a `redis-server`.
#
# TOLLGATE_CARGO is what builds in place of `cargo`: "cargo auditable", say, which puts a list of
# all crates into the binary. The last line says which of both was built.
# tests/bench/instructions.sh measures what this builds.
set -euo pipefail
cd "$(dirname "$0")/.."
exec </dev/null

target="${CARGO_TARGET_DIR:-target}"
guided="$(realpath -m "$target")/guided"
profile="$guided/tollgate.profdata"
read -ra cargo <<<"${TOLLGATE_CARGO:-cargo}"
# For this machine by name: Cargo then leaves build scripts and macros as they are.
triple=
built="$target/dist/tollgate"

main() {
    local is_plain= word
    command -v cargo >/dev/null || PATH="${HOME:-/root}/.cargo/bin:$PATH"
    triple="$(rustc -vV | sed -n 's/^host: //p')"
    for word in "$@"; do
        case "$word" in
            --plain) is_plain=1 ;;
            --static) triple="$(uname -m)-unknown-linux-musl" built="$target/$triple/dist/tollgate" ;;
            *) echo "there is no $word: leave it out, or say --static or --plain" >&2; exit 1 ;;
        esac
    done
    if [ -n "$is_plain" ]; then plain "as --plain asks"; else guided || plain "see above"; fi
}

# Each step names its failure, and the next one does not begin.
guided() {
    find_profdata || { echo "there is no llvm-profdata for LLVM $(llvm_version)" >&2; return 1; }
    # Both builds link alike: of a counting one without the fat link, most of the profile does not
    # fit.
    rm -rf "$guided/profiles"
    mkdir -p "$guided/profiles"
    RUSTFLAGS="-Cprofile-generate=$guided/profiles" build --package tollgate-train &&
        train "$guided/$triple/dist" &&
        "$profdata" merge --output "$profile" "$guided"/profiles/*.profraw &&
        RUSTFLAGS="-Cprofile-use=$profile" build &&
        install -D "$guided/$triple/dist/tollgate" "$built" || return
    echo "profile-guided: $built"
}

plain() {
    local for_target=()
    # Without a name it is where everybody's Cargo puts it.
    if [[ "$triple" = *-musl ]]; then for_target=(--target "$triple"); fi
    "${cargo[@]}" build --profile dist --locked --bin tollgate "${for_target[@]}"
    echo "not profile-guided ($1): $built"
}

build() {
    "${cargo[@]}" build --target-dir "$guided" --profile dist --locked --target "$triple" \
        --package tollgate --bins "$@"
}

# Both programs count; what Tollgate has counted is kept.
train() {
    LLVM_PROFILE_FILE=/dev/null "$1/tollgate-train" "$1/tollgate" "$guided/profiles"
}

llvm_version() {
    rustc -vV | sed -n 's/^LLVM version: \([0-9]*\).*/\1/p'
}

# Sets `profdata` to a program that reads what the compiler's LLVM writes.
find_profdata() {
    local major
    major="$(llvm_version)"
    look_for_profdata "$major" && return
    if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
        apt-get update -qq && apt-get install -y -qq --no-install-recommends "llvm-$major"
        look_for_profdata "$major" && return
    fi
    # Not for long: it may wait for a network that is not there.
    if command -v rustup >/dev/null; then timeout 120 rustup component add llvm-tools; fi
    look_for_profdata "$major"
}

look_for_profdata() {
    for profdata in "$(rustc --print sysroot)"/lib/rustlib/*/bin/llvm-profdata \
        "/usr/bin/llvm-profdata-$1"; do
        if [ -x "$profdata" ]; then return; fi
    done
    return 1
}

main "$@"
