# Two commands do everything on a machine with Python 3.11 and make:
#   make run    set up, then redo the paper's evaluation on the data that are here, in minutes
#   make test   set up, then run all tests

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: run test lint types check bench quality clean

run: $(READY)
	$(BIN)/gradgroup reproduce --quick

test: $(READY)
	$(BIN)/python -m pytest

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

check: lint types test

bench: $(READY)
	$(BIN)/python -m benchmarks step

# The rivals are packages of their own, which nothing else needs.
quality: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[rivals]'
	$(BIN)/python -m benchmarks quality

clean:
	rm -rf $(VENV) runs

# torch first: its CPU build must be there before anything else asks for any torch.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("gradgroup needs Python 3.11 or newer: make PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@
