# Two commands to know: `make demo` builds a model and its score, `make test` passes the tests. Both set up first.
# By file: what is built once for the tests of a file is built in one worker.
PYTEST := .venv/bin/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

.PHONY: setup demo test test-slow campaign bench lint types

setup:
	@scripts/setup

demo: setup
	.venv/bin/marin build //exp:tiny_eval

lint: setup
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .

types: setup
	.venv/bin/pyright

test: lint types
	$(PYTEST) -m "not slow"

test-slow: setup
	$(PYTEST) -m slow

campaign: setup
	MARIN_TEST_CAMPAIGN=1 $(PYTEST) --dist load --timeout 3600

bench: setup
	.venv/bin/python benchmarks/run.py
