# Every target sets up what it needs: a virtual environment with this package in it.
PYTHON ?= python3
VENV := .venv
DEMO_VENV := .venv-demo
BIN := $(VENV)/bin
SETUP := $(VENV)/.ready
export TF_CPP_MIN_LOG_LEVEL ?= 3

.DEFAULT_GOAL := help
.PHONY: help demo test test-all fuzz format lint typecheck wheel release bench docs clean

help:  ## Show this list.
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  \1\t/' | expand -t 14

# An environment in a folder (1), and in it this package with extras (2).
define set_up
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Python 3.11 or newer is needed; this is $$($(PYTHON) --version). Try: make PYTHON=python3.12"; exit 2; }
	@echo "Installing this package in $(1): a few minutes and 3 GB, most of it TensorFlow."
	$(PYTHON) -m venv $(1)
	$(1)/bin/python -m pip install --quiet --upgrade pip "setuptools>=64" wheel
	$(1)/bin/python -m pip install --quiet --editable ".[$(2)]"
	@touch $(1)/.ready
endef

$(SETUP): setup.cfg setup.py pyproject.toml
	$(call set_up,$(VENV),dev)

$(DEMO_VENV)/.ready: setup.cfg setup.py pyproject.toml
	$(call set_up,$(DEMO_VENV),demo)

demo: $(DEMO_VENV)/.ready  ## Find wrong labels, train, evaluate and export on drawn photos (2 to 5 min).
	rm -rf demo
	$(DEMO_VENV)/bin/python examples/demo.py demo

test: $(SETUP)  ## Run the default test suite (20 to 40 min on 2 cores).
	$(BIN)/python -m pytest -q -n 2 --dist loadfile --no-loadscope-reorder --max-worker-restart 0 \
	  --no-grappler --durations=10 -m "not slow"

test-all: $(SETUP)  ## Run everything, the longer proofs too.
	$(BIN)/python -m pytest -q -n 2 --dist loadfile --no-loadscope-reorder

MINUTES ?= 10
fuzz: $(SETUP)  ## Read damaged weights, classifiers, images and data (10 min; make fuzz MINUTES=60).
	$(BIN)/python tests/fuzz/fuzz.py --minutes $(MINUTES)

format: $(SETUP)  ## Format the code.
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix-only --quiet .

lint: $(SETUP)  ## Check style, imports and formatting.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

typecheck: $(SETUP)  ## Check types.
	$(BIN)/mypy

wheel: $(SETUP)  ## Build the wheel, install it in a scratch environment, import every module.
	rm -rf build dist
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .
	$(BIN)/python tests/check_wheel.py dist/*.whl

release: $(SETUP)  ## Build sdist and wheel; try each on the lowest and the newest dependencies.
	$(BIN)/python -m pip install --quiet --editable ".[release]"
	rm -rf build dist
	$(BIN)/python -m build --outdir dist .
	$(BIN)/python -m twine check --strict dist/*
	$(BIN)/python tests/check_wheel.py --release dist/*

bench: $(SETUP)  ## Time ViT-B/16 against KerasHub and the machine's matrix rate.
	$(BIN)/python -m pip install --quiet --editable ".[bench]"
	$(BIN)/python benchmarks/compare.py

docs: $(SETUP)  ## Build the documentation into build/site; every link and name is checked.
	$(BIN)/python -m pip install --quiet --editable ".[docs]"
	$(BIN)/python docs/site_pages.py
	@echo "Open build/site/index.html"

clean:  ## Remove what the other targets made.
	rm -rf $(VENV) $(DEMO_VENV) build dist demo *.egg-info .mypy_cache .ruff_cache .pytest_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
