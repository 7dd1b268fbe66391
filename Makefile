# `make` lists what there is. Every target sets up what it needs: an environment in .venv, the
# dependencies, the native module built in place. All of it is safe to interrupt and to run again,
# and quick when nothing changed.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PY     := $(BIN)/python
CMAKE  := $(BIN)/cmake
CTEST  := $(BIN)/ctest
STEP   := .ci/step

# Two makes at once take turns at setting up (where the system has flock): one turn for the
# environment and one for what is compiled, so that compiling goes on while large packages unpack.
FLOCK   := $(shell command -v flock >/dev/null 2>&1 && echo flock)
INSTALL := $(FLOCK:flock=flock Makefile)
COMPILE := $(FLOCK:flock=flock CMakeLists.txt)

# CI treats warnings as errors in everything it compiles, and its wheel holds what the tests ran on.
# A newer compiler may warn of more: that alone should keep nobody from running the tests.
WERROR     ?= OFF
WHEEL_BUILD = $(if $(filter ON,$(WERROR)),build/native,build/wheel)

# The checkout may lie in a folder with spaces in its name.
CONFIGURE = $(CMAKE) -S . -G Ninja "-DCMAKE_MAKE_PROGRAM=$(CURDIR)/$(BIN)/ninja" \
            "-DPython_EXECUTABLE=$(CURDIR)/$(PY)" --log-level=WARNING
# ninja says nothing but what it does; only what goes wrong is worth reading. It does not take turns
# with make: it would look for the tokens of a make whose descriptors it has not been given.
BUILD = env MAKEFLAGS= $(COMPILE) $(CMAKE) --build

# Tests that run at once: one more than CI has cores, since most wait for processes of their own.
AT_ONCE ?= 3

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup native demo test docs bench bench-scheduler bench-pool bench-samplers bench-loader bench-server bench-store bench-partition bench-build bench-ids bench-ray bench-gpu bench-calls bench-small bench-peers simulate figures soak wheel check format stubs clean distclean \
        check-format check-lint check-types check-layers check-stubs check-docs check-wheel check-native \
        check-kernels sanitized

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# --- setting up ------------------------------------------------------------------------------

$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Penstock needs Python 3.11 or newer, and '$(PYTHON)' is not;" \
	       "name one with 'make PYTHON=python3.12 …'" >&2; exit 1; }
	@echo "setting up $(VENV)"
	@$(INSTALL) $(PYTHON) -m venv $(VENV)
	@$(PY) -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	@touch $@

