# Every target sets up what it needs: a virtual environment, uv inside it, the locked packages.
PYTHON ?= python3
VENV := .venv
# What is compiled when it is installed, and again when it has changed.
NATIVE := services/broker/hatch_build.py $(wildcard services/broker/src/eruca_broker/core/native/*.[ch])
BIN := $(VENV)/bin
ARGS ?=
# Unit tests wait as much as they compute: two run side by side for each processor, and four at
# most. Most other tests wait for processes: as many, since with six the longest come near their
# time limit on two processors. ARGS="-n 0" runs them one after the other.
UNIT_WORKERS := $(shell n=$$(getconf _NPROCESSORS_ONLN); [ $$n -lt 2 ] && echo 2 || echo 4)
WORKERS := $(shell n=$$(getconf _NPROCESSORS_ONLN); [ $$n -lt 2 ] && echo 2 || echo 4)
PYTEST := $(BIN)/python -m pytest --dist loadscope --no-loadscope-reorder

# Compiled modules are kept, or every process would spend a second on compiling them again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
LINT := tests/contract/lint

.PHONY: help up demo test chaos check lint types unit docs dist floors bench peers interop clients lint-openapi

help:
	@echo "make demo     real data through a local cluster and back; ends by itself"
	@echo "make test     every test"
	@echo "make chaos    clusters while everything fails; ARGS='--minutes 60 --seed 7', or --help"
	@echo "make up       a local cluster until Ctrl-C; options by ARGS='--brokers auto --data DIR'"
	@echo "make check    format, lint, types, imports, unit tests: before each commit"
	@echo "make docs     the documentation as a site, which opens without a network: build/site"
	@echo "make dist     wheels and sdists of all, their parts and licences: build/dist"
	@echo "make floors   the SDK's unit tests at its lowest dependencies, and on other Pythons here"
	@echo "make bench    speed, as ratios to raw limits measured in the same run"
	@echo "make peers    speed beside RocketMQ, Kafka, Redis and others that can be had here"
	@echo "make interop  against Apache RocketMQ itself; needs Maven"
	@echo "make clients  generate TypeScript, Go and Java clients and use them; needs Node.js, Go, Maven"
	@echo "make lint-openapi  Spectral on the services' OpenAPI documents; needs Node.js"

$(VENV)/bin/uv:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check uv==0.13.8

$(VENV)/.synced: uv.lock pyproject.toml sdk/pyproject.toml deploy/pyproject.toml testing/pyproject.toml spark/pyproject.toml $(wildcard services/*/pyproject.toml) $(NATIVE) $(VENV)/bin/uv
	$(BIN)/uv sync --all-packages --frozen --quiet --compile-bytecode
	@touch $@

up: $(VENV)/.synced
	@$(BIN)/eruca-local $(ARGS)

demo: $(VENV)/.synced
	@$(BIN)/python -m demo.flights $(ARGS)

test: $(VENV)/.synced
	$(PYTEST) -n $(WORKERS) $(ARGS)

chaos: $(VENV)/.synced
	@PYTHONPATH=tests $(BIN)/python -m chaos $(ARGS)

# mypy computes for a minute on one processor, so it runs beside the others.
check: $(VENV)/.synced
	@$(MAKE) --no-print-directory --jobs=2 lint types unit

lint: $(VENV)/.synced
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports

types: $(VENV)/.synced
	$(BIN)/mypy

unit: lint
	$(PYTEST) -n $(UNIT_WORKERS) tests/house tests/unit $(ARGS)

docs: $(VENV)/.synced
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet $(ARGS)
	@echo build/site/index.html

dist: $(VENV)/.synced
	@$(BIN)/python deploy/tools/dist.py $(ARGS)

floors: $(VENV)/.synced
	@$(BIN)/python sdk/tools/floors.py $(ARGS)

bench: $(VENV)/.synced
	@$(BIN)/python -m bench $(ARGS)

# Their clients are in an environment of their own: no user and no test installs them.
$(VENV)/peers/.synced: $(VENV)/.synced
	UV_PROJECT_ENVIRONMENT=$(VENV)/peers $(BIN)/uv sync --only-group peers --frozen --quiet
	@touch $@

peers: $(VENV)/peers/.synced
	@$(BIN)/python -m bench.peers $(ARGS)

interop: $(VENV)/.synced
	@$(BIN)/python -m interop $(ARGS)

clients: $(VENV)/.synced
	@$(BIN)/python -m clients $(ARGS)

$(LINT)/node_modules/.synced: $(LINT)/package-lock.json
	npm ci --prefix $(LINT) --ignore-scripts --no-audit --no-fund --loglevel=error
	@touch $@

lint-openapi: $(LINT)/node_modules/.synced
	$(LINT)/node_modules/.bin/spectral lint --fail-severity=warn --ruleset $(LINT)/.spectral.yaml tests/contract/openapi/*.json
