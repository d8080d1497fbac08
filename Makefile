# Every target makes what it needs; start with `make demo` or `make test`.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt
JOBS   ?= 2
# An environment of its own: EconML caps the version of scikit-learn, and CausalML's metadata is not satisfied.
PEERS  := .venv-peers

# Environments of their own: what users install, and the oldest versions that the metadata allow.
DIST   := build/dist
LOWEST := .venv-lowest

.PHONY: demo test test-lowest dist-check lint docs examples screenshots validity trust fuzz bench peers clean

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "modifind needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.base: $(BIN)/python pyproject.toml constraints.txt
	$(PIP) --editable .
	touch $@

$(VENV)/.test: $(VENV)/.base
	$(PIP) --editable '.[test]'
	touch $@

$(VENV)/.docs: $(VENV)/.base
	$(PIP) --editable '.[docs,examples]'
	touch $@

demo: $(VENV)/.base
	$(BIN)/modifind demo --out demo-report --jobs $(JOBS)

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache --no-logo
	$(BIN)/python tools/orphans.py

test: lint
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal

# The declared minimum of every dependency; what tests need beyond them is the newest. Browser tests are left out.
test-lowest:
	$(PYTHON) -m venv $(LOWEST)
	$(LOWEST)/bin/pip install --quiet --disable-pip-version-check uv
	$(LOWEST)/bin/uv pip install --quiet --python $(LOWEST)/bin/python --resolution lowest-direct --editable '.[test]'
	$(LOWEST)/bin/python -m pytest -n $(JOBS) --dist worksteal

# Builds sdist and wheel of the tracked files, installs each in a fresh environment, runs the wheel's demo and the
# sdist's own tests.
dist-check: $(VENV)/.test
	rm -rf $(DIST)
	$(PIP) build twine
	mkdir -p $(DIST)/tracked
	git ls-files | tar -cf - -T - | tar -xf - -C $(DIST)/tracked
	$(BIN)/python -m build --outdir $(DIST) $(DIST)/tracked
	$(BIN)/twine check --strict $(DIST)/*.whl $(DIST)/*.tar.gz
	$(PYTHON) -m venv $(DIST)/wheel
	$(DIST)/wheel/bin/pip install --quiet --disable-pip-version-check $(DIST)/*.whl
	cd $(DIST) && wheel/bin/modifind demo --out demo-report --jobs $(JOBS)
	$(PYTHON) -m venv $(DIST)/sdist
	mkdir $(DIST)/unpacked && tar -xf $(DIST)/*.tar.gz -C $(DIST)/unpacked --strip-components 1
	$(DIST)/sdist/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable $(DIST)/unpacked'[test]'
	cd $(DIST)/unpacked && ../sdist/bin/python -m pytest -n $(JOBS) --dist worksteal

# The site goes to site/; warnings are errors, broken links and anchors among them.
docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo site/index.html

# Runs examples/ and puts what they print and draw into their pages; NHANES is downloaded, or read from $$MODIFIND_DATA.
examples: $(VENV)/.docs
	$(BIN)/python tools/run_examples.py

# Every table of docs/validity.md with development seeds, and the studies of `make test` with all cases and all runs;
# `RUNS=2` is a first look.
validity: $(VENV)/.test
	MODIFIND_STUDIES=all $(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m study
	$(BIN)/python benchmarks/validity.py --runs $(or $(RUNS),50)

# Writes docs/trust.md, in about an hour on two cores; real tables for coin flips are read from $$MODIFIND_DATA.
trust: $(VENV)/.test
	$(BIN)/python benchmarks/trust.py --jobs $(JOBS)

# 3,000 random tables in Python and 400 on the command line, then 30 variants of every fault that can be planted and 200
# clean tables; `make test` runs a few of the same. Real tables are read from $$MODIFIND_DATA.
fuzz: $(VENV)/.test
	MODIFIND_FUZZ_TABLES=3000 MODIFIND_FUZZ_COMMANDS=400 $(BIN)/python -m pytest -n $(JOBS) tests/cli/test_fuzz.py
	$(BIN)/python benchmarks/planted_faults.py

bench: $(VENV)/.test
	$(BIN)/python benchmarks/speed.py

# Pictures of the demo's report for the README; needs Chromium.
screenshots: demo $(VENV)/.test
	$(BIN)/python benchmarks/screenshots.py demo-report/report.html docs/images

# CausalML without its dependencies: xgboost brings 350 MB of CUDA, and the filters need only what `peers` lists.
$(PEERS)/.peers: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(PEERS)
	$(subst $(BIN),$(PEERS)/bin,$(PIP)) --editable '.[peers]'
	$(subst $(BIN),$(PEERS)/bin,$(PIP)) --no-deps 'causalml>=0.18'
	touch $@

# 20 tables of every design, into docs/peers.md: more than an hour on two cores; `RUNS=3` is a first look.
peers: $(PEERS)/.peers
	$(PEERS)/bin/python benchmarks/peers.py --jobs $(JOBS) --runs $(or $(RUNS),20) --seed 1000 --page docs/peers.md

clean:
	rm -rf $(VENV) $(PEERS) $(LOWEST) demo-report site build src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
