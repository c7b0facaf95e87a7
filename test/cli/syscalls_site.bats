#!/usr/bin/env bats
# scry syscalls --exact=site: calls are counted in the program, before the instructions that make them: each one, nothing
# else is changed by it, other processes do not pay, and the program is afterwards as it was.

load lib

setup() {
	need_targets
	prepare
	need_root "eBPF"
	need_bpf
}

# straight: makes calls at all its places until it is told something, its pid in $PID.
straight() {
	listens straight "$TARGETS/target_straight"
}

# tells LINE PATTERN: and waits for one line more that has it.
tells() {
	local before
	before=$(grep -cE "$2" "$T/straight.out" || true)
	echo "$1" >&8
	wait_for 60 has_lines "$2" $((before + 1)) || { cat "$T/straight.out"; return 1; }
}

has_lines() {
	[ "$(grep -cE "$1" "$T/straight.out")" -ge "$2" ]
}

# counts PID ARGS...: scry counts at its places; scry's pid in $PID.
counts() {
	local pid=$1
	shift
	before=$(text "$pid")
	start scry "$SCRY" syscalls --exact=site -p "$pid" "$@" 8>&-
	wait_for 20 hooked_or_ended "$pid" "$PID"
	watched "$pid" || { cat "$T/scry.err"; return 1; }
}

hooked_or_ended() { # PID SCRY
	is_gone "$2" || { watched "$1" && no text_is "$1" "$before"; }
}

told() { # the last line: calls, and unsure
	sed -n 's/^calls \([0-9]*\) unsure \([0-9]*\)$/\1 \2/p' "$T/straight.out" | tail -1
}

row() { # FILE FUNCTION NAME EXPRESSION in x
	json_is "$1" "(x = rows.select { |y| y['symbol'] == '$2' && y['name'] == '$3' }).size == 1 && (x = x[0]) && !!($4)"
}

@test "each call is counted, none of a child's, none twice; places that cannot be are named; the text is as before" {
	straight
	pid=$PID
	counts "$pid" -o "$T/o.json"
	scry=$PID
	tells 20000 "^calls"
	start exact "$SCRY" syscalls --exact -p "$pid" -o "$T/exact.json" 8>&-
	exact=$PID
	wait_for 20 in_file "counting each call" "$T/exact.err"
	tells 123456 "^calls"
	tells "fork 5000" "^calls"
	ends_watch "$exact"
	ends_watch "$scry"
	wait_for 5 text_is "$pid" "$before"
	tells 1000 "^calls" # as before: these are not counted
	read -r calls unsure <<<"$(told)"
	[ "$calls" -gt 123456 ]
	[ "$unsure" -le 1 ] # it was put on while the program made calls, and taken out while it did nothing
	row "$T/o.json" plain getppid "($calls..$calls + $unsure).cover?(x['count']) && x['errors'].nil? && x['not_counted'].nil? && x['share'] > 0"
	row "$T/exact.json" plain getppid "x['count'] == 123456"
	row "$T/o.json" passed getegid "x['count'].nil? && x['not_counted'] =~ /no mov/ && x['samples'] > 0"
	row "$T/o.json" tail getuid "x['count'].nil? && x['not_counted'] =~ /no mov/"
	row "$T/o.json" side getuid "x['count'].nil? && x['not_counted'] =~ /other code/"
	row "$T/o.json" side getgid "x['count'].nil? && x['not_counted'] =~ /no mov/"
	json_is "$T/o.json" 'r["totals"]["mode"] == "site" && r["totals"]["calls"] == rows.sum { |x| x["count"].to_i } && r["totals"]["exits"].nil?'
	json_is "$T/o.json" 'r["notes"].any? { |x| x =~ /getuid from target_straight side\+0xe is not counted: other code/ } && r["notes"].any? { |x| x.include?("children") }'
	exec 8>&-
	finish "$pid"
	no in_file "wrong" "$T/straight.out"
}

