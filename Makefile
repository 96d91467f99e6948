# Two commands do everything on a fresh machine: `make demo` and `make test`. Each sets up what it needs and can be repeated.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
LEVEL ?= all
EXTRAS := operator gateway cpu fetch builder dev
COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	--custom-compile-command "make lock"

.DEFAULT_GOAL := help
.PHONY: help setup demo test check format generate lock images perf perf-runtime gpu-check clean

help: ## Show what there is to make
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 22

$(READY): requirements/dev.txt requirements/uv.txt pyproject.toml
	@echo "Setting up $(VENV) with locked dependencies"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "error: Python 3.11 or newer is needed; name one with: make PYTHON=/path/to/python3 ..." >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { echo "error: no venv module; on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/uv.txt
	@$(BIN)/uv pip sync --quiet --require-hashes requirements/dev.txt
	@$(BIN)/uv pip install --quiet --no-deps --editable .
	@touch $(READY)

setup: $(READY) ## Make the Python environment in .venv

demo: $(READY) ## Hear speech go on through a GPU shortage, on a real Kubernetes (results in demo-out/)
	@$(BIN)/python -m devcluster.demo --out demo-out

test: $(READY) ## Run all tests, or one level: make test LEVEL=unit|contract|integration|e2e
	@$(BIN)/python -m tests.run $(LEVEL)

check: $(READY) ## Lint, types, layers, and generated files
	@echo "ruff"; $(BIN)/ruff check --quiet . && $(BIN)/ruff format --quiet --check . || { echo "next: make format" >&2; exit 1; }
	@echo "mypy"; $(BIN)/mypy --no-error-summary
	@echo "layers"; $(BIN)/lint-imports --no-logo > .import-linter.log || { cat .import-linter.log; exit 1; }
	@echo "generated files"; $(BIN)/cosyvoice-operator crdgen --check

format: $(READY) ## Format the code and mend what the linter can mend
	@$(BIN)/ruff check --quiet --fix . || true
	@$(BIN)/ruff format --quiet .

generate: $(READY) ## Write the CRD and the API reference from the models
	@$(BIN)/cosyvoice-operator crdgen

lock: $(READY) ## Lock the dependencies anew
	@$(foreach extra,$(EXTRAS),$(COMPILE) --no-emit-package cosyvoice-operator --extra $(extra) pyproject.toml -o requirements/$(extra).txt &&) true
	@$(COMPILE) requirements/uv.in -o requirements/uv.txt
	@$(COMPILE) requirements/triton-demo.in -o requirements/triton-demo.txt
	@$(COMPILE) --no-deps requirements/triton-demo-server.in -o requirements/triton-demo-server.txt

images: $(READY) ## Build all container images, without a container engine
	@$(BIN)/devcluster build-image all

perf: $(READY) ## Measure the operator with 100 and 1,000 resources (results in perf-out/)
	@$(BIN)/python -m tests.perf.control_plane

perf-runtime: $(READY) ## Measure the speech pods (results in perf-out/)
	@$(BIN)/python -m tests.perf.runtime

gpu-check: ## Check what engine builds need a GPU for; run it where TensorRT is, without .venv
	@PYTHONPATH=runtime_image $(PYTHON) -m tests.gpu.check

clean: ## Take clusters down and remove all that was made in this folder; builds stay in the cache
	@if [ -x $(BIN)/devcluster ]; then for name in default demo; do $(BIN)/devcluster down --name $$name; done; fi
	@rm -rf $(VENV) demo-out perf-out test-out .pytest_cache .mypy_cache .ruff_cache .hypothesis .import-linter.log
	@find . -name __pycache__ -prune -exec rm -rf {} +
