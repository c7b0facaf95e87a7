# A thin front: what a person types. meson and ninja do the work, out of tree.
#
#   make            build build/scry            make t/NAME     one test: a unit test or a bats file
#   make demo       install, build, show        make fuzz       fuzzers for FUZZ_SECONDS each
#   make test       install, build, test        make lint       format, layers, agent, cppcheck
#   make SAN=address,undefined test             the same under sanitizers

SAN ?=
comma := ,
B := build$(if $(SAN),-$(subst $(comma),-,$(SAN)))
DESTDIR ?=
PREFIX ?= /usr/local
FUZZ_SECONDS ?= 60
SANITIZE := $(if $(SAN),-Dsanitize=$(SAN) -Db_lundef=false)

.DELETE_ON_ERROR:
.PHONY: all deps deps-build deps-test deps-lint demo test soak lint bench fuzz install clean

all: $(B)/build.ninja
	@ninja -C $(B) $(if $(V),-v,--quiet)
	@ln -sf src/cmd/scry $(B)/scry

$(B)/build.ninja:
	@command -v meson >/dev/null || { echo 'meson is missing; fix: make deps' >&2; exit 1; }
	meson setup $(B) $(SANITIZE)

deps:
	@tools/deps build test lint bench
deps-build:
	@tools/deps build
deps-test:
	@tools/deps build test
deps-lint:
	@tools/deps build lint

demo: deps-build
	@$(MAKE) --no-print-directory all
	@tools/demo $(B)/scry

# meson looks for cmocka once: a tree that was set up without it is looked through again.
test: deps-test
	@$(MAKE) --no-print-directory all
	@test -e $(B)/test/unit_base_buf || meson setup --reconfigure $(B) >/dev/null
	@$(MAKE) --no-print-directory all
	@tools/run-tests $(B)

t/%: all
	@tools/run-tests $(B) $*

soak: deps-test
	@$(MAKE) --no-print-directory all
	@test/soak/soak.sh $(B)

lint: deps-lint
	@$(MAKE) --no-print-directory all
	@tools/lint $(B)

bench: deps
	@$(MAKE) --no-print-directory all
	@bench/run

fuzz:
	@tools/deps build fuzz
	@tools/fuzz $(FUZZ_SECONDS)

install: all
	@meson configure $(B) | awk '$$1 == "prefix" { p = $$2 } END { exit p != "$(PREFIX)" }' || \
		{ meson configure $(B) -Dprefix=$(PREFIX) && ninja -C $(B) --quiet; }
	DESTDIR=$(DESTDIR) meson install -C $(B) --no-rebuild $(if $(QUIET),--quiet)

clean:
	rm -rf build build-*/