@test "a ring of contexts: switches are counted in the program, in libc" {
	start ring "$TARGETS/target_ring" 0
	ring=$PID
	wait_for 10 in_file "^pid" "$T/ring.out"
	before=$(text "$ring")
	scry_ends 0 syscalls --exact=site -p "$ring" -d 1s -o "$T/ring.scry"
	wait_for 5 text_is "$ring" "$before"
	"$SCRY" report --json "$T/ring.scry" >"$T/ring.json"
	row "$T/ring.json" swapcontext rt_sigprocmask 'x["count"] > 1000 && x["module"] =~ /libc/ && x["share"] > 0.05'
	"$SCRY" report --by syscall --json "$T/ring.scry" >"$T/by.json"
	json_is "$T/by.json" 'rows.find { |x| x["name"] == "rt_sigprocmask" }["count"] > 1000'
	"$SCRY" report "$T/ring.scry" >"$T/ring.txt"
	in_file "rt_sigprocmask  *libc.so.6 swapcontext" "$T/ring.txt"
	scry_ends 1 diff "$T/ring.scry" "$T/ring.scry"
	says "some places only.*fix: two recordings of --exact"
	in_file "counted in the process, at 1 of the 1 place" "$T/ring.txt"
}

@test "SIGKILL of scry: the program goes on and is right, and undo takes all out" {
	straight
	pid=$PID
	counts "$pid"
	scry=$PID
	kill -KILL "$(keeper_of "$scry")" "$scry"
	ended "$scry"
	wait_for 10 no watched "$pid"
	tells 50000 "^calls"
	read -r calls _ <<<"$(told)"
	[ "$calls" -ge 50000 ] # the changes stand
	undo "$pid"
	wait_for 5 text_is "$pid" "$before"
	tells 50000 "^calls"
	[ "$(told | cut -d' ' -f1)" -eq "$calls" ]
	exec 8>&-
	finish "$pid"
	no in_file "wrong" "$T/straight.out"
}

pace() {
	tells pace "^pace"
	sed -n 's/^pace //p' "$T/straight.out" | tail -1
}

@test "only the program that is counted pays" {
	start ring "$TARGETS/target_ring" 0 100
	ring=$PID
	straight
	tells 0 "^calls"
	alone=$(pace)
	counts "$ring"
	site=$PID
	beside=$(pace)
	ends_watch "$site"
	start exact "$SCRY" syscalls --exact -p "$ring" 8>&-
	wait_for 20 in_file "counting each call" "$T/exact.err"
	counted=$(pace)
	ends_watch "$PID"
	after=$(pace)
	[ "$after" -ge "$alone" ] || alone=$after
	echo "a call takes $alone ns; beside one that is counted in the program $beside, in the kernel $counted"
	[ $((beside * 100)) -le $((alone * 120)) ]
	[ $((counted * 100)) -gt $((beside * 120)) ]
}

@test "what cannot be counted so is refused, with what to do instead" {
	straight
	pid=$PID
	for with in -f -c --latency "--by thread" "-p $$"; do
		# shellcheck disable=SC2086
		scry_ends 2 syscalls --exact=site -p "$pid" $with
		says "there is no (${with%% *}|a second -p); fix: --exact"
	done
	scry_ends 2 syscalls --exact=site -- true
	scry_ends 2 syscalls --exact=elsewhere -p "$pid"
	no watched "$pid"
	tells 0 "^calls" # now it waits
	scry_ends 4 syscalls --exact=site -p "$pid" -d 1s
	says "no system call of process $pid took processor time.*fix: --exact"
	start odd "$TARGETS/target_odd" seccomp
	wait_for 10 in_file "^pid" "$T/odd.out"
	scry_ends 4 syscalls --exact=site -p "$PID" -d 1s
	says seccomp
	start caller "$TARGETS/target_syscaller" zeros=1000000 # the number is passed to its function
	scry_ends 4 syscalls --exact=site -p "$PID" -d 1s
	says "of [0-9]+ places? where process $PID makes system calls none can be counted.*no mov.*fix: --exact"
}

