# See `make help`. Everything happens in .venv, made here.
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: help setup proto proto-check

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  %-12s %s\n", $$1, $$2}'

setup: $(VENV)/.dev ## make the virtual environment with everything for development

$(VENV)/.dev: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

# protoc 21 (of grpcio-tools 1.50) is the oldest that makes code which protobuf runtimes from 3.20 to the newest accept.
proto: ## generate pulsarish/wire/_pb from proto/
	$(PYTHON) -m venv $(VENV)/protoc
	$(VENV)/protoc/bin/pip install --quiet --disable-pip-version-check 'setuptools<70' 'grpcio-tools==1.50.0'
	rm -rf build/proto && mkdir -p build/proto
	cd proto && ../$(VENV)/protoc/bin/python -m grpc_tools.protoc -I. --python_out=../build/proto --pyi_out=../build/proto pulsarish/*.proto
	cp build/proto/pulsarish/*_pb2.py build/proto/pulsarish/*_pb2.pyi pulsarish/wire/_pb/
