# A short front for Meson and Ninja. `make help` says what there is.

PREFIX     ?= /usr/local
bindir     ?= $(PREFIX)/bin
sysconfdir ?= /etc
mandir     ?= $(PREFIX)/share/man
bashdir    ?= $(PREFIX)/share/bash-completion/completions
zshdir     ?= $(PREFIX)/share/zsh/site-functions
unitdir    ?= $(PREFIX)/lib/systemd/system

FUZZ_SECONDS ?= 60
BENCH_ARGS   ?=
TEST_ARGS    ?=
DEMO_ARGS    ?=

# `triage bench` and `triage simulate` are programs of their own, which `triage` looks for beside it.
PROGRAMS = build/triaged build/triage build/triage-bench build/triage-simulate

PYTHON  = /usr/bin/python3
SOURCES = $(shell find src tests bench -name '*.[ch]' 2>/dev/null)

# What each build folder is configured with, the first time. gcc makes the release and clang the
# checked builds, so that both compilers see every line. The release is optimized over the layers
# (LTO): that makes an enqueue 4 % cheaper, and would make the many test programs slow to link.
build:      CONFIGURE = meson setup build -Db_lto=true
build-asan: CONFIGURE = CC=clang meson setup build-asan -Dtests=true -Db_sanitize=address,undefined
build-tsan: CONFIGURE = CC=clang meson setup build-tsan -Dtests=true -Db_sanitize=thread
build-fuzz: CONFIGURE = CC=clang meson setup build-fuzz -Dfuzz=true -Db_sanitize=address,undefined

all: build ## build the server and the client: build/triaged, build/triage

run: setup-run build ## start a server on 127.0.0.1:7420 with ./data
	@tools/run

demo: setup-run build ## start a server with producers, consumers and Prometheus, to look at
	@tools/demo $(DEMO_ARGS)

test: setup-test ## run all tests (TEST_ARGS="unit/wal system" for some)
	@$(PYTHON) tools/run-tests $(TEST_ARGS)

bench: setup-bench build ## measure Triage beside its peers (BENCH_ARGS)
	@$(PYTHON) bench/run.py $(BENCH_ARGS)

soak: setup-test ## run the long tests: every fault, many times
	@$(PYTHON) tools/run-tests --soak $(TEST_ARGS)

plant: setup-test ## break one promise after the other, and see which test says so
	@tools/plant

fuzz: setup-fuzz build-fuzz ## search for bad inputs, FUZZ_SECONDS=60 for each target
	@tools/run-fuzz $(FUZZ_SECONDS)

format: setup-format ## lay out the C code
	@clang-format -i $(SOURCES)

check-format: setup-format ## name the files that `make format` would change
	@! clang-format --dry-run $(SOURCES) 2>&1 | \
	    sed -n 's/:.*warning:.*/: needs make format/p' | uniq | grep .

install: all ## install under PREFIX=/usr/local and /etc, below DESTDIR
	install -D -m 755 -t $(DESTDIR)$(bindir) $(PROGRAMS)
	tools/manuals build $(DESTDIR)$(mandir)
	install -D -m 644 packaging/completion/triage.bash $(DESTDIR)$(bashdir)/triage
	ln -sf triage $(DESTDIR)$(bashdir)/triaged
	install -D -m 644 packaging/completion/_triage $(DESTDIR)$(zshdir)/_triage
	sed 's|@bindir@|$(bindir)|; s|@sysconfdir@|$(sysconfdir)|' packaging/triaged.service | \
	    install -D -m 644 /dev/stdin $(DESTDIR)$(unitdir)/triaged.service
	install -m 644 -t $(DESTDIR)$(unitdir) packaging/triaged.socket
	test -e $(DESTDIR)$(sysconfdir)/triage/triage.conf || \
	    install -D -m 644 -t $(DESTDIR)$(sysconfdir)/triage packaging/triage.conf

clean: ## remove what was built
	rm -rf build build-asan build-tsan build-fuzz build-plant

help: ## list these
	@sed -n 's/^\([a-z-]*\):.* ## \(.*\)/  make \1\t\2/p' Makefile | expand -t 22

build: setup-build
build-asan build-tsan build-fuzz: setup-fuzz
build build-asan build-tsan build-fuzz:
	@test -f $@/build.ninja || $(CONFIGURE)
	@ninja -C $@

setup-%:
	@tools/setup $*

.NOTPARALLEL:
.PHONY: all run demo test bench soak plant fuzz format check-format install clean help
.PHONY: build build-asan build-tsan build-fuzz
