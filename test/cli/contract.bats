#!/usr/bin/env bats
# The command line's contract: exit statuses, files, signals, who may what, JSON that parses.

load lib

as_nobody() {
	setpriv --reuid=65534 --regid=65534 --clear-groups "$@"
}

need_nobody() {
	need_root "being another user"
	command -v setpriv >/dev/null || skip "no setpriv: apt-get install util-linux"
	as_nobody "$SCRY" --version >/dev/null 2>&1 || skip "nobody may not run $SCRY"
}

json_parses() {
	"$RUBY" --disable=gems -rjson -e 'JSON.parse(File.read(ARGV[0]))' "$1"
}

@test "usage errors end with 2 and say how it goes" {
	for words in "" "nonsense" "objects" "objects -p" "objects -p x" "objects -p 1 -- true" "objects --nonsense -p 1" \
		"patch" "patch nonsense" "patch count -p 1" "patch count work_mix" "patch list" "undo" "undo -p x" \
		"objects -p 1 -d x" "objects -p 99999999" "report" "info" "ps nonsense" \
		"objects -p 1 --by nonsense" "objects -p 1 --grep /(/" "objects -p 1 --filter nonsense" "objects -p 1 --until rss" \
		"objects -p 1 --stacks --by gem" "objects -p 1 --folded --json" "objects -p 1 --every x" "report x --folded --json" \
		"patch count x -p 1 -o x.folded" "diff" "diff a" "diff a b c" "diff a b --from 1m" "diff a@x b" "diff a --from x" "doctor -p x"; do
		status=0
		# shellcheck disable=SC2086
		timeout 5 "$SCRY" $words >"$T/out" 2>"$T/err" </dev/null || status=$?
		echo "scry $words: $status"
		[ "$status" -eq 2 ]
		[ -s "$T/err" ]
		[ ! -s "$T/out" ]
	done
}

@test "a signal in the midst of what the keeper says ends nothing" {
	need_root "entering a process that is not a child of scry"
	command -v strace >/dev/null || skip "no strace"
	target busy
	strace -qq -o "$T/trace" -e trace=recvfrom -e inject=recvfrom:error=EINTR:when=2+3 \
		"$SCRY" patch count busy_six -v -o "$T/x.scry" -d 50ms -p "$PID" 2>"$T/err" || {
		cat "$T/err"
		false
	}
	grep -q EINTR "$T/trace"
}

@test "a mistake is told once" {
	"$SCRY" objects -p 4194304 -d 1s 2>"$T/err" || true
	cat "$T/err"
	[ "$(grep -c "4194304" "$T/err")" -eq 1 ]
	"$SCRY" objects -p x 2>"$T/err" || true
	[ "$(wc -l <"$T/err")" -le 2 ]
}

@test "help goes to stdout and ends with 0" {
	for words in "--help" "objects --help" "patch --help" "patch count --help" "undo --help" "ps --help" "doctor --help" \
		"report --help" "diff --help" "info --help" "--version"; do
		# shellcheck disable=SC2086
		"$SCRY" $words >"$T/out" 2>"$T/err"
		[ -s "$T/out" ]
		[ ! -s "$T/err" ]
	done
}

@test "another user's process: 3, with the command that mends it" {
	need_nobody
	counted
	before=$(state_of "$PID")
	for words in "objects -p $PID -d 0.1s" "patch count write -p $PID -d 0.1s" "undo -p $PID" "patch list -p $PID"; do
		status=0
		# shellcheck disable=SC2086
		as_nobody "$SCRY" $words >"$T/out" 2>"$T/err" || status=$?
		echo "scry $words: $status: $(cat "$T/err")"
		[ "$status" -eq 3 ]
		grep -qE "fix:.*(sudo|root)" "$T/err"
	done
	as_before "$PID" "$before" "refused"
}

