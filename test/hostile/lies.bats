#!/usr/bin/env bats
# Libraries that lie of themselves, in what the loader does not read: odd_elf.py.

source "$BATS_TEST_DIRNAME/looks.bash"

lies() {
	local kind
	command -v python3 >/dev/null || skip "python3 is not installed: run make deps"
	LOOKS="calls malloc"
	for kind in "$@"; do
		python3 "$HERE/odd_elf.py" "$kind" "$TARGETS/libwork.so" "$THEIRS/lib.so"
		rm -f "$THEIRS/fifo"
		mkfifo -m 666 "$THEIRS/fifo"
		all_look loads-file || {
			echo "$kind"
			return 1
		}
	done
	others_go_on
}

@test "a library that lies of its sections and symbols" {
	lies $(python3 "$HERE/odd_elf.py" --kinds | sed -n '/headers/,/names-of-a/p')
}

@test "a library that lies of its build-id, debug information and unwind tables" {
	lies $(python3 "$HERE/odd_elf.py" --kinds | sed -n '/build-id-of-four/,$p')
}
