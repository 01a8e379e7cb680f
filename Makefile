# Everything starts here: set-up is part of every target and is done again only when pyproject.toml changes.
#
#   make run     serve on 127.0.0.1:9092, data in ./pylogd-data
#   make test    lint, types, layers and all tests
#   make soak    the same tests at full numbers
#   make simulate SEED=n   replay one seed of the simulation of whole brokers (SIMULATION=transaction, group: with these; raft: of the Raft core)
#   make bench   side by side with Apache Kafka (ARGS="..." selects parts)

SHELL := /bin/bash
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(VENV)/bin
# mypy and import-linter read files, and an editable install maps no files: they look at a wheel in a venv of its own.
WHEEL_VENV := .venvs/wheel
WHEEL_BIN := $(WHEEL_VENV)/bin
HASH := $(shell cksum < pyproject.toml | tr -c '0-9\n' '-')
RUN_READY := $(VENV)/.ready-run-$(HASH)
DEV_READY := $(VENV)/.ready-dev-$(HASH)
WHEEL_READY := $(WHEEL_VENV)/.ready-$(HASH)
PIP := $(BIN)/python -m pip --disable-pip-version-check -q
PACKAGES := api protocol runtime config metadata rpc storage replication controller coordinators broker audit cli spark_connector
SOURCES := $(shell find $(PACKAGES) -name '*.py' -o -name py.typed)

# The newest Python from 3.11 on that answers; PYTHON=... chooses another.
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11 python; do \
	"$$p" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo "$$p" && break; done)

# Most of the dear tests wait (for sessions to expire, for JVMs to start): two at a time suit two cores.
WORKERS := -n 2 --dist loadgroup --no-loadscope-reorder

# What `make simulate` replays: broker, transaction, group or raft.
SIMULATION ?= broker

.PHONY: help run test soak simulate bench lint format clean

help:
	@sed -n 's/^#   //p' Makefile

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "pylogd needs Python 3.11 or newer; none was found (set PYTHON=/path/to/python3)" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(RUN_READY): | $(BIN)/python
	$(PIP) install -e .
	@rm -f $(VENV)/.ready-run-* && touch $@

$(DEV_READY): | $(BIN)/python
	$(PIP) install -e '.[dev,spark]'
	@rm -f $(VENV)/.ready-* && touch $(RUN_READY) $@

run: $(RUN_READY)
	exec $(BIN)/pylogd

test: lint
	$(BIN)/python -m pytest $(WORKERS) $(ARGS)

soak: lint
	PYLOGD_SOAK=1 $(BIN)/python -m pytest $(WORKERS) --timeout 7200 $(ARGS)

simulate: $(DEV_READY)
	cd tests && ../$(BIN)/python -m simulation.$(SIMULATION)_simulation $(SEED) $(ARGS)

bench: $(DEV_READY)
	$(BIN)/python -m bench $(ARGS)

$(WHEEL_READY): | $(BIN)/python
	$(BIN)/python -m venv --clear $(WHEEL_VENV)
	$(WHEEL_BIN)/python -m pip --disable-pip-version-check -q install '.[lint]'
	@touch $@

# The dependencies stay; only our own files are put in again when one of them changed.
$(WHEEL_VENV)/.current: $(WHEEL_READY) $(SOURCES) README.md
	@rm -rf build
	$(WHEEL_BIN)/python -m pip --disable-pip-version-check -q install --no-deps --force-reinstall .
	@rm -rf build && touch $@

lint: $(DEV_READY) $(WHEEL_VENV)/.current
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	cd $(WHEEL_VENV) && bin/mypy --config-file ../../pyproject.toml --cache-dir ../../.mypy_cache -p pylogd
	$(WHEEL_BIN)/lint-imports --no-cache

format: $(DEV_READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) .venvs .cache build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
