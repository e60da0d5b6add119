# Everything runs in .venv, which `make install` fills from requirements.lock. Needs Python 3.11+ and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
# One process more than processors: tests also wait, for time-outs and for other processes.
PROCESSES := $(shell echo $$(( $$(getconf _NPROCESSORS_ONLN) + 1 )))
IN_PARALLEL := -n $(PROCESSES) --maxprocesses 4 --dist loadfile --no-loadscope-reorder
TWO_SPARKS := -n 2 --dist loadfile --no-loadscope-reorder
# Tests with clocks may fail for lack of a processor: what failed beside others is run once more, by itself.
ALONE := --last-failed --last-failed-no-failures none --maxfail 5
export PIP_DISABLE_PIP_VERSION_CHECK := 1
unexport PYTHONDONTWRITEBYTECODE # the many processes of the tests would each compile all code anew

.PHONY: help install demo serve test test-fast test-thorough test-clients check docs fmt bench lock release rehearsal clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(INSTALLED) ## Make .venv with everything in it

$(INSTALLED): requirements.lock pyproject.toml hatch_build.py $(wildcard gateway/drivers/flight/protocol/*.proto) \
		$(wildcard gateway/dashboard/editor/*)
	$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@test -f gateway/dashboard/static/editor.js || echo "The page SQL keeps its plain text area: npm could not install the editor's packages. With npm's registry in reach, touch hatch_build.py and make install again."
	touch $(INSTALLED)

demo: $(INSTALLED) ## Make data, route the paper's nine queries, watch one fail over
	$(BIN)/fusion demo

serve: $(INSTALLED) ## Serve a gateway under .fusion on 127.0.0.1:8650
	$(BIN)/fusion serve

test: $(INSTALLED) ## Run the tests, against real engines
	$(BIN)/python -m pytest -m "not spark and not thorough" $(IN_PARALLEL) || \
		$(BIN)/python -m pytest -m "not spark and not thorough" $(ALONE)
	$(BIN)/python -m pytest -m "spark and not thorough" $(TWO_SPARKS) || \
		$(BIN)/python -m pytest -m "spark and not thorough" $(ALONE)

test-thorough: $(INSTALLED) ## Run all tests, also those that repeat others another way or for longer
	$(BIN)/python -m pytest

test-fast: $(INSTALLED) ## Run the tests that need no other server: no Spark, PostgreSQL, Impala, drivers, browser
	$(BIN)/python -m pytest -m "not spark and not e2e and not browser and not thorough" $(IN_PARALLEL)

test-clients: $(INSTALLED) ## Run other people's clients and their suites: make test-clients SUITE="pyhive dbt-spark"
	$(BIN)/python -m tests.clients $(SUITE)

check: $(INSTALLED) docs ## Lint, types, import contracts, migrations, links of the documentation
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python -m metastore.migrations.check

docs: $(INSTALLED) ## Build the documentation site into site/; a broken link is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

fmt: $(INSTALLED) ## Format the code and mend what can be mended
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(INSTALLED) ## Run all claims, or one: make bench CLAIM=selectivity
	$(BIN)/python -m benchmarks $(CLAIM)

lock: $(INSTALLED) ## Choose versions anew; the file carries no addresses
	$(BIN)/python -m uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-header \
		--extra all --group dev pyproject.toml -o requirements.lock

release: $(INSTALLED) ## Check the tree and the change log, build and check dist/; uploads nothing
	$(BIN)/python .ci/release.py

rehearsal: $(INSTALLED) ## The same, from a tree that is not ready for a release
	$(BIN)/python .ci/release.py --rehearse

clean: ## Delete what was installed and made here
	rm -rf $(VENV) .fusion site dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
