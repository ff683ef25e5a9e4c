# Targets for developers. `make` alone lists them.

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# The first Python of this machine that is new enough.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python3.14; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
# More arguments for what is run: make test ARGS="tests/host/sandbox -x"
ARGS ?=
# make demo DOWNLOAD=0: compile what is missing, and ask nobody for official binaries.
DOWNLOAD ?= 1
DOWNLOADED = $(if $(filter 0 no,$(DOWNLOAD)),--no-download)
# How many packages of tests run beside each other; 0: none. As many as there are CPUs work, the others wait most of the time.
JOBS ?= $(shell echo $$((5 * $$(getconf _NPROCESSORS_ONLN) / 2)))
# make test LONG=1: also the tests whose subject others show more cheaply.
LONG ?=
export LONG
# make test SCREENSHOTS=docs/ui ARGS=tests/servers/ui: the pictures of docs/ui.md anew.
SCREENSHOTS ?=
export SCREENSHOTS
# make coverage-of-contract RULES=LB-7: print the tests of the rules whose id begins so.
RULES ?=
# Tests start dozens of API servers: collecting garbage less often saves each a quarter of its CPU.
TESTING = GOGC=400 JOBS=$(JOBS) $(BIN)/python -m
PYTEST = $(TESTING) pytest -n $(JOBS) --dist loadscope

# Some container images turn bytecode off; then every process compiles all of windowbox and of the tests again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup doctor demo test quick durations newcomer check format bench chaos up down release generate coverage-of-contract programs

help: ## List what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-22s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP) ## Get Python packages and the programs of the sandbox (minutes once, then instant)
	@$(BIN)/python -m sandbox.setup $(DOWNLOADED)

doctor: $(STAMP) ## Will the demo work here? What it will show, and how long it takes (ten seconds)
	@$(BIN)/windowbox doctor --before $(ARGS)

demo: $(STAMP) ## See records, a load balancer, a Bastion and a Shoot at work
	@$(BIN)/windowbox demo $(DOWNLOADED) $(ARGS)

up: $(STAMP) ## Start the sandbox
	@$(BIN)/windowbox up $(DOWNLOADED) $(ARGS)

down: ## End the sandbox
	@test ! -x $(BIN)/windowbox || $(BIN)/windowbox down $(ARGS)

test: programs ## Run the tests (LONG=1: also the long ones)
	@$(PYTEST) $(ARGS) || $(BIN)/python -m tests.support.secondtry $$?

quick: programs ## Run, for a minute, the tests that changed files reach (ARGS=main: changed since that revision)
	@$(TESTING) tests.support.quick $(ARGS)

# Tests are scheduled by what they took.
durations: programs ## Run the tests, and write what each file takes to tests/durations.json
	@$(PYTEST) --measure=build/durations.json $(ARGS); $(BIN)/python -m tests.support.durations build/durations.json --record

newcomer: $(STAMP) ## Run demo and tests from a clean clone with an empty home, and print the times (as root; ARGS=demo)
	@$(BIN)/python -m tools.newcomer $(ARGS)

check: programs ## Everything that has to pass before a commit
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/vulture
	$(PYTEST) $(ARGS)

format: $(STAMP) ## Put the code into its form
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: programs ## Measure throughput and latency on this machine
	@$(BIN)/windowbox bench $(ARGS)

# The pinned hashes of the image's packages are made anew by `python -m tools.release.pins`.
release: programs ## Wheel, sdist, charts, image, bill of materials and checksums, in dist/
	@$(BIN)/python -m tools.release $(ARGS)

# make chaos CHAOS_NATS=3: with three NATS servers. CHAOS_KILLS=100 CHAOS_CHANGES=10000: so much in test_everything.
chaos: programs ## Break things under load and see everything converge
	@CHAOS=long $(BIN)/python -m pytest tests/chaos -o log_cli=true -o log_cli_level=WARNING $(ARGS)

generate: $(STAMP) ## Write the generated files anew
	$(BIN)/python -m windowbox.models.crds
	$(BIN)/python -m bus.permissions > deploy/nats/roles.conf
	$(BIN)/python -m bus.permissions clustered > deploy/nats/roles-clustered.conf
	$(BIN)/python -m bus.permissions runner > deploy/nats/roles-run.conf
	$(BIN)/python -m windowbox.rights.rbac > deploy/rbac.yaml
	$(BIN)/python -m commands.pages
	$(BIN)/python -m tools.gardener.page
	$(BIN)/python -m tools.chart.generated

coverage-of-contract: $(STAMP) ## Update docs/contract-coverage.md (RULES=LB-7: print the tests of these rules)
	@$(BIN)/python -m tests.support.coverage_page $(RULES)

# Tests that lack a program are skipped, and say which; so a lack is no reason to run none.
programs: $(STAMP)
	@$(BIN)/python -m sandbox.setup $(DOWNLOADED) || echo "Going on without: tests that need it are skipped."

$(STAMP): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "windowbox needs Python 3.11 or newer: none is on the PATH. With Docker only: docs/install.md" >&2; exit 1; }
	@echo "  Python environment $(VENV): creating it with $(PYTHON)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m sandbox.programs.pythonpackages
	@touch $@
