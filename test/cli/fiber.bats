#!/usr/bin/env bats
# libscryfiber as it is installed, its examples, and its sources for other people's programs.

setup() {
	# a core is not wanted of programs that are to overflow
	ulimit -S -c 0
}

@test "a ucontext program on its stacks reports an overflow by name" {
	run "$SCRY_BUILD/test/fiber/example_ucontext"
	[ "$status" = 0 ]
	[ "$output" = "in the context: 55" ]
	run "$SCRY_BUILD/test/fiber/example_ucontext" overflow
	[ "$status" = 139 ]
	[[ "$output" == *"overflow of my context"* ]]
	[[ "$output" =~ "in descend+0x"[0-9a-f]+" in example_ucontext, frame "[0-9]+" bytes" ]]
	[[ "$output" == *"its entry function: run+0x0"* ]]
	[[ "$output" == *"SCRY_STACK_SIZE=512K"* ]]
}

@test "a static program that is not a PIE has sizes of frames, too; without section headers it is said why not" {
	cd "$BATS_TEST_TMPDIR"
	cc -static -no-pie -O1 -fno-optimize-sibling-calls -I"$BATS_TEST_DIRNAME/../../src/fiber" -o static \
		"$BATS_TEST_DIRNAME/../../doc/examples/ucontext_stack.c" "$SCRY_BUILD/src/fiber/libscryfiber.a" -lpthread ||
		skip "no static libc"
	! readelf -lW static | grep -q GNU_EH_FRAME || skip "this compiler gives such programs an index of unwind tables"
	run ./static overflow
	[ "$status" = 139 ]
	[[ "$output" =~ "in descend+0x"[0-9a-f]+" in static, frame "[0-9]+" bytes" ]]
	[[ "$output" == *"called by descend+0x"* ]]
	# e_shoff, e_shnum, e_shstrndx: ELF-64
	printf '\0\0\0\0\0\0\0\0' | dd of=static bs=1 seek=40 conv=notrunc status=none
	printf '\0\0\0\0' | dd of=static bs=1 seek=60 conv=notrunc status=none
	run ./static overflow
	[ "$status" = 139 ]
	[[ "$output" == *"size of its frame unknown: its file has no unwind table for it"* ]]
}

@test "the man page has all functions" {
	for name in $(sed -n 's/^\t\(scry_[a-z_]*\);$/\1/p' "$BATS_TEST_DIRNAME/../../src/fiber/exports.map"); do
		[ "$name" = scry_fiber_registry ] || grep -q "[ *]$name(" "$BATS_TEST_DIRNAME/../../man/scry_fiber.3" || { echo "$name"; false; }
	done
}

@test "what the report advises is enough, when it is" {
	SCRY_STACK_SIZE=1024M run "$SCRY_BUILD/test/fiber/example_ucontext" overflow
	[ "$status" = 0 ]
	[[ "$output" == "in the context: "* ]]
}

@test "a fiber of Boost.Context on its stacks reports an overflow by name" {
	[ -x "$SCRY_BUILD/test/example_boost" ] || skip "libboost-context-dev is not installed"
	run "$SCRY_BUILD/test/example_boost"
	[ "$status" = 0 ]
	[[ "$output" == *"in the fiber: 55"*"stacks in use: 0"* ]]
	run "$SCRY_BUILD/test/example_boost" overflow
	[ "$status" = 139 ]
	[[ "$output" == *"descend"*" in example_boost, frame "* ]]
}

