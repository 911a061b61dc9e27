# Every target makes its own environment in .venv; nothing but Python 3.11+ is needed.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

.PHONY: demo test fast gpu-test lint bench docs clean

demo: $(VENV)/installed
	@$(BIN)/python -m stoker.demo

test: lint
	$(BIN)/pytest -n 4 --dist worksteal

fast: $(VENV)/dev
	$(BIN)/pytest -n 4 -m "not slow"

# On a machine with a GPU, by a Python that has torch: make gpu-test GPU_PYTHON=python3
GPU_PYTHON ?= $(BIN)/python
gpu-test: $(VENV)/dev
	PYTHONPATH=src $(GPU_PYTHON) -m pytest -n0 tests/hardware

lint: $(VENV)/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/dev
	$(BIN)/python -m bench all

docs: $(VENV)/dev
	$(BIN)/python docs/generate.py

clean:
	rm -rf $(VENV)

$(VENV)/bin/python:
	$(PYTHON) -c 'import venv' 2>/dev/null || { echo "error: this Python cannot make environments" >&2; echo "hint: apt-get install python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv --upgrade-deps $(VENV)

$(VENV)/installed: $(VENV)/bin/python pyproject.toml hatch_build.py
	# The demo needs no page; `make test` builds it.
	STOKER_NO_PAGE=1 $(BIN)/pip install --quiet --disable-pip-version-check --editable .
	touch $@

$(VENV)/dev: $(VENV)/bin/python pyproject.toml hatch_build.py
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@ $(VENV)/installed
