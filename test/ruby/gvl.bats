#!/usr/bin/env bats
# scry gvl: who holds the VM's lock. The judges are known answers: threads that compute share the time, one holds it for
# as long as its own clock says, idle ones want nothing; times add up; and programs of which the result is known.

load ../cli/lib

setup() {
	need_targets
	prepare
	GVL="$ROOT/test/ruby/gvl"
}

judged() { # WHAT [NUMBER]
	"$RUBY" "$GVL/judge.rb" "$1" "$T/gvl.json" "${2:-0}"
}

held_twice() {
	[ "$(grep -c "^held" "$T/share.out")" -eq 2 ]
}

# Native threads of those that have ended go when their VM likes.
is_but_for_threads() { # PID STATE
	[ "$(state_of "$1" | grep -v ^threads)" = "$(grep -v ^threads <<<"$2")" ]
}

# watches_it PID ARGS...: a watch until it has had 0.8 s of a processor, however long that takes.
watches_it() {
	local pid=$1 scry
	shift
	start scry "$SCRY" gvl -p "$pid" --max-pause 2s --json "$@"
	scry=$PID
	wait_for 20 hooked "$pid" || return 1
	wait_for 60 has_spent "$pid" $(($(spent "$pid") + 80)) || return 1
	kill -INT "$scry"
	finish "$scry" || { cat "$T/scry.err"; return 1; }
	mv "$T/scry.out" "$T/gvl.json"
}

# shares RUBY...: three compute, one sleeps often, four are idle; then one holds the lock for 400 ms.
shares() {
	local pid before scry
	rm -f "$T/in"
	listens share "$@" "$GVL/share.rb"
	pid=$PID
	before=$(state_of "$pid")
	watches_it "$pid" || return 1
	as_before "$pid" "$before" "after the first watch" || return 1
	judged share || return 1
	watches_it "$pid" --stacks || return 1
	as_before "$pid" "$before" "after the watch with stacks" || return 1
	judged stacks || return 1
	echo "hog 1" >&8 # those that compute stop
	wait_for 20 in_file "^held" "$T/share.out" || return 1
	"$SCRY" gvl -p "$pid" -d 60s --json >"$T/gvl.json" 2>"$T/gvl.err" 3>&- 8>&- &
	scry=$!
	wait_for 20 hooked "$pid" || return 1
	echo "hog 400" >&8
	wait_for 20 held_twice || return 1
	kill -INT "$scry"
	wait "$scry" || return 1
	judged hog "$(sed -n 's/^held //p' "$T/share.out" | tail -1)" || return 1
	wait_for 5 is_but_for_threads "$pid" "$before" || return 1
	echo end >&8
	finish "$pid" || return 1
	grep -qx right "$T/share.out"
}

# watched WHAT NUMBER ARGS...: scry gvl on $PID, judged.
watched_is() {
	local what=$1 number=$2
	shift 2
	"$SCRY" gvl -p "$PID" --max-pause 2s --json "$@" >"$T/gvl.json" && judged "$what" "$number" # the machine may be busy
}

# holds RUBY...: the lock is held, and wanted, from before the watch to after it; then for a part of it.
holds() {
	local hog scry
	start hold "$@" "$GVL/hold.rb" 999999999
	wait_for 20 has_spent "$PID" 30
	watched_is hold 0 -d 80ms || return 1
	watched_is hold 0 -d 700ms || return 1
	kill -KILL "$PID" # it takes a processor
	finish "$PID" 2>/dev/null || true
	start hold "$@" "$GVL/hold.rb" 8000000
	hog=$PID
	wait_for 20 has_spent "$hog" 20
	"$SCRY" gvl -p "$hog" --max-pause 2s --json >"$T/gvl.json" 2>"$T/gvl.err" 3>&- &
	scry=$!
	wait_for 20 hooked "$hog" || return 1
	wait_for 60 in_file "^over" "$T/hold.out" || return 1
	kill -INT "$scry"
	wait "$scry" && judged hold 1
}

@test "who holds the lock for all of the watch has a line; who waits for it still, or waited before, is named" {
	need_root "entering a process that is not a child of scry"
	holds "$RUBY"
}

