#!/usr/bin/env bats
# Entering a program whose threads stand in every state, and programs in situations a tool seldom
# meets. Each of them checks itself: no wait may be cut short, no result may be wrong.

load lib

# cycles N PID SPEC...: attaches and detaches; each must succeed.
cycles() {
	local n=$1 pid=$2 i
	shift 2
	for ((i = 0; i < n; i++)); do
		scry_ends 0 patch count "$@" -p "$pid" -d 0.02s || return 1
	done
}

@test "threads in every state: cycles by the entry and through the GOT" {
	target states
	wait_for 10 in_file "^ok 2" "$T/states.out"
	# It maps and unmaps a library all the time: its text is compared as it is without that library, which
	# is what most of the looks with the fewest mappings show.
	before=$(for _ in $(seq 60); do text "$PID" || true; done | sort | uniq -c |
		sort -k5,5n -k1,1nr | head -1 | sed 's/^ *[0-9]* //')
	cycles "$(share 15 100)" "$PID" work_fold work_mix
	cycles "$(share 15 100)" "$PID" work_fold nanosleep poll --via=got
	wait_for 5 text_is "$PID" "$before"
	goes_on "$T/states.out"
	ends_right "$PID" states
}

# alone NAME...: a program of one thread, whose every wait is measured by itself, entered 20 times.
alone() {
	local name=$1 spec=$2 before lines
	shift 2
	target "$name" "$@"
	wait_for 10 bash -c "[ \$(wc -l <'$T/$name.out') -gt 2 ]"
	before=$(state_of "$PID")
	cycles "$(share 20 100)" "$PID" "$spec" --via=got
	as_before "$PID" "$before" "after the cycles"
	goes_on "$T/$name.out"
	ends_right "$PID" "$name"
}

@test "one thread in nanosleep" { alone sleeper nanosleep nanosleep 100; }
@test "one thread in a short nanosleep" { alone sleeper nanosleep nanosleep 3; }
@test "one thread in poll" { alone odd poll poll; }
@test "one thread, nearly always in a signal handler" { alone odd work_fold handler; }

@test "one thread, all in vector registers" {
	grep -qw avx2 /proc/cpuinfo || skip "this processor has no AVX2"
	alone odd work_fold vector
}

@test "one thread in pause" {
	target sleeper pause
	before=$(state_of "$PID")
	cycles "$(share 20 100)" "$PID" pause@libc --via=got
	as_before "$PID" "$before" "after the cycles"
	[ "$(wc -l <"$T/sleeper.out")" -eq 1 ] # it never came back
	ends_right "$PID" sleeper
}

@test "one thread in a long nanosleep: it does not end early" {
	target sleeper nanosleep 3000
	cycles 10 "$PID" nanosleep --via=got
	wait_for 10 in_file "^ok 1" "$T/sleeper.out"
	ends_right "$PID" sleeper
}

@test "the first thread has ended, others run: refused with the reason" {
	target odd leaderless
	kill -USR1 "$PID"
	wait_for 10 grep -q "^State:.*Z" "/proc/$PID/status"
	scry_ends 4 patch count work_fold work_mix -p "$PID" -d 0.1s
	says "first thread"
	goes_on "$T/odd.out"
	ends_right "$PID" odd
}

@test "the first thread ends while it is watched: the hooks are taken out all the same" {
	target odd leaderless
	odd=$PID
	before=$(text "$odd")
	tid=$(ls "/proc/$odd/task" | tail -1)
	start scry "$SCRY" patch count work_fold work_mix -p "$odd"
	scry=$PID
	wait_for 10 hooked "$odd"
	kill -USR1 "$odd"
	wait_for 10 grep -q "^State:.*Z" "/proc/$odd/status"
	kill -INT "$scry"
	ended "$scry"
	cat "$T/scry.out" "$T/scry.err"
	grep -q "^State:.*Z" "/proc/$odd/status"
	# The kernel shows no memory of it but through another thread.
	text_is "$odd/task/$tid" "$before" || [ "$status" -ne 0 ]
	goes_on "$T/odd.out"
	ends_right "$odd" odd
}

