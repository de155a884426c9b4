# `make run` and `make test` need a Python of 3.11 or newer and nothing else: what they use is installed into .venv once,
# and again when pyproject.toml or constraints.txt changes. Where there is no GPU, torch is its build without CUDA.

VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
PIPELINE ?= image_classification
WORKERS ?= 3
ENVIRONMENTS ?=
PART ?= patch
ARGS ?=
# An interpreter that keeps no bytecode compiles all that it imports of the checkout again, in each rank of each test.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help run test test-all test-environments fuzz check lint types quick renew locks audit bump format docs bench build clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 26
	@echo
	@echo 'ARGS go to the command behind a target:  make run ARGS="epochs=3"   make test ARGS="tests/cli -k list"'

run: $(VENV)/.stamp-local ## train and evaluate on two emulated nodes of two ranks each (another one: PIPELINE=name)
	$(BIN)/allranks run $(PIPELINE) $(ARGS)

# In the files' order, not those with the most tests first: the longest files have few tests, and would come last.
test: $(VENV)/.stamp-horovod ## run the tests
	$(BIN)/pytest -n $(WORKERS) --max-worker-restart=0 --dist loadfile --no-loadscope-reorder $(ARGS)

test-all: $(VENV)/.stamp-horovod ## run the tests, each promise with every framework and at every scale
	$(BIN)/pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder --exhaustive $(ARGS)

fuzz: $(VENV)/.stamp-dev ## read 1,000 mutants of YAML, data, models and runs with each reader (others: ARGS="--seed 2 --target yaml")
	$(BIN)/python -m tests.fuzz $(ARGS)

check: $(VENV)/.stamp-dev ## formatting, lint, types and the quick tests, side by side
	@$(MAKE) --no-print-directory --jobs=3 lint types quick

lint:
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types:
	$(BIN)/mypy

quick:
	$(BIN)/pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder -m "not slow" $(ARGS)

test-environments: $(VENV)/.stamp-dev ## build each environment from its lock, and run its components in it (some: ENVIRONMENTS="pytorch evaluate")
	ALLRANKS_ENVIRONMENTS="$(ENVIRONMENTS)" $(BIN)/pytest tests/environments/built.py $(ARGS)

renew: $(VENV)/.stamp-dev ## write what follows from settings, imports and YAML: components, pages, types, pipelines
	$(BIN)/python -m tools.renew --pipelines $(ARGS)

locks: $(VENV)/.stamp-dev ## resolve constraints.txt and every environment's lock (some: ENVIRONMENTS=compare; newest: ARGS=--upgrade)
	PATH="$(abspath $(BIN)):$$PATH" environments/lock.sh $(ARGS) $(ENVIRONMENTS)

audit: $(VENV)/.stamp-dev ## ask PyPI for known vulnerabilities of every locked version
	$(BIN)/uvx 'pip-audit>=2.10,<3' --strict --no-deps --disable-pip -r constraints.txt $(ARGS)

bump: $(VENV)/.stamp-dev ## raise the version everywhere: PART=patch, minor or major
	$(BIN)/uvx 'bump-my-version>=1.8,<2' bump $(PART) $(ARGS)
	$(BIN)/python -m tools.renew

format: $(VENV)/.stamp-dev ## format the code and fix what can be fixed without thought
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(VENV)/.stamp-dev ## the site, into build/docs; a warning is an error
	$(BIN)/sphinx-build -W --keep-going -q docs build/docs $(ARGS)

bench: $(VENV)/.stamp-dev ## the same chains of steps with other tools, set up in build/bench; writes docs/benchmarks.md (half an hour)
	$(BIN)/python benchmarks/bench.py $(ARGS)

build: $(VENV)/.stamp-dev ## the wheel and the source distribution, into dist/
	$(BIN)/python -m build

clean: ## remove .venv, caches and builds; runs in .allranks stay
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -not -path './.allranks/*' -prune -exec rm -rf {} +

# pip is renewed first: 23.2 and older cannot resolve the Azure SDK's dependencies.
$(VENV)/.stamp-pip:
	@test -n "$(PYTHON)" || { echo 'error: Python 3.11 or newer is needed: make PYTHON=/path/to/python3.11' >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
		{ echo 'error: $(PYTHON) cannot make virtual environments: apt-get install python3-venv' >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	@$(PYPI) && $(BIN)/python -m pip install --quiet -c constraints.txt uv || true
	@touch $@

# uv takes a third of pip's time. It reads nothing of pip's configuration: where that names another index than PyPI, and
# where uv is not to be had or fails, pip installs.
PYPI = ! $(BIN)/python -m pip config list | grep -q '[.]index-url='
UV = $(BIN)/uv pip install --quiet --python $(BIN)/python
PIP = $(BIN)/python -m pip install --quiet
install = { $(PYPI) && $(UV) $(1); } || $(PIP) $(1)

$(VENV)/.stamp-local: $(VENV)/.stamp-pip pyproject.toml constraints.txt
	$(BIN)/python environments/install_torch.py constraints.txt
	$(call install,-c constraints.txt -e '.[local]')
	@touch $@

$(VENV)/.stamp-dev: $(VENV)/.stamp-pip pyproject.toml constraints.txt
	$(BIN)/python environments/install_torch.py constraints.txt
	$(call install,-c constraints.txt -e '.[dev]')
	@touch $@ $(VENV)/.stamp-local

# Built once for these versions of Python, torch and TensorFlow, in about five minutes, and kept in ~/.cache/allranks/wheels.
$(VENV)/.stamp-horovod: $(VENV)/.stamp-dev environments/horovod/install.py environments/horovod/lock.txt
	$(BIN)/python environments/horovod/install.py
	@touch $@