# swaps RUBY...: whoever holds the lock at the beginning gives it to the thread that has waited.
swaps() {
	local scry
	start swap "$@" "$GVL/swap.rb"
	wait_for 20 has_spent "$PID" 40
	"$SCRY" gvl -p "$PID" --max-pause 2s --json >"$T/gvl.json" 2>"$T/gvl.err" 3>&- &
	scry=$!
	wait_for 20 hooked "$PID" || return 1
	wait_for 60 in_file "^over" "$T/swap.out" || return 1
	kill -INT "$scry"
	wait "$scry" && judged swap
}

@test "the lock changes hands with the first event: who had waited, waited before; who held it, waits now" {
	need_root "entering a process that is not a child of scry"
	swaps "$RUBY"
}

briefly() { # NAMES: so many are known; 2: they are not
	"$SCRY" gvl --json -o "$T/gvl.json" --force -- "$RUBY" "$GVL/brief.rb" >"$T/brief.out"
	"$RUBY" "$GVL/judge.rb" brief "$T/gvl.json" "$1" "$T/brief.out" || return 2
}

@test "threads that live for 8 ms have a name and a tid, and end when they end" {
	briefly 0
	most_hold 1 3 briefly 8
}

# names NUMBER RUBY...
names() {
	local number=$1
	shift
	start names "$@" "$GVL/names.rb"
	wait_for 20 in_file "^pid" "$T/names.out"
	watched_is names "$number" -d 500ms || return 1
	watched_is threshold 0 -d 500ms --stacks --threshold 1m || return 1
	kill -TERM "$PID"
	finish "$PID"
}

@test "threads have their whole names, also where they share native threads; short waits are counted" {
	need_root "entering a process that is not a child of scry"
	names 1 "$RUBY"
	! has_turns || names 0 env RUBY_MN_THREADS=1 "$RUBY"
}

@test "native code that does not need the lock is distinguished from time off a processor" {
	need_root "entering a process that is not a child of scry"
	start native "$RUBY" "$GVL/native.rb"
	wait_for 20 in_file "^pid" "$T/native.out"
	watched_is native 0 -d 1500ms
}

@test "native code of a thread that also sleeps with the lock is found by samples" {
	local scry
	need_root "entering a process that is not a child of scry"
	need_bpf
	"$RUBY" -e 'require "fiddle"' || skip "ruby has no fiddle"
	start both "$RUBY" "$GVL/both.rb" "$T/go"
	both=$PID
	wait_for 20 in_file "^pid" "$T/both.out"
	start scry "$SCRY" gvl -p "$both" --max-pause 2s --json
	scry=$PID
	wait_for 20 hooked "$both"
	touch "$T/go"
	wait_for 60 has_spent "$both" 100
	rm "$T/go"
	wait_for 20 in_file "^packed" "$T/both.out"
	kill -INT "$scry"
	finish "$scry"
	mv "$T/scry.out" "$T/gvl.json"
	judged both "$(sed -n 's/^packed //p' "$T/both.out")"
}

@test "more pairs of threads than are kept: the sums of threads and lines are whole, and it is said" {
	need_root "entering a process that is not a child of scry"
	start crowd "$RUBY" "$GVL/crowd.rb" 330
	wait_for 20 in_file "^pid" "$T/crowd.out"
	watched_is crowd 0 -d 2s
}

# comers NUMBER ARGS...: so many threads, each counted once.
comers() {
	local number=$1
	shift
	[ "$("$SCRY" gvl "$@" --json -o "$T/gvl.json" --force -- "$RUBY" "$GVL/comers.rb" "$number" 2>/dev/null)" = right ] || return 1
	judged comers "$number"
}

@test "a thread for each request: 5,000 of them, more than there are rows, are counted, each once" {
	comers 5008
	comers 5008 --stacks
}

@test "a call that gives the lock away is not blamed for what others wait, beside those that take the processors" {
	local i
	for i in 1 2 3; do # in a single run of two seconds it may be half, by chance
		"$SCRY" gvl --json -o "$T/gives$i.json" --force -- "$RUBY" "$GVL/gives.rb" 8
	done
	"$RUBY" "$GVL/judge.rb" gives "$T/gives1.json" 0 "$T/gives2.json" "$T/gives3.json"
}

@test "the lock held asleep: how long the process ran is said beside it" {
	need_root "entering a process that is not a child of scry"
	"$RUBY" -e 'require "fiddle"' || skip "ruby has no fiddle"
	start asleep "$RUBY" "$GVL/asleep.rb"
	wait_for 20 in_file "^pid" "$T/asleep.out"
	watched_is asleep 0 -d 1s
}

hog() { # RUBY...: the extension, built for it
	local include
	include=$("$@" -rrbconfig -e 'puts RbConfig::CONFIG.values_at("rubyhdrdir", "rubyarchhdrdir").map { |d| "-I#{d}" }.join(" ")')
	# shellcheck disable=SC2086 # two words
	cc -O1 -shared -fPIC $include "$GVL/hog.c" -o "$T/hog.so"
}

# extension RUBY...: the program is started with it, and both answers compared.
extension() {
	local scry
	hog "$@" || return 1
	rm -f "$T/go"
	start hog "$SCRY" gvl -v --json -o "$T/gvl.json" --force -- "$@" "$GVL/hog.rb" "$T" "$T/go"
	scry=$PID
	wait_for 60 in_file "the GVL is counted" "$T/hog.err" || { cat "$T/hog.err"; return 1; }
	touch "$T/go"
	finish "$scry" || return 1
	judged extension "$T/hog.out"
}

has_headers() { # RUBY...
	"$@" -rrbconfig -e 'exit File.exist?(File.join(RbConfig::CONFIG["rubyhdrdir"], "ruby.h"))'
}

@test "a C extension that holds the lock is named with its library, for as long as its own clock says" {
	has_headers "$RUBY" || skip "no headers of ruby: apt install ruby-dev"
	extension "$RUBY"
}

short_calls() { # RUBY...
	local work
	hog "$@" || return 1
	for work in 1 3 10 100 ruby; do
		"$SCRY" gvl --json -o "$T/gvl.json" --force -- "$@" "$GVL/short.rb" "$T" "$work" >"$T/short.out" || return 1
		judged short "$T/short.out" || { echo "$work: $(cat "$T/short.out")"; return 1; }
		no grep -q "eBPF" "$T/gvl.json" || return 1
	done
}

@test "short calls: a method of 1, 3, 10 or 100 us in C, and one of Ruby, has the share that its own clocks say" {
	local ruby words
	need_bpf
	has_headers "$RUBY" || skip "no headers of ruby: apt install ruby-dev"
	while read -r ruby; do
		read -ra words <<<"$ruby"
		! has_headers "${words[@]}" || short_calls "${words[@]}" || { echo "$ruby"; return 1; }
	done < <(rubies)
}

@test "short calls in three fork children, each with a lock of its own, have that share" {
	need_bpf
	has_headers "$RUBY" || skip "no headers of ruby: apt install ruby-dev"
	hog "$RUBY"
	"$SCRY" gvl -f --json -o "$T/gvl.json" -- "$RUBY" "$GVL/short.rb" "$T" 3 3 >"$T/short.out"
	judged short "$T/short.out"
}

@test "without the rights for eBPF holders are read, it is said whose short calls are, and long ones are right" {
	need_root "giving up the rights"
	has_headers "$RUBY" || skip "no headers of ruby: apt install ruby-dev"
	hog "$RUBY"
	setpriv --bounding-set=-sys_admin,-bpf,-perfmon "$SCRY" gvl --json -o "$T/gvl.json" -- "$RUBY" "$GVL/short.rb" "$T" 1000 >"$T/short.out"
	judged short "$T/short.out"
	grep -q "read from outside, as eBPF cannot be had: a call of less than some 20 us .*CAP_BPF" "$T/gvl.json"
}

passes() { # RUBY...
	start passes "$@" "$GVL/passes.rb"
	wait_for 20 in_file "^pid" "$T/passes.out"
	# to 3.2 a lock that is free for a moment is taken by who is there; from 3.3 on it is given to the next thread
	watched_is passes "$("$@" -e 'v = RUBY_VERSION.split(".").map(&:to_i); puts((v <=> [3, 3]) < 0 ? 1 : (v <=> [4, 0, 6]) < 0 ? 2 : 0)')" -d 2500ms
}

@test "a switch that the VM forces is told from Thread.pass; who takes the lock before those that wait is counted" {
	need_root "entering a process that is not a child of scry"
	passes "$RUBY"
}

@test "computing threads share the lock, idle ones want nothing, who holds it long is blamed with its line" {
	need_root "entering a process that is not a child of scry"
	shares "$RUBY"
}

# as_sampled RUBY...: `scry stacks --gvl`, of the same program at the same time.
as_sampled() {
	local pid scry
	rm -f "$T/in"
	listens share "$@" "$GVL/share.rb"
	pid=$PID
	start scry "$SCRY" gvl -p "$pid" --max-pause 2s --json
	scry=$PID
	wait_for 20 hooked "$pid" || return 1
	"$SCRY" stacks --gvl -r 1000 -p "$pid" -d 3s --json >"$T/stacks.json" || return 1
	kill -INT "$scry"
	finish "$scry" || return 1
	mv "$T/scry.out" "$T/gvl.json"
	"$RUBY" "$GVL/judge.rb" sampled "$T/gvl.json" 0 "$T/stacks.json" || return 1
	echo end >&8
	finish "$pid"
}

@test "stacks --gvl, at the same time, says the same of the waiting: within two points" {
	need_root "entering a process that is not a child of scry"
	while read -r ruby; do
		read -ra words <<<"$ruby"
		as_sampled "${words[@]}" || { echo "$ruby"; return 1; }
	done < <(rubies)
}

has_turns() {
	"$RUBY" -e 'exit (RUBY_VERSION.split(".").map(&:to_i) <=> [3, 3]) >= 0'
}

# Where threads share native threads.
@test "the same with RUBY_MN_THREADS=1" {
	need_root "entering a process that is not a child of scry"
	has_turns || skip "this ruby has no M:N threads"
	# beside ractors that compute 4.1dev's threads do not take turns any more, with scry and without
	ractors 0 env RUBY_MN_THREADS=1 "$RUBY"
	comes_and_goes env RUBY_MN_THREADS=1 "$RUBY"
}

@test "the same on every Ruby" {
	need_root "entering a process that is not a child of scry"
	[ -n "${SCRY_TEST_RUBIES:-}" ] || skip "SCRY_TEST_RUBIES names no other Ruby"
	IFS=: read -ra rubies <<<"$SCRY_TEST_RUBIES"
	for ruby in "${rubies[@]}"; do
		read -ra words <<<"$ruby"
		shares "${words[@]}" || { echo "$ruby"; return 1; }
		holds "${words[@]}" || { echo "$ruby"; return 1; }
		swaps "${words[@]}" || { echo "$ruby"; return 1; }
		! has_headers "${words[@]}" || extension "${words[@]}" || { echo "$ruby"; return 1; }
		passes "${words[@]}" || { echo "$ruby"; return 1; }
		! has_ractors "${words[@]}" || every_ractor "${words[@]}" || { echo "$ruby"; return 1; }
		comes_and_goes "${words[@]}" || { echo "$ruby"; return 1; }
	done
}

ractors() { # NUMBER RUBY...: see judge.rb
	local number=$1 before pid
	shift
	start ractors "$@" "$GVL/ractors.rb" "$number"
	pid=$PID
	wait_for 20 in_file "^pid" "$T/ractors.out"
	before=$(state_of "$pid")
	watched_is ractors "$number" -d 2s || return 1
	as_before "$pid" "$before" "beside ractors"
}

# late_ractor RUBY...: one is made while the program is watched.
late_ractor() {
	local scry
	rm -f "$T/in"
	listens late "$@" "$GVL/ractors.rb" 1
	"$SCRY" gvl -p "$PID" -d 60s --json --max-pause 2s >"$T/gvl.json" 2>"$T/gvl.err" 3>&- 8>&- &
	scry=$!
	wait_for 20 hooked "$PID" || return 1
	sleep 1
	echo more >&8
	wait_for 60 in_file "^late" "$T/late.out" || return 1
	kill -INT "$scry"
	wait "$scry" && judged late "$(sed -n 's/^late //p' "$T/late.out")"
}

# brief_ractors NUMBER RUBY...: so many come and go, and compute what they compute alone.
brief_ractors() {
	local number=$1 before scry pid
	shift
	rm -f "$T/in"
	listens brief "$@" "$GVL/brief_ractors.rb" "$number"
	pid=$PID
	before=$(state_of "$pid" | grep -v ^threads)
	"$SCRY" gvl -p "$pid" -d 60s --json --max-pause 2s >"$T/gvl.json" 2>"$T/gvl.err" 3>&- 8>&- &
	scry=$!
	wait_for 20 hooked "$pid" || return 1
	echo go >&8
	wait_for 60 in_file "^sum" "$T/brief.out" || return 1
	kill -INT "$scry"
	wait "$scry" && judged brief_ractors "$number" || return 1
	[ "$(state_of "$pid" | grep -v ^threads)" = "$before" ] || return 1
	echo end >&8
	finish "$pid" || return 1
	[ "$(sed -n 's/^sum //p' "$T/brief.out")" = "$(printf 'go\nend\n' | "$@" "$GVL/brief_ractors.rb" "$number" | sed -n 's/^sum //p')" ]
}

# hog_in_a_ractor RUBY...
hog_in_a_ractor() {
	hog "$@" || return 1
	"$SCRY" gvl --json -o "$T/gvl.json" --force -- "$@" "$GVL/hog_ractor.rb" "$T" >"$T/hog.out" || return 1
	judged hog_ractor "$T/hog.out"
}

every_ractor() { # RUBY...
	ractors 2 "$@" || return 1
	late_ractor "$@" || return 1
	brief_ractors 200 "$@" || return 1
	! has_headers "$@" || hog_in_a_ractor "$@"
}

has_ractors() { # RUBY...
	"$@" -e 'exit defined?(Ractor) ? 0 : 1'
}

@test "ractors: two threads that compute share the lock of theirs in turns, and wait for nobody in another one" {
	need_root "entering a process that is not a child of scry"
	has_ractors "$RUBY" || skip "this ruby has no ractors"
	ractors 3 "$RUBY"
	kill -KILL "$PID"
	ractors 2 "$RUBY"
}

@test "a ractor that is made in the watch is counted from its first unlock on" {
	need_root "entering a process that is not a child of scry"
	has_ractors "$RUBY" || skip "this ruby has no ractors"
	late_ractor "$RUBY"
}

@test "hundreds of ractors that end: each is counted or said not to be, and they compute the same" {
	need_root "entering a process that is not a child of scry"
	has_ractors "$RUBY" || skip "this ruby has no ractors"
	brief_ractors 300 "$RUBY"
}

@test "a C extension that holds a ractor's lock is named, and only threads of that ractor wait for it" {
	has_ractors "$RUBY" || skip "this ruby has no ractors"
	has_headers "$RUBY" || skip "no headers of ruby: apt install ruby-dev"
	hog_in_a_ractor "$RUBY"
}

# comes_and_goes RUBY...: twenty times in and out while threads hand the lock on.
comes_and_goes() {
	local pid before
	start turning "$@" "$GVL/turning.rb"
	pid=$PID
	wait_for 20 in_file "^pid" "$T/turning.out"
	before=$(state_of "$pid")
	for i in $(seq 20); do
		"$SCRY" gvl -p "$pid" -d 50ms --max-pause 2s >"$T/report" || return 1
		as_before "$pid" "$before" "after watch $i" || return 1
	done
	kill -TERM "$pid"
	finish "$pid" && grep -q "^right" "$T/turning.out"
}

@test "twenty times in and out while threads hand the lock on: text and slots are as before, the result is right" {
	need_root "entering a process that is not a child of scry"
	comes_and_goes "$RUBY"
}

# Words that make each Ruby compile, one a line.
jits() {
	local option
	for option in --yjit --rjit --mjit --zjit; do
		"$RUBY" --disable=gems "$option" -e 'exit(%w[YJIT RJIT MJIT ZJIT].any? { |n| RubyVM.const_defined?(n) && RubyVM.const_get(n).enabled? })' 2>/dev/null && echo "$option"
	done
	return 0
}

@test "the same where Ruby compiles what it runs" {
	local option options
	need_root "entering a process that is not a child of scry"
	mapfile -t options < <(jits)
	[ "${#options[@]}" -gt 0 ] || skip "ruby has no JIT"
	for option in "${options[@]}"; do
		# MJIT loads what it has compiled: the text is not what it was
		[ "$option" = --mjit ] || shares "$RUBY" "$option" || { echo "$option"; return 1; }
		passes "$RUBY" "$option" || { echo "$option"; return 1; }
		! has_headers "$RUBY" || extension "$RUBY" "$option" || { echo "$option"; return 1; }
	done
}

