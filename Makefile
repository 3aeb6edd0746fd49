# Every target prepares .venv first (tools/venv.py): minutes the first time, nothing afterwards.
# Options:  PYTHON=python3.12  the interpreter to build .venv with
#           WORKERS=8          parallel test processes
#           BURES_DATA=DIR     real data for the tests that use it; they skip without
#           BENCH="--full"     options of the benchmarks
#           NIGHTLY="--quick"  options of the long campaigns

WORKERS ?= 2
BIN := .venv/bin

# Without PYTHON=, a .venv that works is kept, whatever its version.
ifeq ($(origin PYTHON),undefined)
PYTHON := $(shell $(BIN)/python -I -S -c pass 2>/dev/null && echo $(BIN)/python || echo python3)
endif

.PHONY: help demo test test-slow nightly lint format bench results docs clean distclean venv

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

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
	find . -path ./.venv -prune -o -type d -name __pycache__ -exec rm -rf {} +

distclean: clean ## remove .venv as well
	rm -rf .venv

venv:
	@$(PYTHON) tools/venv.py
