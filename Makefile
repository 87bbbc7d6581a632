# Trident's two commands, `make demo` and `make test`, and what a developer needs beside them.
#
#   make demo          creates .venv, installs everything, builds, runs examples/llama_qwen_demo.py
#   make test          the same set-up, then format, lint, types, C++ tests (ctest), Python tests (pytest)
#   make fuzz          20,000 random examples of the property-based soundness tests (EXAMPLES, SEED)
#   make sanitize      the C++ tests under AddressSanitizer and UndefinedBehaviorSanitizer
#   make bench         the benchmarks (needs a GPU); results as JSON under build/bench
#   make instructions  instructions per hit on the CPU against the committed counts (needs valgrind)
#   make VENV= demo    uses the current python3 as it is and downloads nothing; also for test, bench, ...
#   make format        rewrites the sources in the project's style
#   make lint          format check, ruff, clang-format, mypy
#   make clean         removes what was built; `make distclean` removes .venv, too
#
# Variables: PYTHON (3.11 or 3.12, makes .venv), TORCH (the torch that .venv gets), PYTEST_ARGS, JOBS, and
# PYTEST_JOBS, how many processes the Python tests have, which takes pytest-xdist (0: pytest's own process).

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

VENV ?= .venv
PYTHON ?= python3
TORCH ?= torch==2.14.1
JOBS ?= $(shell nproc)
PYTEST_ARGS ?=
# Elsewhere than in an environment that was made here, pytest-xdist may be missing.
PYTEST_JOBS ?= $(if $(strip $(VENV)),$(shell n=$$(nproc); echo $$((n < 8 ? n : 8))),)
BENCH_OUTPUT ?= build/bench
EXAMPLES ?= 20000
ifndef SEED
  SEED := $(shell od -An -N4 -tu4 /dev/urandom | tr -d ' ')
endif

export CMAKE_BUILD_PARALLEL_LEVEL := $(JOBS)
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PYTHONUNBUFFERED := 1
export TOKENIZERS_PARALLELISM := false

say = @printf '\n==> %s\n' $(1)

# The build folder is CMake's, kept between builds and shared by the package and the C++ tests, so that nothing is
# compiled twice. scikit-build-core reads its place from SKBUILD_BUILD_DIR.
ifeq ($(strip $(VENV)),)
  PY := python3
  NATIVE := build/system
  SITE := $(CURDIR)/build/site
  # An empty entry would mean the current folder, whose trident/ has no native module.
  export PYTHONPATH := $(SITE)$(if $(PYTHONPATH),:$(PYTHONPATH))
  INSTALL = --no-index --target $(SITE) --upgrade
else
  PY := $(VENV)/bin/python
  NATIVE := build/$(patsubst .%,%,$(notdir $(VENV:/=)))
  export PATH := $(abspath $(VENV))/bin:$(PATH)
  INSTALL = --force-reinstall
endif
export SKBUILD_BUILD_DIR := $(NATIVE)
STAMPS := $(NATIVE).stamps

.PHONY: help demo test fuzz sanitize bench instructions build format lint ctest pytest clean distclean
help:
	@sed -n "3,16p" Makefile | sed 's/^# \{0,1\}//'

# --- the environment (what the tests need includes what the demo needs)

ifeq ($(strip $(VENV)),)
$(STAMPS)/demo-ready $(STAMPS)/test-ready: $(STAMPS)/%-ready: FORCE
	$(call say,"Checking the environment of $$(command -v python3)")
	@python3 scripts/check_environment.py $*
	@mkdir -p $(@D) && touch $(@D)/demo-ready $@
else
$(VENV)/pyvenv.cfg:
	$(call say,"Creating $(VENV)")
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))' || { \
	  echo "trident: $$($(PYTHON) --version) is not supported (needs 3.11 or 3.12). Run: make PYTHON=python3.11 ..." >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
	  echo "trident: $(PYTHON) cannot create virtual environments. Run: apt-get install python3-venv" >&2; exit 1; }