# What native code is built with: little, and apart from the rest, which takes much longer to install.
$(VENV)/.tools: $(VENV)/.created pyproject.toml constraints.txt
	@echo "installing what it takes to build"
	@$(INSTALL) $(PY) -m pip install --quiet --disable-pip-version-check --constraint constraints.txt \
	  $$($(PY) -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"])') \
	  cmake ninja
	@touch $@

# The package itself is installed as a pointer to src/; its native module is built below.
$(VENV)/.installed: $(VENV)/.tools pyproject.toml constraints.txt
	@echo "installing dependencies"
	@$(INSTALL) $(PY) -m pip install --quiet --disable-pip-version-check --constraint constraints.txt \
	  --no-build-isolation --config-settings=wheel.cmake=false --config-settings=wheel.py-api= \
	  --config-settings=editable.mode=inplace --editable '.[pyg,demo,ingest,ray,bench,docs,dev]'
	@touch $@

build/native/.configured: $(VENV)/.tools CMakeLists.txt Makefile
	@$(COMPILE) $(CONFIGURE) -B build/native -DPENSTOCK_WERROR=$(WERROR)
	@touch $@

# ninja knows better than make what is out of date, and takes no time to say "nothing". The module
# is moved into place whole, so that a process starting meanwhile finds the old one or the new one.
native: build/native/.configured ## Build the native module in place
	@$(BUILD) build/native --target _native -- --quiet
	@for built in build/native/_native*.so; do \
	  placed=src/penstock/kernels/$${built##*/}; \
	  cmp -s $$built $$placed || { cp $$built $$placed.new && mv -f $$placed.new $$placed; }; \
	done

# Hubs, workers and ranks start by the hundred in the tests. Workers write no bytecode, and where
# PYTHONDONTWRITEBYTECODE is set nobody does: each start would compile the package anew.
setup: $(VENV)/.installed native ## Do all the set-up and nothing else
	@$(PY) -m compileall -q src

# --- what people come for --------------------------------------------------------------------

demo: setup ## Train a GNN with four ranks from one hub; kill a worker, pause a rank; show what came of it
	@$(BIN)/penstock demo --output build/demo $(ARGS)

test: setup ## Run the tests (ARGS='-k name' for some of them)
	@$(PY) -m pytest -n $(AT_ONCE) --dist loadfile --no-loadscope-reorder $(ARGS)

docs: setup ## Build the site, with a reference of every public name, in build/docs/site
	@.ci/docs $(PY)

bench: setup ## Measure the kernels against the floor of this machine (ARGS=--small for a quick look)
	@$(PY) benchmarks/kernels.py $(ARGS)

bench-scheduler: setup ## Measure what a decision costs, for few channels and for many
	@$(PY) benchmarks/scheduler.py $(ARGS)

bench-pool: setup ## Measure what the pool costs beside the bare kernels (ARGS=--small for a quick look)
	@$(PY) benchmarks/pool.py $(ARGS)

bench-samplers: setup ## Measure each kind of sampling beside uniform k-hop (ARGS=--small for a quick look)
	@$(PY) benchmarks/samplers.py $(ARGS)

bench-loader: setup ## Measure loaders beside sampling inline and beside one by hand (ARGS=--small for a quick look)
	@$(PY) benchmarks/loader.py $(ARGS)

bench-server: setup ## Measure a server beside an embedded hub and bare sockets (ARGS=--small for a quick look)
	@$(PY) benchmarks/server.py $(ARGS)

bench-store: setup ## Measure a graph in parts on several servers beside one server (ARGS=--small for a quick look)
	@$(PY) benchmarks/store.py $(ARGS)

bench-ray: setup ## Measure a store on Ray beside one started by hand, a dead host, and builds (ARGS=--small for a quick look)
	@$(PY) benchmarks/on_ray.py $(ARGS)

bench-partition: setup ## Measure cutting a graph into parts beside saving it (ARGS=--small for a quick look)
	@$(PY) benchmarks/partition.py $(ARGS)

bench-ids: setup ## Measure how fast users' ids are looked up (ARGS=--small for a quick look)
	@$(PY) benchmarks/ids.py $(ARGS)

bench-build: setup ## Measure building a graph out of core beside DuckDB (ARGS=--small for a quick look, --billion, "--parts 4")
	@$(PY) benchmarks/build.py $(ARGS)

bench-gpu: setup ## Measure what a GPU waits for, where there is one (ARGS=--small for a quick look)
	@$(PY) benchmarks/gpu.py $(ARGS)

bench-calls: setup ## Count what a small batch costs in Python: calls and CPU time, by process
	@$(PY) benchmarks/calls.py $(ARGS)

bench-small: setup ## Measure loaders of small batches (ARGS='--before PYTHON' beside other code)
	@$(PY) benchmarks/small_batches.py $(ARGS)

# A peer has an environment of its own over ours, with its packages pinned; torch is the same.
build/peers/%/.made: benchmarks/peer_environments.py $(VENV)/.installed
	@echo "installing $*, to be compared with"
	@$(PY) benchmarks/peer_environments.py $* $(@D)
	@touch $@

# One that cannot be installed is skipped, and the result says so.
bench-peers: setup ## Measure our loader beside PyG's and DGL's (ARGS=--small for a quick look)
	@$(MAKE) --keep-going --no-print-directory build/peers/torch-sparse/.made build/peers/dgl/.made || true
	@$(PY) benchmarks/peers.py $(ARGS)

simulate: setup ## Simulate 1,000 ranks and 64 servers: who gets how much, what a slow host does (some minutes)
	@$(PY) benchmarks/simulate.py $(ARGS)

figures: setup ## Write docs/figures.md from docs/figures/*.json
	@$(PY) -m benchmarks.figures

soak: setup ## Run what takes longer than CI should: slow tests, property tests with many examples
	@HYPOTHESIS_PROFILE=soak $(PY) -m pytest -m 'soak or hypothesis' --timeout=7200 $(ARGS)

$(VENV)/.release: $(VENV)/.installed
	@$(INSTALL) $(PY) -m pip install --quiet --disable-pip-version-check --constraint constraints.txt \
	  $$($(PY) -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["release"])')
	@touch $@

# Compiled anew, from the source distribution: what it lacks, the wheel lacks.
wheel: setup $(VENV)/.release ## Build what is published into dist/: the sources and a wheel
	@.ci/distributions $(PY) dist

format: setup ## Format the Python code and fix what lint can fix
	@$(PY) -m ruff format .
	@$(PY) -m ruff check --fix .

stubs: setup ## Write the stub of the native module anew
	@.ci/stubs $(PY) write

# --- the checks ------------------------------------------------------------------------------

check: check-format check-lint check-types check-layers check-stubs check-docs check-wheel check-native check-kernels ## Run every check but the tests
	@echo
	@echo "all checks passed"

check-format: setup
	@$(STEP) "ruff format" $(PY) -m ruff format --check .

check-lint: setup
	@$(STEP) "ruff check" $(PY) -m ruff check .

check-types: setup
	@$(STEP) "mypy --strict on src" $(PY) -m mypy

check-layers: setup
	@$(STEP) "layers (import-linter)" $(BIN)/lint-imports

check-stubs: setup
	@$(STEP) "stub of the native module is current" .ci/stubs $(PY) check

check-docs: setup
	@$(STEP) "the site (mkdocs --strict)" .ci/docs $(PY)

# The wheel as it would be distributed, except that warnings are errors.
check-wheel: setup
	@$(STEP) "a wheel, native code with -Wall -Wextra -Werror" $(COMPILE) .ci/wheel $(PY) $(WHEEL_BUILD) build/dist \
	  --config-settings=cmake.define.PENSTOCK_WERROR=ON

build/asan/.configured: $(VENV)/.tools CMakeLists.txt Makefile
	@$(COMPILE) $(CONFIGURE) -B build/asan -DPENSTOCK_SANITIZE=ON -DPENSTOCK_TESTS=ON -DPENSTOCK_WERROR=ON
	@touch $@

# After the module in place, which most things wait for.
sanitized: native build/asan/.configured
	@$(STEP) "build with ASan and UBSan" $(BUILD) build/asan -- --quiet

check-native: sanitized
	@$(STEP) "C++ tests under ASan and UBSan" $(CTEST) --test-dir build/asan --output-on-failure --no-tests=error

check-kernels: setup sanitized
	@$(STEP) "Python tests of the kernels under ASan and UBSan" .ci/sanitized $(PY) $(ARGS)

# --- tidying up ------------------------------------------------------------------------------

clean: ## Remove everything built, and the caches; keep the environment
	rm -rf build dist wheelhouse .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	rm -f src/penstock/kernels/_native*.so src/penstock/kernels/_native*.so.new
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean ## Remove the environment too
	rm -rf $(VENV)
