# make demo       set up, match an image pair, train two small descriptors and show the result
# make test       set up, then lint, types and tests; TESTS=all also runs the slow tests
# make test-slow  the slow tests: killed and parallel trainings, whole studies, the demo, the wheel
# make lint       ruff and mypy
# make campaign   attack doap for ten minutes: damaged files, kills, full disks; out/campaign/index.html
# make docs       build the documentation into out/site
# make clean      remove the environment, outputs and caches
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready
# Installing compiles nothing (--no-compile): most modules are never imported. Those that are keep their bytecode,
# because demo and tests start many processes.
unexport PYTHONDONTWRITEBYTECODE
# One worker per core, each with one thread: faster than one process with all cores.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses auto --dist worksteal

# Which tests make test runs; both kinds in one run import everything once.
TESTS := fast
SELECTION_fast := -m "not slow"
SELECTION_slow := -m slow
SELECTION_all :=
ifeq ($(origin SELECTION_$(TESTS)),undefined)
$(error TESTS=$(TESTS): must be fast, slow or all)
endif

.PHONY: demo test test-slow run-tests campaign docs lint clean help

help:
	@sed -n 's/^# \(make.*\)/\1/p' Makefile

# The pip of Python 3.11 resolves and installs twice as long as a new one. torch goes first and exactly, so that no other
# package's looser request picks its build.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("doap needs Python 3.11 or newer, this is " + sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --upgrade pip
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt "$$(grep '^torch==' constraints.txt)"
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt --editable ".[dev]"
	touch $@

demo: $(READY)
	$(BIN)/doap demo

lint: $(READY)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

test: lint run-tests

test-slow: TESTS := slow
test-slow: run-tests

run-tests: $(READY)
	$(PYTEST) $(SELECTION_$(TESTS))

campaign: $(READY)
	PYTHONPATH=tools:tests OMP_NUM_THREADS=1 $(BIN)/python -m campaign

# Links that lead nowhere are errors. Search needs a server: python -m http.server -d out/site
docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "out/site/index.html"

clean:
	rm -rf $(VENV) out dist .mypy_cache .pytest_cache .ruff_cache