@test "the first thread ends while it is watched, and scry is killed: it is listed, and undo takes all out" {
	target odd leaderless
	odd=$PID
	before=$(text "$odd")
	tid=$(ls "/proc/$odd/task" | tail -1)
	start scry "$SCRY" patch count work_fold work_mix -p "$odd"
	scry=$PID
	wait_for 10 hooked "$odd"
	kill -USR1 "$odd"
	wait_for 10 grep -q "^State:.*Z" "/proc/$odd/status"
	kill -KILL "$(keeper_of "$scry")" "$scry"
	ended "$scry"
	"$SCRY" ps | grep -qw "^ *$odd"
	"$SCRY" patch list -p "$odd" | grep -q applied
	undo "$odd"
	text_is "$odd/task/$tid" "$before"
	goes_on "$T/odd.out"
	ends_right "$odd" odd
}

# ends_within SECONDS SCRY'S ARGS...: its status, or 124 and where its threads stand.
ends_within() {
	local seconds=$1 scry
	shift
	"$SCRY" "$@" >"$T/out" 2>"$T/err" 3>&- &
	scry=$!
	STARTED="$STARTED $scry"
	wait_for "$seconds" is_gone "$scry" || {
		ps -o pid,tid,stat,wchan:32,comm -L -p "$scry,$(pgrep -d, -P "$scry")"
		return 124
	}
	finish "$scry"
}

@test "vfork in flight: entered or refused within bounded time, nobody hangs" {
	target odd vfork 1
	before=$(text "$PID")
	entered=0 refused=0
	for _ in 1 2 3 4 5; do
		status=0
		ends_within 20 patch count work_fold work_mix -p "$PID" -d 0.1s || status=$?
		case "$status" in
		0)
			entered=$((entered + 1))
			text_is "$PID" "$before"
			;;
		1)
			refused=$((refused + 1))
			grep -qi "fix:" "$T/err"
			;;
		*)
			echo "status $status"
			cat "$T/err"
			false
			;;
		esac
		goes_on "$T/odd.out"
	done
	echo "entered $entered, refused $refused"
	# The child of a vfork runs in its parent's memory: it must find it whole too.
	wait_for 10 text_is "$PID" "$before" || timeout 20 "$SCRY" undo -p "$PID" --max-pause 2s
	text_is "$PID" "$before"
	ends_right "$PID" odd
}

# is_held PID: a child of its has lived in its memory for a second.
is_held() {
	ps -o etimes=,comm= --ppid "$1" | awk '$1 >= 1 && $2 == "target_odd" { seen = 1 } END { exit !seen }'
}

@test "a vfork that lasts: refused with the reason, soon, and not shown as no calls" {
	target odd vfork 100
	wait_for 20 is_held "$PID"
	before=$(text "$PID")
	status=0
	ends_within 60 patch count work_fold work_mix -p "$PID" -d 0.1s || status=$?
	[ "$status" = 1 ]
	grep -q "would not stop within" "$T/err"
	[ ! -s "$T/out" ]
	text_is "$PID" "$before"
	goes_on "$T/odd.out"
	child=$(ps -o pid= --ppid "$PID")
	ends_right "$PID" odd
	kill -9 $child
}

# A watch of 0.1 s counts, or is refused with the reason and what to do.
counts_or_refuses() {
	local got=0
	timeout 20 "$SCRY" patch count work_fold work_mix -p "$1" -d 0.1s >"$T/out" 2>"$T/err" || got=$?
	[ "$got" -eq 0 ] || grep -q "fix:" "$T/err" && return 0
	echo "patch count ended with $got:"
	cat "$T/out" "$T/err"
	return 1
}

@test "a program that forks all the time" {
	target forker
	wait_for 10 in_file "^ok 3" "$T/forker.out"
	before=$(text "$PID")
	for _ in $(seq "$(share 10 60)"); do
		counts_or_refuses "$PID" || return 1
	done
	wait_for 5 text_is "$PID" "$before"
	goes_on "$T/forker.out"
	ends_right "$PID" forker
}

