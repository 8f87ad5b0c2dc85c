# Plain GNU make, no configure step, everything into build/.
# `make help` lists the targets.

BUILD ?= build
PREFIX ?= /usr/local
DESTDIR ?=
OPT ?= -O3
SANITIZE ?=

VERSION := 0.1.0
COMMIT := $(shell git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)
ARCH := $(shell $(CC) -dumpmachine | cut -d- -f1)

PACKAGES := libuv libmicrohttpd jansson libpcre2-8 libutf8proc libxxhash inih
CPPFLAGS += -I. -D_GNU_SOURCE $(shell pkg-config --cflags $(PACKAGES) 2>/dev/null)
WARNINGS := -Wall -Wextra -Werror -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla \
            -Wwrite-strings -Wpointer-arith -Wundef
# No -ffast-math: results then depend on the number of threads.
CFLAGS += -std=gnu17 $(OPT) -g -fno-omit-frame-pointer -ffp-contract=off -pthread $(WARNINGS) $(SANITIZE)
LDFLAGS += -pthread $(SANITIZE)
LDLIBS += $(shell pkg-config --libs $(PACKAGES) 2>/dev/null) -lm -ldl

SOURCES := $(sort $(shell find config kernels engine scheduler server -name '*.c' ! -path server/main.c))
ifneq ($(ARCH),x86_64)
SOURCES := $(filter-out %_avx2.c %_avx512.c,$(SOURCES))
endif
OBJECTS := $(SOURCES:%.c=$(BUILD)/obj/%.o)
LIBRARY := $(BUILD)/libweft.a
UNIT_SOURCES := $(sort $(shell find tests/unit tests/sim tests/golden -name 'test_*.c' 2>/dev/null))
UNIT_TESTS := $(UNIT_SOURCES:tests/%.c=$(BUILD)/tests/%)

.PHONY: all help deps unit-tests clean
all: $(BUILD)/weft

$(BUILD)/weft: $(BUILD)/obj/server/main.o $(LIBRARY)
	$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)

$(LIBRARY): $(OBJECTS)
	@rm -f $@
	ar rcs $@ $(OBJECTS)

# Kernels for one instruction set are chosen at run time, so only their files are compiled for it.
$(BUILD)/obj/%_avx2.o: ISA := -mavx2 -mfma -mf16c
$(BUILD)/obj/%_avx512.o: ISA := -mavx2 -mfma -mf16c -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni

$(BUILD)/obj/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) $(ISA) -MMD -MP -c -o $@ $<

$(BUILD)/obj/server/%.o $(BUILD)/obj/config/%.o: CPPFLAGS += -DWEFT_VERSION='"$(VERSION)"' -DWEFT_COMMIT='"$(COMMIT)"'

# A unit test is one file; it links what it uses from the library.
$(BUILD)/tests/%: tests/%.c $(LIBRARY)
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -MF $@.d -o $@ $< $(LIBRARY) $(LDFLAGS) -lcmocka $(LDLIBS)

unit-tests: $(UNIT_TESTS)

clean:
	rm -rf $(BUILD)

-include $(OBJECTS:.o=.d) $(BUILD)/obj/server/main.d $(UNIT_TESTS:%=%.d)
