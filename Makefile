# make help lists the targets. PYTHON picks the interpreter of a new environment: make test PYTHON=python3.12
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
EXTRAS := test,ros,perception,viewer,browser,dask
# Tests run side by side, each process with one thread (test/conftest.py): on two cores two. make test WORKERS=8
# open3d brings dash along, whose plugin for pytest takes each process a second to load, for nothing.
WORKERS ?= 2
PYTEST := NUMBA_NUM_THREADS=2 $(BIN)/python -m pytest -q -p no:dash -n $(WORKERS) --dist loadgroup --no-loadscope-reorder
SUPPORTED := import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))

.DEFAULT_GOAL := help
.PHONY: help quick test suite borders oldest style lint types warm rarer boundscheck demo docs bench clean

help: ## list the targets
	@grep -E '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /  make \1\t/'

# The interpreter is looked at before anything is made, so that a wrong one leaves nothing behind.
$(BIN)/python:
	@$(PYTHON) -c '$(SUPPORTED)' 2>/dev/null || { \
	  echo "soft_estimator needs Python 3.10 to 3.13, but $(PYTHON) is $$($(PYTHON) --version 2>/dev/null || echo not there); try: make PYTHON=python3.12" >&2; \
	  exit 1; }
	$(PYTHON) -m venv $(VENV)

$(STAMP): setup.py setup.cfg pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[$(EXTRAS)]'
	@touch $@

style: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

lint: style types ## check style, imports and types

types: $(STAMP)
	$(if $(IN_ORDER),nice -n 19) $(BIN)/mypy

# Tests start commands by the dozen: each would compile the package's text anew where no bytecode may be kept.
quick test suite oldest: export PYTHONDONTWRITEBYTECODE =

# Loops are compiled once, before two processes would do so at the same time.
warm: $(STAMP)
	@NUMBA_NUM_THREADS=1 $(BIN)/python test/warm_up.py

rarer: $(STAMP) $(if $(IN_ORDER),types)
	@NUMBA_NUM_THREADS=1 $(BIN)/python test/warm_up.py --rarer

quick: style ## what a change needs, in under three minutes on two cores where the loops are compiled already
	@$(MAKE) --no-print-directory -j2 warm rarer
	$(PYTEST) -m "not slow" --durations=10

# mypy and the compiler keep one core busy each, for 55 and 101 CPU seconds; where the loops are compiled already, the
# tests begin at once, and mypy takes what they leave: the first of them wait for nodes, a quarter of their time. What it
# finds stands among their dots, and fails the target in the end. What only some tests need is compiled from when mypy
# is done, and beside the first tests, which do not need it: 53 more.
test: $(STAMP) ## check style, imports and types, run the tests; the slowest are named
	@$(MAKE) --no-print-directory -j2 IN_ORDER=1 rarer suite

suite: $(STAMP) $(if $(IN_ORDER),style warm)
	$(PYTEST) --durations=25

# The oldest set of dependencies that setup.py allows, in an environment of its own. make oldest TESTS=test/recordings
OLDEST := .venv-oldest
TESTS ?= test
# What stands on other packages more than on our own loops: files, messages, meshes, settings, commands.
# Without test_record.py, which would compile what test_bag_files.py compiles in the other process.
BORDERS := test/recordings --ignore=test/recordings/test_record.py test/export test/test_schema.py test/test_config.py \
  test/test_cli_common.py test/test_dependencies.py test/test_hostile_yaml.py test/test_fuzz_short.py
comma := ,
borders: ## what stands on other packages, with the oldest of them that are allowed
	@$(MAKE) --no-print-directory oldest TESTS="$(BORDERS)"

oldest: $(STAMP) ## what quick runs, with the oldest dependencies allowed; TESTS=test/recordings: some of it
	@test -x $(OLDEST)/bin/python || $(BIN)/python -m venv $(OLDEST)
	$(BIN)/python test/oldest.py $(subst $(comma), ,$(EXTRAS)) > $(OLDEST)/constraints.txt
	$(OLDEST)/bin/python -m pip install --quiet --disable-pip-version-check -c $(OLDEST)/constraints.txt -e '.[$(EXTRAS)]'
	$(if $(filter test,$(TESTS)),NUMBA_CACHE_DIR=$(CURDIR)/$(OLDEST)/numba NUMBA_NUM_THREADS=1 $(OLDEST)/bin/python test/warm_up.py)
	NUMBA_CACHE_DIR=$(CURDIR)/$(OLDEST)/numba $(subst $(BIN),$(OLDEST)/bin,$(PYTEST)) -p no:cacheprovider -m "not slow" --durations=10 $(TESTS)

# Compiled with a check of every index, which numba keeps apart only by the folder of its cache. One thread: an error in
# another one is lost. ALL=1 runs every test that needs no GPU.
FOREIGN := $(addprefix test/,perception/test_kernels.py perception/test_thinning.py perception/test_fuzz.py test_boundscheck.py)
boundscheck: export NUMBA_BOUNDSCHECK = 1
boundscheck: export NUMBA_NUM_THREADS = 1
boundscheck: export NUMBA_CACHE_DIR = $(CURDIR)/$(VENV)/boundscheck
boundscheck: $(STAMP) ## run the loops that take foreign data with every index checked; ALL=1: the whole CPU suite
	$(BIN)/python -m pytest -q -m "not gpu" $(if $(ALL),test,$(FOREIGN))

demo: $(STAMP) ## run the whole ROS 2 graph with a simulated camera for a minute (without ROS: from its bag); report in out/demo
	@$(BIN)/soft-estimator demo --out out/demo

docs: $(STAMP) ## refresh docs/: the references made from the code
	$(BIN)/soft-estimator scene-format > docs/scene_format.md
	$(BIN)/soft-estimator ros-interface > docs/ros_interface.md
	$(BIN)/soft-estimator python-api > docs/api.md

bench: $(STAMP) ## run the benchmarks
	@for file in benchmark/bench_*.py; do \
	  test -e $$file || { echo "no benchmarks yet"; break; }; \
	  echo "== $$file"; $(BIN)/python $$file || exit $$?; \
	done

clean: ## remove the environment and everything made
	rm -rf $(VENV) $(OLDEST) build install log out *.egg-info .pytest_cache .ruff_cache .mypy_cache .hypothesis
	find soft_estimator test -name __pycache__ -type d -prune -exec rm -rf {} +
