# `make demo` and `make test` set everything up by themselves; `make help` lists the rest.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.ONESHELL:
.SILENT:
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

PYTHON ?= $(firstword $(shell command -v python3.11 python3) python3)
VENV := .venv
PY := $(VENV)/bin/python
RUN := $(VENV)/.installed-run
DEV := $(VENV)/.installed-dev
DOCS := $(VENV)/.installed-docs
KERNELS := $(VENV)/.built-kernels
# -qq: errors only.  No build isolation: setuptools is there already, so building downloads nothing.
PIP := $(PY) -m pip --disable-pip-version-check --no-input install -qq -c constraints.txt
DEMO := $(if $(QUICK),demo_quick,demo)
PINNED = $(shell sed -n 's/^$(1)==//p' constraints.txt)

export PIP_ROOT_USER_ACTION := ignore
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1

.PHONY: help setup demo docs test test-all fault-test slurm-test wheel-test test-versions gpu results lint format clean

help: ## this list
	sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST)

setup: $(DEV) $(KERNELS) ## create .venv and install everything, development tools included

demo: $(RUN) $(KERNELS) ## run the sweep `demo` on this machine, draw its figures and write its report (at most 5 minutes on 2 cores; QUICK=1: half a minute)
	$(PY) grid_run.py run demo $(if $(QUICK),quick,demo)
	$(PY) -m analysis figures $(DEMO)
	$(PY) -m analysis table $(DEMO)
	$(PY) -m analysis report $(DEMO)$(if $(QUICK), --most-figures 8)

docs: $(DOCS) ## build the site of docs/ into site/ (broken links fail); open site/index.html
	$(VENV)/bin/zensical build --strict --clean

test: $(DEV) $(KERNELS) ## run the quick tests, which are all but those marked slow and those of benchmarks
	$(PY) -m tests.quick $(ARGS)

test-all: $(DEV) $(KERNELS) ## run all tests
	$(PY) -m pytest -p xdist.plugin -n 2 --dist loadfile $(ARGS)

fault-test: $(DEV) $(KERNELS) ## kill real runs at 30 random moments and compare how they end (about 12 minutes on 2 cores)
	$(PY) -m tests.faults $(ARGS)

slurm-test: $(DEV) $(KERNELS) ## run the tests on a real SLURM, which is started for them and taken down (root on Debian; at most 6 minutes)
	tests/slurm/install.sh
	$(PY) -c 'import sys; from tests.slurm.cluster import unavailable; sys.exit(unavailable() or 0)'
	folder=$$(mktemp -d /tmp/s-XXXXXX)
	trap 'for each in "$$folder"/slurm-*/; do [ ! -d "$$each" ] || $(PY) -m tests.slurm down "$$each"; done; rm -rf "$$folder"' EXIT
	TMPDIR=$$folder NUQ_SLURM=1 $(PY) -m pytest -p xdist.plugin -n 4 --dist loadfile --basetemp="$$folder/t" tests/slurm $(ARGS)

wheel-test: $(DEV) ## build the wheel, install it with a compiler and without one, and test both (no download)
	$(PY) -m tests.versions.wheel

test-versions: $(DEV) ## the library on other versions of Python, torch, NumPy and Triton, by pip and uv (several GB and minutes a row)
	$(PY) -m tests.versions $(ARGS)

gpu: ## measure on a GPU within 27 minutes, with the Python, torch and Triton that are there (ARGS="--rehearse": in small, without a GPU)
	benchmarks/gpu/run $(ARGS)

results: $(DEV) $(KERNELS) ## measure again what pages quote: NAME="grid methods"; without NAME the list of names, dates and commits
	$(PY) -m benchmarks.record $(NAME)
	$(if $(NAME),$(PY) -m benchmarks.pages)

lint: $(DEV) ## ruff check, ruff format --check, import-linter, pyright
	failed=
	$(PY) -m ruff check . || failed=1
	$(PY) -m ruff format --check . || failed=1
	$(PY) -c 'from importlinter.cli import lint_imports_command as main; main()' --no-logo --no-cache || failed=1
	$(PY) -m pyright --pythonpath $(PY) || failed=1
	test -z "$$failed"

format: $(DEV) ## let ruff repair and lay out the code
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

clean: ## remove .venv, caches and the site; runs, figures and data stay
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis .cache build dist site *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A torch of the pinned version that this Python already sees is used, not downloaded again (another environment's is not seen).
$(PY):
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Python 3.11 or later is needed and $(PYTHON) is older: name another one with 'make PYTHON=/path/to/python3.11'." >&2; exit 1; }
	$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null \
	  || { echo "This Python cannot create virtual environments: install Debian's package python3-venv ('apt install python3-venv' as root) and run make again." >&2; exit 1; }
	if $(PYTHON) -c 'import sys, torch; sys.exit(sys.prefix != sys.base_prefix or torch.__version__.split("+")[0] != "$(call PINNED,torch)")' 2>/dev/null; then
	  echo "Creating $(VENV) with the torch $(call PINNED,torch) that is already installed"
	  $(PYTHON) -m venv --clear --system-site-packages $(VENV)
	else
	  echo "Creating $(VENV)"
	  $(PYTHON) -m venv --clear $(VENV)
	fi

# torchvision is installed without its dependencies: its metadata would replace a CPU build of torch by a CUDA one.
$(RUN): constraints.txt pyproject.toml | $(PY)
	echo "Installing what the experiments need, torch $(call PINNED,torch) first where it is missing (once; about 2 minutes, plus the download)"
	$(PIP) torch setuptools
	$(PIP) --no-deps torchvision
	$(PIP) --no-build-isolation --use-pep517 --editable '.[experiments]'
	touch $@

# The installation above builds the kernels too; this builds them again where their sources changed.  Without a compiler all works, slower.
$(KERNELS): $(wildcard nuq/native/build.py nuq/native/src/* nuq/native/src/simd/*) | $(RUN)
	$(PY) -m nuq.native || true
	touch $@

$(DEV): $(RUN)
	echo "Installing the development tools"
	$(PIP) --no-build-isolation --use-pep517 --editable '.[dev]'
	touch $@

$(DOCS): $(RUN)
	echo "Installing what builds the site"
	$(PIP) --no-build-isolation --use-pep517 --editable '.[docs]'
	touch $@