@test "one's own process as a user without rights: said what is missing, nothing changed" {
	need_nobody
	chmod 755 "$T" "$T/.." "$T/../.."
	start busy setpriv --reuid=65534 --regid=65534 --clear-groups "$TARGETS/target_busy" 2
	wait_for 5 in_file "^round" "$T/busy.out" || skip "nobody may not run $TARGETS/target_busy"
	before=$(state_of "$PID")
	status=0
	as_nobody "$SCRY" patch count work_mix -p "$PID" -d 0.1s >"$T/out" 2>"$T/err" || status=$?
	cat "$T/err"
	[ "$status" -eq 0 ] || [ "$status" -eq 3 ]
	[ "$status" -eq 0 ] || grep -qE "fix:.*(sudo|root)" "$T/err"
	as_before "$PID" "$before" "after status $status"
	ends_right "$PID" busy
}

@test "not a ruby: 4; a function that is not there: 4" {
	target busy 2
	scry_ends 4 objects -p "$PID" -d 0.1s
	scry_ends 4 patch count no_such_function -p "$PID" -d 0.1s
	says no_such_function
	scry_ends 4 patch count busy_float@nowhere -p "$PID" -d 0.1s
	ends_right "$PID" busy
}

@test "-- CMD: the program's own status, 128 + N, 127, 126" {
	scry_ends 7 objects -- "$RUBY" -e 'exit 7'
	scry_ends 137 objects -- "$RUBY" -e 'Process.kill(:KILL, $$); sleep'
	scry_ends 143 objects -- "$RUBY" -e 'Process.kill(:TERM, $$); sleep'
	scry_ends 127 objects -- "$T/not-there"
	says "not-there"
	echo "not a program" >"$T/plain"
	scry_ends 126 objects -- "$T/plain"
	for how in syscalls "syscalls --exact" stacks locks "patch count getppid"; do
		# shellcheck disable=SC2086
		scry_ends 125 $how -o "$T/no/such/folder.scry" -- true
		# shellcheck disable=SC2086
		scry_ends 1 $how -o "$T/no/such/folder.scry" -p $$
	done
	scry_ends 125 objects -o "$T/no/such/folder.scry" -- "$RUBY" -e 'puts "ran"'
	no grep -q "^ran" "$T/scry.out"
}

@test "-- CMD with no ruby in it: the program runs, scry says that it saw nothing" {
	scry_ends 125 objects -- bash -c 'echo ran; exit 3'
	grep -q "^ran" "$T/scry.out"
	says "no ruby"
}

@test "-- CMD: stdin, stdout and stderr are the program's" {
	echo "through" | "$SCRY" objects -o "$T/o.scry" -- "$RUBY" -e 'puts gets; warn "to stderr"; exit 0' >"$T/out" 2>"$T/err"
	[ "$(cat "$T/out")" = through ]
	grep -q "^to stderr" "$T/err"
}

@test "-o: mode 0600, refuses to overwrite, --force replaces, a symlink is never followed" {
	counted
	umask 0
	scry_ends 0 objects -p "$PID" -d 0.1s -o "$T/a.scry"
	[ "$(stat -c %a "$T/a.scry")" = 600 ]
	sum=$(md5sum "$T/a.scry")
	scry_ends 1 objects -p "$PID" -d 0.1s -o "$T/a.scry"
	says "exists.*--force"
	[ "$(md5sum "$T/a.scry")" = "$sum" ]
	scry_ends 0 objects -p "$PID" -d 0.1s --force -o "$T/a.scry"
	[ "$(md5sum "$T/a.scry")" != "$sum" ]
	[ "$(stat -c %a "$T/a.scry")" = 600 ]
	echo precious >"$T/precious"
	ln -s "$T/precious" "$T/link.scry"
	scry_ends 1 objects -p "$PID" -d 0.1s -o "$T/link.scry"
	scry_ends 1 objects -p "$PID" -d 0.1s --force -o "$T/link.scry"
	[ "$(cat "$T/precious")" = precious ]
	ln -s "$T/nowhere" "$T/dangling.scry"
	scry_ends 1 objects -p "$PID" -d 0.1s -o "$T/dangling.scry"
	[ ! -e "$T/nowhere" ]
	mkdir "$T/folder"
	scry_ends 1 objects -p "$PID" -d 0.1s --force -o "$T/folder"
}

