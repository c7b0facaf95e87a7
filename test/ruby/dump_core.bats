#!/usr/bin/env bats
# scry dump --core: what a process did when its core was made. The judge is a dump of it while it lived.

load lib

export MALLOC_ARENA_MAX=1 # arenas of 64 MiB for each thread make cores big

# shapes RUBY...: the program whose stacks are known, standing still in $PID; it may leave a core in $T/in.
shapes() {
	mkdir -p "$T/in"
	rm -f "$T"/in/* "$T/shapes.out"
	start shapes bash -c 'cd "$1" && shift && { ulimit -c unlimited || true; } && exec "$@"' - "$T/in" "$@" "$HERE/dump/shapes.rb"
	wait_for 20 in_file "^ruby" "$T/shapes.out"
	"$SCRY" dump --json -p "$PID" >"$T/live.json"
}

# end_with SIGNAL: $CORE is the file that the kernel has written.
end_with() {
	kill "-$1" "$PID"
	finish "$PID" 2>/dev/null || true
	CORE=$(ls "$T"/in/* | head -1)
}

need_kernel_cores() {
	grep -qE '^[a-z0-9_.%-]+$' /proc/sys/kernel/core_pattern || skip "the kernel gives cores to a program: $(cat /proc/sys/kernel/core_pattern)"
	(ulimit -c unlimited) || skip "no cores by ulimit -c"
}

same() {
	"$SCRY" dump --json --core "$1" >"$T/core.json" && "$RUBY" "$HERE/dump/same.rb" "$T/live.json" "$T/core.json"
}

@test "core: of gcore, the process lives on: the same stacks and states" {
	command -v gcore >/dev/null || skip "no gcore: install gdb"
	shapes "$RUBY"
	gcore -o "$T/core" "$PID" >"$T/gcore.out" 2>&1
	same "$T/core.$PID"
	json_is "$T/core.json" 'r["totals"]["core"]["signal"] == 0 && r["totals"]["core"]["cut_bytes"] == 0 && !r["totals"]["core"]["is_odd"]'
	"$SCRY" dump --json -p "$PID" >"$T/live.json"
	same "$T/core.$PID"
	# native frames, from the core's registers
	"$SCRY" dump --json --native -p "$PID" >"$T/native.json"
	"$SCRY" dump --json --native --core "$T/core.$PID" >"$T/core.json"
	"$RUBY" "$HERE/dump/same.rb" "$T/native.json" "$T/core.json"
	# a layout that is not known yet is learned from the program's file
	SCRY_NO_CACHE=1 same "$T/core.$PID"
}

@test "core: of the kernel, after a signal: the same stacks, and whom it hit" {
	need_kernel_cores
	shapes "$RUBY"
	end_with ABRT
	same "$CORE"
	json_is "$T/core.json" 'r["totals"]["core"]["signal"] == 6 && r["threads"].count { |t| t["has_signal"] } == 1'
	"$SCRY" dump --core "$CORE" >"$T/out"
	grep -q '^process .*, core .*, ended by SIGABRT, ruby ' "$T/out"
	grep -q 'the signal hit this thread$' "$T/out"
}

@test "core: on every Ruby" {
	[ -n "${SCRY_TEST_RUBIES:-}" ] || skip "SCRY_TEST_RUBIES names no other Ruby"
	need_kernel_cores
	IFS=: read -ra rubies <<<"$SCRY_TEST_RUBIES"
	for ruby in "${rubies[@]}"; do
		read -ra words <<<"$ruby"
		"${words[@]}" -e 'exit(RUBY_VERSION >= "3.0")' || continue # the shapes need its syntax
		shapes "${words[@]}"
		end_with ABRT
		same "$CORE" || { echo "$ruby"; return 1; }
	done
}

@test "core: cut off anywhere it says what is missing, and shows what is whole" {
	need_kernel_cores
	shapes "$RUBY"
	end_with ABRT
	size=$(stat -c %s "$CORE")
	for part in 0 1 5 30 60 80 90 97 99; do
		head -c $((size * part / 100)) "$CORE" >"$T/cut"
		run "$SCRY" dump --json --core "$T/cut"
		if [ "$status" = 0 ]; then
			printf '%s' "$output" >"$T/cut.json"
			json_is "$T/cut.json" 'r["totals"]["core"]["cut_bytes"] > 0 && r["threads"].size > 0'
			# no frame is there that was not
			json_is "$T/cut.json" 'l = JSON.parse(File.read(ARGV[0].sub("cut", "live")))["threads"].to_h { |t| [t["tid"], t["frames"]] }
				r["threads"].all? { |t| t["frames"].empty? || t["frames"] - l[t["tid"]] == [] }'
		else
			[ "$status" = 1 ] || [ "$status" = 4 ]
			[[ "$output" == *"cut off"* || "$output" == *"is not a core file"* ]]
		fi
	done
}

@test "core: a program that is not there any more is asked for; --exe names it" {
	need_kernel_cores
	program=$("$RUBY" -e 'puts File.realpath("/proc/self/exe")')
	cp "$program" "$T/ruby-copy"
	shapes "$T/ruby-copy"
	end_with ABRT
	mv "$T/ruby-copy" "$T/moved"
	SCRY_NO_CACHE=1 run "$SCRY" dump --core "$CORE"
	[ "$status" != 0 ]
	"$SCRY" dump --json --core "$CORE" --exe "$T/moved" >"$T/core.json"
	"$RUBY" "$HERE/dump/same.rb" "$T/live.json" "$T/core.json"
	# what is no file, no program, or another one, is refused, also where it would not be needed
	for other in "$T/nofile" "$T" "$T/core.json" /bin/true; do
		run "$SCRY" dump --core "$CORE" --exe "$other"
		[ "$status" != 0 ]
		[[ "$output" == *"'$other'"* ]]
	done
	# another file in its place is not believed
	cp /bin/true "$T/ruby-copy"
	SCRY_NO_CACHE=1 run "$SCRY" dump --core "$CORE"
	[ "$status" != 0 ]
	[[ "$output" == *"ruby-copy"* ]]
}

@test "core: errors name what mends them" {
	run "$SCRY" dump --core /bin/true
	[ "$status" = 4 ]
	[[ "$output" == *"is not a core file"* ]]
	run "$SCRY" dump --core /bin/true -p 1
	[ "$status" = 2 ]
	run "$SCRY" dump --core /bin/true --pause
	[ "$status" = 2 ]
	need_kernel_cores
	mkdir "$T/in"
	start sleeper bash -c 'cd "$1" && ulimit -c unlimited && exec sleep 1000' - "$T/in"
	wait_for 5 grep -q sleep "/proc/$PID/comm"
	end_with ABRT
	run "$SCRY" dump --core "$CORE"
	[ "$status" = 4 ]
	[[ "$output" == *"(sleep) had no Ruby in it"* ]]
}
