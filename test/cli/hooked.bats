#!/usr/bin/env bats
# Programs whose answers are known, while all functions of their libraries are hooked: all at once,
# random subsets, one after the other, on and off while they run. Promised: the same answers, no
# call lost or made twice, the text as before, nothing left.
#
# `make test` takes a share, `make soak` all of it.

load lib

setup() {
	need_targets
	STORM="$BUILD/test/hook_storm"
	[ -x "$STORM" ] || skip "no $STORM: run make first"
	prepare
	RANDOM=4711
}

# storm ARGS...: output in $T/storm; fails, and shows it, unless every change was made and undone and
# nothing is left.
storm() {
	if ! timeout "$(share 200 3600)" "$STORM" "$@" >"$T/storm" 2>"$T/storm.err" 3>&-; then
		echo "hook_storm $*:"
		tail -5 "$T/storm"
		cat "$T/storm.err"
		return 1
	fi
	grep "^functions" "$T/storm"
	grep -qx "left 0" "$T/storm"
}

# stays_or_refused COMMAND...: the storm. Over churn, whose libraries go when they like, one of eight at least must stay;
# the others must have been refused, as a library went between the plan and the changes, or as a word that was left
# somewhere in its memory is an address in one of 15,000 entries, and have left nothing.
stays_or_refused() {
	for _ in 1 2 3 4 5 6 7 8; do
		if "$@" >"$T/tried"; then
			cat "$T/tried"
			return 0
		fi
		[ "$name" = churn ] && grep -qx "left 0" "$T/storm" &&
			grep -qE "cannot (read 0x|be read)|are not those of its file|holds an address within the first" "$T/storm.err" || break
	done
	cat "$T/tried"
	return 1
}

number() { # WORD: what follows it in the storm's last lines
	sed -n "s/.*\b$1 \([0-9]*\).*/\1/p" "$T/storm" | head -1
}

# differ NAME OBJECT...: storms of all three kinds over all objects that the started program NAME has
# loaded at once, and over each OBJECT; then its end. The text is as before but for libraries that come and go.
differ() {
	local name=$1 pid=$PID object before mapped one way=""
	[ "$name" != churn ] || way="-w entry" # slots of libraries that come and go are not entries' affair
	shift
	wait_for 20 in_file "^round" "$T/$name.out"
	mapped=$(mappings "$pid") # php compiles patterns to code
	[ "$name" = churn ] || before=$(text "$pid") # its libraries come and go
	for object in / "$@"; do # all of their paths have a slash
		if ! grep -q "$object" "/proc/$pid/maps"; then
			echo "# $name has no $object" >&3
			continue
		fi
		one=$(share 6 0) # 0: each function for itself
		[ "$object" != / ] || one=6
		# shellcheck disable=SC2086
		stays_or_refused storm -a -n "$(share 2 100)" -x "$(share 3 200)" -o "$one" -t 1000 -s "$RANDOM" $way "$pid" "$object" || return 1
		[ "$(number refused)" -lt $(($(number functions) / 20 + 5)) ]
		goes_on "$T/$name.out"
	done
	[ "$name" = churn ] || text_is "$pid" "$before"
	[ "$(mappings "$pid")" -eq "$mapped" ]
	ends_right "$pid" "$name"
	tail -1 "$T/$name.out"
}

@test "libc, libcrypto, libm, the loader: memory, files, forks, signals, jumps, threads, ciphers" {
	target churn
	differ churn libc.so.6 libcrypto ld-linux libm.so.6 target_churn
}

@test "the same while it starts programs" {
	target churn -s
	differ churn libc.so.6
}

@test "libstdc++ and the unwinder: exceptions in eight threads" {
	[ -x "$TARGETS/target_throws" ] || skip "no C++ compiler (Debian: g++)"
	target throws
	differ throws libstdc++ libgcc_s target_throws libc.so.6
}