@test "--force: the old file stays when the process is not there" {
	mkdir "$T/out"
	for file in a.scry a.json; do
		echo precious >"$T/out/$file"
		scry_ends 5 objects -p 4194303 --force -o "$T/out/$file"
		scry_ends 5 stacks -p 4194303 --force -o "$T/out/$file"
		[ "$(cat "$T/out/$file")" = precious ]
	done
	scry_ends 5 objects -p 4194303 -o "$T/out/b.scry"
	[ "$(ls -A "$T/out" | tr '\n' ' ')" = "a.json a.scry " ]
}

@test "stdout is data, stderr is talk" {
	counted
	scry_ends 0 objects -p "$PID" -d 0.1s --json
	json_parses "$T/scry.out"
	scry_ends 0 objects -p "$PID" -d 0.1s -o "$T/quiet.scry"
	[ ! -s "$T/scry.out" ]
	scry_ends 0 objects -p "$PID" -d 0.1s -v
	no grep -q "agent mapped" "$T/scry.out"
	no grep -q $'\e' "$T/scry.out" "$T/scry.err"
}

@test "a recording is read by report, info and the events view, as text and as JSON" {
	counted
	scry_ends 0 objects -p "$PID" -d 0.2s -o "$T/plain.scry"
	scry_ends 0 objects --raw -p "$PID" -d 0.05s -o "$T/raw.scry"
	kill -TERM "$PID"
	finish "$PID"
	target busy 2
	scry_ends 0 patch count work_mix -p "$PID" -d 0.1s -o "$T/count.scry"
	ends_right "$PID" busy
	for f in plain raw count; do
		for words in "report" "info" "report --view events"; do
			# shellcheck disable=SC2086
			scry_ends 0 $words "$T/$f.scry"
			[ -s "$T/scry.out" ]
			# shellcheck disable=SC2086
			scry_ends 0 $words --json "$T/$f.scry"
			if [ "$words" = "report --view events" ]; then
				"$RUBY" --disable=gems -rjson -e 'STDIN.each_line { |l| JSON.parse(l) }' <"$T/scry.out" || json_parses "$T/scry.out"
			else
				json_parses "$T/scry.out"
			fi
		done
	done
	scry_ends 0 report "$T/plain.scry"
	grep -q "counted.rb:11" "$T/scry.out"
	scry_ends 0 report "$T/raw.scry"
	grep -q "counted.rb:11" "$T/scry.out"
	scry_ends 0 report "$T/count.scry"
	grep -q work_mix "$T/scry.out"
	for form in txt json folded; do
		scry_ends 0 report "$T/plain.scry" -o "$T/written.$form"
		[ -s "$T/written.$form" ]
	done
	json_parses "$T/written.json"
	grep -qE "^[^ ]*counted.rb:11:[^ ;]*;\[[^]]*\] [0-9]+$" "$T/written.folded"
	scry_ends 1 report --folded "$T/count.scry"
	scry_ends 0 diff "$T/plain.scry" "$T/raw.scry"
	grep -q "counted.rb:11" "$T/scry.out"
	scry_ends 0 diff "$T/plain.scry" "$T/raw.scry" --json
	json_parses "$T/scry.out"
	scry_ends 0 diff "$T/plain.scry" "$T/plain.scry"
	grep -q "nothing has changed" "$T/scry.out"
	scry_ends 1 diff "$T/plain.scry" --from 5m
	says "plain.scry.*no slices.*--every"
	scry_ends 1 diff "$T/plain.scry" "$T/count.scry"
	says "count.scry.*a recording of 'count', and only objects, malloc, system calls, the GVL and stacks are compared"
	scry_ends 1 diff "$T/plain.scry" "$T/missing.scry"
	says "missing.scry"
	echo "no recording" >"$T/no.scry"
	scry_ends 1 report "$T/no.scry"
	scry_ends 1 info "$T/missing.scry"
	says "missing.scry"
}

