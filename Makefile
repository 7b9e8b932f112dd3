# The front door. `make` lists what there is; every target first installs what is missing (scripts/setup.sh).
JOBS ?= $(shell nproc)
PREFIX ?= /usr/local
RUN ?= train --demo --out out/demo
DEMO := build/release/rlx $(RUN)
# The release and dev builds have the Python extension; `make RLX_PYTHON=OFF ...` leaves it out.
RLX_PYTHON ?= ON
PYTHON_VENV := build/python-venv
PYTHON_PACKAGES := nanobind numpy ml_dtypes pytest scikit-build-core
comma := ,
SOURCES = $(shell git ls-files '*.h' '*.cc')

.PHONY: help setup build tool run test test-long test-python test-torch test-report mutate bench bench-peers bench-regress docs format install clean \
  check check-setup check-format check-lint check-warnings check-asan check-tsan

help:
	@echo "make run         build and run: $(DEMO)   (another command: make run RUN='ops')"
	@echo "make test        build and run the fast suite"
	@echo "make test-long   build and run everything, the slow tests too   (a third of it: make test-long SHARD=1/3)"
	@echo "make test-python build the Python extension and run its tests"
	@echo "make test-torch  compare the ops with PyTorch on its own samples"
	@echo "make test-report look at the page of rlx explain in a browser"
	@echo "make mutate      plant bugs and see that the tests notice"
	@echo "make bench       build and run the benchmarks"
	@echo "make bench-peers  RLX beside PyTorch, ONNX Runtime, OpenVINO, JAX, SciPy, FFTW and llama.cpp, into bench/RESULTS.md   (some: PEERS='--only softmax')"
	@echo "make bench-regress BASE=COMMIT   is this tree slower than that commit?"
	@echo "make check       all of: check-format check-lint check-warnings check-asan check-tsan"
	@echo "make format      let clang-format have its way with all sources"
	@echo "make docs        write the language and the op reference to build/docs"
	@echo "make install     install library, headers and tool under PREFIX (now $(PREFIX))"
	@echo "make clean       remove build/"

setup:
	@scripts/setup.sh

# build/<preset>/configured stands for the configured preset; ninja reconfigures by itself after that.
build/%/configured: CMakePresets.json | setup
	@cmake --preset $* --log-level=WARNING >/dev/null
	@touch $@
.PRECIOUS: build/%/configured

ifeq ($(RLX_PYTHON),ON)
build/release/configured build/dev/configured build/lint/configured: build/%/configured: CMakePresets.json $(PYTHON_VENV)/ready | setup
	@cmake --preset $* -DRLX_PYTHON=ON -DPython_EXECUTABLE=$(CURDIR)/$(PYTHON_VENV)/bin/python \
	  --log-level=WARNING >/dev/null
	@touch $@
endif

# What builds and tests the Python package, from PyPI.
$(PYTHON_VENV)/ready: Makefile | setup
	@python3 -m venv $(PYTHON_VENV)
	@$(PYTHON_VENV)/bin/python -m pip install -q --disable-pip-version-check $(PYTHON_PACKAGES)
	@touch $@

build: build/release/configured
	@cmake --build build/release -j$(JOBS)

tool: build/release/configured
	@cmake --build build/release -j$(JOBS) --target rlx

run: tool
	$(DEMO)

test: build
	@ctest --preset release -j$(JOBS)

# SHARD=2/3: the second of three parts, every third test.
test-long: build
	@cmake --build build/release -j$(JOBS) --target long_tests
	@ctest --preset long -j$(JOBS) $(if $(SHARD),-I $(subst /,$(comma)$(comma),$(SHARD)))

# Planted bugs, each of which a test must notice.
mutate: build/python-venv/ready | setup
	@scripts/mutate.sh

test-python: build/release/configured
	@cmake --build build/release -j$(JOBS) --target rlx_python
	@ctest --test-dir build/release --output-on-failure -R '^python$$'

# With an environment that has torch and expecttest; by default one is made.
TORCH_PYTHON ?= build/torch-venv/bin/python
build/torch-venv/bin/python: | setup
	@python3 -m venv build/torch-venv
	@$@ -m pip install -q --disable-pip-version-check numpy torch expecttest

