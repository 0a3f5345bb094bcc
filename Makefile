# Two commands matter: `make demo` shows the yard, `make test` checks all of it. `make help` lists the rest.
.PHONY: help setup packages frameworks demo test test-all test-cluster test-fast lint format soak docs recordings bench clean
.DEFAULT_GOAL := help
SHELL := /bin/bash
export PATH := $(CURDIR)/.venv/bin:$(PATH)

# Where a failure holds up nobody's change, tests look for new examples instead of the known ones.
test-all soak: export JOBYARD_SEARCH := 1

# The stamp's name is a hash of what the environment is made from, and of where it stands: a venv does not survive a move.
READY := .venv/ready-$(shell (cat pyproject.toml tools/setup; pwd) | sha256sum | cut -c1-16)

help: ## this list
	@sed -nE 's/^([a-z-]+):[^#]*## (.*)/make \1|\2/p' Makefile | while IFS='|' read -r target does; do printf '%-16s %s\n' "$$target" "$$does"; done

setup: $(READY) ## make .venv with .venv/bin/yard; does nothing when nothing changed
$(READY):
	@tools/setup
	@rm -f .venv/ready-*
	@touch $@

demo: setup ## run a real batch and a 2-D array in a yard of its own
	@tools/demo

lint: setup ## style, types and import arrows
	ruff check .
	ruff format --check .
	mypy
	lint-imports

packages: # what the tests over SSH, of images and of the cluster need; without it they say so and are skipped
	@cat tests/*/packages.txt | while read -r package command; do tools/need $$package $$command </dev/null || true; done

frameworks: setup # torch, Lightning, transformers and TensorFlow for tests/training; without them they say so and are skipped
	@tools/frameworks >/dev/null || true

test: lint packages frameworks ## style, types, import arrows, a real path through every promise; builds Kubernetes once
	python tools/all-tests

test-all: lint packages frameworks ## the same and the long rest of the tests
	python tools/all-tests --long

test-cluster: setup packages ## only what runs on the real cluster
	python -m tests.cluster.build
	pytest tests/cluster

# Some 7,000 tests: some minutes on two cores. `make test-fast TESTS=tests/unit/cli` is the loop while one package changes.
TESTS := tests/unit tests/scenarios
test-fast: setup ## style, types and all unit tests and scenarios: minutes; with TESTS=tests/unit/cli only those
	ruff check .
	mypy
	pytest -q -n 2 -m 'not slow' $(TESTS)

soak: setup packages ## the long fault campaigns
	JOBYARD_FAULT_ROUNDS=200 JOBYARD_LINK_ROUNDS=45 JOBYARD_LINK_SEED=2 JOBYARD_POISON_SPECS=10000 \
		JOBYARD_ARTEFACTS=$(CURDIR)/artefacts pytest tests/faults --timeout=0 -s
	JOBYARD_CLUSTER_ROUNDS=20 JOBYARD_ARTEFACTS=$(CURDIR)/artefacts pytest tests/cluster/test_faults.py -s
	JOBYARD_LOST_ROUNDS=50 JOBYARD_ARTEFACTS=$(CURDIR)/artefacts pytest tests/cluster/test_lost_pods.py -s
	JOBYARD_WORLDS=1000 pytest tests/unit/executors/kubernetes/test_kubernetes_plan.py
	JOBYARD_HISTORIES=1000 pytest tests/unit/engine/test_yard_machine.py --timeout=0
	JOBYARD_OPENAPI_EXAMPLES=500 pytest tests/security/test_openapi.py --timeout=0

docs: setup ## the documentation as a site, in build/site; a link that leads nowhere is an error
	tools/site

recordings: setup ## record docs/display.svg, attach.svg and top.svg: `yard run`, `attach` and `top` on a terminal
	python tools/record.py

bench: setup ## measure, keep the figures, write docs/benchmarks.md
	@mkdir -p benchmarks/results
	python benchmarks/throughput.py --json >.bench.json && mv .bench.json benchmarks/results/throughput.json
	python benchmarks/startup.py --json >.bench.json && mv .bench.json benchmarks/results/startup.json
	python benchmarks/ssh.py --json >.bench.json && mv .bench.json benchmarks/results/ssh.json
	python benchmarks/sdk.py --json >.bench.json && mv .bench.json benchmarks/results/sdk.json
	python benchmarks/kubernetes.py --json >.bench.json && mv .bench.json benchmarks/results/kubernetes.json
	python benchmarks/scale.py --json >.bench.json && mv .bench.json benchmarks/results/scale.json
	python benchmarks/report.py

format: setup ## let ruff tidy the tree
	ruff check --fix .
	ruff format .

clean: ## remove what the other targets made
	rm -rf .venv dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find src tests benchmarks examples -name __pycache__ -prune -exec rm -rf {} +
