# make run: the main job on an embedded broker.  make test: the tests, in minutes.  make test-all: these, and proof/.
# All set up .venv by themselves; with PYTHON=python3.13, build/venv-3.13 instead.  Other tools: python -m proof --help.
ifdef PYTHON
VERSION := $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2] + sys.abiflags)')
$(if $(VERSION),,$(error PYTHON=$(PYTHON) does not run; name a Python that is installed, as in: make PYTHON=python3.12 test))
VENV := build/venv-$(VERSION)
else
PYTHON := python3
VENV := .venv
endif
BIN := $(VENV)/bin

# A run of the tests starts some 250 processes, and each would compile the package anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run test test-page test-all chaos lowest kernels test-containers check lock format docs bench environment clean

run: $(VENV)/.demo
	$(BIN)/streamdedup demo

# More processes than the two cores have work for: tests of a broker wait most of the time, and proof/ has more of them.
PYTEST := $(BIN)/python -m pytest --dist worksteal --durations 10
test: kernels
	$(PYTEST) --numprocesses 4 tests $(PYTEST_ARGS)

# The worker's page in chromium.
test-page: kernels
	$(PYTEST) --numprocesses 2 proof/page $(PYTEST_ARGS)

test-all: test
	$(PYTEST) --numprocesses 5 proof $(PYTEST_ARGS)

# Faults on a real broker. All take hours; some of them, minutes: make chaos ONLY="visitors drain".
chaos: kernels
	$(BIN)/python -m proof chaos $(ONLY)

# The tests without a broker, with the lowest versions that pyproject.toml allows, in build/lowest.  They have wheels for
# Python 3.11 only, so on another one pip ends at once, instead of compiling them.
lowest: $(VENV)/.dev
	rm -rf build/lowest
	mkdir -p build
	$(BIN)/python -m tests.lowest > build/lowest.txt
	$(BIN)/python -m venv build/lowest
	build/lowest/bin/python -m pip install --quiet --disable-pip-version-check --only-binary :all: -c build/lowest.txt -e '.[demo,dev]'
	build/lowest/bin/python -m streamdedup compile
	build/lowest/bin/python -m pytest --numprocesses 2 --dist worksteal tests -m 'not broker' $(PYTEST_ARGS)

# Compiled once: processes that start side by side on an empty cache would each compile the same kernels.
kernels: $(VENV)/.dev
	$(BIN)/python -m streamdedup compile

# The image and the stack of deploy/, and broker tests with the broker in a container, on the engine of DOCKER_HOST.
test-containers: $(VENV)/.dev
	$(BIN)/python -m pytest --containers -m container proof/deploy $(PYTEST_ARGS)
	STREAMDEDUP_TEST_BOOTSTRAP= STREAMDEDUP_TEST_RUNG=docker $(BIN)/python -m pytest \
		-m 'broker and not private_broker' proof/broker/test_ladder.py tests/broker/test_worker.py

check: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python -m tests.lock

# The newest versions that fit together, in requirements/.
lock: $(VENV)/.dev
	$(INSTALL) uv
	PATH=$(CURDIR)/$(BIN):$$PATH $(BIN)/python -m tests.lock write

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# The generated tables of docs/; then a site with search in build/site, of the documents as they stand here; a broken
# link or anchor fails.
docs: $(VENV)/.docs
	$(BIN)/python -m proof tables
	rm -rf build/pages build/site
	mkdir -p build/pages
	cp -R README.md CONTRIBUTING.md CHANGELOG.md LICENSE pyproject.toml config deploy docs examples results build/pages
	$(BIN)/zensical build --strict --clean --config-file mkdocs.yml

# Keys in each format, and URLs, in seconds. The worker against a plain copy and a loop by hand: twenty minutes; then its
# stages, some minutes. What else there is: python -m bench --help.
bench: $(VENV)/.dev $(VENV)/.bench
	$(BIN)/python -m bench formats
	$(BIN)/python -m bench urls
	$(BIN)/python -m bench worker
	$(BIN)/python -m bench repartition

# Prints where the environment is, for scripts.
environment:
	@echo $(VENV)

clean:
	rm -rf .venv var build dist

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 15))' || \
		{ echo "$(PYTHON) is $$($(PYTHON) --version); Python 3.11 to 3.14 is needed; say which: make PYTHON=python3.12 ..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

# Of the lock: the same versions, by their hashes, in each environment that is set up.
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check

$(VENV)/.demo $(VENV)/.dev $(VENV)/.bench $(VENV)/.docs: $(VENV)/.%: requirements/%.txt pyproject.toml | $(BIN)/python
	$(INSTALL) --require-hashes -r $<
	$(INSTALL) --no-deps --no-build-isolation -e .
	@touch $@ $(if $(filter dev,$*),$(VENV)/.demo)