@test "a fork child that outlives the watch: undo cleans it, its parent's watch is not disturbed" {
	target odd child
	parent=$PID
	before=$(text "$parent")
	start scry "$SCRY" patch count work_fold work_mix -p "$parent"
	scry=$PID
	wait_for 10 hooked "$parent"
	kill -USR1 "$parent"
	wait_for 10 in_file "^child" "$T/odd.out"
	child="$(sed -n 's/^child //p' "$T/odd.out")"
	HELD=$child
	scry_ends 0 undo -p "$child"
	# Two functions, and the slot of the loader.
	grep -q "5 changes undone" "$T/scry.out"
	text_is "$child" "$before"
	watched "$parent"
	no text_is "$parent" "$before"
	scry_ends 0 patch count work_fold -p "$child" -d 0.2s
	watched "$parent"
	kill -INT "$scry"
	finish "$scry"
	text_is "$parent" "$before"
	text_is "$child" "$before"
	kill -TERM "$child"
	ends_right "$parent" odd
}

@test "a ruby's fork child has a watch of its own, during its parent's and after it" {
	cat >"$T/parent.rb" <<'RUBY'
$stdout.sync = true
trap(:USR1) { $go = true }
trap(:TERM) { $stop = true }
puts "pid #{$$}"
until $stop
  Array.new(3)
  next unless $go
  $go = false
  fork do
    puts "child #{$$}"
    until $stop
      Object.new
    end
  end
end
RUBY
	start parent "$RUBY" "$T/parent.rb"
	parent=$PID
	wait_for 10 in_file "^pid" "$T/parent.out"
	start scry "$SCRY" objects -p "$parent" --top 0 -o "$T/parent.json"
	scry=$PID
	wait_for 10 watched "$parent"
	kill -USR1 "$parent"
	wait_for 10 in_file "^child" "$T/parent.out"
	child="$(sed -n 's/^child //p' "$T/parent.out")"
	HELD=$child
	"$SCRY" objects -p "$child" -d 0.5s --top 0 -o "$T/during.json"
	watched "$parent"
	kill -INT "$scry"
	finish "$scry"
	"$SCRY" objects -p "$child" -d 0.5s --top 0 -o "$T/after.json"
	for f in during after; do
		json_is "$T/$f.json" 'rows.any? { |x| x["line"] == 12 && x["class"] == "Object" && x["allocated"] > 1000 }'
		json_is "$T/$f.json" 'rows.none? { |x| x["line"] == 6 }'
	done
	json_is "$T/parent.json" 'rows.any? { |x| x["line"] == 6 && x["class"] == "Array" && x["allocated"] > 1000 }'
	json_is "$T/parent.json" 'rows.none? { |x| x["line"] == 12 }'
	scry_ends 0 undo -p "$child"
	[ "$(mappings "$child")" -eq 0 ]
	kill -TERM "$child" "$parent"
}

@test "an exec while it is watched" {
	target odd exec "$TARGETS/target_busy" 2
	odd=$PID
	start scry "$SCRY" patch count work_fold work_mix -p "$odd" -d 30s
	scry=$PID
	wait_for 10 hooked "$odd"
	kill -USR1 "$odd"
	ended "$scry"
	echo "$status"
	cat "$T/scry.out" "$T/scry.err"
	[ "$status" -eq 0 ] || [ "$status" -eq 5 ]
	grep -qi "exec\|ended" "$T/scry.out" "$T/scry.err"
	goes_on "$T/odd.out"
	[ "$(mappings "$odd")" -eq 0 ]
	# It is another program now, which can be entered.
	scry_ends 0 patch count busy_six -p "$odd" -d 0.1s
	ends_right "$odd" odd
}

@test "execs at any moment of the attach" {
	for i in $(seq "$(share 10 60)"); do
		target odd exec "$TARGETS/target_busy" 2
		odd=$PID
		start scry "$SCRY" patch count work_fold work_mix -p "$odd" -d 0.1s
		scry=$PID
		sleep "0.0$((i * 7 % 90 + 10))"
		kill -USR1 "$odd"
		ended "$scry"
		[ "$status" -lt 126 ]
		goes_on "$T/odd.out"
		ends_right "$odd" odd
		[ "$(mappings "$$")" -eq 0 ]
	done
}

