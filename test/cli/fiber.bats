#!/usr/bin/env bats
# libscryfiber as it is installed, its examples, and its sources for other people's programs.

setup() {
	# a core is not wanted of programs that are to overflow
	ulimit -c 0
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
