# `make help` lists what there is. Needs Python >= 3.11; everything else is set up in .venv.
SHELL := /bin/sh
PY := .venv/bin/python
ARGS :=
# Processes that share the tests: one more than there are cores, since many tests wait for real processes; at most 4, and
# none besides pytest itself where ARGS picks tests.
CORES := $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
WORKERS :=
# Tests and benchmarks start hundreds of processes: none should compile all modules anew.
unexport PYTHONDONTWRITEBYTECODE

# make sim: how long, and from which seed on (the second of its start, so that each run has worlds of its own).
MINUTES := 10
SEED = $(shell date +%s)

# make soak: virtual hours, and real minutes.
HOURS := 24
SOAK_MINUTES := 60

# make mutants: how many.
COUNT := 40

# make fuzz: how many examples of each test, and which tests.
EXAMPLES := 1000
FUZZES := tests/unit/core/test_fuzz.py tests/unit/broker/test_fuzz.py tests/unit/node/test_fuzz.py \
	tests/unit/node/test_damaged_znodes.py tests/sim/test_znode_damage.py

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-long test-pages test-docker test-wheel test-kafka test-conformance sim soak fuzz lint format lock image docs site defects mutants bench bench-broker bench-replay bench-rehearse clean

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup:  ## .venv with the locked packages; redone only when the lock file changed
	@.ci/setup

demo: setup  ## run a cluster, break it, heal it, replay its trace; ARGS="--out DIR --seed N"
	@.venv/bin/kwob demo --overwrite $(ARGS)

test: setup  ## all tests that need neither Docker nor a real Kafka, but test-long and test-pages; ARGS="-k word" WORKERS=3
	@$(PY) -m pytest -n $(or $(WORKERS),$(if $(ARGS),0,$(shell expr $(CORES) + 1))) --maxprocesses=4 $(ARGS)

test-long: setup  ## what else needs neither Docker nor a Kafka: worlds that once failed, the simulation's own tests, more Spark
	@$(PY) -m pytest -m long -n $(if $(ARGS),0,$(CORES)) --maxprocesses=4 $(ARGS) tests

test-pages: setup  ## type what README and the pages of docs show, as a reader would; ARGS="-k faults"
	@$(PY) -m pytest -m pages -n $(if $(ARGS),0,$(CORES)) --maxprocesses=4 $(ARGS) tests

fuzz: setup  ## many fresh examples of damaged znodes and requests; EXAMPLES=20000 ARGS=tests/unit/core/test_fuzz.py
	@KWOB_FUZZ_EXAMPLES=$(EXAMPLES) $(PY) -m pytest -m slow -k for_long $(or $(ARGS),$(FUZZES))

test-kafka: setup  ## the suites beside a real Kafka (needs java, mvn and ../shared/tools/real-kafka or KWOB_REAL_KAFKA)
	@$(PY) -m pytest -m kafka -rs $(ARGS)

test-conformance: setup  ## the recordings of Kafka's controller alone (needs java and ../shared/conformance)
	@$(PY) -m pytest -m kafka -rs tests/conformance $(ARGS)

test-docker: setup  ## build the image, run docker-compose.yml's cluster and test it (needs Docker); ARGS="-v"
	@$(PY) -m pytest -m docker -rs tests/docker $(ARGS)

test-wheel: setup  ## build the wheel, install it in a bare environment and type its commands (needs a package index)
	@$(PY) -m pytest -m wheel -rs tests/wheel $(ARGS)

sim: setup  ## simulated worlds, new ones each time: MINUTES=10 WORKERS=3 ARGS="--set brokers=3"
	@.venv/bin/kwob sim run --seeds $(SEED)..$(SEED) --minutes $(MINUTES) $(if $(WORKERS),--workers $(WORKERS)) $(ARGS)

soak: setup  ## does anything grow? 24 virtual hours with faults, then a real hour of processes: HOURS=24 SOAK_MINUTES=60
	@.venv/bin/kwob sim soak --hours $(HOURS) --seed $(SEED) $(ARGS)
	@$(PY) -m tests.soak --minutes $(SOAK_MINUTES) --seed $(SEED)

lint: setup  ## ruff and mypy --strict
	@$(PY) -m ruff check
	@$(PY) -m ruff format --check
	@$(PY) -m mypy

format: setup  ## let ruff lay out the code
	@$(PY) -m ruff format
	@$(PY) -m ruff check --fix

docs: setup  ## draw again what is drawn: state machines, known failures, transcripts, features of tools and brokers (minutes)
	@$(PY) -m controller.core.diagram > docs/state-machines.md.new && mv docs/state-machines.md.new docs/state-machines.md
	@$(PY) -m tests.known_failures.table > docs/known-failures.md.new && mv docs/known-failures.md.new docs/known-failures.md
	@$(PY) -m tests.features.transcripts
	@$(PY) -m tests.features.table
	@$(PY) -m tests.broker_features.table
	@$(PY) -m tests.logs_table > docs/logs.md.new && mv docs/logs.md.new docs/logs.md
	@$(PY) -m tests.broker_metrics.table > docs/metrics.md.new && mv docs/metrics.md.new docs/metrics.md

site: setup  ## the pages of docs as a site in build/site; ends with a broken link
	@NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict -f .ci/mkdocs.yml

defects: setup  ## plant defects one at a time and look which tests notice (an hour); ONLY=word WORKERS=2 ARGS="--every-layer" or --named
	@$(PY) -m tests.defects --only "$(ONLY)" --workers $(or $(WORKERS),2) $(ARGS)

mutants: setup  ## small changes that a tool makes, COUNT of them, and which tests notice; ONLY=core/election SEED=7 WORKERS=2
	@$(PY) -m tests.defects.mutants --only "$(ONLY)" --count $(COUNT) --seed $(if $(filter command line,$(origin SEED)),$(SEED),0) --workers $(or $(WORKERS),2)

bench: setup  ## measure the controller beside Kafka's (needs java and ../shared/bench); ARGS="--controller kafka --brokers 20"
	@.ci/bench $(ARGS)

bench-broker: setup  ## measure three brokers beside three of Kafka's (needs java, mvn, KWOB_REAL_KAFKA); ARGS="--only kwob"
	@.ci/bench-broker $(ARGS)

bench-replay: setup  ## measure the replay beside reading, shuffling and sorting alone; ARGS="--rows 20000000 --rounds 3"
	@$(PY) -m tests.bench_replay $(ARGS)

bench-rehearse: setup  ## measure rehearsals of large clusters, one process each; ARGS="--only day --profile flames"
	@$(PY) -m tests.bench_rehearse $(ARGS)

lock:  ## resolve pyproject.toml into requirements.lock and .ci/image.lock again (needs uv)
	@command -v uv >/dev/null || { echo "make lock needs uv: https://docs.astral.sh/uv/" >&2; exit 1; }
	UV_CUSTOM_COMPILE_COMMAND="make lock" uv pip compile --quiet --universal --generate-hashes --extra dev \
		--no-emit-index-url --no-emit-find-links pyproject.toml -o requirements.lock
	UV_CUSTOM_COMPILE_COMMAND="make lock" uv pip compile --quiet --universal --generate-hashes --extra demo --extra ui \
		--no-emit-index-url --no-emit-find-links -c requirements.lock pyproject.toml -o .ci/image.lock

image:  ## the container image that docker-compose.yml uses (needs Docker)
	docker build -t kwob .

clean:  ## remove what was built, cached and demonstrated; keeps .venv
	rm -rf kwob-demo build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis spark-warehouse metastore_db derby.log
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +
