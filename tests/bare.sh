#!/usr/bin/env bash
# Runs README's two commands on a bare Debian 12, to see what they need that only this machine has.
#
#   tests/bare.sh [demo] [tests]      these alone; both when none is named
#
# Makes a root with debootstrap's minbase, git, ca-certificates, a C compiler and a Rust toolchain, and
# runs the committed HEAD there from a clean clone, with the machine's network. The root has mounts and
# processes of its own, which end with this script however it ends. Run it by hand, as root: it takes as
# long as both commands, and some 6 GB.
#
#   TOLLGATE_BARE_RUST    Debian packages that bring Rust, such as "rustc-web cargo-web", in place of
#                         this machine's toolchain
#   TOLLGATE_BARE_FOLDER  where to make the root (default: a temporary folder)
set -euo pipefail
cd "$(dirname "$0")/.."
source tests/parts.sh

suite=bookworm
rust="${TOLLGATE_BARE_RUST:-}"
# Where the clone and the toolchain are in the root.
clone=/root/tollgate
toolchain=/opt/rust

main() {
    [ "$(id -u)" -eq 0 ] || give_up "run it as root: it makes a root for others"
    command -v debootstrap >/dev/null || give_up "debootstrap is missing: apt-get install debootstrap"
    local parts=("$@") name
    if [ "$#" -eq 0 ]; then parts=(demo tests); fi
    for name in "${parts[@]}"; do
        [[ "$name" =~ ^(demo|tests)$ ]] || give_up "there is no $name: name demo, tests or both"
    done

    folder="$(mktemp -d "${TOLLGATE_BARE_FOLDER:-${TMPDIR:-/tmp}}/bare-XXXXXX")"
    trap clean_up EXIT
    git bundle create --quiet "$folder/head.bundle" HEAD
    # In a mount namespace of its own nothing has to be unmounted, and whatever is mounted there cannot be
    # removed from here. The processes end with the first of their namespace.
    unshare --mount --pid --fork --kill-child --mount-proc \
        env TOLLGATE_BARE_INSIDE="$folder" "$0" "${parts[@]}"
}

give_up() {
    echo "$*" >&2
    exit 1
}

clean_up() {
    end_parts
    if grep -qF " $folder/" /proc/self/mountinfo; then give_up "something is mounted below $folder"; fi
    rm -rf --one-file-system "$folder"
}

# What happens in the namespaces.
inside() {
    local folder="$TOLLGATE_BARE_INSIDE" name
    root="$folder/root"
    if part debootstrap quietly make_root && part "apt-get install git and a compiler" install; then
        for name in "$@"; do
            case "$name" in
            demo) part 'cargo run --release -- demo' run_demo || true ;;
            tests) part tests/run.sh run_tests || true ;;
            esac
        done
    fi
    conclude_parts
}

make_root() {
    local mirror
    # With the mirror of this machine, if it has this Debian's; and the default one if not.
    mirror="$(sources | sed -n "s/^deb \([^ ]*\) $suite main$/\1/p" | head -n 1)"
    debootstrap --variant=minbase "$suite" "$root" ${mirror:+"$mirror"} &&
        mount -t proc proc "$root/proc" &&
        mount -t tmpfs tmpfs "$root/dev/shm" &&
        mkdir -p "$root$clone" &&
        configure
}

# Debian's own sources that this machine has of the suite: updates and security come from there.
sources() {
    apt-get indextargets --format 'deb $(REPO_URI) $(RELEASE) $(COMPONENT)' \
        'Created-By: Packages' 'Origin: Debian' | grep -E " $suite(-updates|-security)? " | sort -u
}

