# The commands of this repository. Each is a script in scripts/ or tests/ that can also be called directly.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help up psql down clean install test accept bench chaos fmt lint

help:  ## list the commands
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

up:  ## install what is missing, build, start a private server, run the README's tour
	@scripts/up.sh

psql:  ## open psql on the private server, database demo
	@scripts/cluster.sh psql dev demo

down:  ## stop the private server; its data stay
	@scripts/cluster.sh stop dev

clean:  ## remove everything built or made here (cargo-pgrx is kept)
	@scripts/clean.sh

install:  ## build and install into the server whose pg_config is on PATH (or PG_CONFIG=...)
	@scripts/setup.sh
	@PG_CONFIG="$(PG_CONFIG)" scripts/build.sh system

test:  ## run every test layer, or some: make test LAYERS="core isolation"
	@tests/run.sh $(LAYERS)

accept:  ## take the last output of the golden layers as the expected one (then read git diff)
	@tests/accept.sh

bench:  ## measure; prints one table
	@bench/run.sh

chaos:  ## kill processes at random under load: make chaos N=1000
	@AE_CHAOS_KILLS="$(or $(N),1000)" tests/run.sh chaos

fmt:  ## format the Rust code
	@cargo fmt --all

lint:  ## rustfmt, clippy, shellcheck, cargo-deny, pgspot; warnings are errors
	@tests/run.sh lint