@test "an exit while it is watched, with its status" {
	for ms in 300 310 330 370 600; do
		target odd exit 9 "$ms"
		odd=$PID
		start scry "$SCRY" patch count work_fold work_mix -p "$odd" -d 30s
		ended "$PID"
		cat "$T/scry.err"
		[ "$status" -eq 5 ]
		ended "$odd"
		[ "$status" -eq 9 ]
	done
}

# is_looked_at PID SCRY: its code is changed, or it is watched otherwise, or its memory is open.
is_looked_at() {
	case $3 in
	objects) watched "$1" && "$SCRY" patch list -p "$1" | grep -q "agent at" ;;
	stacks) readlink "/proc/$2/fd/"* | grep -q "/$1/task/.*/schedstat" ;;
	*) hooked "$1" ;;
	esac
}

# gone PID SCRY'S ARGS...: the target is killed before the time of -d; the report comes, and the status is 5.
gone() {
	local pid=$1
	shift
	start scry "$SCRY" "$@" -p "$pid" -d 60s
	wait_for 30 is_looked_at "$pid" "$PID" "$1"
	[[ "$1" = patch || "$1" = calls || "$1" = malloc ]] || sleep 1 # it says no more of itself with -d; the events are on by then
	kill -KILL "$pid"
	ended "$PID"
	[ "$status" -eq 5 ] && says "the target is gone" && return 0
	echo "scry $* ended with $status"
	cat "$T/scry.out" "$T/scry.err"
	return 1
}

@test "killed while it is watched: by patch, calls and malloc" {
	local what
	for what in "patch count work_fold" "patch time work_fold" "patch log work_fold" "calls -x work_fold" "calls -c -x work_fold"; do
		target busy 2
		# shellcheck disable=SC2086
		gone "$PID" $what
		grep -q "work_fold" "$T/scry.out"
	done
	target busy 2
	gone "$PID" malloc record -o "$T/m.scry"
	"$SCRY" info "$T/m.scry" >"$T/info"
}

@test "killed while it is watched: by objects and stacks" {
	local what ruby
	for what in objects "objects --force-gc" "objects --sample 10" "objects --source hooks" "stacks --engine=read"; do
		counted
		ruby=$PID
		# shellcheck disable=SC2086
		gone "$ruby" $what
		grep -q "pid $ruby" "$T/scry.out"
		ended "$ruby"
		[ "$status" -eq 137 ]
	done
}

@test "one of two is killed while they are watched: the other one was watched to the end" {
	target busy 2
	first=$PID
	target sleeper pause
	start scry "$SCRY" patch count nanosleep@libc pause@libc -p "$first" -p "$PID"
	wait_for 30 in_file "watching process" "$T/scry.err"
	kill -KILL "$first"
	wait_for 5 no test -d "/proc/$first/fd/0"
	kill -INT "$PID"
	ended "$PID"
	[ "$status" -eq 0 ]
}

@test "stopped by a signal before: refused, with the command that mends it" {
	target busy 2
	kill -STOP "$PID"
	wait_for 5 grep -q "^State:.*stopped" "/proc/$PID/status"
	before=$(state_of "$PID")
	scry_ends 4 patch count work_mix -p "$PID" -d 0.1s
	says "stopped.*kill -CONT"
	as_before "$PID" "$before" "refused"
	kill -CONT "$PID"
	scry_ends 0 patch count work_mix -p "$PID" -d 0.1s
	ends_right "$PID" busy
}