has_taken_int() { # PID
	grep -qE "^ShdPnd:	[0-9a-f]{15}[014589cd]$" "/proc/$1/status"
}

@test "first ^C: restored and reported; second: the front leaves at once, the keeper undoes" {
	target busy 2
	busy=$PID
	before=$(state_of "$busy")
	# An interactive shell's child: a background one would ignore SIGINT.
	start scry "$RUBY" -e 'trap(:INT, "DEFAULT"); exec(*ARGV)' "$SCRY" patch count work_mix -p "$busy"
	scry=$PID
	wait_for 10 hooked "$busy"
	kill -INT "$scry"
	ended "$scry"
	[ "$status" -eq 0 ]
	grep -q work_mix "$T/scry.out"
	as_before "$busy" "$before" "after ^C"

	start scry "$RUBY" -e 'trap(:INT, "DEFAULT"); exec(*ARGV)' "$SCRY" patch count work_mix -p "$busy"
	scry=$PID
	wait_for 10 hooked "$busy"
	keeper=$(keeper_of "$scry")
	HELD=$keeper
	kill -STOP "$keeper" # it cannot answer the first
	kill -INT "$scry"
	wait_for 10 has_taken_int "$scry" # two that come at once are one
	kill -INT "$scry"
	ended "$scry"
	[ "$status" -eq 130 ]
	kill -CONT "$keeper"
	wait_for 4 is_gone "$keeper"
	as_before "$busy" "$before" "after the second ^C"
	ends_right "$busy" busy
}

@test "SIGTERM and SIGHUP end a watch like ^C" {
	target busy 2
	busy=$PID
	before=$(state_of "$busy")
	for sig in TERM HUP; do
		start scry env --default-signal=HUP "$SCRY" patch count work_mix -p "$busy" # the tests may run under nohup
		scry=$PID
		wait_for 10 hooked "$busy"
		kill "-$sig" "$scry"
		ended "$scry"
		[ "$status" -eq 0 ]
		grep -q work_mix "$T/scry.out"
		as_before "$busy" "$before" "after SIG$sig"
	done
	ends_right "$busy" busy
}

# signals_of COMMAND...: which signals it finds ignored and blocked, where we ignore and block some.
signals_of() {
	(trap '' PIPE HUP INT TERM USR2 && env --block-signal=USR1 "$@" </dev/null 2>"$T/err") | grep -a '^Sig[BI]'
}

@test "a program that is started has the signals ignored and blocked that scry was started with" {
	native=(grep -E '^Sig(Blk|Ign)' /proc/self/status)
	ruby=("$RUBY" --disable=gems -e 'puts File.readlines("/proc/self/status").grep(/Sig(Blk|Ign)/)')
	signals_of "${native[@]}" >"$T/native"
	signals_of "${ruby[@]}" >"$T/ruby"
	in_file "SigBlk:.*2..$" "$T/native"
	in_file "SigIgn:.*5803$" "$T/native"
	for words in "native malloc record" "native calls" "native patch count strlen" "native syscalls" "ruby objects" "ruby gvl" "ruby stacks"; do
		read -r program words <<<"$words"
		[ "$words" != syscalls ] || [ "$(id -u)" -eq 0 ] || continue # eBPF
		[ "$program" = native ] && command=("${native[@]}") || command=("${ruby[@]}")
		# shellcheck disable=SC2086
		signals_of "$SCRY" $words -q -o "$T/x.scry" --force -- "${command[@]}" >"$T/out" || true
		echo "scry $words: $(cat "$T/out" "$T/err")"
		cmp "$T/out" "$T/$program"
	done
}

@test "under nohup SIGHUP ends no watch" {
	target busy 2
	busy=$PID
	start scry env --ignore-signal=HUP "$SCRY" patch count work_mix -p "$busy"
	scry=$PID
	wait_for 10 hooked "$busy"
	grep -q "^SigIgn:.*[13579bdf]$" "/proc/$scry/status"
	kill -HUP "$scry"
	kill -TERM "$scry"
	ended "$scry"
	[ "$status" -eq 0 ]
	grep -q work_mix "$T/scry.out"
	ends_right "$busy" busy
}

