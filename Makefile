# Everything a clone needs is Python 3.11+, make and a package index.

PYTHON ?= python3

VENV  := .venv
TOOLS := build/tools
BIN   := $(VENV)/bin
PIP   := $(BIN)/python -m pip --disable-pip-version-check

# Stamps. A development environment also runs the demo, so the first one found serves.
MADE    := $(VENV)/.made
RUN     := $(VENV)/.run-installed
DEV     := $(VENV)/.dev-installed
INSTALL := $(PIP) install --quiet --require-hashes --requirement
PROJECT := $(PIP) install --quiet --no-deps --no-build-isolation --editable .

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help demo test check bench bench-context bench-import bench-worker soak lint format types arrows docs lock clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(RUN) ## a session that survives its process, start to end
	@$(BIN)/foldline demo

test: $(DEV) ## every test, three at a time (those on Kafka: see CONTRIBUTING.md)
	@$(BIN)/pytest -q -n 3 $(ARGS)

check: test lint types arrows ## test, lint, types and arrows

bench-context: $(RUN) ## measure contexts on your own transcripts: make bench-context ARGS="FOLDER --curve"
	@$(BIN)/python benchmarks/context.py --json $(ARGS)

bench: $(DEV) ## measure: append, fold, wake, fork, disk, redaction (docs/benchmarks.md)
	@for name in append fold wake fork disk redaction; do \
		echo "== $$name"; $(BIN)/python benchmarks/$$name.py --json $(ARGS) || exit 1; done

bench-worker: $(RUN) ## measure the worker on a real broker beside its peers (Java, Maven; 15 minutes)
	@$(BIN)/python benchmarks/worker.py --json $(ARGS)

bench-import: $(RUN) ## measure the import of a transcript of 1 GB (20 minutes, 3 GB of disk)
	@$(BIN)/python benchmarks/import.py --json $(ARGS)

soak: $(DEV) ## the tests at full size that need no broker (10 minutes): pytest -m storm
	@$(BIN)/pytest -q -n 0 -m "storm and not kafka" $(ARGS)

lint: $(DEV) ## ruff: rules and format
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --quiet --check .

format: $(DEV) ## let ruff fix and format what it can
	@$(BIN)/ruff check --quiet --fix-only .
	@$(BIN)/ruff format --quiet .

types: $(DEV) ## pyright, strict
	@$(BIN)/pyright

arrows: $(DEV) ## import-linter: the rooms point inward
	@$(BIN)/lint-imports

docs: $(DEV) ## write the reference pages that are made from the code
	@$(BIN)/python -m foldline.cli.reference docs

lock: $(TOOLS)/bin/uv ## pin every dependency anew
	@echo "lock: requirements/run.lock, requirements/image.lock, requirements/dev.lock"
	@$(LOCK) --group build --output-file requirements/run.lock pyproject.toml
	@$(LOCK) --group build $(EXTRAS) --constraint requirements/run.lock \
		--output-file requirements/image.lock pyproject.toml
	@$(LOCK) --group dev $(EXTRAS) --constraint requirements/image.lock \
		--output-file requirements/dev.lock pyproject.toml

clean: ## remove what was built here
	@rm -rf $(VENV) build dist .pytest_cache .hypothesis .ruff_cache \
		.import_linter_cache *.egg-info
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# What the container image and the tests have beyond `run`.
EXTRAS := --extra serve --extra s3 --extra otel --extra fleet

# One lock for every platform and Python from 3.11 on, with the hash of each file.
# Where packages come from is the installer's business and is not written down.
LOCK = env -u PIP_FIND_LINKS -u UV_FIND_LINKS \
	$(TOOLS)/bin/uv pip compile --quiet --upgrade --universal \
	--python-version 3.11 --generate-hashes \
	--no-header --no-emit-index-url --no-emit-find-links

$(TOOLS)/bin/uv:
	@$(check-python)
	@$(PYTHON) -m venv $(TOOLS)
	@$(TOOLS)/bin/python -m pip --disable-pip-version-check install --quiet uv

$(MADE):
	@$(check-python)
	@echo "setup: $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@touch $@

$(DEV): requirements/dev.lock pyproject.toml | $(MADE)
	@echo "setup: installing requirements/dev.lock"
	@$(INSTALL) requirements/dev.lock
	@$(PROJECT)
	@touch $@ $(RUN)

$(RUN): requirements/run.lock pyproject.toml | $(MADE)
	@echo "setup: installing requirements/run.lock"
	@$(INSTALL) requirements/run.lock
	@$(PROJECT)
	@touch $@

define check-python
$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	|| { echo "foldline needs Python 3.11 or newer; $(PYTHON) is: $$($(PYTHON) --version 2>&1)." \
	"Try: make PYTHON=python3.12" >&2; exit 1; }
endef