@test "a program that is started: its result and its status are its own" {
	"$SCRY" gvl --json -o "$T/gvl.json" -- "$RUBY" "$GVL/storm.rb" 4 nofork >"$T/out"
	grep -q "^right" "$T/out"
	judged started
	"$RUBY" "$GVL/storm.rb" 4 nofork >"$T/alone"
	[ "$(tail -1 "$T/out")" = "$(tail -1 "$T/alone")" ]
	scry_ends 7 gvl -- "$RUBY" -e 'exit 7'
}

@test "a fiber scheduler computes the same" {
	"$RUBY" -e 'exit Fiber.respond_to?(:set_scheduler)' || skip "this ruby has no fiber schedulers"
	"$SCRY" gvl --json -o "$T/gvl.json" -- "$RUBY" "$GVL/fibers.rb" 10 >"$T/out"
	grep -qx "right 26500" "$T/out"
	judged started
}

# left_child N: one that was forked while its parent was watched, without -f: it keeps the hooks. Its pid in $child.
left_child() {
	local scry
	"$SCRY" gvl -p "$PID" --max-pause 2s >"$T/report" 2>"$T/report.err" 3>&- 8>&- &
	scry=$!
	wait_for 20 hooked "$PID"
	echo fork >&8
	wait_for 20 has_lines "$1" "^child" "$T/left.out"
	child=$(sed -n 's/^child //p' "$T/left.out" | tail -1)
	kill -INT "$scry"
	wait "$scry"
}

has_lines() { # COUNT PATTERN FILE
	[ "$(grep -c "$2" "$3")" -eq "$1" ]
}

@test "a child that was forked during a watch is entered while its threads run: undo, objects, gvl" {
	need_root "entering a process that is not a child of scry"
	listens left "$RUBY" "$GVL/left.rb" "$T/stop"
	left_child 1
	scry_ends 0 undo -p "$child" --max-pause 2s
	left_child 2
	scry_ends 0 undo -f -p "$PID" --max-pause 2s
	left_child 3
	scry_ends 0 objects -p "$child" -d 0.2s --max-pause 2s
	scry_ends 0 gvl -p "$child" -d 0.2s --max-pause 2s
	touch "$T/stop"
	exec 8>&-
	finish "$PID"
	in_file "^right 7 7 7$" "$T/left.out"
}

# The program goes on meanwhile, with all that hands the lock on, forks among it.
@test "attached again and again in a storm: the result is right, the text and the slots as before" {
	local pid n=0 rounds
	need_root "entering a process that is not a child of scry"
	rounds=$(share 150 1500)
	"$SCRY" gvl -- "$RUBY" -e 1 >"$T/learned" # once, and not while the storm is on
	"$RUBY" "$GVL/storm.rb" "$rounds" >"$T/alone"
	start storm "$RUBY" "$GVL/storm.rb" "$rounds"
	pid=$PID
	wait_for 10 in_file "^pid" "$T/storm.out"
	until is_gone "$pid"; do
		"$SCRY" gvl -f -p "$pid" -d 50ms >"$T/report" 2>"$T/report.err" || true
		n=$((n + 1))
	done
	finish "$pid"
	[ "$n" -gt 3 ]
	[ "$(tail -1 "$T/storm.out")" = "$(tail -1 "$T/alone")" ]
}

@test "fork children have locks of their own, and with -f rows of their own" {
	"$SCRY" gvl -f --json -o "$T/gvl.json" -- "$RUBY" -e '
	  sleep 1 # until its VM is known: what is forked before is not watched
	  kids = Array.new(2) { fork { had = [0, 0]
	    Array.new(2) { |i| Thread.new { had[i] = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID) until had.min > 0.4 } }.each(&:join) } }
	  kids.each { |k| Process.wait(k); exit(1) unless $?.success? }'
	json_is "$T/gvl.json" 'r["threads"].map { |t| t["pid"] }.uniq.size == 3'
	# two in each child go on until each has had 0.4 s of a processor, in turns of 0.1 s
	json_is "$T/gvl.json" 'r["threads"].group_by { |t| t["pid"] }.count { |_, ts|
	  ts.count { |t| t["held_ns"] > 150_000_000 && t["wanted_ns"] + t["granted_ns"] > 150_000_000 } == 2 } == 2'
}