@test "the reader of a pipe goes away: the target is restored" {
	target busy 2
	before=$(state_of "$PID")
	"$SCRY" patch count -q work_mix -p "$PID" -d 0.3s 2>"$T/err" | true
	[ ! -s "$T/err" ]
	as_before "$PID" "$before" "after a broken pipe"
	ends_right "$PID" busy
}

@test "two editors of one target: the second is refused, the first is named and not disturbed" {
	target busy 2
	busy=$PID
	before=$(state_of "$busy")
	start first "$SCRY" patch count work_mix -p "$busy" -d 20s
	first=$PID
	wait_for 10 hooked "$busy"
	keeper=$(keeper_of "$first")
	for words in "patch count work_fold -p $busy -d 0.1s" "undo -p $busy"; do
		# shellcheck disable=SC2086
		scry_ends 1 $words
		says "$keeper"
		says "scry count"
	done
	hooked "$busy"
	kill -INT "$first"
	ended "$first"
	[ "$status" -eq 0 ]
	as_before "$busy" "$before" "after the first"
	# Many at once: one wins, the others are refused, nothing is left.
	for i in 1 2 3 4 5; do
		start "many$i" "$SCRY" patch count work_mix -p "$busy" -d 0.5s
		many="$many $PID"
	done
	won=0
	for pid in $many; do
		ended "$pid"
		[ "$status" -le 1 ] || { cat "$T"/many*.err; false; }
		[ "$status" -ne 0 ] || won=$((won + 1))
	done
	[ "$won" -ge 1 ]
	as_before "$busy" "$before" "after many"
	ends_right "$busy" busy
}

@test "ps: what runs, who watches, what was left, as text and as JSON" {
	counted
	ruby=$PID
	scry_ends 0 ps --json
	json_is "$T/scry.out" 'r["schema"] == "scry.ps/1"'
	json_is "$T/scry.out" "rows.any? { |x| x['pid'] == $ruby && x['ruby'].include?('ruby') && x['owner_pid'] == 0 && x['agent_bytes'] == 0 }"
	json_is "$T/scry.out" 'rows.none? { |x| x["command"] =~ /scry/ }'
	start first "$SCRY" objects -p "$ruby"
	first=$PID
	wait_for 10 watched "$ruby"
	keeper=$(keeper_of "$first")
	scry_ends 0 ps --json
	json_is "$T/scry.out" "rows.any? { |x| x['pid'] == $ruby && x['owner_pid'] == $keeper && x['agent_bytes'] > 0 }"
	json_is "$T/scry.out" 'rows.none? { |x| x["command"] =~ /scry/ }'
	kill -INT "$first"
	ended "$first"
	[ "$status" -eq 0 ]
}

@test "doctor says what works, and about a process" {
	status=0
	"$SCRY" doctor >"$T/out" 2>"$T/err" || status=$?
	[ "$status" -le 1 ]
	grep -qE "^(ok|NO) " "$T/out"
	[ "$(id -u)" -ne 0 ] || [ "$status" -eq 0 ] || ! grep -q "^NO" "$T/out"
	"$SCRY" doctor --json >"$T/o.json" || true
	json_is "$T/o.json" "r['schema'] == 'scry.doctor/1' && rows.size == $(wc -l <"$T/out") && rows.none? { |x| x['is_ok'] && (x['is_problem'] || x['fix']) }"
	counted
	scry_ends 0 doctor -p "$PID"
	grep -q "may be entered" "$T/scry.out"
	grep -qE "^ok +stacks: self-check .* 0 unreadable; [1-9][0-9]* frames, all named" "$T/scry.out"
	for row in "engine +(bpf|read): " "names +(probe|read): "; do
		grep -qE "^(ok|--) +stacks: $row" "$T/out"
		grep -qE "^(ok|--) +stacks: $row" "$T/scry.out"
	done
	target busy 2
	kill -STOP "$PID"
	wait_for 10 grep -q "^State:.*T" "/proc/$PID/status"
	scry_ends 1 doctor -p "$PID"
	grep -q "^NO.*kill -CONT" "$T/scry.out"
	kill -CONT "$PID"
	ends_right "$PID" busy
}