@test "stopped by a signal while it is watched: scry leaves, it runs right when it is continued" {
	target busy 2
	busy=$PID
	before=$(text "$busy")
	# shellcheck disable=SC2086
	start scry "$SCRY" patch count $WORDS -p "$busy"
	scry=$PID
	wait_for 10 hooked "$busy"
	kill -STOP "$busy"
	wait_for 5 grep -q "^State:.*stopped" "/proc/$busy/status"
	kill -INT "$scry"
	ended "$scry"
	cat "$T/scry.out" "$T/scry.err"
	[ "$status" -eq 0 ]
	wait_for 5 grep -q "^State:.*stopped" "/proc/$busy/status" # still: scry has not let it run
	text_is "$busy" "$before"
	kill -CONT "$busy"
	goes_on "$T/busy.out"
	[ "$(mappings "$busy")" -eq 0 ] || grep -q "of the agent.* stay .*in process" "$T/scry.out" "$T/scry.err"
	undo "$busy"
	[ "$(mappings "$busy")" -eq 0 ]
	ends_right "$busy" busy
}

@test "a ruby stopped while it is watched" {
	counted
	ruby=$PID
	start scry "$SCRY" objects -p "$ruby"
	scry=$PID
	wait_for 10 in_file "watching process" "$T/scry.err"
	kill -STOP "$ruby"
	wait_for 5 grep -q "^State:.*stopped" "/proc/$ruby/status"
	kill -INT "$scry"
	ended "$scry"
	[ "$status" -eq 0 ]
	grep -q "of the agent.* stay .*in process" "$T/scry.out" "$T/scry.err"
	kill -CONT "$ruby"
	sleep 0.5
	undo_all "$ruby"
	[ "$(mappings "$ruby")" -eq 0 ]
	kill -TERM "$ruby"
	finish "$ruby"
}

@test "traced already: refused, the tracer is named" {
	target busy 2
	busy=$PID
	start tracer "$TARGETS/tracer" "$busy"
	tracer=$PID
	wait_for 10 in_file "^tracing" "$T/tracer.out"
	scry_ends 3 patch count work_mix -p "$busy" -d 0.1s
	says "$tracer"
	kill -TERM "$tracer"
	ended "$tracer"
	scry_ends 0 patch count work_mix -p "$busy" -d 0.1s
	ends_right "$busy" busy
}

@test "one thread is traced: refused, nothing is changed" {
	target busy 3
	busy=$PID
	before=$(state_of "$busy")
	tid=$(ls "/proc/$busy/task" | tail -1)
	start tracer "$TARGETS/tracer" "$tid"
	wait_for 10 in_file "^tracing" "$T/tracer.out"
	scry_ends 3 patch count work_mix -p "$busy" -d 0.1s
	says "$PID"
	kill -TERM "$PID"
	ended "$PID"
	text_is "$busy" "$(head -1 <<<"$before")"
	undo "$busy"
	as_before "$busy" "$before" "after undo"
	scry_ends 0 patch count work_mix -p "$busy" -d 0.1s
	ends_right "$busy" busy
}

@test "a seccomp filter: refused with the reason" {
	target odd seccomp
	before=$(state_of "$PID")
	scry_ends 4 patch count work_mix -p "$PID" -d 0.1s
	says seccomp
	as_before "$PID" "$before" "refused"
	ends_right "$PID" odd
}

@test "no new executable memory: refused with the reason, and nothing stays" {
	timeout 1 "$TARGETS/target_odd" mdwe >"$T/probe" || true
	! grep -q "no PR_SET_MDWE here" "$T/probe" || skip "no PR_SET_MDWE here"
	target odd mdwe
	before=$(state_of "$PID")
	for _ in 1 2 3; do
		scry_ends 3 patch count work_mix -p "$PID" -d 0.1s
		says "no new executable memory"
		[ "$(grep -c -- "---p 00000000 00:00 0 *$" "/proc/$PID/maps")" -le 2 ]
		as_before "$PID" "$before" "refused"
	done
	ends_right "$PID" odd
}

