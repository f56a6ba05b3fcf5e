#!/usr/bin/env bash
# Runs every test: Cargo's own, then the black-box scripts against the built binary.
#
# Needs cargo; installs what else is missing on Debian, as root or through sudo. Nothing is
# installed when nothing is missing, and no Docker engine: the compose files are tried where one is
# there. The last line counts the black-box checks.
#
#   TOLLGATE_PROFILE    the Cargo profile of the binary under test (default: release)
#   TOLLGATE_LATENCY    when set, how long good clients wait during attacks decides about checks
#   TOLLGATE_SCANNERS   when set, testssl.sh and slowhttptest are tried too, which takes minutes
set -euo pipefail
cd "$(dirname "$0")/.."

profile="${TOLLGATE_PROFILE:-release}"
target="${CARGO_TARGET_DIR:-target}"
venv="$target/test-venv"
octokit="$target/test-octokit"
tokens="$target/test-tokens"
# By its path: a version manager's python3 may come first in PATH and lack the venv module.
python=/usr/bin/python3
log="$(mktemp)"
trap 'rm -f "$log"' EXIT

main() {
    command -v cargo >/dev/null || PATH="${HOME:-/root}/.cargo/bin:$PATH"
    install_packages
    install_python_packages
    install_node_packages tests/clients/octokit "$octokit"
    install_node_packages tests/tokens "$tokens"

    announce cargo test
    cargo test
    announce cargo build --profile "$profile"
    cargo build --profile "$profile"

    # Cargo keeps the dev profile in `debug`, and each other profile under its own name.
    local folder="$profile"
    if [ "$profile" = dev ]; then folder=debug; fi
    # The image gets the binary that is there; tests/compose/run.py by hand runs the Dockerfile too.
    export TOLLGATE_IMAGE_BINARY="$target/$folder/tollgate"
    local scanners=()
    if [ -n "${TOLLGATE_SCANNERS:-}" ]; then scanners=(tests/edge/scanners.py); fi
    black_box "$target/$folder/tollgate" tests/schema/check.py tests/httpbin/compare.py \
        tests/clients/pygithub/limits.py tests/clients/pygithub/waits.py "$octokit/limits.mjs" \
        tests/tokens/libraries.py tests/tokens/issuers.py tests/tokens/attacks.py \
        tests/edge/transports.py tests/edge/load.py tests/edge/sockets.py tests/edge/rpc.py \
        tests/edge/bodies.py tests/edge/slow.py tests/edge/floods.py tests/edge/faults.py \
        tests/edge/restarts.py "${scanners[@]}" tests/deploy/systemd.py tests/compose/run.py
}

announce() {
    printf '\n== %s\n' "$*"
}

install_packages() {
    local missing=()
    "$python" -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3 python3-venv)
    command -v curl >/dev/null || missing+=(curl)
    # Tests start servers of their own, and make them certificates.
    command -v redis-server >/dev/null || missing+=(redis-server)
    command -v openssl >/dev/null || missing+=(openssl)
    command -v h2load >/dev/null || missing+=(nghttp2-client)
    # It judges the units without running them.
    command -v systemd-analyze >/dev/null || missing+=(systemd)
    if [ -n "${TOLLGATE_SCANNERS:-}" ]; then
        command -v testssl >/dev/null || missing+=(testssl.sh)
        command -v slowhttptest >/dev/null || missing+=(slowhttptest)
    fi
    # Debian's Node reads the system's certificates, which only its recommendations bring along.
    command -v node >/dev/null || missing+=(nodejs ca-certificates)
    command -v npm >/dev/null || missing+=(npm)
    # The crypto library and the allocator are C code that Cargo compiles.
    echo '#include <stdlib.h>' | cc -E -x c - >/dev/null 2>&1 || missing+=(gcc libc6-dev)
    if [ "${#missing[@]}" -eq 0 ]; then return; fi

    announce apt-get install "${missing[@]}"
    local as_root=()
    if [ "$(id -u)" -ne 0 ]; then as_root=(sudo); fi
    "${as_root[@]}" apt-get update -qq </dev/null
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends "${missing[@]}" </dev/null
}

# Pinned versions that are there already cost no network.
install_python_packages() {
    announce pip install into "$venv"
    "$venv/bin/python" -c 'import pip' 2>/dev/null || "$python" -m venv --clear "$venv"
    # --use-pep517: flasgger has no wheel, and newer Pythons have no setuptools of their own.
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-input --use-pep517 \
        -r tests/httpbin/requirements.txt -r tests/clients/pygithub/requirements.txt \
        -r tests/schema/requirements.txt -r tests/tokens/requirements.txt \
        -r tests/edge/requirements.txt
}

# Of a folder of tests, into another. The scripts are copied to their packages: Node looks for those
# beside a script.
install_node_packages() {
    local source="$1" folder="$2"
    # Goes away with the packages that it stands for.
    local installed="$folder/node_modules/.installed-lock.json"
    if ! cmp -s "$source/package-lock.json" "$installed"; then
        announce npm ci into "$folder"
        mkdir -p "$folder"
        cp "$source/package.json" "$source/package-lock.json" "$folder"
        npm ci --prefix "$folder" --ignore-scripts --no-audit --no-fund --loglevel error
        cp "$source/package-lock.json" "$installed"
    fi
    cp "$source"/*.mjs "$folder"
}

# Runs each script, adds up the counts of their last lines, and fails when a check failed.
black_box() {
    local binary="$1" passed=0 failed=0 script
    shift
    for script in "$@"; do
        announce "$script"
        local status=0 runner=("$venv/bin/python" -Bu)
        if [[ "$script" == *.mjs ]]; then runner=(node); fi
        "${runner[@]}" "$script" --tollgate "$binary" </dev/null 2>&1 |
            tee "$log" || status=$?
        if [[ "$(tail -n 1 "$log")" =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed$ ]]; then
            passed=$((passed + BASH_REMATCH[1]))
            failed=$((failed + BASH_REMATCH[2]))
        elif [ "$status" -eq 0 ]; then
            status=1
        fi
        # A script that broke off has failed, whatever it counted.
        if [ "$status" -ne 0 ] && [ "$failed" -eq 0 ]; then failed=1; fi
    done
    printf '\n%d passed, %d failed\n' "$passed" "$failed"
    [ "$failed" -eq 0 ]
}

main