@test "a dry run changes nothing" {
	target busy 2
	before=$(state_of "$PID")
	scry_ends 0 patch count busy_six work_mix -p "$PID" --dry-run
	grep -q "nothing was touched" "$T/scry.out"
	as_before "$PID" "$before" "after a dry run"
	ends_right "$PID" busy
}

# The suite is run in clones that are called scry, too: none of the clone's own files is taken for a mapping of scry's.
@test "the tests: a program that lies in a folder called scry has no mapping of scry's" {
	mkdir "$T/scry"
	cp "$TARGETS/target_gotable" "$T/scry/scry" # needs no input
	start inscry "$T/scry/scry"
	wait_for 10 grep -q "$T/scry/scry" "/proc/$PID/maps"
	[ "$(mappings "$PID")" -eq 0 ]
}

@test "an ending that nothing is known of is refused before anything is done, with those that are" {
	target busy 2
	before=$(state_of "$PID")
	for words in "patch count work_mix -d 0.1s" "patch time work_mix -d 0.1s" "patch log work_mix -d 0.1s" "calls -x work_mix -d 0.1s" \
		"malloc record -d 0.1s" "objects -d 0.1s" "stacks -d 0.1s"; do
		# shellcheck disable=SC2086
		scry_ends 2 $words -p "$PID" -o "$T/x.pprof"
		says "x.pprof': unknown kind of file, '.pprof'; fix: one of x.scry, x.json, x.txt, x.folded, x.html"
	done
	as_before "$PID" "$before" "refused"
	scry_ends 0 patch count work_mix -d 0.1s -p "$PID" -o "$T/x.scry"
	scry_ends 0 patch count work_mix -d 0.1s -p "$PID" -o "$T/plain"
	ends_right "$PID" busy
	scry_ends 2 report "$T/x.scry" -o "$T/x.csv"
	says "x.csv': .*one of x.txt, x.json, x.folded, x.html$"
	scry_ends 2 diff "$T/x.scry" "$T/x.scry" -o "$T/x.html"
	says "one of x.txt, x.json"
	scry_ends 2 malloc replay "$T/x.scry" -o "$T/x.png"
	scry_ends 2 malloc export "$T/x.scry" -o "$T/x.scry2"
	scry_ends 2 malloc import "$T/x.scry" -o "$T/x.txt"
	[ "$(cd "$T" && ls x.*)" = x.scry ]
}

