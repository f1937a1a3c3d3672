# quotabell in a small image: one binary, certificate authorities, no root.
#
#   docker build -t quotabell .
#   docker run -e QUOTABELL__REDIS__URL=redis://redis.example.com:6379 -p 9464:9464 quotabell
#
# Beside it -e QUOTABELL__CONSOLE__LISTEN=0.0.0.0:9465 -p 127.0.0.1:9465:9465 expose the console, which then needs a token
# (docs/console.md).
#
# Build arguments: DEBIAN and RUST choose the base images. The others appear only in labels: VERSION, REVISION (the commit),
# CREATED (its time, RFC 3339), SOURCE (the URL of the repository) and BASE_DIGEST (of Debian's image). RELEASING.md has the
# whole command.

ARG DEBIAN=bookworm
ARG RUST=1.88

FROM docker.io/library/rust:${RUST}-slim-${DEBIAN} AS build
WORKDIR /src
# Dependencies first, with an empty crate in place of ours: this layer is built again only when the manifest or the lock file changes.
# Cargo wants a file for each test and benchmark that the manifest names. The image needs none of them, so they stay empty.
COPY Cargo.toml Cargo.lock ./
COPY crates crates
RUN mkdir -p src benches/pipeline benches/limiters benches/forecast tests/peers tests/torture \
 && touch src/lib.rs benches/pipeline/main.rs benches/limiters/main.rs benches/forecast/main.rs tests/peers/main.rs tests/torture/main.rs \
 && echo 'fn main() {}' > src/main.rs \
 && cargo build --release --locked --bin quotabell \
 && rm -r src
COPY . .
# COPY keeps times of modification. One that is older than the empty crate's build would pass for built already.
RUN touch src/lib.rs src/main.rs \
 && cargo build --release --locked --bin quotabell

FROM docker.io/library/debian:${DEBIAN}-slim
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install --yes --no-install-recommends ca-certificates \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/* \
 && useradd --uid 10001 --user-group --no-create-home --shell /usr/sbin/nologin quotabell \
 && mkdir /etc/quotabell \
 && printf '[redis]\nurl = "redis://redis:6379"\n' > /etc/quotabell/quotabell.toml
# Not above the packages: these values differ from build to build, and what comes after them is made again.
ARG DEBIAN
ARG VERSION=0.1.0
ARG REVISION=
ARG CREATED=
ARG SOURCE=
ARG BASE_DIGEST=
LABEL org.opencontainers.image.title="quotabell" \
      org.opencontainers.image.description="Quota alerts from a Redis stream of usage events: counted once, raised once, delivered" \
      org.opencontainers.image.authors="the quotabell authors" \
      org.opencontainers.image.vendor="quotabell" \
      org.opencontainers.image.licenses="MIT OR Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.ref.name="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${CREATED}" \
      org.opencontainers.image.source="${SOURCE}" \
      org.opencontainers.image.url="${SOURCE}" \
      org.opencontainers.image.documentation="${SOURCE}" \
      org.opencontainers.image.base.name="docker.io/library/debian:${DEBIAN}-slim" \
      org.opencontainers.image.base.digest="${BASE_DIGEST}"
COPY --from=build /src/target/release/quotabell /usr/local/bin/quotabell
COPY --from=build /src/packaging/healthcheck /usr/local/bin/quotabell-healthcheck
COPY LICENSE LICENSE-APACHE LICENSE-MIT /usr/share/doc/quotabell/

# The embedded server is for one machine: in a container Redis is always another one. Its URL stands in a file, so that any
# variable, redis.url_file's too, and any file that is mounted in its place win over it. Every other setting is as in
# config/default.toml.
ENV QUOTABELL_CONFIG=/etc/quotabell/quotabell.toml \
    QUOTABELL__HTTP__LISTEN=0.0.0.0:9464 \
    QUOTABELL__LOG__FORMAT=json
USER 10001:10001
WORKDIR /
EXPOSE 9464
STOPSIGNAL SIGTERM
# Liveness: what waits for Redis is alive. Orchestrators ask /readyz whether it is ready.
HEALTHCHECK --interval=10s --timeout=5s --start-period=5s --retries=3 CMD ["quotabell-healthcheck", "/healthz"]
ENTRYPOINT ["quotabell"]
CMD ["run"]
