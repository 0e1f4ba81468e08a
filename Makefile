# One habit everywhere: `make` lists what can be done.
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed
DATA ?= data
GPU_PYTHON ?= 3.11

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-thorough test-all test-cluster lint format lock vectors reference crds charts metrics docs gpu-bundle cluster-up cluster-down cluster-status images clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## */\1\t/' | expand -t 16

setup: $(INSTALLED)  ## create .venv and install everything into it

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "fedsilo needs Python 3.11 or newer; set PYTHON")'
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt uv
	@echo "installing fedsilo and its dependencies into .venv (torch is large: a few minutes on a slow line)"
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --compile-bytecode --constraint constraints.txt --editable '.[dev]'
	@touch $@

demo: setup  ## four silos train one model on real data, with four methods, on this machine
	@cd examples && ../$(BIN)/fedsilo run --alone --workdir ../runs/demo-$$(date +%Y%m%d-%H%M%S) \
		-f quickstart.yaml -f fedavg.yaml -f ccvr.yaml -f creff.yaml

# With compiled modules also where the environment forbids them: the tests start some hundred processes.
PYTEST := OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder --durations 20

test: setup  ## run the tests, about five minutes
	@$(PYTEST) -m 'not thorough'

test-thorough: setup  ## run what `make test` leaves out, as it needs no cluster
	@$(PYTEST) -m thorough

test-all: test test-thorough  ## run every test that needs no cluster

test-cluster: cluster-up images  ## run the tests on a real Kubernetes, which this brings up, as root
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/cluster --numprocesses 3 --no-loadscope-reorder --durations 20

lint: setup  ## style, types and layers
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

format: setup  ## put the code into the project's style
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

lock: setup  ## resolve the dependencies anew into constraints.txt
	@echo '# Versions that the tests ran with; `make lock` writes this file.' > constraints.new
	@$(BIN)/uv pip compile --quiet pyproject.toml --extra dev --extra docs --universal --python-version 3.11 --no-annotate --no-header >> constraints.new
	@mv constraints.new constraints.txt

vectors: setup  ## write the wire format's test vectors anew
	@$(BIN)/python -m tests.vectors.make

reference: setup  ## write the generated parts of docs/manifests.md, combinations.md, privacy.md, methods/ and images anew
	@$(BIN)/python -m hack.reference docs/manifests.md
	@$(BIN)/python -m hack.method_pages docs/methods
	@$(BIN)/python -m hack.combination_pages docs/combinations.md
	@$(BIN)/python -m hack.privacy_page docs/privacy.md
	@$(BIN)/python -m hack.connections docs/images/connections.svg

crds: setup  ## write manifests/crds/ anew
	@$(BIN)/python -m hack.crds manifests/crds/

charts: setup  ## write anew what the charts share with manifests/ and models, and their READMEs
	@$(BIN)/python -m charts.generate

metrics: setup  ## write the table of docs/metrics.md anew
	@$(BIN)/python -m tests.metrics_page

docs: setup  ## the documentation as a site that is read offline, in build/docs
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --constraint constraints.txt --editable '.[docs]'
	@$(BIN)/python -m hack.site

cluster-up: setup  ## start a one-node Kubernetes on this machine, as root (docs/cluster.md)
	@$(BIN)/python -m hack.cluster up

cluster-down: setup  ## stop it and remove everything but the caches
	@$(BIN)/python -m hack.cluster down

cluster-status: setup  ## what runs there, and whether it is healthy
	@$(BIN)/python -m hack.cluster status

images: setup  ## build the container images, and load them into the cluster if it runs, as root (docs/images.md)
	@$(BIN)/python -m hack.images

gpu-bundle: setup  ## what a machine with a GPU and no network needs, in build/gpu (docs/gpu.md)
	@$(BIN)/python -m benchmarks.gpu.bundle --into build/gpu --data "$(DATA)" --python "$(GPU_PYTHON)"

clean:  ## remove the virtual environment and caches
	@rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