@test "a program is built by pkg-config from what is installed, with the shared library and with the static one" {
	root=$BATS_TEST_TMPDIR/root
	DESTDIR=$root meson install -C "$SCRY_BUILD" --no-rebuild --quiet
	pc=$(dirname "$(find "$root" -name scryfiber.pc)")
	export PKG_CONFIG_PATH=$pc PKG_CONFIG_SYSROOT_DIR=$root
	sed -n '/^#include <scry_fiber.h>/,/^\.fi/p' "$BATS_TEST_DIRNAME/../../man/scry_fiber.3" | sed '$d; s/\\\\/\\/g' >"$BATS_TEST_TMPDIR/hello.c"
	# shellcheck disable=SC2046
	cc -o "$BATS_TEST_TMPDIR/hello" "$BATS_TEST_TMPDIR/hello.c" $(pkg-config --cflags --libs scryfiber)
	lib=$(dirname "$pc")
	run env LD_LIBRARY_PATH="$lib" "$BATS_TEST_TMPDIR/hello"
	[ "$status" = 0 ]
	[ "$output" = "hello, world" ]
	# shellcheck disable=SC2046
	cc -static -o "$BATS_TEST_TMPDIR/hello" "$BATS_TEST_TMPDIR/hello.c" $(pkg-config --cflags scryfiber) "$lib/libscryfiber.a"
	run "$BATS_TEST_TMPDIR/hello"
	[ "$status" = 0 ]
	[ "$output" = "hello, world" ]
}

# Builds test/fiber/$2.c with a sanitizer: $1. What is linked after it: the rest.
sanitized() {
	local sanitizer=$1 test=$2 source=$BATS_TEST_DIRNAME/../..
	shift 2
	echo 'int main(void) { return 0; }' >"$BATS_TEST_TMPDIR/none.c"
	cc "-fsanitize=$sanitizer" -o "$BATS_TEST_TMPDIR/none" "$BATS_TEST_TMPDIR/none.c" 2>/dev/null || skip "the compiler has no $sanitizer"
	cc -g -O1 -w -std=gnu17 -D_GNU_SOURCE "-fsanitize=$sanitizer" -I"$source/src" -I"$source/test/fiber" -ftls-model=initial-exec \
		-o "$BATS_TEST_TMPDIR/$test" "$source/test/fiber/$test.c" "$source/test/fiber/frames.c" "$@" -lcmocka -lm -lpthread
}

@test "a program with AddressSanitizer and the library as it is installed" {
	sanitized address fiber "$SCRY_BUILD/src/fiber/libscryfiber.a"
	# a child that ends in a fiber is said to leak what its main fiber had on the stack
	ASAN_OPTIONS=detect_leaks=0 run "$BATS_TEST_TMPDIR/fiber"
	[ "$status" = 0 ]
	[[ "$output" != *"AddressSanitizer"* ]]
}