# What a private network needs, for the ordinary clients to reach their registries.
configure() {
    local file
    if [ -n "$(sources)" ]; then sources >"$root/etc/apt/sources.list"; fi
    apt-config dump | grep -E '^Acquire::(https?|Check-|ForceIPv|Retries)' \
        >"$root/etc/apt/apt.conf.d/90machine" || true
    for file in /etc/resolv.conf /etc/hosts /etc/apt/auth.conf /etc/apt/auth.conf.d \
        /etc/apt/trusted.gpg.d /usr/local/share/ca-certificates /etc/pip.conf /etc/npmrc \
        /root/.config/pip /root/.pip /root/.npmrc /root/.cargo/config.toml; do
        if [ ! -e "$file" ]; then continue; fi
        mkdir -p "$root$(dirname "$file")" && cp -rL "$file" "$root$(dirname "$file")" || return
    done
}

# The little that a newcomer has: what the clone needs, and what README asks for.
install() {
    local packages=(git ca-certificates gcc libc6-dev)
    if [ -n "$rust" ]; then
        # Word splitting is meant: a list of packages.
        packages+=($rust)
    else
        mkdir -p "$root$toolchain" &&
            mount --bind "$(rustc --print sysroot)" "$root$toolchain" &&
            mount -o remount,bind,ro "$root$toolchain" || return
    fi
    mv "$TOLLGATE_BARE_INSIDE/head.bundle" "$root/root/head.bundle" &&
        in_root quietly_install "${packages[@]}" &&
        in_root clone_head
}

# The functions from here to `run_demo` run in the root.
quietly_install() {
    quietly apt-get update -qq &&
        quietly env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
            -o Dpkg::Use-Pty=0 "$@"
}

clone_head() {
    quietly git clone --quiet /root/head.bundle "$clone" && git -C "$clone" log -1 --format='%h %s'
}

# Starts the demo, asks what it prints, and ends it as Ctrl-C does.
try_demo() {
    local demo address free status=0
    cd "$clone" || return
    cargo run --release -- demo >/root/demo.log 2>/root/demo.events &
    demo=$!
    until grep -q '^Ctrl-C ends it' /root/demo.log; do
        if ! kill -0 "$demo"; then cat /root/demo.events; return 1; fi
        sleep 1
    done
    address="$(sed -n 's|^API=http://||p' /root/demo.log)"
    free="$(sed -n 's/^FREE=//p' /root/demo.log)"
    ask "$address" "$free" | tee /root/answer
    kill -INT "$demo"
    wait "$demo" || status=$?
    grep -vE '^ *(Compiling|Downloaded|Downloading|Locking|Updating) ' /root/demo.events
    echo "it ended with $status"
    [ "$status" -eq 0 ] && grep -q '^HTTP/1.1 200' /root/answer &&
        grep -q '^x-ratelimit-used: 1' /root/answer && ! grep -q ' WARN ' /root/demo.events
}

# A request without curl, which a bare root does not have.
ask() {
    exec 3<>"/dev/tcp/${1%:*}/${1#*:}" || return
    printf 'GET /user HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nConnection: close\r\n\r\n' \
        "$1" "$2" >&3
    cat <&3
}

run_demo() {
    in_root try_demo && count_part 1 0
}

# As a newcomer runs it, with its totals as this script's own.
run_tests() {
    counted in_root run_here tests/run.sh
}

run_here() {
    cd "$clone" && "$@"
}

# Runs a function of this script in the root, with nothing of this machine's environment but how to
# reach registries and which certificates to trust there.
in_root() {
    local kept
    mapfile -t kept < <(env | grep -iE '^([a-z_]*_proxy|[A-Z0-9_]*(CERT|CA_BUNDLE|CAINFO|ROOTS)[A-Z0-9_]*|PIP_[A-Z_]*|NPM_CONFIG_[A-Z_]*|CARGO_(HTTP|NET|REGISTR)[A-Z_]*)=')
    {
        declare -p clone
        declare -f quietly quietly_install clone_head try_demo ask run_here
        printf 'part_output=/tmp/output\n%s\n' "${*@Q}"
    } >"$root/root/run.sh"
    chroot "$root" /usr/bin/env -i HOME=/root LANG=C.UTF-8 "${kept[@]}" \
        PATH="$toolchain/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" \
        bash -uo pipefail /root/run.sh </dev/null
}

if [ -n "${TOLLGATE_BARE_INSIDE:-}" ]; then inside "$@"; else main "$@"; fi
