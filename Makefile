# The commands are explained by `make help`. Works with GNU make 3.81, which macOS ships.
PYTHON ?= python3
PROFILE ?= quick
STUDIES ?= all
MACHINE ?=
DEVICE ?= all
RETRY ?=
DRY ?=
DEADLINE ?=
EXECUTOR ?= local
PRICE ?=
EXTRAS ?=
REPOSITORY ?=

MARKS ?= not slow and not slurm
SLOW ?=
STUDY ?=
LAB ?=

UV_VERSION := 0.13.8
# The environment: the one in .venv, else the one for this computer; PLATFORM=name sets another.
# A Cloud TPU has /dev/accel0 or, from v6e on, one of these devices of Google's on the PCI bus.
HOST := $(shell uname -sm | tr ' ' '-')
# Source of the numbers: jax/_src/hardware_utils.py
TPU_CHIPS := 0x0027 0x0056 0x005e 0x0062 0x0063 0x006f 0x0076
PCI ?= /sys/bus/pci/devices
GOOGLES := $(patsubst %/vendor,%/device,$(shell grep -l 0x1ae0 $(PCI)/*/vendor 2>/dev/null))
TPU := $(or $(wildcard /dev/accel0),$(if $(GOOGLES),$(filter $(TPU_CHIPS),$(shell cat $(GOOGLES) 2>/dev/null))))
FOR_Darwin-arm64 := arm64
FOR_Linux-x86_64 := $(if $(TPU),tpu,cuda)
FOR_Linux-aarch64 := linux-arm64
PLATFORM := $(or $(patsubst .venv/.ready-%,%,$(firstword $(wildcard .venv/.ready-*))),$(FOR_$(HOST)),$(HOST))
ifeq ($(PLATFORM),tpu)
export KERAS_BACKEND := jax
endif
BIN := .venv/bin
UV := .uv/bin/uv
READY := .venv/.ready-$(PLATFORM)
ifdef PYTHONHOME
$(warning PYTHONHOME=$(PYTHONHOME) is not used: with it, an interpreter does not find its own library)
unexport PYTHONHOME
endif
ifdef PYTHONOPTIMIZE
$(warning PYTHONOPTIMIZE=$(PYTHONOPTIMIZE) is not used: it takes checks and texts out of libraries)
unexport PYTHONOPTIMIZE
endif
OWN := { test ! -e .venv || test -O .venv; }
NOT_OWN := .venv belongs to another user; clone the project into a folder of your own
ifneq ($(shell test -x $(BIN)/python || $(OWN) || echo no),)
$(error $(NOT_OWN))
endif
$(shell test -x $(BIN)/python || rm -f $(READY)) # install again if the interpreter is gone
CHOICE := --profile $(PROFILE) --studies "$(STUDIES)" --machine "$(MACHINE)" --device $(DEVICE)

.DEFAULT_GOAL := help
.PHONY: help setup study plan report examples test test-slow lint bench derived lab lock pack share address clean

WRAPPED := fold -s -w 62 | sed 's/^\([^ ]\)/                 \1/'
help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-9s %s\n", $$1, $$2}' | $(WRAPPED)
	@echo "For developers:"
	@grep -hE '^[a-z-]+:.*#- ' $(MAKEFILE_LIST) | awk -F ':.*#- ' '{printf "  make %-9s %s\n", $$1, $$2}' | $(WRAPPED)

setup: $(READY) | $(UV) ## Install the locked packages, and with EXTRAS=my-requirements.txt the packages of that file
	@test -z "$(EXTRAS)" || $(UV) pip install --quiet --python $(BIN)/python --constraint requirements/$(PLATFORM).txt -r "$(EXTRAS)"

study: $(READY) ## Measure this machine: PROFILE=quick|paper STUDIES="..." MACHINE=name DEVICE=all|cpu|cuda|rocm|xpu|mps|metal|tpu RETRY=1 DEADLINE=seconds; a cluster: EXECUTOR=slurm
	@exec $(BIN)/benchbook study $(CHOICE) --executor $(EXECUTOR) $(if $(RETRY),--retry) $(if $(DEADLINE),--deadline $(DEADLINE))

plan: $(READY) ## Show the points of PROFILE, how long they should take and, with PRICE=dollars-per-hour, what they cost
	@$(BIN)/benchbook plan $(CHOICE) $(if $(PRICE),--price $(PRICE))

report: $(READY) ## Merge all rows into figures, tables and the report
	@$(BIN)/benchbook report

examples: $(READY) #- Run the notebooks as in JupyterLab and keep them, with outputs, in outputs/examples: STUDIES="..."
	@$(BIN)/python -m benchbook.report.examples $(filter-out all,$(STUDIES))

test: lint ## Set up, lint and run every test except slow ones and Slurm's; MARKS="not slow and not mps" selects others, STUDY=name those of a study
	@$(BIN)/python -m pytest $(if $(STUDY),-k "$(STUDY) and not an_example",-n auto) -m "$(MARKS)"

test-slow: $(READY) #- Run the slow tests: every variant of every notebook, the locks, the Mac's versions on Linux, rehearsals; SLOW=file selects
	@$(BIN)/python -m pytest -m slow $(SLOW)

# mypy imports nothing: by this link it finds the studies where `benchbook.studies` does.
GUESTS := .mypy_cache/guests/benchbook
lint: $(READY) #- Check the style of modules and notebooks, and that notebooks have no outputs
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@mkdir -p $(GUESTS) && ln -sfn ../../../notebooks/studies $(GUESTS)/studies
	@$(BIN)/mypy --no-error-summary
	@$(BIN)/nbstripout --verify notebooks/*.ipynb docs/toy/*.ipynb

bench: $(READY) #- Compare the measured loop with a plain one and with Keras's fit: STUDIES="..."; or STUDIES=intervals|soak|scale|loops|rates|compiled (OTHER=folder of another checkout)
	@for study in $(if $(filter all,$(STUDIES)),mnist_speedup mobilenetv2_energy,$(filter-out intervals soak scale loops rates compiled,$(STUDIES))); do \
		$(BIN)/python benchmarks/overhead.py --study $$study || exit 1; done
	@for bench in $(filter intervals soak scale loops rates compiled,$(STUDIES)); do \
		$(BIN)/python benchmarks/$$bench.py $(OTHER) || exit 1; done

derived: $(READY) #- Make again what is derived from other tables: networks' activations, constants and errors of predictions, pairs and README's picture, golden values
	@$(BIN)/python benchmarks/fit_memory.py
	@$(BIN)/python benchmarks/predictions.py
	@$(BIN)/python benchmarks/estimates.py
	@$(BIN)/python benchmarks/pairs_page.py
	@$(BIN)/python tests/golden.py

# Autosave would change tracked notebooks, and JupyterLab's news would cover them.
LAB_SETTINGS := {"@jupyterlab/docmanager-extension:plugin": {"autosave": false}, \
	"@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": false}}
SETTINGS := $(dir $(BIN))share/jupyter/lab/settings
lab: $(READY) ## Open the notebooks, or those in BENCHBOOK_STUDIES, in JupyterLab; LAB="--no-browser --allow-root" passes options
	@mkdir -p $(SETTINGS) && echo '$(LAB_SETTINGS)' > $(SETTINGS)/overrides.json
	@test -z "$$BENCHBOOK_STUDIES" || export BENCHBOOK_STUDIES="$$(cd "$$BENCHBOOK_STUDIES" && pwd)"; \
		exec $(BIN)/jupyter lab --notebook-dir "$${BENCHBOOK_STUDIES:-notebooks}" $(LAB)

pack: $(READY) ## Check this machine's rows and manifests, and zip them to send: MACHINE=name
	@$(BIN)/benchbook pack --machine "$(MACHINE)"

share: $(READY) ## Show this machine's files and the texts in them, ask, and send them as a pull request by gh: MACHINE=name; DRY=1 sends nothing
	@$(BIN)/benchbook share --machine "$(MACHINE)" $(if $(DRY),--dry-run)

# `resolve` turns the pins of an environment file into a lock with hashes; arguments: the file's name and the platform.
# Only wheels, so that nothing is compiled at set-up. torch needs macOS 14.
resolve = sed -n 's/^    - \([a-z].*==[^ ]*\).*/\1/p' $(wildcard environment-$(1).yml requirements/environment-$(1).yml) \
	| MACOSX_DEPLOYMENT_TARGET=14.0 $(UV) pip compile - \
	--quiet --python-version 3.11 --python-platform $(2) --only-binary :all: \
	--generate-hashes --no-emit-index-url --no-header --no-annotate --output-file requirements/$(1).txt

lock: $(UV) #- Resolve environment-*.yml into requirements/*.txt, and list torch's operators on MPS
	$(call resolve,arm64,aarch64-apple-darwin)
	$(call resolve,cuda,x86_64-manylinux_2_28)
	$(call resolve,linux-arm64,aarch64-manylinux_2_28)
	$(call resolve,tpu,x86_64-manylinux_2_31)
	$(call resolve,report,x86_64-manylinux_2_28)
	MACOSX_DEPLOYMENT_TARGET=14.0 $(UV) run --quiet --no-project --python 3.11 --with pyyaml python tests/rehearsal/mps_operators.py $(UV)

ADDRESS = $(shell sed -n 's|^Repository = "https://github.com/\(.*\)"|\1|p' pyproject.toml)
address: #- Write the address of the repository on GitHub into pyproject.toml, README and notebooks: REPOSITORY=owner/name
	@test -n "$(REPOSITORY)" || { echo "make: REPOSITORY is empty; allowed: owner/name (now: $(ADDRESS))" >&2; exit 1; }
	@perl -pi -e 's{(github(?:\.com)?)/\Q$(ADDRESS)\E(?![\w-])}{$$1/$(REPOSITORY)}g; s{<!-- address: (.*) -->}{$$1}' \
		pyproject.toml README.md notebooks/colab.ipynb

clean: ## Remove environments, caches and everything that is regenerated; rows are kept
	@$(OWN) || { echo "make: $(NOT_OWN)" >&2; exit 1; }
	rm -rf .venv .uv .pytest_cache .ruff_cache .mypy_cache outputs/figures outputs/report lib/*.egg-info

$(READY): requirements/$(PLATFORM).txt pyproject.toml | $(UV)
	@$(OWN) || { echo "make: $(NOT_OWN)" >&2; exit 1; }
	@test -x $(BIN)/python || $(UV) venv --quiet --clear --python 3.11 .venv
	@echo "Installing the locked packages for $(PLATFORM) (several GB on the first run)"
	@$(UV) pip sync --quiet --python $(BIN)/python --compile-bytecode --require-hashes requirements/$(PLATFORM).txt
	@$(UV) pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	@for path in .venv/lib/python*/site-packages/__editable__.benchbook-*.pth; do \
		test ! -f "$$path" || echo ../../../../lib > "$$path"; done # Python 3.11 reads it in ASCII where LC_ALL=C
	@rm -f .venv/.ready-* && touch $@

requirements/%.txt:
	@echo "make: no environment for $*; there are arm64 (macOS on Apple silicon, terminal not in Rosetta), cuda (Linux" \
		"x86-64, GPU or none), linux-arm64 (Linux on ARM, GPU or none), tpu" \
		"(Cloud TPU VM) and report (PLATFORM=report: no framework)" >&2; exit 1

$(UV):
	@command -v $(PYTHON) >/dev/null || { echo "make: $(PYTHON) is missing; install Python 3.9 or later" \
		"(Debian: apt install python3 python3-pip; macOS: xcode-select --install), or set PYTHON=/path" >&2; exit 1; }
	@$(PYTHON) -m pip --version >/dev/null 2>&1 || { echo "make: '$(PYTHON) -m pip' is missing; it is needed once, to" \
		"install uv (Debian: apt install python3-pip; elsewhere: $(PYTHON) -m ensurepip)" >&2; exit 1; }
	@mkdir -p .uv && PIP_USER=0 PIP_REQUIRE_VIRTUALENV=0 PIP_REQUIRE_HASHES=0 PIP_DRY_RUN=0 \
		$(PYTHON) -m pip install --quiet --prefix= --root=/ --target .uv uv==$(UV_VERSION) \
		2> .uv/pip.log || \
		{ cat .uv/pip.log >&2; exit 1; }
