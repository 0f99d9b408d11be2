# Two commands do everything from an empty state: `make demo` and `make test`.
BIN := .venv/bin
PYTEST := $(BIN)/pytest
PACKAGES := src tests $(wildcard benchmarks) dbt-streamhouse
BENCHMARKS := $(filter-out benchmarks/endurance.py benchmarks/mysql_sync.py benchmarks/nexmark.py benchmarks/nexmark_live.py benchmarks/peer_flink.py,$(wildcard benchmarks/*.py))

.DEFAULT_GOAL := help
.PHONY: help setup demo demo-membership test fresh lint lint-page soak bench bench-flink bench-nexmark endurance

help:
	@echo 'make demo    set up what is missing, then run the revenue view in the terminal'
	@echo 'make demo-membership   the same for the membership warehouse: four layers, two boards'
	@echo 'make test    set up what is missing, then run all tests (ARGS="tests/unit -x": some)'
	@echo 'make fresh   the demo on minimal Debians, as root and as a user, who runs the unit tests, too (needs root)'
	@echo 'make setup   set up what is missing: system packages, .venv, the Paimon jar, Java classes'
	@echo 'make lint    ruff, mypy, and the direction of imports'
	@echo 'make lint-page   the types of the web page (needs npx)'
	@echo 'make soak    the long tests'
	@echo 'make bench   the benchmarks'
	@echo 'make bench-flink   Flink with Paimon on this machine, in turn with Streamhouse (fetches 1 GB; needs mvn)'
	@echo 'make bench-nexmark   the queries of Nexmark here and in Flink, in turn (ARGS=--quick: ten minutes; needs mvn)'
	@echo 'make endurance   the demo for an hour, its curve in docs (ARGS="--seconds 600": shorter)'

setup:
	@scripts/setup.sh

demo-membership: setup
	@$(BIN)/streamhouse demo membership $(ARGS)

demo: setup
	@$(BIN)/streamhouse demo $(ARGS)

test: setup
	$(PYTEST) -m 'not soak' -n 3 --dist loadfile --no-loadscope-reorder $(ARGS)

# Without setup: a fresh machine shows whether that works.
fresh:
	@scripts/fresh.sh

lint: setup
	$(BIN)/ruff check $(PACKAGES)
	$(BIN)/ruff format --check $(PACKAGES)
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo --cache-dir .ruff_cache/imports

# Apart from lint, which needs no Node. No set-up either: it reads the page's files only.
lint-page:
	@command -v npx >/dev/null || { echo 'make lint-page runs TypeScript by npx, which is not there; install Node.js and npm (on Debian: apt-get install nodejs npm)' >&2; exit 1; }
	npx --yes --package typescript@5 tsc -p scripts/page-types

soak: setup
	$(PYTEST) -m soak --timeout 0 $(ARGS)

bench: setup
	@for each in $(BENCHMARKS); do echo "== $$each"; $(BIN)/python $$each || exit; done

bench-flink: setup
	$(BIN)/python -m benchmarks.peer_flink $(ARGS)

bench-nexmark: setup
	$(BIN)/python -m benchmarks.nexmark $(ARGS)

endurance: setup
	$(BIN)/python benchmarks/endurance.py $(ARGS)
