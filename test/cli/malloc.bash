# shellcheck shell=bash disable=SC2034
# What the tests of `scry malloc record` share: what is in a recording is what the program knows that it called. $RECORD is how it
# is recorded.

RECORD=("$SCRY" malloc record)
LIBS=/usr/lib/x86_64-linux-gnu
COUNT="$ROOT/test/targets/malloc_count.py"

need_python() {
	/usr/bin/python3 -c 'pass' 2>/dev/null || skip "no python3, with which recordings are counted"
}

# lib NAME...: path of an allocator, the first that is there of the names that Debians give it.
lib() {
	local name
	for name in "$@"; do
		[ ! -e "$LIBS/$name" ] || break
	done
	[ -e "$LIBS/$name" ] || skip "no $*"
	echo "$LIBS/$name"
}

# events FILE: of a recording, as JSON in $T/events.
events() {
	"$SCRY" report "$1" --view events --json >"$T/events"
}

# calls ARGS...: what the recording says; fails when a block begins or ends twice.
calls() {
	/usr/bin/python3 "$COUNT" "$T/events" "$@" 2>"$T/count.err" && return 0
	cat "$T/count.err" >&2
	return 1
}

# same WHAT ARGS...: the program's lines that begin with WHAT are what the recording says.
same() {
	local what=$1
	shift
	calls "$@" >"$T/recorded" || return 1
	diff <(grep "^$what" "$T/known.out") "$T/recorded"
}

# records PRELOAD PROGRAM...: started by scry, its output in $T/known.out.
records() {
	local preload=$1
	shift
	LD_PRELOAD=$preload "${RECORD[@]}" -v --force -o "$T/x.scry" -- "$@" \
		>"$T/known.out" 2>"$T/scry.err" 3>&- || {
		cat "$T/scry.err"
		return 1
	}
	events "$T/x.scry"
}

# knows PRELOAD NAME: the whole of target_malloc_known, exactly.
knows() {
	records "$1" "$TARGETS/target_malloc_known"
	grep -q "served by .*$2" "$T/scry.err"
	grep -qx right "$T/known.out"
	same "known\|^order" target_malloc_known --order "$(grep -c ^order "$T/known.out")"
	grep -qE " 0 ends of unknown blocks, 0 frees inserted, 0 calls recorded too late" "$T/scry.err"
	grep -qE "^touched 0," "$T/count.err" # no system call asks what of a block is resident
	no grep -q '"event": "lost"' "$T/events"
}

# told: how many calls target_malloc_known tell says that had returned.
told() {
	od -An -tu8 -N8 "$T/told" | tr -d ' '
}

# recorded_all: the recording has all that had returned, and at most one call more.
recorded_all() {
	local n
	events "$T/x.scry"
	calls target_malloc_known >"$T/recorded"
	n=$(awk '$2 == "malloc" || $2 == "free" { n += $3 } END { print n + 0 }' "$T/recorded")
	# before main: calloc, and malloc and free once
	n=$((n - $1))
	[ "$n" -ge "$(told)" ] && [ "$n" -le "$(($(told) + 1))" ] && return 0
	echo "recorded $n, had returned $(told)"
	return 1
}

# starts_on_a_slow_disk PROGRAM...: is recorded until `stands`, its output in $T/scry.out, the pid of scry in $PID. The
# disk stands until there is $T/disk/go.
starts_on_a_slow_disk() {
	mkdir -p "$T/disk"
	start scry env LD_PRELOAD="$TARGETS/libslow_disk.so" SLOW_DISK="$T/disk" \
		"${RECORD[@]}" -v --force -o "$T/x.scry" "$@"
	wait_for 20 in_file "^round 2" "$T/scry.out"
	touch "$T/disk/stall"
	wait_for 20 test -e "$T/disk/stalls"
}

# all_wait PID: no thread runs or would if it had a processor, five times in a row.
all_wait() {
	local _
	for _ in 1 2 3 4 5; do
		no grep -qs "^State:.[^S]" /proc/"$1"/task/*/status || return 1
		sleep 0.02
	done
}

# program_of PID: the program that is recorded by the scry of that pid.
program_of() {
	pgrep -P "$1" -f "^$TARGETS/target_malloc_known"
}

# goes_far FILE: target_malloc_known run goes on by more calls than its tracks hold.
goes_far() {
	local lines
	lines=$(wc -l <"$1")
	wait_for 60 bash -c "[ \$(wc -l <'$1') -gt $((lines + 300)) ]"
}

# ends_recorded PID: the program is asked to end; scry, whose pid is given, says in $T/report what was recorded.
ends_recorded() {
	kill -TERM "$(program_of "$1")"
	finish "$1" || {
		cat "$T/scry.err"
		return 1
	}
	grep -qx right "$T/scry.out"
	"$SCRY" report "$T/x.scry" --json --top 0 >"$T/report"
}

# as_without PROGRAM...: prints the same, and ends the same.
as_without() {
	local want=0 got=0
	"$@" >"$T/want" 2>&1 || want=$?
	"${RECORD[@]}" -q --force -o "$T/x.scry" -- "$@" >"$T/got" 2>&1 3>&- || got=$?
	[ "$want" -eq "$got" ] || { echo "$1 ended with $got, not $want"; return 1; }
	diff "$T/want" "$T/got"
	events "$T/x.scry"
	[ "$(grep -c '"event": "malloc"' "$T/events")" -gt 1000 ]
	no grep -q '"event": "lost"' "$T/events"
}

# json_as_without N: Ruby and Python with four threads each, which make and read JSON of N parts.
json_as_without() {
	as_without "$RUBY" -rjson -e 'n = ARGV[0].to_i
		a = (1..n).map { |i| {i.to_s => [i, "x" * (i % 300)]} }
		t = 4.times.map { |k| Thread.new { a.map { |h| JSON.parse(JSON.generate(h)) }.size + k } }
		p t.map(&:value), a.hash == a.dup.hash; exit 3' "$1"
	as_without /usr/bin/python3 -c 'import json, sys, threading
n = int(sys.argv[1])
out = []
def work(k): out.append(sum(len(json.dumps({str(i): "y" * (i % 500)})) for i in range(n)) + k)
ts = [threading.Thread(target=work, args=(k,)) for k in range(4)]
[t.start() for t in ts]; [t.join() for t in ts]; print(sorted(out))' "$1"
}

# parts: of $T/err: calls, unknown ends and beginnings that do not fit, of each part.
parts() {
	sed -n 's/.*: \([0-9]* calls\),.* callers; \([0-9]*\) ends of unknown blocks, \([0-9]*\) frees inserted.*/\1 \2 \3/p' "$T/err" | sort
}
