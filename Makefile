# `make demo` and `make test` set up everything that they need in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# The tests start the command a thousand times: it is compiled once, whatever the machine's setting.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test check golden bench docs clean

demo: $(VENV)/.demo
	@mkdir -p out
	$(BIN)/helix run examples/triage/triage.helix --input examples/triage/tickets.jsonl --output out/triage.jsonl
	@$(BIN)/helix show out/triage.jsonl

test: $(VENV)/.dev
	$(BIN)/pytest -q -n auto --dist loadfile

check: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

golden: $(VENV)/.dev
	$(BIN)/pytest -q --update-golden
	git diff --stat

bench: $(VENV)/.dev
	$(BIN)/python tests/benchmarks/executor_cost.py
	$(BIN)/python tests/benchmarks/http_overhead.py

docs: $(VENV)/.dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	$(BIN)/pytest -q tests/docs

clean:
	rm -rf $(VENV) out build dist site

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install -q -e '.[local]'
	@touch $@

$(VENV)/.dev: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install -q -e '.[local,dev,docs]'
	@touch $@ $(VENV)/.demo
