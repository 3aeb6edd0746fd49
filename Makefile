# Every target prepares .venv first (tools/venv.py): minutes the first time, nothing afterwards.
# Options:  PYTHON=python3.12  the interpreter to build .venv with
#           WORKERS=8          parallel test processes
#           BURES_DATA=DIR     real data for the tests that use it; they skip without
#           BENCH="--full"     options of the benchmarks
#           NIGHTLY="--quick"  options of the long campaigns

WORKERS ?= 2
BIN := .venv/bin
OLDEST_PYTHON ?= python3.11

# Without PYTHON=, a .venv that works is kept, whatever its version.
ifeq ($(origin PYTHON),undefined)
PYTHON := $(shell $(BIN)/python -I -S -c pass 2>/dev/null && echo $(BIN)/python || echo python3)
endif

.PHONY: help demo test test-slow test-oldest nightly coverage mutation package lint format bench results docs clean
.PHONY: distclean venv

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' Makefile

demo: venv ## train a network on MNIST digits with labels and on Optdigits without
	rm -rf outputs/demo
	$(BIN)/bures adapt --source mnist5k --target optdigits --recipe demo --method source --method ckb -o outputs/demo

# One thread per process, so that parallel tests do not compete for the cores.
test: lint ## lint, then run the tests and the doctests
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS)

# Exit status 5: no test is marked slow.
test-slow: venv ## run the tests marked slow, one after another
	$(BIN)/python -m pytest -m slow || [ $$? -eq 5 ]

# NIGHTLY="--quick" or NIGHTLY="kills disks": shorter, or only some sections.
nightly: venv ## run the long campaigns (faults, soaks, fuzzing: hours), into results/nightly
	$(BIN)/python tools/nightly.py $(NIGHTLY); found=$$?; $(BIN)/python tools/robustness_page.py && exit $$found

# The oldest Python and the oldest releases that pyproject.toml allows, in .venv-oldest (tools/oldest.py).
# TESTS="tests/cli" runs a part of the tests. Old releases beside new ones are full of deprecations: not errors here.
test-oldest: ## run the tests with the oldest supported releases of the dependencies
	$(OLDEST_PYTHON) tools/oldest.py
	OMP_NUM_THREADS=1 .venv-oldest/bin/python -m pytest -n $(WORKERS) --junitxml=outputs/oldest.xml \
	    -W ignore::DeprecationWarning -W ignore::PendingDeprecationWarning -W ignore::FutureWarning \
	    -W "ignore:torch.meshgrid:UserWarning" $(TESTS)

# Processes that tests start are measured, too; the threshold stands in pyproject.toml.
coverage: venv ## measure which lines and branches the tests run; fail below the threshold
	OMP_NUM_THREADS=1 $(BIN)/python tools/coverage_summary.py --workers $(WORKERS)

mutation: venv ## put faults into the mathematics and see whether its tests notice (an hour)
	$(BIN)/python tools/mutation.py --publish

# PACKAGE="--full" installs the dependencies anew, several GB, instead of borrowing those of .venv.
package: venv ## build wheel and source archive, check them, try them; check the licences of the dependencies
	$(BIN)/python tools/package_check.py $(PACKAGE)
	$(BIN)/python tools/licences.py --check

lint: venv ## check style, formatting, types and the direction of imports
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

format: venv ## format the code and fix what can be fixed
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

# BENCH="--full --publish" measures larger batches, too, and writes benchmarks/results and docs/benchmarks.md.
bench: venv ## measure speed and memory beside other libraries, into outputs/benchmarks
	$(BIN)/python -m benchmarks $(BENCH)

results: venv ## bring the tables and figures of README.md and docs/results.md up to date with results/
	$(BIN)/python tools/results_page.py

docs: ## build the documentation into docs/_build/html
	@$(PYTHON) tools/venv.py --extras dev,docs
	$(BIN)/sphinx-build -W --keep-going -b html docs docs/_build/html

clean: ## remove build products and caches, keep .venv
	rm -rf build dist docs/_build docs/auto_examples docs/generated
	rm -rf .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -path './.venv*' -prune -o -type d -name __pycache__ -exec rm -rf {} +

distclean: clean ## remove the virtual environments as well
	rm -rf .venv .venv-oldest

venv:
	@$(PYTHON) tools/venv.py