@test "a view refuses the options that it does not have" {
	target busy 2
	scry_ends 0 patch count work_mix -d 0.1s -p "$PID" -o "$T/count.scry"
	scry_ends 0 patch time work_mix -d 0.1s -p "$PID" -o "$T/time.scry"
	scry_ends 0 patch log work_mix -d 0.1s -p "$PID" -o "$T/log.scry"
	scry_ends 0 calls -x work_mix -d 0.1s -p "$PID" -o "$T/calls.scry"
	busy=$PID
	scry_ends 2 calls -c -T -x work_mix -d 0.1s -p "$PID"
	says "the calls-sums view has no -T; fix"
	counted
	scry_ends 0 stacks -d 0.2s -p "$PID" -o "$T/stacks.scry"
	scry_ends 0 objects -d 0.1s -p "$PID" -o "$T/objects.scry"
	scry_ends 1 report "$T/stacks.scry" --by method --live --filter gem=x --sort live
	says "the stacks view has no --live; fix: without, or one of --by, --sort, --top, --grep, --filter, --stacks, --pid, --wall, --cpu, --gvl"
	[ ! -s "$T/scry.out" ]
	scry_ends 1 report "$T/stacks.scry" --by method --filter methd=x
	says "the stacks view has no column 'methd' to filter by; did you mean 'method'"
	scry_ends 1 report "$T/stacks.scry" --by gem --filter file=x
	says "the stacks view has no column 'file' to filter by; fix: --filter gem"
	scry_ends 2 stacks --filter nonsense -d 0.1s -p "$PID"
	says "'nonsense' is not a filter; fix: KEY=GLOB"
	scry_ends 2 stacks --filter class=x -d 0.1s -p "$PID"
	says "the stacks view has no column 'class' to filter by"
	# What rows of this --by have not, before the program begins.
	scry_ends 2 stacks --by gem --filter file=x -- touch "$T/ran"
	says "the stacks view has no column 'file' to filter by; fix: --filter gem"
	scry_ends 2 syscalls --by thread --filter module=x -- touch "$T/ran"
	says "the syscalls view has no column 'module' to filter by"
	[ ! -e "$T/ran" ]
	scry_ends 0 malloc record -o "$T/malloc.scry" -- ls /
	scry_ends 0 report "$T/malloc.scry" --filter "module!=*libc.so*"
	grep -q "left out by --filter" "$T/scry.out"
	scry_ends 1 diff "$T/malloc.scry" "$T/malloc.scry" --filter source_file=x
	says "the malloc_diff view has no column 'source_file' to filter by"
	for view in count time log calls calls-sums events info; do
		recording=${view%-sums}
		[ -e "$T/$recording.scry" ] || recording=count
		for words in "--by file" "--live" "--sort bytes" "--filter class=x" "--internal" "--stacks" "--at end"; do
			# shellcheck disable=SC2086
			scry_ends 1 report "$T/$recording.scry" --view $view $words
			case "$view $words" in
			count\ --sort* | time\ --sort* | calls-sums\ --sort*) says "the $view view has no column 'bytes' to sort by; fix: --sort" ;;
			count\ --filter* | time\ --filter* | calls-sums\ --filter*) says "the $view view has no column 'class' to filter by" ;;
			*) says "the $view view has no ${words%% *}" ;;
			esac
		done
	done
	# of what is not in a recording nobody says that there were 0
	for view in objects time log malloc calls calls-sums stacks; do
		scry_ends 1 report "$T/count.scry" --view $view
		says "view '$view' shows recordings of ${view%-sums}, and this is one of count; fix: --view count, or events"
		[ ! -s "$T/scry.out" ]
	done
	for view in count events info; do scry_ends 0 report "$T/count.scry" --view $view; done
	scry_ends 1 report "$T/count.scry" --view events --top 3
	scry_ends 1 report "$T/objects.scry" --gvl
	scry_ends 1 report "$T/objects.scry" --at peak
	# what they have does something
	scry_ends 1 report "$T/count.scry" --pid 1
	says "process 1 is not in this recording; fix: --pid PID, of $busy "
	[ ! -s "$T/scry.out" ]
	scry_ends 0 report "$T/count.scry" --pid "$busy"
	grep -q work_mix "$T/scry.out"
	ends_right "$busy" busy
}

@test "patch count and time -- CMD: every call, from the first on, and the program's status" {
	for verb in count time; do
		start scry "$SCRY" patch $verb work_mix -o "$T/$verb.json" -- "$TARGETS/target_busy" 1
		wait_for 10 grep -q "^round" "$T/scry.out"
		kill -TERM "$(sed -n 's/^pid //p' "$T/scry.out")"
		ended "$PID"
		[ "$status" -eq 0 ]
		rounds=$(sed -n 's/^checksum .* rounds \([0-9]*\) wrong 0$/\1/p' "$T/scry.out")
		json_is "$T/$verb.json" "rows.size == 1 && rows[0]['calls'] == 33 * $rounds"
		scry_ends 3 patch $verb getppid -- sh -c 'exit 3'
		rm "$T/scry.out"
	done
}