@test "the library itself with AddressSanitizer and with UndefinedBehaviorSanitizer" {
	for sanitizer in address undefined; do
		sanitized "$sanitizer" fiber "$BATS_TEST_DIRNAME"/../../src/fiber/*.c "$BATS_TEST_DIRNAME"/../../src/fiber/*.S
		ASAN_OPTIONS=detect_leaks=0 run "$BATS_TEST_TMPDIR/fiber"
		[ "$status" = 0 ]
		[[ "$output" != *"Sanitizer"* ]]
		[[ "$output" != *"runtime error"* ]]
	done
}

@test "at its edges the library has no errors that a sanitizer sees, nor races" {
	for sanitizer in address undefined thread; do
		sanitized "$sanitizer" edges "$BATS_TEST_DIRNAME"/../../src/fiber/*.c "$BATS_TEST_DIRNAME"/../../src/fiber/*.S -Wl,--wrap=realloc
		ASAN_OPTIONS=detect_leaks=0 TSAN_OPTIONS=die_after_fork=0 run "$BATS_TEST_TMPDIR/edges"
		[ "$status" = 0 ] || { echo "$output"; false; }
		[[ "$output" != *"Sanitizer"* ]]
		[[ "$output" != *"runtime error"* ]]
	done
}

@test "AddressSanitizer finds an error in a fiber" {
	cat >"$BATS_TEST_TMPDIR/bad.c" <<-'END'
		#include "fiber/scry_fiber.h"
		static void *writes(void *arg)
		{
			volatile char room[10];
			room[(long)arg] = 1;
			return NULL;
		}
		int main(void)
		{
			struct scry_fiber *fiber;
			scry_fiber_open(NULL, NULL);
			scry_fiber_spawn(NULL, writes, (void *)10L, &fiber);
			return scry_fiber_join(fiber, NULL);
		}
	END
	cc -g -fsanitize=address -I"$BATS_TEST_DIRNAME/../../src" -o "$BATS_TEST_TMPDIR/bad" "$BATS_TEST_TMPDIR/bad.c" "$SCRY_BUILD/src/fiber/libscryfiber.a" ||
		skip "the compiler has no AddressSanitizer"
	run "$BATS_TEST_TMPDIR/bad"
	[ "$status" != 0 ]
	[[ "$output" == *"stack-buffer-overflow"*"in writes "* ]]
}

@test "valgrind takes no switch for an error" {
	command -v valgrind >/dev/null || skip "valgrind is not installed"
	[ -x "$SCRY_BUILD/test/unit_fiber_exceptions" ] || skip "there is no C++ compiler"
	run valgrind --error-exitcode=9 "$SCRY_BUILD/test/unit_fiber_exceptions"
	[ "$status" = 0 ]
	[[ "$output" == *"ERROR SUMMARY: 0 errors"* ]]
	[[ "$output" != *"switching stacks"* ]]
}

gdb_on() {
	command -v gdb >/dev/null || skip "gdb is not installed"
	run timeout 100 gdb -nx -batch -ex "source $BATS_TEST_DIRNAME/../../src/fiber/scryfiber-gdb.py" "$@"
}

stands() {
	[[ "$output" =~ " waiting "[^$'\n']*" main" ]]
	[[ "$output" =~ " waiting  "[^$'\n']*" sleeper  asleep" ]]
	[[ "$output" =~ " ready  "[^$'\n']*" yielder  polite" ]]
	[[ "$output" =~ " idle  "[^$'\n']*" never_run  fresh" ]]
	# each from where it stands to where fibers begin, and no further
	[[ "$output" =~ "fiber 0, waiting: main"$'\n'"#1".*" scry_fiber_join "[^$'\n']*$'\n'"#"[0-9]+[^$'\n']*" main "[^$'\n']*$'\n'"fiber 1" ]]
	[[ "$output" =~ "asleep"$'\n'.*" deep_in_sleep ".*" sleeper "[^$'\n']*$'\n'[^$'\n']*" scry_fiber_main "[^$'\n']*$'\n'[^$'\n']*" scry_fiber_begin "[^$'\n']*$'\n'"fiber 2" ]]
	[[ "$output" =~ "polite"$'\n'.*" deep_in_yield (left="[^")"]*"0) ".*" deep_in_yield (left="[^")"]*"3) ".*" yielder "[^$'\n']*$'\n'[^$'\n']*" scry_fiber_main "[^$'\n']*$'\n'[^$'\n']*" scry_fiber_begin "[^$'\n']*$'\n'"fiber 3" ]]
}

@test "gdb lists fibers and shows where each stands" {
	gdb_on -ex run -ex scry-fibers -ex "scry-fiber-bt all" -ex "scry-fiber-bt 9" "$SCRY_BUILD/test/fiber/fiber_stands"
	stands
	[[ "$output" =~ " running  "[^$'\n']*" stopper" ]]
	[[ "$output" == *"which fiber? 0 to 4, or all"* ]]
}

@test "gdb does so of a core" {
	[[ $(cat /proc/sys/kernel/core_pattern) == core* ]] || skip "the kernel gives cores to a program: kernel.core_pattern"
	cd "$BATS_TEST_TMPDIR"
	run bash -c 'ulimit -S -c unlimited && exec "$0" core' "$SCRY_BUILD/test/fiber/fiber_stands"
	[ "$status" = 134 ]
	core=$(ls core*)
	[ "$(du -k "$core" | cut -f 1)" -lt 4000 ] # pages that were never touched take no room
	gdb_on -ex scry-fibers -ex "scry-fiber-bt all" "$SCRY_BUILD/test/fiber/fiber_stands" "$core"
	stands
}

@test "gdb says that a program has no fibers" {
	gdb_on -ex scry-fibers /bin/true
	[[ "$output" == *"there is no libscryfiber in this program"* ]]
}