test-torch: build/release/configured $(TORCH_PYTHON)
	@cmake --build build/release -j$(JOBS) --target rlx_python
	@PYTHONPATH=build/release/python $(TORCH_PYTHON) tests/torch/compare.py

# The page of `rlx explain` in a browser; SHOTS=FOLDER keeps pictures of it.
test-report: build/release/configured
	@scripts/setup.sh report
	@cmake --build build/release -j$(JOBS) --target make_pages
	@build/release/tests/make_pages build/report-pages
	@PYTHONDONTWRITEBYTECODE=1 python3 tests/report/browser_test.py build/report-pages $(SHOTS)

bench: build
	@cmake --build build/release -j$(JOBS) --target benches
	@set -e; for program in $$(find build/release/bench -maxdepth 1 -type f -executable | sort); do \
	  echo "== $$program"; $$program; done

# RLX beside other libraries; PEERS holds further options of bench/peers/run.py. By default their environment is made.
PEERS_PYTHON ?= build/peers-venv/bin/python
PEERS ?= --write
PEERS_PACKAGES := numpy scipy torch torchvision transformers jax pyfftw onnx onnxruntime openvino gguf
build/peers-venv/bin/python: | setup
	@python3 -m venv build/peers-venv
	@$@ -m pip install -q --disable-pip-version-check $(PEERS_PACKAGES)
	@$@ -m pip install -q --disable-pip-version-check llama-cpp-python || echo "llama-cpp-python could not be built: the language model has no peer"

bench-peers: build/release/configured $(PEERS_PYTHON)
	@cmake --build build/release -j$(JOBS) --target rlx rlx_python benches
	@$(PEERS_PYTHON) bench/peers/run.py $(PEERS)

# This tree against another commit, both builds interleaved.
bench-regress: build/release/configured
	@test -n "$(BASE)" || { echo "usage: make bench-regress BASE=COMMIT" >&2; exit 2; }
	@cmake --build build/release -j$(JOBS) --target write_programs rlx_python
	@build/release/tests/write_programs build/regress/programs
	@$(PYTHON_VENV)/bin/python bench/regress/run.py $(BASE) $(REGRESS)

format: | check-setup
	@clang-format-19 -i $(SOURCES)

check: check-format check-lint check-warnings check-asan check-tsan

check-setup:
	@scripts/setup.sh check

check-format: | check-setup
	@clang-format-19 --dry-run -Werror $(SOURCES)
	@echo "format: fine"

# File length, that every planted bug still has its place, then clang-tidy over all sources of src/ and those made of it.
check-lint: build/lint/configured | check-setup
	@wc -l $(SOURCES) | awk '$$2 != "total" && $$1 > 800 { print $$2 ": " $$1 " lines, the limit is 800"; bad = 1 } END { exit bad }'
	@scripts/mutate.sh --check
	@cmake --build build/lint --target generated_headers >/dev/null
	@run-clang-tidy-19 -quiet -j $(JOBS) -p build/lint "$(CURDIR)/(src|build/lint/instruction_sets|build/lint/CMakeFiles)/" 2>/dev/null
	@echo "lint: fine"

# Every source by itself; what only the optimiser warns of is an error in check-asan.
check-warnings: build/dev/configured
	@cmake --build build/dev --target generated_headers >/dev/null
	@python3 scripts/check_warnings.py build/dev $(JOBS)

check-asan: build/asan/configured
	@cmake --build build/asan -j$(JOBS)
	@ctest --preset asan -j$(JOBS)

# Tests that run several threads, ours and those of the pool.
check-tsan: build/tsan/configured
	@cmake --build build/tsan -j$(JOBS) --target thread_tests
	@ctest --preset tsan -j$(JOBS) --no-tests=error

docs: build/release/configured
	@cmake --build build/release -j$(JOBS) --target ops_reference
	@mkdir -p build/docs && cp docs/*.md build/docs/
	build/release/tests/ops_reference > build/docs/ops.md
	@echo "build/docs/ir.md: what a program means; build/docs/ops.md: the op reference"

install: build
	@cmake --install build/release --prefix $(PREFIX)

clean:
	rm -rf build