@test "ruby: digests, ciphers, signatures, exceptions, fibers, GC.stress" {
	"$RUBY" -ropenssl -e '' 2>/dev/null || skip "no openssl in $RUBY"
	start ruby "$RUBY" "$ROOT/test/targets/hooked.rb"
	differ ruby libruby libcrypto libc.so.6 libgmp
}

@test "python: the interpreter and its libraries" {
	[ -x /usr/bin/python3 ] || skip "no /usr/bin/python3 (Debian: python3)"
	start python /usr/bin/python3 "$ROOT/test/targets/hooked.py"
	differ python bin/python3 libcrypto libz
}

@test "perl: the interpreter and its libraries" {
	[ -x /usr/bin/perl ] && /usr/bin/perl -MDigest::SHA -MTime::HiRes -e1 || skip "no /usr/bin/perl (Debian: perl)"
	start perl /usr/bin/perl "$ROOT/test/targets/hooked.pl"
	differ perl bin/perl libc.so.6 SHA.so
}

@test "php: the interpreter" {
	command -v php >/dev/null || skip "no php (Debian: php-cli)"
	cat >"$T/work.php" <<'PHP'
<?php
function everything() {
	$a = range(1, 200);
	usort($a, fn($x, $y) => ($x * 7919 % 1009) <=> ($y * 7919 % 1009));
	try { intdiv(1, 0); } catch (DivisionByZeroError $e) { $a[] = $e->getMessage(); }
	return json_encode([hash("sha256", "abc"), md5("x"), $a, preg_replace("/b+/", "-", "abba"), sprintf("%08.3f", 3.14159)]);
}
$want = everything();
$stop = false; $rounds = $wrong = 0; $last = microtime(true);
pcntl_async_signals(true);
pcntl_signal(SIGTERM, function () use (&$stop) { $stop = true; });
while (!$stop) {
	$wrong += everything() !== $want;
	$rounds++;
	if (microtime(true) - $last > 0.1) { echo "round $rounds\n"; $last = microtime(true); }
}
echo "rounds $rounds wrong $wrong\n";
PHP
	php -m | grep -q pcntl || skip "php has no pcntl"
	start php php "$T/work.php"
	differ php bin/php
}

@test "the functions of a busy program, by their entries and by its slots" {
	target busy 8
	storm -n "$(share 30 2000)" -t 500 "$PID" "busy_*" "work_*"
	storm -n "$(share 30 2000)" -t 500 -w got "$PID" work_fold work_mix
	ends_right "$PID" busy
}

@test "a thousand functions, called all the time by many threads and by handlers of 15,000 signals a second" {
	target thousand "$(share 16 64)" 0 10000
	before=$(state_of "$PID")
	storm -n "$(share 40 500)" -t 0 "$PID" "fn_*@target_thousand"
	[ "$(number functions)" -eq 1000 ]
	[ "$(number refused)" -eq 0 ]
	[ "$(number writes)" -eq $(($(share 40 500) * 2000)) ]
	# Threads stood in windows, and were moved; calls equal runs, or the program ends with 1.
	[ "$(number moved)" -gt 0 ]
	as_before "$PID" "$before" "after the storm"
	ends_right "$PID" thousand
	grep -E "^calls [0-9]+ runs [0-9]+ handler [1-9]" "$T/thousand.out"
}

@test "one thread under 30,000 signals a second, their frames on two stacks: all are found" {
	target thousand 1 0 20000
	storm -n "$(share 80 3000)" -t 0 "$PID" "fn_*@target_thousand"
	[ "$(number moved)" -gt 0 ]
	ends_right "$PID" thousand
}

