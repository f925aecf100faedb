# Everything is set up on first use: `make run` and `make test` need Python 3.11 or later and make.
PYTHON ?= python3
BIN := .venv/bin
export NO_MKDOCS_2_WARNING = 1
QUICK := -m "not slow and not nightly"
SLOW := -m "slow and not nightly"
# Its programs run for long, so XLA optimises them as it does for users; for other tests but little.
REAL := tests/data/test_real_data.py

.PHONY: run docs docs-serve docs-check notebooks tables test test-slow test-all test-nightly test-versions test-gpu soak check format clean

run: .venv/sim  ## train federatedly on embedded data, and compare with full communication
	$(BIN)/taciturn run

test: .venv/dev  ## the quick tests
	$(BIN)/pytest -n 2 $(QUICK)

test-all: test test-slow  ## the quick and the slow tests

test-slow: .venv/dev .venv/track  ## what needs servers, Chromium, trackers, real data (TACITURN_DATA) or minutes
	@echo "Federations first; the other slow tests run while they wait, and report after them."
	@log="$$(mktemp)"; \
	{ XLA_FLAGS= nice -n 19 $(BIN)/pytest $(SLOW) $(REAL) && \
	  nice -n 19 $(BIN)/pytest -n 2 $(SLOW) --ignore tests/flower --ignore tests/nvflare --ignore $(REAL); } > "$$log" 2>&1 & \
	XLA_FLAGS= $(BIN)/pytest $(SLOW) tests/flower tests/nvflare; federations=$$?; \
	wait $$!; others=$$?; cat "$$log"; rm -f "$$log"; \
	[ $$federations = 0 ] && [ $$others = 0 ]

test-nightly: .venv/dev .venv/docs  ## whole grids of which other tests have a part, tutorials, and federations for half an hour
	XLA_FLAGS= $(BIN)/pytest -n 2 -m nightly

test-gpu:  ## what needs a GPU, with the interpreter that has a JAX for it; leaves tests/records/gpu.json
	$(or $(wildcard $(BIN)/python),$(PYTHON)) tests/gpu.py

test-versions:  ## the quick tests with the lowest and newest dependencies on every Python here, and with every Flower; leaves tests/records/versions.json
	$(PYTHON) tests/versions.py --json tests/records/versions.json $(ARGS)

soak: .venv/dev  ## 150 rounds with nodes and SuperLink killed at random, and 500 in process; leaves tests/records/soak.json and memory.json
	$(BIN)/python tests/flower/soak.py --memory --json tests/records/memory.json
	$(BIN)/python tests/flower/soak.py --json tests/records/soak.json $(ARGS)

docs: .venv/docs tables  ## the tables in pages, again from the results that are committed; and the site
	$(BIN)/mkdocs build --strict

docs-serve: .venv/docs  ## the site on http://127.0.0.1:8000, built again where a page changes
	$(BIN)/mkdocs serve --watch README.md --watch src

docs-check: .venv/docs  ## what must pass before the site or the package is published
	$(BIN)/mkdocs build --strict
	rm -rf build/dist
	$(BIN)/python -m build --no-isolation --outdir build/dist
	$(BIN)/twine check --strict build/dist/*

notebooks: .venv/docs  ## the tutorials, executed and stored with their output
	$(BIN)/python tests/docs/notebooks.py

tables: .venv/dev  ## the tables in pages, again from the results that are committed
	for page in table.py "scaling.py table" "downlink.py --table" "attacks.py --table" "batchnorm.py --table" "transformer.py --table"; do \
	  $(BIN)/python benchmarks/$$page || exit 1; done
	for study in paper frontier; do $(BIN)/python -m experiments.$$study table || exit 1; done

check: .venv/dev  ## format, lint, types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: .venv/dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

.venv/sim: pyproject.toml
	@echo "Installing into .venv (about a minute, once) …"
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[sim]'
	@touch $@

.venv/dev: pyproject.toml
	@echo "Installing into .venv, with all that tests need (a minute or two, once) …"
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

.venv/track: pyproject.toml .venv/dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,track]'
	@touch $@

.venv/docs: pyproject.toml .venv/dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,docs]'
	@touch $@

clean:
	rm -rf .venv .versions build dist .pytest_cache .ruff_cache .mypy_cache