@test "children are watched to one moment, however long it takes to leave them one after the other" {
	need_root "entering a process that is not a child of scry"
	T="$T" RUBY="$RUBY" "$RUBY" "$GVL/ends.rb" "$SCRY"
}

@test "without -f children that are Rubies are said to be unwatched; other programs are none" {
	local words='Array.new(4) { fork { sleep 4 } }; puts "pid #{$$}"; system("sleep 0.2"); Process.waitall'
	scry_ends 0 gvl -- "$RUBY" -e "$words"
	grep -qE "^note: at least 4 child processes of process [0-9]+ are each a Ruby .*: [0-9]+, [0-9]+, [0-9]+, ...; fix: -f$" "$T/scry.out"
	scry_ends 0 gvl -f -- "$RUBY" -e "$words"
	no grep -q "at least" "$T/scry.out"
	scry_ends 0 gvl -- "$RUBY" -e 'system("sleep 0.3"); sleep 0.1'
	no grep -q "at least" "$T/scry.out"
	need_root "entering a process that is not a child of scry"
	start kids "$RUBY" -e "\$stdout.sync = true; $words"
	wait_for 20 in_file "^pid" "$T/kids.out"
	scry_ends 0 gvl -p "$PID" -d 300ms --max-pause 2s
	grep -q "^note: at least 4 child processes of process $PID" "$T/scry.out"
}

@test "--by: the same waiting by line, method, gem, holder and waiting thread" {
	local by
	scry_ends 0 gvl -o "$T/by.scry" -- "$RUBY" -e '
	  t = Process.clock_gettime(Process::CLOCK_MONOTONIC) + 0.7
	  Array.new(3) { |i| Thread.new { Thread.current.name = "w#{i}"; nil while Process.clock_gettime(Process::CLOCK_MONOTONIC) < t } }.each(&:join)'
	for by in line method gem; do
		"$SCRY" report --by $by --json "$T/by.scry" >"$T/gvl.json"
		json_is "$T/gvl.json" '(r["rows"].sum { |x| x["lost_ns"] } - r["threads"].sum { |x| x["lost_ns"] }).abs < 1000'
	done
	json_is "$T/gvl.json" 'r["rows"].max_by { |x| x["lost_ns"] }["gem"] == "(app)"'
	for by in thread holder; do
		"$SCRY" report --by $by --json "$T/by.scry" >"$T/gvl.json"
		json_is "$T/gvl.json" '(r["rows"].sum { |x| x["lost_ns"] } - r["threads"].sum { |x| x["wanted_ns"] + x["granted_ns"] }).abs < 10_000'
		json_is "$T/gvl.json" 'r["rows"].map { |x| x["thread"] }.compact.size >= 3'
	done
	scry_ends 1 report --by class "$T/by.scry"
	says "line, method, gem, thread or holder"
	scry_ends 2 gvl --by class -- "$RUBY" -e 1
}

@test "diff: the line for which others wait longer, and which threads do; nothing between equals" {
	local ms lost
	for ms in 2 60; do
		scry_ends 0 gvl -o "$T/$ms.scry" -- "$RUBY" "$GVL/turns.rb" $ms
	done
	scry_ends 0 diff --json -o "$T/diff.json" "$T/2.scry" "$T/60.scry"
	json_is "$T/diff.json" 'r["notes"][0].start_with?("threads wait longer")'
	json_is "$T/diff.json" 'r["rows"][0]["what"] =~ /turns.rb:6 / && r["rows"][0]["after_ns_per_s"] > r["rows"][0]["before_ns_per_s"]'
	for ms in 2 60; do # and as much as the reports say
		"$SCRY" report --json "$T/$ms.scry" >"$T/$ms.json"
		lost=$("$RUBY" -rjson -e 'r = JSON.parse(File.read(ARGV[0])); puts r["rows"].select { |x| x["line"] == 6 && x["method"] == "Integer#*" }.sum { |x| x["lost_ns"] }' "$T/$ms.json")
		json_is "$T/diff.json" "way = $ms == 2 ? \"before\" : \"after\"; (r[\"rows\"][0][\"#{way}_ns_per_s\"] * r[\"totals\"][\"watched_#{way}_ns\"] / 1e9 - $lost).abs < 1000"
	done
	json_is "$T/diff.json" 'r["threads"].map { |t| t["what"] }.grep(/^turn[01]$/).size >= 1'
	scry_ends 0 diff "$T/60.scry" "$T/2.scry"
	grep -q "^threads wait less: " "$T/scry.out"
	scry_ends 0 diff "$T/60.scry" "$T/60.scry"
	grep -q "^threads wait as long as before" "$T/scry.out"
	scry_ends 1 diff --by class "$T/60.scry" "$T/2.scry"
	scry_ends 1 diff "$T/60.scry@start" "$T/2.scry"
	says "has no moments"
}

