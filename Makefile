# make demo   sets itself up, trains two small descriptors and shows the result (about 4 minutes on 2 cores of a Xeon)
# make test   sets itself up, then lint, types and tests
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready

.PHONY: demo test lint clean help

help:
	@sed -n 's/^# \(make.*\)/\1/p' Makefile

# torch goes first and exactly, so that no other package's looser request picks its build.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("doap needs Python 3.11 or newer, this is " + sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt "$$(grep '^torch==' constraints.txt)"
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[dev]"
	touch $@

demo: $(READY)
	$(BIN)/doap demo

lint: $(READY)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

test: lint
	$(BIN)/python -m pytest

clean:
	rm -rf $(VENV) out .mypy_cache .pytest_cache .ruff_cache
