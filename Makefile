# Plain GNU make, no configure step, everything into build/. `make help` lists the targets.

# Build on every processor unless told otherwise with -j; a make that this one calls shares them.
ifeq ($(MAKELEVEL),0)
MAKEFLAGS += -j$(shell nproc)
endif
.DELETE_ON_ERROR:
.SECONDARY:

# One short line a file; `make V=1` shows whole commands, `make -s` nothing.
ifeq ($(V)$(findstring s,$(firstword -$(MAKEFLAGS))),)
SAY = @echo '  $(1)  $@';
else ifeq ($(V),)
SAY = @
endif

BUILD ?= build
PREFIX ?= /usr/local
DESTDIR ?=
OPT ?= -O3
SANITIZE ?=
VECTOR_SANITIZE ?= $(SANITIZE)

VERSION := 0.1.0
COMMIT := $(shell git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)
ARCH := $(shell uname -m)
PYTHON ?= python3
VENV := build/venv

PACKAGES := libuv libmicrohttpd jansson libpcre2-8 libutf8proc libxxhash inih
CPPFLAGS += -I. -D_GNU_SOURCE $(shell pkg-config --cflags $(PACKAGES) 2>/dev/null)
WARNINGS := -Wall -Wextra -Werror -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla \
            -Wwrite-strings -Wpointer-arith -Wundef
# No -ffast-math: results would depend on the number of threads.
CFLAGS += -std=gnu17 $(OPT) -g -fno-omit-frame-pointer -ffp-contract=off -pthread $(WARNINGS) \
          $(SANITIZE)
LDFLAGS += -pthread $(SANITIZE)
LDLIBS += $(shell pkg-config --libs $(PACKAGES) 2>/dev/null) -lm -ldl