@test "SIGKILL of scry: the program goes on, computes right, and all is undone" {
	local pid before keeper scry who
	need_root "entering a process that is not a child of scry"
	listens share "$RUBY" "$GVL/share.rb"
	pid=$PID
	before=$(state_of "$pid")
	for who in front keeper both; do
		start "$who" "$SCRY" gvl -p "$pid" -d 60s
		scry=$PID
		wait_for 20 hooked "$pid"
		keeper=$(keeper_of "$scry")
		[ $who = keeper ] || kill -KILL "$scry"
		[ $who = front ] || kill -KILL "$keeper"
		finish "$scry" || true
		wait_for 10 is_gone "$keeper"
		undo "$pid"
		as_before "$pid" "$before" "the $who was killed"
	done
	echo "hog 50" >&8
	echo end >&8
	finish "$pid"
	grep -qx right "$T/share.out"
}

# dies_watching ARGS...: a watch of $PID with its hooks on, of which the front and the keeper are killed.
dies_watching() {
	local pid=$PID scry keeper
	start dead "$SCRY" "$@" -p "$pid" -d 60s --max-pause 2s
	scry=$PID PID=$pid
	wait_for 20 hooked "$pid" || return 1
	keeper=$(keeper_of "$scry")
	kill -KILL "$scry" "$keeper"
	finish "$scry" || true
	wait_for 10 is_gone "$keeper"
}

# after_a_dead_one RUBY...: what it left is put back before the next one plans.
after_a_dead_one() {
	local pid before
	rm -f "$T/in"
	listens share "$@" "$GVL/share.rb"
	pid=$PID
	before=$(state_of "$pid")
	for dead in "gvl" "calls -x pthread_mutex_unlock -x pthread_cond_wait -c" "locks" "gvl -f"; do
		# shellcheck disable=SC2086 # words
		dies_watching $dead || { echo "$dead"; return 1; }
		scry_ends 0 gvl -p "$pid" -d 300ms --max-pause 2s --json || { echo "after $dead"; return 1; }
		cp "$T/scry.out" "$T/gvl.json"
		json_is "$T/gvl.json" 'r["threads"].sum { |t| t["takes"] } > 2' || return 1
		as_before "$pid" "$before" "after $dead" || return 1
	done
	echo end >&8
	finish "$pid" && grep -qx right "$T/share.out"
}

@test "after SIGKILL of a scry the next one puts back what it left, and watches" {
	need_root "entering a process that is not a child of scry"
	while read -r ruby; do
		read -ra words <<<"$ruby"
		after_a_dead_one "${words[@]}" || { echo "$ruby"; return 1; }
	done < <(rubies)
}

@test "--threshold without --stacks is refused" {
	scry_ends 2 gvl --threshold 1ms -- true
	says "fix: --stacks"
}

@test "what is no Ruby is refused, and so are endings that there are not" {
	target busy
	scry_ends 4 gvl -p "$PID" -d 1
	says "no Ruby"
	scry_ends 2 gvl -p "$PID" -d 1 -o "$T/x.html"
	says "fix: one of x.scry, x.json, x.txt, x.folded "
	scry_ends 2 gvl -p "$PID" -d 1 -o "$T/x.svg"
	says "fix: one of x.scry, x.json, x.txt, x.folded "
	scry_ends 2 gvl -p "$PID" -d 1 --by thread -o "$T/x.folded"
	says "folded stacks are by line"
}
