#!/usr/bin/env bash
# Counts what a request costs and compares that with what was kept: instructions, copied bytes and
# allocations. Unlike times they are the same on a busy machine, so that a rise of 2 % can be told.
#
#   tests/bench/instructions.sh [--keep]     --keep: compare with these figures from now on
#
#   TOLLGATE    the binary to measure (default: the one that is shipped, which packaging/dist.sh builds)
#
# Needs cargo; installs valgrind and Python on Debian where they are missing. It takes about a minute.
#
# Workloads, over kept HTTP/1.1 connections, one request at a time:
#   W1   no token, no limit; the server replies with 1 KiB
#   W2   W1 with HS256 tokens and a limit for each `sub`, counted in memory, which admits all
#   W3   W2 with a limit that is used up: every reply is a 429
#
# Measures, of the whole process:
#   instructions      by callgrind; those in the kernel are not among them
#   copied bytes      by DHAT: what goes through memcpy and memmove. What the compiler copies without a
#                     call, what realloc moves and what the kernel copies are not among them, nor is memset
#   allocations       by DHAT, which stands in for malloc, counts each call and misses none; a realloc is
#                     one more
#   allocated bytes   what these asked for
#
# Prints the figures, and writes them with the functions that they are of to target/instructions.tsv. A
# figure that is more than 2 % above tests/bench/instructions/kept.tsv is a line that begins with
# `warning:` and names the functions that have risen most. The exit code is 0 all the same; it is not 0
# if nothing could be measured. There are no warnings if the compiler, valgrind, libc or the kind of
# processor is another one, since the same source costs something else there.
set -euo pipefail
cd "$(dirname "$0")/../.."
source tests/parts.sh

target="${CARGO_TARGET_DIR:-target}"
# Its own libraries are all that is used of it.
python=/usr/bin/python3

main() {
    install_packages
    local binary="${TOLLGATE:-}"
    if [ -z "$binary" ]; then
        command -v cargo >/dev/null || PATH="${HOME:-/root}/.cargo/bin:$PATH"
        # The names of functions are those of the symbol table, which this profile leaves in place.
        quietly packaging/dist.sh
        binary="$target/dist/tollgate"
    fi
    if [ ! -x "$binary" ]; then
        echo "there is no binary at $binary" >&2
        exit 1
    fi
    "$python" -B tests/bench/instructions/measure.py \
        --tollgate "$binary" --output "$target/instructions.tsv" "$@" </dev/null
}

install_packages() {
    local missing=()
    [ -x "$python" ] || missing+=(python3)
    command -v valgrind >/dev/null || missing+=(valgrind)
    if [ "${#missing[@]}" -eq 0 ]; then return; fi
    apt_install "${missing[@]}"
}

main "$@"