# Each function is called by each thread ROUNDS times, and the first ten by the handlers.
@test "counts are exact: threads times rounds, and the calls of signal handlers" {
	rounds=200 threads=8
	target thousand $threads $rounds 5000
	timeout 60 "$STORM" -c -t 30000000 "$PID" "fn_*@target_thousand" >"$T/counts" 2>&1 3>&- &
	storm=$!
	HELD=$storm
	wait_for 20 hooked_by_storm
	kill -USR1 "$PID"
	wait_for 40 in_file "^done" "$T/thousand.out"
	kill -TERM "$storm"
	# a frame of a handler within a handler may be left on an alternate stack: then the memory stays
	wait "$storm" || in_file "^left [1-9]" "$T/counts"
	HELD=""
	handled=$(sed -n 's/^done handler //p' "$T/thousand.out")
	[ "$handled" -gt 0 ]
	[ "$(grep -c "^calls $((threads * rounds)) fn_" "$T/counts")" -eq 990 ]
	[ "$(grep -c "^calls $((threads * rounds + handled / 10)) fn_0_[0-9]$" "$T/counts")" -eq 10 ]
	ends_right "$PID" thousand
}

hooked_by_storm() {
	[ "$("$SCRY" patch list -p "$PID" | grep -c applied)" -eq 1000 ]
}

changed() { # are there changes in it?
	[ "$(text "$PID")" != "$(head -1 <<<"$before")" ]
}

@test "SIGKILL at random moments while a thousand entries change: undo puts all back" {
	target thousand 4 0 5000
	before=$(state_of "$PID") stood=0
	for i in $(seq "$(share 20 200)"); do
		"$STORM" -n 100000 -t $((RANDOM % 3000)) "$PID" "fn_*@target_thousand" >"$T/storm" 2>&1 3>&- &
		killed=$!
		sleep "0.$((RANDOM % 2))$((RANDOM % 10))$((RANDOM % 10))"
		[ "$i" -gt 1 ] || wait_for 20 changed # once at least, on the slowest machine
		kill -KILL "$killed"
		wait "$killed" || true
		! changed || stood=$((stood + 1))
		undo "$PID"
		as_before "$PID" "$before" "after a kill"
	done
	echo "killed with changes standing: $stood"
	[ "$stood" -gt 0 ]
	ends_right "$PID" thousand
}

@test "the front and the keeper killed at any syscall while a thousand entries change" {
	target thousand 4
	state=$(state_of "$PID")
	points=$(share 10 100)
	total=$("$TARGETS/killer" both 0 -- "$SCRY" patch count "fn_*@target_thousand" -p "$PID" -d 0.02s 2>&1 >/dev/null 3>&- |
		sed -n 's/^killer: stops //p')
	[ "$total" -gt 200 ]
	for ((i = 0; i < points; i++)); do
		"$TARGETS/killer" both $((1 + i * (total - 1) / points)) -- \
			"$SCRY" patch count "fn_*@target_thousand" -p "$PID" -d 0.02s >"$T/killed" 2>"$T/killer.err" 3>&- || true
		undo "$PID"
		as_before "$PID" "$state" "$(grep 'killed at' "$T/killer.err")"
	done
	ends_right "$PID" thousand
}

# Their frames lie on stacks that nobody stands on, most within the bytes that a hook replaces.
@test "user-level threads that a timer switches: hooked where they were interrupted, no result is wrong" {
	calls=0
	for how in green greener; do
		for _ in 1 2 3 4; do
			start hides "$TARGETS/target_hides" $how
			wait_for 20 in_file "^pid" "$T/hides.out"
			text_before=$(text "$PID")
			for _ in 1 2; do
				scry_ends 0 patch count --json -o "$T/c.json" --force step@target_hides -d 0.2 -p "$PID" --max-pause 2s
				calls=$((calls + $(json "$T/c.json" 'rows.sum { |x| x["calls"] }')))
			done
			wait_for 5 text_is "$PID" "$text_before"
			kill "$PID"
			ended "$PID"
			[ "$status" -eq 0 ]
			rm "$T/hides.out"
		done
	done
	[ "$calls" -gt 1000 ]
}
