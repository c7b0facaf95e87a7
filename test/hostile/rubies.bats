#!/usr/bin/env bats
# Rubies whose memory makes no sense (scribble.py), and names that no programmer would give.

load ../cli/lib

setup() {
	need_targets
	need_root "entering any process"
	command -v python3 >/dev/null || skip "python3 is not installed: run make deps"
	prepare
}

# asleep: a Ruby of some threads, none of which will ever run again; its pid in $PID.
asleep() {
	start ruby "$RUBY" -e 'class Deep; def down(n) = n == 0 ? sleep : down(n - 1); end
		4.times { |i| Thread.new { Deep.new.down(5 * i) } }
		sleep 0.1
		puts "pid #{Process.pid}"
		$stdout.flush
		Deep.new.down(30)'
	wait_for 20 in_file "^pid" "$T/ruby.out"
	wait_for 10 sleeps "$PID"
}

sleeps() {
	! grep -h "^State:" "/proc/$1/task/"*/status | grep -v "S (sleeping)"
}

# nonsense SCRY ARGS...: at a Ruby that was scribbled on, or is while it is watched, each with another seed. Where much is
# changed it is refused at once; where little, not.
nonsense() {
	local seed got answers=0 shares=(0.5 0.002 0.0005)
	for seed in $(seq "$(share 3 60)"); do
		asleep
		ruby=$PID
		[[ "$*" != dump* ]] || python3 "$HERE/scribble.py" "$ruby" "$seed" "${shares[seed % 3]}"
		start scry timeout -k 1 60 "$SCRY" "$@" -p "$ruby"
		if [[ "$*" != dump* ]]; then
			sleep 0.5 # it watches, or not yet: both may be
			python3 "$HERE/scribble.py" "$ruby" "$seed" "${shares[seed % 3]}"
		fi
		got=0
		finish "$PID" || got=$?
		kill -KILL "$ruby" 2>/dev/null || true
		finish "$ruby" || true
		[ "$got" -lt 124 ] && [ "$got" -ne 2 ] || {
			echo "seed $seed: scry $* ended with $got"
			tail -5 "$T/scry.err"
			return 1
		}
		[ "$got" -ne 0 ] && [ "$got" -ne 5 ] || answers=$((answers + 1))
	done
	[ "$answers" -gt 0 ] # else nothing was walked
}

@test "a Ruby of nonsense: dump" {
	nonsense dump --native
}

@test "a Ruby of nonsense: stacks, from outside" {
	nonsense stacks --engine=read -d 1s
}

@test "a Ruby of nonsense: stacks, held" {
	nonsense stacks --pause --native -d 1s
}

@test "a Ruby of nonsense: stacks, in the kernel" {
	nonsense stacks --engine=bpf -d 1s
}

@test "a Ruby of nonsense: objects" {
	nonsense objects -d 1s
}

@test "a Ruby of nonsense: calls with lines" {
	nonsense calls -c -k -x malloc -d 1s
}

# forged free|taken: while child buffers of one Ruby are forged, another one of the same watch is watched to its end,
# and everything is taken out, also of those whose buffers were forged.
forged() {
	local make='100.times { Object.new }; sleep 0.001' beside pid
	start beside "$RUBY" -e "puts %(pid #{Process.pid}); \$stdout.flush; loop { $make }"
	beside=$PID
	start parent "$RUBY" -e "trap(:USR1) { \$more = 2 }
		puts %(pid #{parent = Process.pid})
		\$stdout.flush
		loop do
			$make
			\$more.times { puts %(pid #{fork { while Process.ppid == parent do $make end }}) } if \$more
			\$stdout.flush
			\$more = nil
		end"
	parent=$PID
	for pid in beside parent; do wait_for 20 in_file "^pid" "$T/$pid.out"; done
	start scry "$SCRY" objects -f -v -p "$parent" -p "$beside"
	scry=$PID
	wait_for 60 in_file "process $beside: agent" "$T/scry.err"
	kill -USR1 "$parent"
	start forge "$TARGETS/forge_lanes" "$1" "$parent" 2
	finish "$PID" # it has forged some
	kill -INT "$scry"
	finish "$scry"
	grep -qx "scry: process $beside ended: interrupt" "$T/scry.err"
	[ "$(grep -c "^pid" "$T/parent.out")" -eq 3 ]
	for pid in "$beside" $(sed -n 's/^pid //p' "$T/parent.out"); do
		kill -0 "$pid"
		no grep scry "/proc/$pid/maps"
	done
}

@test "buffers of fork children are forged: taken by no process" {
	forged free
	grep -qx "scry: process $parent ended: interrupt" "$T/scry.err"
}

@test "buffers of fork children are forged: those that children have" {
	forged taken
}

@test "names of a megabyte, thousands of classes, a path of control characters" {
	cat >"$T/names.rb" <<-'RUBY'
		long = "L" + "\u00e9" * 500_000
		Object.const_set(long, Class.new { define_method("\e[31m" + "m" * 100_000) { Array.new(3) { Object.new } } })
		k = Object.const_get(long)
		3000.times { |i| Object.const_set("C#{i}", Class.new { def self.to_s = raise }) }
		path = "/\e]0;x\a" + "p" * 200_000
		eval "def odd; [Object.new, Object.new]; end", nil, path, -5
		puts "pid #{Process.pid}"
		$stdout.flush
		loop { k.new.send("\e[31m" + "m" * 100_000); odd; Object.const_get("C#{rand 3000}").new; sleep 0.0001 }
	RUBY
	start ruby "$RUBY" "$T/names.rb"
	ruby=$PID
	wait_for 20 in_file "^pid" "$T/ruby.out"
	for how in "objects -d 0.3s" "objects -d 0.3s --json" "stacks -d 0.3s" "stacks -d 0.3s --json" "dump" "dump --json" \
		"calls -c -k -x malloc -d 0.2s"; do
		# shellcheck disable=SC2086
		scry_ends 0 $how -p "$ruby"
		no grep -aP '[\x00-\x08\x0b-\x1a\x1c-\x1f]|\e\[31m|\e\]' "$T/scry.out"
		[[ "$how" != *json* ]] || jq . "$T/scry.out" >/dev/null
	done
	kill -0 "$ruby"
}