@test "patch log -- CMD: each call from the first on, also of a library that is loaded and loaded again" {
	scry_ends 3 patch log getppid -- sh -c 'exit 3'
	start scry "$SCRY" patch log work_mix -o "$T/log.json" -- "$TARGETS/target_busy" 1
	wait_for 10 grep -q "^round" "$T/scry.out"
	kill -TERM "$(sed -n 's/^pid //p' "$T/scry.out")"
	ended "$PID"
	[ "$status" -eq 0 ]
	rounds=$(sed -n 's/^checksum .* rounds \([0-9]*\) wrong 0$/\1/p' "$T/scry.out")
	[ "$(grep -c '"work_mix"' "$T/log.json")" -eq $((33 * rounds)) ]
	printf '%s\n' "open $TARGETS/libplug.so" "call 3" close "open $TARGETS/libplug.so" "call 5" >"$T/in"
	"$SCRY" patch log plug_run@libplug.so --args 1 -o "$T/plug.json" -- "$TARGETS/target_loader" <"$T/in"
	[ "$(grep -c '"plug_run"' "$T/plug.json")" -eq 2 ]
	grep -q '"is_complete": true' "$T/plug.json"
}

@test "Go code is not counted: at once, and with the reason" {
	start go "$TARGETS/target_gotable"
	wait_for 10 grep -q "^round" "$T/go.out"
	before=$(state_of "$PID")
	for verb in count log; do
		scry_ends 4 patch $verb odd_steps -p "$PID" -d 0.1s
		says "Go code: a function begins anew whenever its goroutine's stack grows"
	done
	scry_ends 4 patch time odd_steps -p "$PID" -d 0.1s
	says "returns cannot be followed .*Go code: .*fix: Go's own pprof, or perf record -p PID"
	scry_ends 0 patch count getppid -p "$PID" -d 0.2s # of libc
	as_before "$PID" "$before" "after refusals"
	ends_right "$PID" go
}

@test "what is refused in a container names the options that give it" {
	need_root "giving rights up"
	need_nobody
	start sleeper setpriv --reuid=65534 --regid=65534 --clear-groups sleep 60
	bare=(setpriv --bounding-set=-sys_ptrace --inh-caps=-sys_ptrace "$SCRY")
	for words in "patch count getppid -d 0.1s" "undo" "stacks -d 0.1s"; do
		status=0
		# shellcheck disable=SC2086
		"${bare[@]}" $words -p "$PID" >"$T/out" 2>"$T/scry.err" || status=$?
		[ "$status" -ne 0 ]
		says "docker run --cap-add SYS_PTRACE, in Kubernetes securityContext.capabilities.add: \[SYS_PTRACE\]"
	done
	export KUBERNETES_SERVICE_HOST=10.0.0.1
	scry_ends 5 patch count getppid -p 4194303 -d 0.1s
	says "no such process: 4194303; a container sees its own only, see scry doctor -p 4194303"
	no says docker
	"$SCRY" doctor -p 4194303 >"$T/scry.err" 2>&1 || true
	says "docker run --pid=container:ID .*shareProcessNamespace: true"
	unset KUBERNETES_SERVICE_HOST
	[ -e /.dockerenv ] || [ -e /run/.containerenv ] || {
		scry_ends 5 patch count getppid -p 4194303 -d 0.1s
		says "no such process: 4194303$"
		no says docker
	}
}

@test "several -p: one that is not there is said, the others are reported, and the status tells" {
	target busy
	scry_ends 5 patch count work_fold -p "$PID" -p 4194303 -d 0.3s --json
	says "no such process: 4194303"
	json_is "$T/scry.out" 'r["rows"].size == 1 && r["rows"][0]["calls"] > 0 && r["notes"].grep(/4194303/).size == 1'
	scry_ends 5 patch count work_fold -p 4194303 -p "$PID" -d 0.3s
	scry_ends 0 patch count work_fold -p "$PID" -p "$PID" -d 0.3s
}

@test "doctor -p of a program without Ruby: no problem, as what looks at any program does without" {
	target busy
	scry_ends 0 doctor -p "$PID"
	grep -qE "^-- +ruby +process $PID .* has no Ruby in it" "$T/scry.out"
	no grep -E "^NO" "$T/scry.out"
}
