# Every target makes its own environment in .venv. `make demo` needs Python 3.11+ with venv,
# virtualenv or uv; `make test` as root installs what it needs through apt.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: demo test test-all fast gpu-test lint bench docs clean system-packages always
.NOTPARALLEL:
# Without compiled modules, every process that a test starts would compile them again.
unexport PYTHONDONTWRITEBYTECODE

demo: $(VENV)/installed
	@$(BIN)/python examples/demo.py

test: system-packages lint
	$(BIN)/pytest -n 4

# Before a release: also the tests marked `release`, see CONTRIBUTING.md.
test-all: system-packages lint
	$(BIN)/pytest -n 4 -m ""

# For every change: what needs no daemon, and a few jobs through everything. Under a minute.
FAST := tests/text tests/engine/test_*.py tests/engine/store tests/features/sweeps/test_*.py \
        tests/features/results tests/web/http \
        tests/cli/test_smoke.py tests/cli/test_submit.py tests/cli/test_wait.py \
        tests/faults/test_process_trees.py
fast: $(VENV)/dev
	$(BIN)/pytest -n 2 $(FAST)

# On a machine with a GPU, by a Python that has torch: make gpu-test GPU_PYTHON=python3
GPU_PYTHON ?= $(BIN)/python
gpu-test: $(VENV)/dev
	PYTHONPATH=src $(GPU_PYTHON) -m pytest -n0 tests/hardware

lint: $(VENV)/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/npm.py run lint

bench: $(VENV)/dev
	$(BIN)/python -m bench all

docs: $(VENV)/dev
	$(BIN)/python docs/generate.py

clean:
	rm -rf $(VENV)

# Programs that tests run: apt installs them for root; other users see what is missing.
system-packages:
	@$(PYTHON) tests/system_packages.py

# The script writes this file when the environment is complete, and repairs one that is not.
$(VENV)/complete: always
	@$(PYTHON) tools/make_environment.py $(VENV)

$(VENV)/installed: $(VENV)/complete pyproject.toml hatch_build.py
	# The demo does not need the web UI; `make test` builds it.
	STOKER_NO_PAGE=1 $(PIP) --editable .
	touch $@

$(VENV)/dev: $(VENV)/complete pyproject.toml hatch_build.py
	$(PIP) --editable '.[dev]'
	# A C compiler from PyPI where the system has none.
	command -v cc >/dev/null || $(PIP) ziglang
	touch $@ $(VENV)/installed