$(STAMPS)/demo-ready $(STAMPS)/test-ready: $(STAMPS)/%-ready: $(VENV)/pyvenv.cfg pyproject.toml scripts/requirements.py
	$(call say,"Installing what 'make $*' needs into $(VENV) (the first time: several GB)")
	@mkdir -p $(@D)
	@$(PY) scripts/requirements.py build run $* > $(@D)/$*.txt
	@$(PY) -m pip install '$(TORCH)' ninja -r $(@D)/$*.txt
	@if [ $* = test ]; then $(PY) scripts/requirements.py no-deps > $(@D)/no-deps.txt; \
	  $(PY) -m pip install --no-deps -r $(@D)/no-deps.txt; fi
	@$(PY) scripts/check_environment.py $*
	@touch $(@D)/demo-ready $@
endif

FORCE:

# --- the package

$(STAMPS)/sources: FORCE
	@scripts/sources.sh $@

build: $(STAMPS)/built
$(STAMPS)/built: $(STAMPS)/sources | $(STAMPS)/demo-ready
	$(call say,"Building and installing trident ($(JOBS) jobs)")
	@$(PY) -m pip install -v --no-build-isolation --no-deps $(INSTALL) .
	@touch $@

demo: $(STAMPS)/demo-ready
	@$(MAKE) $(STAMPS)/built
	$(call say,"Running examples/llama_qwen_demo.py")
	@$(PY) examples/llama_qwen_demo.py

# --- tests

test: $(STAMPS)/test-ready
	@$(MAKE) lint
	@$(MAKE) $(STAMPS)/built
	@$(MAKE) ctest
	@$(MAKE) pytest

ctest: $(STAMPS)/built
	$(call say,"C++ tests")
	@scripts/ctest.sh $(NATIVE) $(if $(strip $(VENV)),install,skip)

# -P keeps the current folder off sys.path: the tests import the installed package, never the source folder.
# Where the environment was made here, no corpus may be missing; elsewhere its tests are skipped.
pytest: $(STAMPS)/built
	$(call say,"Python tests")
	@PYTHONSAFEPATH=1 $(if $(strip $(VENV)),TRIDENT_TEST_CORPORA=all) $(PY) -P -m pytest \
	  $(if $(PYTEST_JOBS),-n $(PYTEST_JOBS) --dist worksteal) $(PYTEST_ARGS)

fuzz: $(STAMPS)/test-ready
	@$(MAKE) $(STAMPS)/built
	$(call say,"$(EXAMPLES) random examples; to repeat them: make fuzz SEED=$(SEED) EXAMPLES=$(EXAMPLES)")
	@scripts/fuzz.sh $(PY) $(EXAMPLES) $(SEED) $(JOBS) $(PYTEST_ARGS)

sanitize: $(STAMPS)/test-ready
	$(call say,"C++ tests under the sanitizers")
	@scripts/sanitize.sh $(NATIVE).sanitize $(PY)

# --- style

lint:
	$(call say,"Style and types")
	@scripts/lint.sh $(if $(strip $(VENV)),required,optional)

format: $(if $(strip $(VENV)),$(STAMPS)/test-ready)
	@ruff format . && ruff check --fix .
	@clang-format -i $$(scripts/lint.sh --cxx-files)

# --- benchmarks

bench: $(STAMPS)/test-ready
	@$(MAKE) $(STAMPS)/built
	@mkdir -p $(BENCH_OUTPUT)
	$(call say,"Host overhead of small modules")
	@$(PY) benchmarks/host_overhead.py --output $(BENCH_OUTPUT)/host_overhead.json
	$(call say,"Decode step of Hugging Face models")
	@$(PY) benchmarks/decode.py --output $(BENCH_OUTPUT)/decode.json
	$(call say,"Prefill of Hugging Face models")
	@$(PY) benchmarks/prefill.py --output $(BENCH_OUTPUT)/prefill.json
	$(call say,"FlagGems' operator wrappers")
	@$(PY) benchmarks/flaggems.py --output $(BENCH_OUTPUT)/flaggems.json
	@$(PY) benchmarks/report.py $(BENCH_OUTPUT)/*.json --output $(BENCH_OUTPUT)/report

instructions: $(STAMPS)/built
	$(call say,"Instructions per hit")
	@PYTHONSAFEPATH=1 $(PY) -P benchmarks/host_overhead.py --instructions

clean:
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find trident tests examples benchmarks scripts -name __pycache__ -prune -exec rm -rf {} +

distclean: clean
	rm -rf .venv
