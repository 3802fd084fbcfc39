# Every target does its own set-up in .venv: a bare clone, Python 3.11 or newer and make are enough.

PYTHON ?= python3
PYTEST_ARGS ?=
BENCH_ARGS ?=
LOCK_ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
DEMO_LOG := samples/vllm/v032-spec-mtp-nemotron-h/log.txt
TYPED := forensics tests tools $(wildcard bench)

# uv trusts what the machine trusts, as pip does, wherever the machine has a certificate store.
ifneq ($(wildcard /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt /etc/ssl/cert.pem),)
export UV_SYSTEM_CERTS ?= true
endif

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test lint fmt bench bench-quick bless docs lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s  %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

demo: $(VENV)/project.stamp ## diagnose a shipped log of a failed start
	@echo '$$ forensics diagnose $(DEMO_LOG)'
	@# 1 says that a failure was found: here the right answer, and the only one.
	@$(BIN)/forensics diagnose $(DEMO_LOG); code=$$?; \
	if [ $$code -ne 1 ]; then echo "demo: expected exit code 1 (a failure was found), got $$code" >&2; exit 1; fi
	@echo '$$ forensics rules list   (the first lines)'
	@rules=$$($(BIN)/forensics rules list) && printf '%s\n' "$$rules" | sed -n '1,12p'

test: $(VENV)/project.stamp ## run every test, then the tests inside the rules (PYTEST_ARGS=...)
	$(BIN)/python -m pytest -n auto $(PYTEST_ARGS)
	$(BIN)/forensics rules test

lint: $(VENV)/project.stamp ## check style, types, the direction of imports and the rules
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy --strict $(TYPED)
	$(BIN)/lint-imports --no-logo
	$(BIN)/forensics rules lint
	$(BIN)/python tools/rules_docs.py --check
	$(BIN)/python tools/console.py --check

fmt: $(VENV)/project.stamp ## format, and repair what can be repaired
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

bench: $(VENV)/project.stamp ## measure speed and memory (BENCH_ARGS=...)
	$(BIN)/python -m bench $(BENCH_ARGS)
	@if [ "$$(id -u)" = 0 ] && command -v dockerd >/dev/null; then $(BIN)/python -m bench.collector; \
	else echo 'bench: the collector is left out, it needs root and dockerd' >&2; fi

bench-quick: $(VENV)/project.stamp ## only see that the benchmark runs, on tiny inputs
	$(BIN)/python -m bench --quick

bless: $(VENV)/project.stamp ## write what samples come to today into their expect.yaml, for review
	$(BIN)/python tools/bless.py

docs: $(VENV)/project.stamp ## write the pages that are generated from the program
	mkdir -p docs/reference
	$(BIN)/typer forensics.cli utils docs --name forensics --title 'Commands' --output docs/reference/commands.md
	$(BIN)/forensics rules schema --output docs/reference/rule.schema.json
	$(BIN)/python tools/rules_docs.py
	$(BIN)/python tools/console.py

# dev comes first: it holds everything, and the others are held to its versions.
LOCK := uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-emit-find-links --custom-compile-command 'make lock' $(LOCK_ARGS)
lock: $(VENV)/uv.stamp ## pin the dependencies with hashes (LOCK_ARGS=--upgrade: to the newest)
	$(BIN)/$(LOCK) --group dev pyproject.toml --output-file requirements/dev.txt
	$(BIN)/$(LOCK) --constraints requirements/dev.txt --group test pyproject.toml --output-file requirements/test.txt
	$(BIN)/$(LOCK) --constraints requirements/dev.txt pyproject.toml --output-file requirements/runtime.txt
	echo uv | $(BIN)/$(LOCK) --constraints requirements/dev.txt - --output-file requirements/uv.txt

clean: ## remove everything that the other targets made, .venv too
	rm -rf $(VENV) build dist .coverage .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find forensics tests $(wildcard bench) -name __pycache__ -type d -prune -exec rm -rf {} +

# ------------------------------------------------------------------------------------------ set-up
# Each step leaves a stamp and runs again only when what it reads has changed.

$(VENV)/venv.stamp:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo 'Python 3.11 or newer is needed: make PYTHON=python3.12 ...' >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' \
		|| { echo 'The venv module is missing (Debian and Ubuntu: apt-get install python3-venv)' >&2; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
	@touch $@

$(VENV)/uv.stamp: $(VENV)/venv.stamp requirements/uv.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/uv.txt
	@touch $@

$(VENV)/dependencies.stamp: $(VENV)/uv.stamp requirements/dev.txt
	@# Compiled now, since an environment may forbid it later, and importing sources is slow.
	$(BIN)/uv pip sync --quiet --compile-bytecode --python $(BIN)/python --require-hashes requirements/dev.txt
	@touch $@

$(VENV)/project.stamp: $(VENV)/dependencies.stamp pyproject.toml forensics/__init__.py
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	$(BIN)/python -m compileall -q forensics bench
	@touch $@
