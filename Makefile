# make train: install and train HalfCheetah.   make quick: the inner loop.   make test: everything but long tests.
PYTHON ?= python3
BIN := .venv/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

# Tests run side by side: more threads of NumPy would wait for each other's cores.
test quick test-long: export OPENBLAS_NUM_THREADS := 1
# They start many processes: each finds the bytecode that the first has written, whatever the shell says.
test quick test-long: export PYTHONDONTWRITEBYTECODE :=

.PHONY: train test quick test-long test-sb3 test-envpool lint docs steps results clean

train: .venv/train
	$(BIN)/td3 train HalfCheetah-v5 --steps 50000 --td3.learning-starts 10000

test: .venv/test .venv/system lint
	$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder -m "not long"

# The inner loop: steps, planted bugs, parity, engines, configuration.
quick: .venv/test
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m "not long" tests/algorithm tests/guards tests/parity/test_reference.py \
		tests/engine/test_recording.py tests/collect/test_collector.py tests/environments/test_requirements.py tests/test_config.py

test-long: .venv/test .venv/system lint
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

# Stable-Baselines3's own tests of TD3 with td3_sb3 in its place; writes the table of docs/sb3.md.
test-sb3: .venv/test
	OMP_NUM_THREADS=1 $(BIN)/python tests/sb3/suite/run.py

# EnvPool is large, and so is not installed with the rest.
test-envpool: .venv/test
	$(INSTALL) --editable '.[envpool]'
	$(BIN)/python -m pytest tests/environments/test_envpool.py

lint: .venv/test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	PYTHONPATH=lab:$$PYTHONPATH $(BIN)/lint-imports

docs: .venv/docs
	$(BIN)/python docs/links.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# The drawings, the film, docs/fifteen_steps.*, the README's block and the notebook, from the code and the recorded run.
steps: .venv/test .venv/system
	$(BIN)/python -m td3_lessons.explain.export

# The tables and plots of docs/results*.md, from the stored curves.
results: .venv/test
	PYTHONPATH=lab $(BIN)/python -m td3_lab.reproduce.page
	PYTHONPATH=lab $(BIN)/python -m td3_lab.reproduce.bodies

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "td3 needs Python 3.11 or newer: make PYTHON=python3.11"; exit 2; }
	$(PYTHON) -m venv .venv

.venv/train: .venv/bin/python pyproject.toml constraints.txt
	$(INSTALL) --editable '.[mujoco,video]'
	@touch $@

.venv/test: .venv/bin/python pyproject.toml constraints.txt
	$(INSTALL) --editable '.[dev]'
	@touch $@ .venv/train .venv/docs

.venv/docs: .venv/bin/python pyproject.toml constraints.txt
	$(INSTALL) --editable '.[docs]'
	@touch $@

# MuJoCo draws without a screen through EGL, the page of `td3 explain` is tested in Chromium, the CPU's kernels are compiled
# by the system's compiler: pip installs none of them.
.venv/system: .venv/bin/python Makefile
	@if ! $(BIN)/python -c 'import ctypes.util as c, sys; sys.exit(c.find_library("EGL") is None)'; then \
		if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
			apt-get update -qq && apt-get install -y -qq --no-install-recommends libegl1 libgl1-mesa-dri; \
		else echo "Videos of MuJoCo need EGL: apt-get install libegl1 libgl1-mesa-dri"; exit 2; fi; fi
	@if ! { command -v chromium || command -v chromium-browser || command -v google-chrome; } >/dev/null; then \
		if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
			apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core; \
		else echo "No Chromium here: the tests of the page will be skipped (apt-get install chromium)"; fi; fi
	@if ! { command -v cc || command -v gcc || command -v clang; } >/dev/null; then \
		if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
			apt-get update -qq && apt-get install -y -qq --no-install-recommends gcc libc6-dev; \
		else echo "No C compiler here: the tests of the kernels will be skipped (apt-get install gcc libc6-dev)"; fi; fi
	@touch $@

clean:
	rm -rf .venv
