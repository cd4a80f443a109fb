# The README's two commands are `make run` and `make test`; both work on a fresh clone.

PYTHON ?= python3
TORCH  ?= torch==2.13.0
TARGET ?= h100
JOBS   ?= 2
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check
# An empty PYTHONDONTWRITEBYTECODE keeps bytecode: without it each of the thousands of worker processes
# that the tests start would compile the package anew.
PYTEST := OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -q

.DEFAULT_GOAL := help
.PHONY: help run test test-all gpu-test check docs clean

help:
	@echo "make run       install, then optimise examples/layernorm.py for $(TARGET)"
	@echo "make test      format, lint, types, import contracts, tests; 20 minutes on two cores"
	@echo "make test-all  the same with the long tests"
	@echo "make gpu-test  the tests that need a CUDA device"
	@echo "make docs      the documentation as a site in .site; no network, any warning fails"
	@echo "PYTHON=... picks the interpreter, TORCH=... the build to install where it has none"

run: $(VENV)/.stamp-package
	$(BIN)/agentkernel optimize examples/layernorm.py --target $(TARGET)
	@echo "Next: . $(BIN)/activate, and agentkernel is a command; see agentkernel --help"

test: check
	$(PYTEST) -n $(JOBS) --dist loadgroup -m "not gpu and not slow"

test-all: check
	$(PYTEST) -n $(JOBS) --dist loadgroup -m "not gpu"

gpu-test: $(VENV)/.stamp-dev
	$(PYTEST) -m gpu

# Not as $(BIN)/ruff: a $(PYTHON) that has these tools shares them, and their scripts lie with it.
check: $(VENV)/.stamp-dev
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m ruff check .
	$(BIN)/python -m mypy
	$(BIN)/python -c "from importlinter.cli import lint_imports_command as lint; lint()" --no-cache

docs: $(VENV)/.stamp-dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

# torch first and by itself: a build that $(PYTHON) already has is used as it is.
$(VENV)/.stamp-torch: | .ci/make_venv.py
	$(PYTHON) .ci/make_venv.py $(VENV) "$(TORCH)"
	@touch $@

$(VENV)/.stamp-package: $(VENV)/.stamp-torch pyproject.toml
	$(PIP) install -qq -c $(VENV)/torch-constraint.txt -e .
	@touch $@

$(VENV)/.stamp-dev: $(VENV)/.stamp-torch pyproject.toml
	$(PIP) install -qq -c $(VENV)/torch-constraint.txt -e ".[dev]"
	@touch $(VENV)/.stamp-package $@

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
