# Tollgate's image: one static binary and nothing else, run as a user who may do nothing else.
# Certificate authorities and time zones are in the binary.
#
# What is published is built by .github/workflows/release.yml from the static binaries of
# packaging/build.sh, which docker-bake.hcl puts in the place of the first stage. A build of this
# file alone is right on amd64 and arm64 alike, and what is built runs where it was built:
#     docker buildx build --platform linux/amd64,linux/arm64 .
# emulates the foreign one.

FROM rust:1.95-bookworm AS build
WORKDIR /build

# The C compiler and the target of a binary that needs no library, where the image does not have
# them.
RUN command -v musl-gcc \
    || (apt-get update && apt-get install -y --no-install-recommends musl-tools && rm -rf /var/lib/apt/lists/*)
RUN target="$(uname -m)-unknown-linux-musl" \
    && (test -d "$(rustc --print sysroot)/lib/rustlib/$target" || rustup target add "$target")

# Dependencies and our crates in a layer of their own, made anew only when one of them changes: a
# program that does nothing stands in for the root package. (Cache mounts would do it too, but older
# builders do not know them.)
COPY Cargo.toml Cargo.lock ./
COPY crates crates
COPY packaging packaging
COPY tests/simulation/entropy tests/simulation/entropy
ENV CARGO_PROFILE_DIST_STRIP=symbols
RUN mkdir src \
    && echo 'fn main() {}' > src/main.rs \
    && touch src/lib.rs \
    && cargo build --profile dist --locked --lib --bin tollgate --target "$(uname -m)-unknown-linux-musl" \
    && rm -r src

COPY config/policies config/policies
COPY src src
# Cargo goes by times, and the stand-ins may be the younger ones. What is published is built with
# `--build-arg DIST=`, which makes it faster and takes twice as long.
ARG DIST=--plain
ARG TARGETARCH
RUN touch src/lib.rs src/main.rs \
    && packaging/dist.sh --static $DIST \
    && install -D "target/$(uname -m)-unknown-linux-musl/dist/tollgate" "/out/$TARGETARCH/tollgate"

FROM scratch
# Builders that know platforms set it, and in others it is empty.
ARG TARGETARCH
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="Tollgate" \
      org.opencontainers.image.description="Edge reverse proxy that enforces app-level identity limits" \
      org.opencontainers.image.licenses="MIT OR Apache-2.0" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$REVISION"
COPY --from=build /out/$TARGETARCH/tollgate /usr/local/bin/tollgate

# So that commands in a container are found, whatever runs it.
ENV PATH=/usr/local/bin
# By number, as there is no file with names, and so that an orchestrator can see that it is not
# root. It owns no file.
USER 10001:10001
EXPOSE 8080
STOPSIGNAL SIGTERM
# The settings, the policies and the keys are mounted: there is no default that fits anybody's API.
HEALTHCHECK --interval=5s --timeout=3s --start-period=10s --retries=3 \
    CMD ["tollgate", "health", "--config", "/etc/tollgate/tollgate.yaml"]
ENTRYPOINT ["tollgate"]
CMD ["run", "--config", "/etc/tollgate/tollgate.yaml"]