# What goes into libweft-cuda.so and not into the binary.
CUDA_C := $(filter-out engine/cuda_library.c,$(sort $(wildcard kernels/cuda/*.c engine/cuda_*.c \
          engine/backend_cuda.c)))
SOURCES := $(filter-out $(CUDA_C),\
           $(sort $(shell find config kernels engine scheduler server -name '*.c' ! -path server/main.c)))
VECTOR_SOURCES := %_avx2.c %_avx512.c
ifneq ($(ARCH),x86_64)
SKIP := $(VECTOR_SOURCES)
endif
SOURCES := $(filter-out $(SKIP),$(SOURCES))
OBJECTS := $(SOURCES:%.c=$(BUILD)/obj/%.o)
LIBRARY := $(BUILD)/libweft.a
UNIT_SOURCES := $(sort $(shell find tests/unit tests/sim tests/golden -name 'test_*.c' 2>/dev/null))
UNIT_TESTS := $(UNIT_SOURCES:tests/%.c=$(BUILD)/tests/%)
FUZZERS := $(patsubst tests/fuzz/fuzz_%.c,%,$(wildcard tests/fuzz/fuzz_*.c))
CODE := $(shell find config kernels engine scheduler server tests -name '*.[ch]' -o -name '*.cu' \
                -o -name '*.cuh')

# CUDA, where its compiler is. CUDA_ARCHS: what machine code to build, "native" for the card that is
# present (9.0 where there is none), "release" for every generation that this compiler knows.
CUDA_HOME ?= /usr/local/cuda
NVCC ?= $(firstword $(wildcard $(CUDA_HOME)/bin/nvcc) $(shell command -v nvcc))
CUDA_ARCHS ?= native
CUDA_ARCHS_OF_native = $(or $(shell nvidia-smi --query-gpu=compute_cap --format=csv,noheader \
                       2>/dev/null | head -n 1 | tr -d . | sed 's/^90$$/90a/'),90a)
CUDA_ARCHS_OF_release = 75 80 86 89 90a 100 120
CUDA_TARGETS = $(or $(CUDA_ARCHS_OF_$(CUDA_ARCHS)),$(CUDA_ARCHS))
ifneq ($(NVCC),)
CUDA_LIBRARY := $(BUILD)/libweft-cuda.so
endif

# What the tests see: the binary and the build that they belong to.
RUN_TESTS = WEFT_BINARY=$(abspath $(BUILD)/weft) $(PYTHON) tests/run --build $(BUILD)

.PHONY: all help deps serve quick test asan ubsan tsan fuzz tidy format format-check golden bench \
        bundle docs install clean unit-tests venv

##@ Build and run
all: $(BUILD)/weft $(CUDA_LIBRARY) ## the server, build/weft (also: make CC=clang)

help: ## this list
	@awk -F ':.*## ' '/^##@/ { print "\n" substr($$0, 5) } \
	    /^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

deps: ## install what building and testing needs (deploy/packages.txt)
	@deploy/deps build test

serve: ## install what is missing, build, fetch the demo model, serve it [ARGS="--port 0"]
	@deploy/deps build
	@$(MAKE) --no-print-directory $(BUILD)/weft $(CUDA_LIBRARY)
	@deploy/fetch-demo-model
	@exec $(BUILD)/weft serve $(ARGS)

clean: ## remove build/
	rm -rf build $(BUILD)

##@ Test
quick: $(BUILD)/weft $(UNIT_TESTS) ## what needs neither network nor Python packages, in a minute
	@$(RUN_TESTS) --quick

test: ## install what is missing, build, run every test [T=kv_pages, T=protocol/framing]
	@deploy/deps build test
	@$(MAKE) --no-print-directory $(BUILD)/weft $(CUDA_LIBRARY) $(UNIT_TESTS) $(VENV)/ready
	@deploy/fetch-demo-model
	@$(RUN_TESTS) $(T)

asan: ## the same with the address sanitizer
	@$(MAKE) --no-print-directory test BUILD=build/asan OPT=-O1 SANITIZE='-fsanitize=address'
ubsan: ## the same with the undefined-behaviour sanitizer
	@$(MAKE) --no-print-directory test BUILD=build/ubsan OPT=-O1 \
	    SANITIZE='-fsanitize=undefined -fno-sanitize-recover=all'
tsan: ## the same with the thread sanitizer
	@$(MAKE) --no-print-directory test BUILD=build/tsan OPT=-O1 SANITIZE='-fsanitize=thread'

fuzz: $(addprefix build/fuzz/,$(or $(F),$(FUZZERS))) ## fuzz one target [F=gguf SECS=60], or each in turn
	@tests/fuzz/run "$(or $(SECS),60)" $(or $(F),$(FUZZERS))

tidy: $(BUILD)/weft ## floors, doors, limits, format, headers, generated pages, both compilers
	@$(RUN_TESTS) tidy

format: ## let clang-format lay out all C
	clang-format -i $(CODE)
format-check: ## say what `make format` would change
	clang-format --dry-run --Werror $(CODE)

golden: ## remake the reference files that the tests compare with
	@set -e; for script in $(wildcard tests/golden/make_*.py); do $(PYTHON) $$script; done

bench: $(BUILD)/weft $(BUILD)/tests/load/bench_tokenizer $(VENV)/ready ## speed of the engine, of streams over HTTP, of tokenizers
	@deploy/fetch-demo-model
	$(BUILD)/weft bench
	$(VENV)/bin/python tests/load/load.py --binary $(BUILD)/weft
	$(VENV)/bin/python tests/load/bench_tokenizer.py

##@ Ship
bundle: $(BUILD)/weft $(CUDA_LIBRARY) ## build/weft-VERSION-linux-ARCH/, for any Linux of glibc >= 2.36 [CUDA_ARCHS=release]
	@deploy/bundle build/weft-$(VERSION)-linux-$(ARCH) $^

docs: $(BUILD)/weft ## remake the generated pages
	$(BUILD)/weft docs options > docs/options.md
	$(BUILD)/weft docs config > deploy/weft.conf
	$(BUILD)/weft docs fields > docs/fields.md
	$(BUILD)/weft docs metrics > docs/metrics.md

install: $(BUILD)/weft $(CUDA_LIBRARY) ## into $(DESTDIR)$(PREFIX), by default /usr/local
	install -D -m 755 $(BUILD)/weft $(DESTDIR)$(PREFIX)/bin/weft
	$(if $(CUDA_LIBRARY),install -D -m 755 -s $(CUDA_LIBRARY) \
	    $(DESTDIR)$(PREFIX)/lib/weft/libweft-cuda.so)
	install -D -m 755 deploy/fetch-demo-model $(DESTDIR)$(PREFIX)/bin/weft-fetch-demo-model
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/doc/weft README.md docs/*.md
	install -D -m 644 deploy/weft.conf $(DESTDIR)$(PREFIX)/share/doc/weft/weft.conf
	install -d $(DESTDIR)$(PREFIX)/lib/systemd/system
	sed 's|@PREFIX@|$(PREFIX)|' deploy/systemd/weft.service \
	    > $(DESTDIR)$(PREFIX)/lib/systemd/system/weft.service

# ---- how things are made ------------------------------------------------------------------------

# Objects depend on this file, which changes when the compiler or its flags do.
FLAGS = $(CC) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS)
$(BUILD)/flags: FORCE
	@mkdir -p $(@D)
	@echo '$(FLAGS)' | cmp -s - $@ || echo '$(FLAGS)' > $@
FORCE:

$(BUILD)/weft: $(BUILD)/obj/server/main.o $(LIBRARY)
	$(call SAY,link)$(CC) $(LDFLAGS) -o $@ $(filter %.o %.a,$^) $(LDLIBS)

$(LIBRARY): $(OBJECTS)
	@rm -f $@
	$(call SAY,ar  )ar rcs $@ $(OBJECTS)

# Kernels for one instruction set are chosen at run time, so only their files are compiled for it.
# Their unrolled bodies take minutes to instrument: fuzzers, which do not reach them, go without.
$(BUILD)/obj/%_avx2.o $(BUILD)/obj/%_avx512.o: override SANITIZE := $(VECTOR_SANITIZE)
$(BUILD)/obj/%_avx2.o: ISA := -mavx2 -mfma -mf16c
$(BUILD)/obj/%_avx512.o: ISA := -mavx2 -mfma -mf16c -mavx512f -mavx512bw -mavx512dq -mavx512vl \
                                -mavx512vnni

# The objects that tell the version are made anew when it or the commit changes.
VERSIONED := $(patsubst %,$(BUILD)/obj/server/%.o,command_version metrics reply_make routes)
$(VERSIONED): CPPFLAGS += -DWEFT_VERSION='"$(VERSION)"' -DWEFT_COMMIT='"$(COMMIT)"'
$(VERSIONED): $(BUILD)/version
$(BUILD)/version: FORCE
	@mkdir -p $(@D)
	@echo '$(VERSION) $(COMMIT)' | cmp -s - $@ || echo '$(VERSION) $(COMMIT)' > $@

$(BUILD)/obj/%.o: %.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(call SAY,cc  )$(CC) $(CPPFLAGS) $(CFLAGS) $(ISA) -MMD -MP -c -o $@ $<

# The shapes of --random-weights, as rows of C: {name, text}.
SHAPES := $(sort $(wildcard config/shapes/*.json))
$(BUILD)/obj/engine/shape.o: private CPPFLAGS += -I$(BUILD)/made
$(BUILD)/obj/engine/shape.o: $(BUILD)/made/engine/shapes.inc
$(BUILD)/made/engine/shapes.inc: $(SHAPES) Makefile
	@mkdir -p $(@D)
	@for file in $(SHAPES); do \
	    printf '{"%s",\n' "$$(basename $$file .json)"; \
	    sed 's/[\"]/\\&/g; s/^/ "/; s/$$/\\n"/' $$file; echo '},'; done > $@

# ---- CUDA ---------------------------------------------------------------------------------------

# The backend and its kernels, with the few files of the lower floors that they use, in one shared
# object that the binary opens when there is a GPU. The CUDA runtime is linked in; cuBLAS is opened at
# run time.
CUDA_USED := config/base/fault.c config/base/utf8.c config/base/clock.c kernels/dtype.c engine/forward.c \
             engine/request_table.c engine/weight_part.c engine/weight_prefetch.c \
             engine/model_plain.c kernels/cpu/dequant_ref.c kernels/cpu/dequant_codebook.c \
             kernels/cpu/dequant_tables.c kernels/cpu/cpu_features.c kernels/cpu/pool.c \
             engine/host_sample.c kernels/cpu/sample.c kernels/cpu/logits.c
CUDA_CU := $(sort $(wildcard kernels/cuda/*.cu))
CUDA_OBJECTS := $(CUDA_CU:%.cu=$(BUILD)/cuda/%.o) $(patsubst %.c,$(BUILD)/cuda/%.o,$(CUDA_C) $(CUDA_USED))
NVCC_FLAGS = -std=c++17 -O3 -lineinfo -I. -Xcompiler -fPIC,-fvisibility=hidden \
             $(foreach a,$(CUDA_TARGETS),-gencode arch=compute_$(a),code=sm_$(a)) \
             $(if $(filter 7% 8%,$(CUDA_TARGETS)),--diag-suppress 177) # what only newer GPUs' code uses
CUDART := -L$(CUDA_HOME)/lib64 -lcudart_static -ldl -lrt -lpthread

$(BUILD)/cuda/flags: FORCE
	@mkdir -p $(@D)
	@echo '$(NVCC) $(NVCC_FLAGS) $(FLAGS)' | cmp -s - $@ || echo '$(NVCC) $(NVCC_FLAGS) $(FLAGS)' > $@
$(BUILD)/cuda/%.o: %.cu $(BUILD)/cuda/flags
	@mkdir -p $(@D)
	$(call SAY,nvcc)$(NVCC) $(NVCC_FLAGS) -MMD -MP -MF $(@:.o=.d) -c -o $@ $<
$(BUILD)/cuda/%.o: %.c $(BUILD)/cuda/flags
	@mkdir -p $(@D)
	$(call SAY,cc  )$(CC) $(CPPFLAGS) -isystem $(CUDA_HOME)/include $(CFLAGS) -fPIC -fvisibility=hidden \
	    -MMD -MP -c -o $@ $<
$(BUILD)/libweft-cuda.so: $(CUDA_OBJECTS)
	$(call SAY,link)$(CC) -shared -Wl,--no-undefined $(SANITIZE) -o $@ $^ $(CUDART) -lstdc++ -lm

# Tests that need a GPU: every tests/gpu/test_*.c, with the libraries they need beside them, in a folder
# that can be carried to a machine that has one and run there (build/gpu/run).
GPU_SOURCES := $(sort $(wildcard tests/gpu/test_*.c))
GPU_TESTS := $(GPU_SOURCES:tests/%.c=$(BUILD)/%)
$(BUILD)/gpu/%: tests/gpu/%.c $(CUDA_OBJECTS) $(LIBRARY)
	@mkdir -p $(@D)
	$(call SAY,test)$(CC) $(CPPFLAGS) -isystem $(CUDA_HOME)/include $(CFLAGS) -MMD -MP -MF $@.d -o $@ $< \
	    $(CUDA_OBJECTS) $(LIBRARY) $(LDFLAGS) -Wl,-rpath,'$$ORIGIN/lib' -lcmocka $(LDLIBS) $(CUDART) -lstdc++
gpu-tests: $(GPU_TESTS) $(CUDA_LIBRARY) $(BUILD)/weft $(BUILD)/tests/golden/test_goldens \
           $(BUILD)/tests/golden/test_sampling ## build what needs a GPU to run, into build/gpu
	@cp tests/gpu/run tests/gpu/load tests/gpu/tiny.json tests/load/loading.py \
	    $(filter-out $(GPU_TESTS),$^) $(BUILD)/gpu/
	@install -D -m 644 tests/data/sampling.json $(BUILD)/gpu/tests/data/sampling.json
	@rm -rf $(BUILD)/gpu/lib
	@mkdir -p $(BUILD)/gpu/lib
	@cp tests/lib/weft.py tests/lib/streams.py $(BUILD)/gpu/lib/
	@ldd $(filter-out %.so,$^) | awk '$$2 == "=>" && $$3 ~ /^\// { print $$3 }' | sort -u | \
	    grep -Ev '/(libc|libm|libdl|libpthread|librt|libresolv|ld-linux[^/]*|libcuda|libstdc\+\+)\.so' | \
	    xargs -I@ cp -L @ $(BUILD)/gpu/lib/
.PHONY: gpu-tests

# Every unit test can make its n-th allocation fail: tests/lib/failing_malloc.h.
FAILING_MALLOC := $(BUILD)/obj/tests/lib/failing_malloc.o
WRAP := $(foreach f,malloc calloc realloc aligned_alloc posix_memalign strdup strndup,-Wl,--wrap=$(f))

# A unit test is one file; it links what it uses from the library.
$(BUILD)/tests/%: tests/%.c $(LIBRARY) $(FAILING_MALLOC)
	@mkdir -p $(@D)
	$(call SAY,test)$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -MF $@.d -o $@ $< $(LIBRARY) $(FAILING_MALLOC) \
	    $(LDFLAGS) $(WRAP) -lcmocka $(LDLIBS)

unit-tests: $(UNIT_TESTS)

# A fuzzer and all that it reaches are instrumented: not the vector kernels, which would take minutes.
# tests/fuzz/fuzz_gguf.c is `make fuzz F=gguf`.
FUZZ_SANITIZE := -fsanitize=address,undefined -fno-sanitize-recover=all
build/fuzz/%: tests/fuzz/fuzz_%.c fuzz-library
	$(call SAY,fuzz)clang $(CPPFLAGS) $(CFLAGS) -O1 -fsanitize=fuzzer $(FUZZ_SANITIZE) -o $@ $< \
	    build/fuzz/libweft.a $(LDFLAGS) $(LDLIBS)
.PHONY: fuzz-library
fuzz-library:
	@$(MAKE) --no-print-directory CC=clang BUILD=build/fuzz OPT=-O1 SKIP='$(VECTOR_SOURCES)' \
	    SANITIZE='-fsanitize=fuzzer-no-link $(FUZZ_SANITIZE)' VECTOR_SANITIZE= build/fuzz/libweft.a

# The clients that the tests drive, at the versions of tests/requirements.txt.
venv: $(VENV)/ready
$(VENV)/ready: tests/requirements.txt
	$(PYTHON) -m venv --clear $(VENV)
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	@touch $@

-include $(CUDA_OBJECTS:.o=.d) $(GPU_TESTS:%=%.d)
-include $(OBJECTS:.o=.d) $(BUILD)/obj/server/main.d $(UNIT_TESTS:%=%.d)
