#!/usr/bin/env bash
# Makes the packages, into target/packages with a file of checksums.
#
#   packaging/build.sh [deb] [static] [rpm] [sbom] [image] [tools]     these alone; or the first four
#
#   deb      tollgate_VERSION-REVISION_ARCH.deb, for Debian 12 and later, and what is made from it
#   static   tollgate-VERSION-ARCH-linux.tar.gz: one binary that needs no library, with the manual and completions
#   rpm      tollgate-VERSION-1.ARCH.rpm, with the static binary
#   sbom     tollgate-VERSION.cdx.json: every crate that is in the binary, in the form of CycloneDX
#   image    target/image, what docker-bake.hcl makes images from: the static binaries in target/packages
#   tools    nothing, but that what `deb` needs beside Rust is there
#
# It is run in a checkout, on the kind of machine that the packages are for. Made again from the
# same binary, each package has the same bytes: times in it are those of the commit
# (SOURCE_DATE_EPOCH, when that is set). A static binary for another architecture is made with the C
# compiler of zig; the packages are not.
#
#   TOLLGATE_PROFILE   the Cargo profile (default: dist, by packaging/dist.sh)
#   TOLLGATE_ARCHES    of the static binary: "x86_64 aarch64", say (default: this machine's)
#   TOLLGATE_REVISION  of the Debian package, when only its packaging has changed (default: 1)
#   TOLLGATE_BUILT     when set, the binary of that profile is there, and is taken as it is
#
# Tools that are missing are compiled once, into target/tools, at the versions below; zig and what
# lets Cargo use it come from PyPI. The target of the static binary is added to the toolchain, and a
# C compiler for it (musl-tools) is installed on Debian.
set -euo pipefail
cd "$(dirname "$0")/.."
exec </dev/null

deb_version=3.8.0
rpm_version=0.21.1
auditable_version=0.7.7
cyclonedx_version=0.5.9
zigbuild_version=0.24.1
zig_version=0.17.1

target="$(realpath -m "${CARGO_TARGET_DIR:-target}")"
profile="${TOLLGATE_PROFILE:-dist}"
machine="$(uname -m)"
revision="${TOLLGATE_REVISION:-1}"
read -ra arches <<<"${TOLLGATE_ARCHES:-$machine}"
declare -A is_built=()
tools="$target/tools"
PATH="$tools/bin:$PATH"
# Cargo.toml names files of this folder.
staged=target/staged
packages="$target/packages"
# By its path, as in tests/run.sh.
python=/usr/bin/python3
version="$(sed -n '/^\[workspace.package\]/,/^$/ s/^version = "\(.*\)"$/\1/p' Cargo.toml)"

main() {
    local kinds=("$@") kind
    if [ "$#" -eq 0 ]; then kinds=(deb static rpm sbom); fi
    for kind in "${kinds[@]}"; do
        if [[ ! "$kind" =~ ^(deb|static|rpm|sbom|image|tools)$ ]]; then
            echo "there is no $kind: name deb, static, rpm, sbom, image or tools" >&2
            exit 1
        fi
    done
    command -v cargo >/dev/null || PATH="${HOME:-/root}/.cargo/bin:$PATH"
    SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}"
    export SOURCE_DATE_EPOCH
    umask 022
    mkdir -p "$packages"
    for kind in "${kinds[@]}"; do "make_$kind"; done
    if ! compgen -G "$packages/*$version*" >/dev/null; then return; fi
    (cd "$packages" && sha256sum -- *"$version"* >SHA256SUMS)
    cat "$packages/SHA256SUMS"
}

make_tools() {
    tool cargo-deb "$deb_version"
    # Which libraries the binary needs is found out by a tool of this package; without it, it is
    # guessed.
    command -v dpkg-shlibdeps >/dev/null || install_packages dpkg-dev
}

make_deb() {
    make_tools
    build
    stage "$(folder_of "")/tollgate"
    cargo deb --no-build --profile "$profile" --locked --deb-revision "$revision" --output "$packages/"
}

make_static() {
    local arch
    for arch in "${arches[@]}"; do
        build_static "$arch"
        if [ "$arch" = "$machine" ]; then stage "$(static "$arch")"; fi
        archive "$arch"
    done
}

make_rpm() {
    build_static "$machine"
    stage "$(static "$machine")"
    tool cargo-generate-rpm "$rpm_version"
    cargo generate-rpm --profile "$profile" --target "$machine-unknown-linux-musl" \
        --target-dir "$target" --output "$packages/"
}

make_sbom() {
    tool cargo-cyclonedx "$cyclonedx_version"
    # It writes beside each manifest.
    cargo cyclonedx --format json --spec-version 1.5 --describe crate --all --no-build-deps \
        --target "$machine-unknown-linux-musl" \
        --override-filename tollgate.sbom --quiet
    mv tollgate.sbom.json "$packages/tollgate-$version.cdx.json"
    find crates packaging -name tollgate.sbom.json -delete
}

make_image() {
    local arch platform archive found=
    rm -rf target/image
    for arch in x86_64 aarch64; do
        case "$arch" in x86_64) platform=amd64 ;; *) platform=arm64 ;; esac
        archive="$packages/tollgate-$version-$arch-linux.tar.gz"
        if [ ! -f "$archive" ]; then echo "there is no $archive: no image for $platform"; continue; fi
        mkdir -p "target/image/out/$platform"
        tar --extract --file "$archive" --directory "target/image/out/$platform" --strip-components 1 \
            "tollgate-$version-$arch-linux/tollgate"
        found=1
    done
    if [ -z "$found" ]; then exit 1; fi
}

