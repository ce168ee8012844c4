# Everything a fresh machine needs: `make demo` shows what saccade does, `make test` proves it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
FUZZ ?= 100000
# Neighbours stay in one process, which makes once what they share.
PARALLEL := -n 2 --dist worksteal

.PHONY: demo live test fast thorough fuzz bench docs clean

demo: $(VENV)/installed
	$(BIN)/saccade demo --out demo

# The page in the browser; Ctrl-C ends it.
live: $(VENV)/installed
	$(BIN)/saccade live street@1

test: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest $(PARALLEL) --durations=10

fast: $(VENV)/installed
	$(BIN)/python -m pytest $(PARALLEL) -m "not slow and not thorough"

# What takes minutes and seldom breaks: exports of every memory, in every runtime; trainings of large presets.
thorough: $(VENV)/installed
	$(BIN)/python -m pytest $(PARALLEL) -m thorough

# FUZZ mutated inputs for every reader; nothing but InputError may come out.
fuzz: $(VENV)/installed
	$(BIN)/python -m tests.fuzz --inputs $(FUZZ)

# Every figure of docs/speed.md, as ratios in one run.
bench: $(VENV)/installed
	$(PIP) install --constraint constraints.txt --editable ".[benchmarks]"
	$(BIN)/python -m benchmarks

# The site, in site/: pages of docs/, with the reference and the tree written anew.
docs: $(VENV)/installed
	$(PIP) install --constraint constraints.txt --editable ".[docs]"
	$(BIN)/python -m docs.generate
	$(BIN)/zensical build --clean --strict
	rm -f site/generate.py

$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --constraint constraints.txt torch
	$(PIP) install --constraint constraints.txt --editable ".[video,export,openvino,photos,live,foxglove,ros2,inivation,cluster,s3,test,oracles]"
	touch $@

clean:
	rm -rf $(VENV) demo site .mypy_cache .ruff_cache .pytest_cache
