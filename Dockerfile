# Tollgate's image: one binary on Debian, run as a user who may do nothing else.
#
# Every step is right on amd64 and arm64 alike, and what is built runs where it was built. For both:
#     docker buildx build --platform linux/amd64,linux/arm64 .
# which emulates the foreign one. A cross build would be quicker, and wants a C cross compiler for the
# crypto library: more to get wrong than it saves.

FROM rust:1.95-bookworm AS build
WORKDIR /build

# Dependencies and our crates in a layer of their own, made anew only when one of them changes: a
# program that does nothing stands in for the root package. (Cache mounts would do it too, but older builders do not know them.)
COPY Cargo.toml Cargo.lock ./
COPY crates crates
COPY packaging packaging
RUN mkdir src \
    && echo 'fn main() {}' > src/main.rs \
    && touch src/lib.rs \
    && cargo build --profile dist --locked --lib --bin tollgate \
    && rm -r src

COPY config/policies config/policies
COPY src src
# Cargo goes by times, and the stand-ins may be the younger ones.
# What is published is built with `--build-arg DIST=`, which makes it faster and takes twice as long.
ARG DIST=--plain
RUN touch src/lib.rs src/main.rs \
    && packaging/dist.sh $DIST

FROM debian:bookworm-slim
LABEL org.opencontainers.image.title="Tollgate" \
      org.opencontainers.image.description="An edge reverse proxy that enforces app-level identity limits" \
      org.opencontainers.image.licenses="MIT OR Apache-2.0"
COPY --from=build /build/target/dist/tollgate /usr/local/bin/tollgate

# By number, so that an orchestrator can see that it is not root. It owns no file.
USER 10001:10001
EXPOSE 8080
STOPSIGNAL SIGTERM
# The settings, the policies and the keys are mounted: there is no default that fits anybody's API.
HEALTHCHECK --interval=5s --timeout=3s --start-period=10s --retries=3 \
    CMD ["tollgate", "health", "--config", "/etc/tollgate/tollgate.yaml"]
ENTRYPOINT ["tollgate"]
CMD ["run", "--config", "/etc/tollgate/tollgate.yaml"]
