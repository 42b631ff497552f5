# `make demo` shows what this is for; `make test` does all that CI checks. Both need cargo, a C
# compiler, Python 3.11 or later and make, and bring the rest. What was done is not done again
# until what it is made of changes: see build/stamps.

SHELL := /bin/sh
.DELETE_ON_ERROR:

GOOD_PYTHON := import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for python in python3 python3.11 python3.12 python3.13 python3.14 python3.15; do \
	$$python -c '$(GOOD_PYTHON)' 2>/dev/null && echo $$python && break; done)

# As the build hook has it, so that cargo need not build the bindings again for each.
export PYO3_NO_PYTHON := 1

# Built alone: beside the others it would get crates with features that need the standard library.
NO_STD := deconvoy-shim

STAMPS := build/stamps
DEV := build/venv/bin
DEMO := build/demo

RUST := $(shell find Cargo.toml Cargo.lock rustfmt.toml crates -type f)
PACKAGE := $(shell find python scenarios -type f -not -name '*.pyc' -not -name '*.so')
BUILT_FROM := pyproject.toml hatch_build.py $(RUST) $(PACKAGE)
PYTHON_CHECKED := $(PACKAGE) pyproject.toml hatch_build.py \
	$(shell find tests ci benchmarks -name "*.py") ci/interpreters ci/aarch64 ci/rubies ci/cpython-tests ci/ruby-tests benchmarks/servers benchmarks/pyperformance \
	benchmarks/drivers benchmarks/overhead benchmarks/scale benchmarks/futures benchmarks/rivals benchmarks/ruby benchmarks/convoys benchmarks/calls \
	benchmarks/sweeping docs/policies/draw
TESTS := $(shell find tests -type f -not -name '*.pyc')
# These mind neither what else the machine does nor one another, and run two at a time.
TOGETHER := tests/futures tests/hazards/test_ruby.py tests/history \
	tests/test_conformance.py tests/test_cpython.py tests/test_damaged_files.py \
	tests/test_lab_and_sim.py tests/test_libc.py tests/test_ruby_tests.py tests/test_wheel.py

.PHONY: all test rust python demo lock clean
all: test

test: rust python

rust: $(STAMPS)/rustfmt $(STAMPS)/clippy $(STAMPS)/cargo-test

python: $(STAMPS)/ruff $(STAMPS)/mypy $(STAMPS)/stubtest $(STAMPS)/pytest

$(STAMPS)/packages: ci/packages
	@mkdir -p $(@D)
	ci/packages
	@touch $@

$(STAMPS)/rustfmt: $(RUST)
	@mkdir -p $(@D)
	cargo fmt --check
	@touch $@

$(STAMPS)/clippy: $(RUST) | $(STAMPS)/packages
	cargo clippy --workspace --exclude $(NO_STD) --all-targets --locked -- -D warnings
	cargo clippy -p $(NO_STD) --locked -- -D warnings
	@touch $@

$(STAMPS)/cargo-test: $(RUST) | $(STAMPS)/packages
	cargo test --workspace --exclude $(NO_STD) --locked --all-features
	ci/loom
	@touch $@

# The tools and libraries, in the versions of the lock file.
$(STAMPS)/tools: requirements-dev.lock | $(STAMPS)/packages
	@test -n "$(PYTHON)" || { echo "no Python 3.11 or later with venv and ensurepip: install one" \
		"(Debian: python3-venv), or name it: make PYTHON=…" >&2; exit 2; }
	$(PYTHON) -m venv --clear build/venv
	$(DEV)/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.lock
	@touch $@

$(STAMPS)/installed: $(BUILT_FROM) $(STAMPS)/tools
	$(DEV)/python -m pip install --quiet --disable-pip-version-check \
		--no-build-isolation --no-deps --force-reinstall .
	@touch $@

$(STAMPS)/ruff: $(PYTHON_CHECKED) $(STAMPS)/tools
	$(DEV)/ruff check
	$(DEV)/ruff format --check
	@touch $@

$(STAMPS)/mypy: $(PYTHON_CHECKED) $(STAMPS)/tools
	$(DEV)/mypy --strict python hatch_build.py
	MYPYPATH=benchmarks:python $(DEV)/mypy --strict benchmarks/servers benchmarks/serving
	MYPYPATH=benchmarks:python $(DEV)/mypy --strict benchmarks/pyperformance benchmarks/probe
	for one in rivals ruby convoys calls sweeping scale futures overhead drivers; do \
		MYPYPATH=benchmarks:python:tests:tests/history $(DEV)/mypy --strict benchmarks/$$one || exit 1; \
	done
	MYPYPATH=benchmarks/programs $(DEV)/mypy --strict benchmarks/programs
	MYPYPATH=ci $(DEV)/mypy --strict ci/interpreters
	MYPYPATH=ci $(DEV)/mypy --strict ci/aarch64
	MYPYPATH=ci $(DEV)/mypy --strict ci/rubies
	MYPYPATH=ci:python $(DEV)/mypy --strict ci/cpython-tests ci/upstreamtests
	MYPYPATH=ci:python $(DEV)/mypy --strict ci/ruby-tests
	@touch $@

$(STAMPS)/stubtest: $(STAMPS)/installed
	cd build && venv/bin/python -m mypy.stubtest deconvoy._native
	@touch $@

$(STAMPS)/pytest: $(STAMPS)/installed $(TESTS)
	$(DEV)/python -m pytest -q -n 2 --dist worksteal $(TOGETHER)
	$(DEV)/python -m pytest -q $(addprefix --ignore=,$(TOGETHER))
	@touch $@

.venv/installed: $(BUILT_FROM)
	@test -n "$(PYTHON)" || { echo "no Python 3.11 or later with venv and ensurepip: install one" \
		"(Debian: python3-venv), or name it: make PYTHON=…" >&2; exit 2; }
	ci/packages
	$(PYTHON) -m venv .venv
	.venv/bin/python -m pip install --disable-pip-version-check .
	@touch $@

# A program with a convoy: what a trace says of it, and what a policy does to it.
demo: .venv/installed
	@rm -rf $(DEMO) && mkdir -p $(DEMO)
	.venv/bin/deconvoy trace -o $(DEMO)/stock.deconvoy -- .venv/bin/python -m deconvoy.demo
	.venv/bin/deconvoy report $(DEMO)/stock.deconvoy > $(DEMO)/report.txt
	.venv/bin/deconvoy run -- .venv/bin/python -m deconvoy.demo
	.venv/bin/deconvoy bench messaging --quick -o $(DEMO)/messaging.json
	@echo "who held the GIL and who waited, in stock CPython: $(CURDIR)/$(DEMO)/report.txt"

lock:
	$(PYTHON) -m venv build/lock
	build/lock/bin/python -m pip install --quiet pip-tools
	build/lock/bin/pip-compile --quiet --upgrade --extra dev --strip-extras --no-header \
		--no-emit-index-url --no-emit-find-links --no-emit-trusted-host \
		--annotation-style line --output-file requirements-dev.lock pyproject.toml

clean:
	cargo clean
	rm -rf build dist .venv .mypy_cache .ruff_cache .pytest_cache