@test "a setuid program: refused with the reason" {
	need_root "a setuid program"
	command -v setpriv >/dev/null || skip "no setpriv: apt-get install util-linux"
	cp "$TARGETS/target_sleeper" "$T/" # it needs no library of ours, which a setuid program would not find
	chown root "$T/target_sleeper"
	chmod 4755 "$T/target_sleeper"
	chmod 755 "$T" "$T/.." "$T/../.."
	findmnt -no OPTIONS -T "$T" | grep -q nosuid && skip "$T is on a file system mounted nosuid"
	start sleeper setpriv --reuid=65534 --regid=65534 --clear-groups "$T/target_sleeper"
	wait_for 5 in_file "^ok" "$T/sleeper.out" || skip "nobody may not run programs in $T: $(cat "$T/sleeper.err")"
	scry_ends 4 patch count nanosleep -p "$PID" -d 0.1s
	says "setuid"
	ends_right "$PID" sleeper
}

@test "a zombie, and a process that is not there" {
	start zombie "$RUBY" -e '$stdout.sync = true; puts fork { exit! }; sleep'
	wait_for 5 in_file "^[0-9]" "$T/zombie.out"
	wait_for 5 bash -c "grep -q '^State:.*Z' /proc/\$(cat '$T/zombie.out')/status"
	scry_ends 5 patch count write -p "$(cat "$T/zombie.out")" -d 0.1s
	says "ended|gone"
	scry_ends 5 patch count write -p 4194304 -d 0.1s
	scry_ends 5 undo -p 4194304
}

@test "many cycles on busy threads leave nothing" {
	target busy
	cycles 2 "$PID" busy_six
	before=$(state_of "$PID")
	maps=$(wc -l <"/proc/$PID/maps")
	# shellcheck disable=SC2086
	cycles "$(share 30 100)" "$PID" $WORDS
	as_before "$PID" "$before" "after the cycles"
	[ "$(wc -l <"/proc/$PID/maps")" -le $((maps + 1)) ]
	ends_right "$PID" busy
}

# Without the line of what an idle agent keeps; a timer thread of the VM comes and goes.
ruby_is_as() { # PID STATE
	[ "$(state_of "$1" | grep -v "scry's")" = "$2" ]
}

# An idle agent, which a cycle may leave or take out, is five mappings; the VM may have come to three more.
@test "many cycles on a ruby leave nothing" {
	counted
	scry_ends 0 objects -p "$PID" -d 0.02s
	before=$(state_of "$PID" | grep -v "scry's")
	cp "/proc/$PID/maps" "$T/maps"
	for _ in $(seq "$(share 20 100)"); do
		scry_ends 0 objects -p "$PID" -d 0.02s
		[ "$(wc -l <"/proc/$PID/maps")" -le $(($(wc -l <"$T/maps") + 8)) ] || {
			diff "$T/maps" "/proc/$PID/maps"
			return 1
		}
	done
	undo "$PID"
	wait_for 5 ruby_is_as "$PID" "$before" || {
		diff <(echo "$before") <(state_of "$PID")
		return 1
	}
	[ "$(mappings "$PID")" -eq 0 ]
	kill -TERM "$PID"
	finish "$PID"
}

locked_kib() {
	awk '/^VmLck/ { print $2 }' "/proc/$1/status"
}
resident_kib() {
	awk '/^VmRSS/ { print $2 }' "/proc/$1/status"
}

# All of scry's mappings would be locked, and so brought into memory: 51 MiB and more.
@test "a program that locks all memory that it maps" {
	need_root "locking memory"
	target locked
	before=$(locked_kib "$PID") resident=$(resident_kib "$PID") program=$PID
	for words in "patch count getppid" "calls -x getppid -w 9 -f" "malloc record --force -o $T/o.scry"; do
		# shellcheck disable=SC2086
		start scry "$SCRY" $words -p "$program"
		wait_for 20 watched "$program"
		wait_for 20 in_file "watching" "$T/scry.err" || true
		echo "$words: locked $before, now $(locked_kib "$program") KiB; resident $resident, now $(resident_kib "$program")"
		[ $(($(locked_kib "$program") - before)) -lt 1024 ]
		[ $(($(resident_kib "$program") - resident)) -lt 8192 ]
		kill -INT "$PID"
		finish "$PID"
		[ "$(mappings "$program")" -eq 0 ]
	done
	kill "$program"
}