@test "a program that ends is counted till then" {
	straight
	counts "$PID" -o "$T/o.json"
	scry=$PID
	tells 5000 "^calls"
	exec 8>&-
	ended "$scry"
	[ "$status" -eq 0 ]
	read -r calls unsure <<<"$(told)"
	row "$T/o.json" plain getppid "($calls..$calls + $unsure).cover?(x['count'])"
}

@test "a library that is unloaded while its calls are counted: they are, till then, and that is said" {
	straight
	pid=$PID
	tells 0 "^calls"
	tells "load $TARGETS/libhot.so" "^loaded"
	counts "$pid" -o "$T/o.json"
	tells 0 "^unloaded"
	ends_watch "$PID"
	row "$T/o.json" hot getppid 'x["count"] > 0'
	json_is "$T/o.json" 'r["notes"].any? { |x| x =~ /^1 place was unloaded/ }'
	tells "load $TARGETS/libhot.so" "^loaded"
	tells 0 "^unloaded"
	exec 8>&-
	finish "$pid"
	no in_file "wrong" "$T/straight.out"
}

# From glibc 2.41 on one instruction makes all calls at which a thread may be cancelled: it is never counted.
has_one_place_of_all() {
	[ "$(getconf GNU_LIBC_VERSION | tr -dc 0-9)" -ge 241 ]
}

@test "where cancellation unwinds, no place is counted that it may begin at: clean-ups are done; without clean-ups it is counted" {
	local got
	for how in cancelled cancelled_plain; do
		rm -f "$T/in"
		listens "$how" "$TARGETS/target_$how"
		pid=$PID
		got=0
		"$SCRY" syscalls --exact=site -p "$pid" -d 3s --force -o "$T/$how.json" >"$T/scry.out" 2>"$T/scry.err" 3>&- || got=$?
		exec 8>&-
		finish "$pid"
		in_file "^cancelled [1-9]" "$T/$how.out"
		if ! has_one_place_of_all; then
			[ "$got" -eq 0 ] || { cat "$T/scry.err"; return 1; }
		elif [ "$got" -eq 0 ]; then # other places were
			json_is "$T/$how.json" '(x = rows.select { |y| y["name"] == "write" && y["module"] =~ /libc/ }).any? && x.all? { |y| y["count"].nil? && y["not_counted"] =~ /no mov/ }'
		else
			[ "$got" -eq 4 ]
			says "none can be counted in it; the first, write from .*: no mov of 5 bytes right before it sets its number; fix: --exact"
		fi
	done
	has_one_place_of_all && return 0
	json_is "$T/cancelled.json" '(x = rows.select { |y| y["name"] == "write" && y["module"] =~ /libc/ }).any? && x.all? { |y| y["count"].nil? && y["not_counted"] =~ /cancelled thread may be unwound/ }'
	json_is "$T/cancelled_plain.json" 'rows.any? { |y| y["name"] == "write" && y["count"].to_i > 0 } && rows.none? { |y| y["not_counted"] =~ /cancelled/ }'
}

@test "a fork child that keeps the changed code is told of, with what takes it out" {
	straight
	pid=$PID
	counts "$pid" -o "$T/o.json"
	scry=$PID
	echo "child" >&8
	wait_for 20 in_file "^child " "$T/straight.out"
	child=$(sed -n 's/^child //p' "$T/straight.out")
	ends_watch "$scry"
	says "1 fork child of process $pid keeps changed code, without effect; fix: scry undo -f -p $pid"
	json_is "$T/o.json" 'r["notes"].any? { |x| x.include?("fork child of process '"$pid"' keeps changed code") }'
	no text_is "$child" "$before"
	scry_ends 0 undo -f -p "$pid"
	wait_for 5 text_is "$child" "$before"
	exec 8>&-
	finish "$pid"
}