# The binary for this machine's C library.
build() {
    if [ -n "${TOLLGATE_BUILT:-}" ]; then return; fi
    if [ "$profile" = dist ]; then
        tool cargo-auditable "$auditable_version"
        TOLLGATE_CARGO="cargo auditable" packaging/dist.sh
    else
        cargo build --profile "$profile" --locked --bin tollgate
    fi
}

# The binary that needs no library, for an architecture.
build_static() {
    local arch="$1" triple="$1-unknown-linux-musl" strip
    # The archive and the RPM have the same one.
    if [ -n "${is_built[$arch]:-}${TOLLGATE_BUILT:-}" ]; then return; fi
    is_built[$arch]=1
    add_target "$triple"
    tool cargo-auditable "$auditable_version"
    # Symbols are a sixth of it. cargo-deb takes them off by itself.
    strip="CARGO_PROFILE_$(tr 'a-z-' 'A-Z_' <<<"$profile")_STRIP=symbols"
    if [ "$arch" != "$machine" ]; then
        build_elsewhere "$arch" "$strip"
        return
    fi
    command -v musl-gcc >/dev/null || install_packages musl-tools
    if [ "$profile" = dist ]; then
        env "$strip" TOLLGATE_CARGO="cargo auditable" packaging/dist.sh --static
    else
        env "$strip" cargo auditable build --profile "$profile" --locked --bin tollgate --target "$triple"
    fi
}

# For another architecture, with the C compiler of zig.
build_elsewhere() {
    local arch="$1" strip="$2" flags="${RUSTFLAGS:-}"
    if ! command -v cargo-zigbuild >/dev/null; then
        "$python" -m venv "$tools/zig"
        "$tools/zig/bin/pip" install --quiet --disable-pip-version-check \
            "cargo-zigbuild==$zigbuild_version" "ziglang==$zig_version"
        PATH="$tools/zig/bin:$PATH"
    fi
    # What packaging/dist.sh has learnt of requests is true of this binary, too.
    if [ "$profile" = dist ] && [ -f "$target/guided/tollgate.profdata" ]; then
        flags+=" -Cprofile-use=$target/guided/tollgate.profdata"
    fi
    env "$strip" RUSTFLAGS="$flags" cargo auditable zigbuild --profile "$profile" --locked --bin tollgate \
        --target "$arch-unknown-linux-musl"
}

static() {
    echo "$(folder_of "$1-unknown-linux-musl")/tollgate"
}

# Where Cargo puts what it builds for a target.
folder_of() {
    local name="$profile"
    if [ "$name" = dev ]; then name=debug; fi
    echo "$target/${1:+$1/}$name"
}

# What the packages have beside the binary. It writes the manual and completions itself.
stage() {
    local binary="$1"
    rm -rf "$staged"
    mkdir -p "$staged/systemd" "$staged/man" "$staged/completions"
    "$binary" man --all "$staged/man"
    gzip --best --no-name "$staged"/man/*.1
    "$binary" completions bash >"$staged/completions/tollgate"
    "$binary" completions zsh >"$staged/completions/_tollgate"
    "$binary" completions fish >"$staged/completions/tollgate.fish"
    # The units of config/systemd, for a program in /usr/bin and a user that the package makes.
    cp config/systemd/tollgate.socket "$staged/systemd/"
    sed -e 's|/usr/local/bin/tollgate|/usr/bin/tollgate|' \
        -e 's|^DynamicUser=yes$|User=tollgate\nGroup=tollgate|' \
        -e 's|^# docs/operations.md shows how to install it.$|# To change something: systemctl edit tollgate|' \
        config/systemd/tollgate.service >"$staged/systemd/tollgate.service"
    cat >"$staged/changelog" <<END
tollgate ($version-$revision) stable; urgency=medium

  * What is new is in CHANGELOG.md of the sources.

 -- The Tollgate developers <tollgate@localhost>  $(date --utc --date "@$SOURCE_DATE_EPOCH" -R)
END
}

# The static binary with what a person needs beside it. Names, owners, times and order are always
# the same.
archive() {
    local arch="$1" name="tollgate-$version-$1-linux" folder
    folder="$(mktemp -d)"
    mkdir -p "$folder/$name"
    install -m 755 "$(static "$arch")" "$folder/$name/tollgate"
    cp -r "$staged/man" "$staged/completions" README.md CHANGELOG.md LICENSE "$folder/$name/"
    mkdir -p "$folder/$name/config"
    mkdir -p "$folder/$name/docs"
    cp docs/*.md "$folder/$name/docs/"
    cp -r config/systemd config/schema config/keys config/policies config/tollgate.yaml "$folder/$name/config/"
    tar --create --directory "$folder" --sort=name --owner=0 --group=0 --numeric-owner \
        --mtime="@$SOURCE_DATE_EPOCH" "$name" | gzip --best --no-name >"$packages/$name.tar.gz"
    rm -rf "$folder"
}

add_target() {
    if [ -d "$(rustc --print sysroot)/lib/rustlib/$1" ]; then return; fi
    rustup target add "$1"
}

# A Cargo command at a version; one that is there already, at whatever version, will do.
tool() {
    if "$1" --version >/dev/null 2>&1 || cargo "${1#cargo-}" --version >/dev/null 2>&1; then return; fi
    cargo install "$1" --locked --version "$2" --root "$tools" --target-dir "$tools/build"
}

install_packages() {
    local as_root=()
    if [ "$(id -u)" -ne 0 ]; then as_root=(sudo); fi
    "${as_root[@]}" apt-get update -qq
    "${as_root[@]}" apt-get install -y -qq --no-install-recommends "$@"
}

main "$@"
