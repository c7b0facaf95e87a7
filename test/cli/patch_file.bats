#!/usr/bin/env bats
# Patches of a user's (include/scry/patch.h): the examples of doc/patches on a live server and a Ruby, and objects that
# are refused.

load lib

setup() {
	need_targets
	prepare
	STORM="$BUILD/test/patch_storm"
}

# server: the server with a defect, its pid in $PID, its port in $PORT.
server() {
	start server "$TARGETS/target_server"
	wait_for 10 in_file "^pid .* port" "$T/server.out"
	PORT=$(sed -n 's/.* port //p' "$T/server.out")
}

asks() { # NUMBER: over the one connection that is open
	echo "$1" >&7
	IFS= read -r answer <&7
	echo "$answer"
}

compiles() { # NAME ARGS...: $T/NAME.c
	cc -I"$ROOT/include" -shared -fPIC -O1 -nostartfiles -o "$T/$1.so" "$T/$1.c" "${@:2}"
}

@test "a defect in a library of a live server is mended, and no connection is lost" {
	server
	before=$(state_of "$PID")
	exec 7<>"/dev/tcp/127.0.0.1/$PORT"
	[ "$(asks 3)" = "value 13" ]
	[ "$(asks 4)" = "value 999" ]
	scry_ends 0 patch apply "$TARGETS/patch_bounds.so" -p "$PID" --dry-run
	in_file "replace  table_get@libfaulty.so of .*libfaulty.so, 5 bytes" "$T/scry.out"
	[ "$(asks 4)" = "value 999" ]
	scry_ends 0 patch apply "$TARGETS/patch_bounds.so" -p "$PID" --max-pause 2s
	[ "$(asks 3)" = "value 13" ]
	[ "$(asks 4)" = "error" ]
	[ "$(asks 77)" = "error" ]
	"$SCRY" patch list -p "$PID" >"$T/list"
	in_file "patch 'patch_bounds' applied" "$T/list"
	in_file "refused      2$" "$T/list"
	scry_ends 1 patch apply "$TARGETS/patch_bounds.so" -p "$PID"
	says "has a patch 'patch_bounds' already"
	scry_ends 0 patch undo patch_bounds -p "$PID" --max-pause 2s
	in_file "its memory is unmapped" "$T/scry.out"
	[ "$(asks 4)" = "value 999" ]
	exec 7>&-
	as_before "$PID" "$before" "after the undo" || [ "$(state_of "$PID" | grep -v ^threads)" = "$(grep -v ^threads <<<"$before")" ]
	kill "$PID"
}

@test "put in and taken out under load: no answer is wrong" {
	server
	text_before=$(text "$PID")
	cat >"$T/load.rb" <<'RUBY'
require "socket"
port, seconds = ARGV.map(&:to_i)
stop = Process.clock_gettime(Process::CLOCK_MONOTONIC) + seconds
wrong = 0
total = 4.times.map do
  Thread.new do
    s = TCPSocket.new("127.0.0.1", port)
    n = 0
    while Process.clock_gettime(Process::CLOCK_MONOTONIC) < stop
      i = n % 6
      s.puts(i)
      got = s.gets
      good = i < 4 ? ["value #{10 + i}\n"] : i == 4 ? ["value 999\n", "error\n"] : ["error\n"]
      wrong += 1 unless good.include?(got)
      n += 1
    end
    n
  end
end.sum(&:value)
puts "asked #{total} wrong #{wrong}"
RUBY
	start load "$RUBY" "$T/load.rb" "$PORT" 6
	LOAD=$PID
	SERVER=$(sed -n 's/^pid \([0-9]*\) .*/\1/p' "$T/server.out")
	"$STORM" -n "$(share 40 400)" -o "$TARGETS/patch_bounds.so" "$SERVER" >"$T/storm" 2>&1 || { cat "$T/storm"; false; }
	finish "$LOAD"
	grep -q "^asked [1-9][0-9]* wrong 0$" "$T/load.out" || { cat "$T/load.out"; false; }
	wait_for 5 text_is "$SERVER" "$text_before"
	kill "$SERVER"
}

@test "what a Ruby's C code raises is logged, line by line" {
	cat >"$T/raises.rb" <<'RUBY'
$stdout.sync = true
puts "pid #{$$}"
gets
200.times do
  begin; 1 / 0; rescue ZeroDivisionError; end
  begin; [1].fetch(9); rescue IndexError; end
end
puts "raised"
gets
puts [1.5, "x", :y].inspect
RUBY
	listens raises "$RUBY" "$T/raises.rb"
	scry_ends 0 patch apply "$TARGETS/patch_raise.so" -p "$PID" --max-pause 2s
	echo >&8
	wait_for 20 in_file "^raised" "$T/raises.out"
	scry_ends 0 patch read patch_raise -p "$PID" -d 100ms
	[ "$(grep -c "^ZeroDivisionError at .*raises.rb:5$" "$T/scry.out")" -eq 200 ]
	[ "$(grep -c "^IndexError at .*raises.rb:6$" "$T/scry.out")" -eq 200 ]
	[ "$(wc -l <"$T/scry.out")" -eq 400 ]
	"$SCRY" patch list -p "$PID" | grep -q "raised       400 lines logged"
	scry_ends 0 patch undo patch_raise -p "$PID" --max-pause 2s
	echo >&8
	exec 8>&-
	ended "$PID"
	[ "$status" -eq 0 ]
	grep -qF '[1.5, "x", :y]' "$T/raises.out"
}

# refused WORDS: $T/it.so, with a sentence that has the words; the program is as before.
refused() {
	scry_ends 4 patch apply "$T/it.so" -p "$PID"
	says "$1"
	as_before "$PID" "$before" "$1"
}

@test "refused: what cannot be bound, or would run by itself" {
	server
	before=$(state_of "$PID")
	head='#include <scry/patch.h>
static int mine(unsigned i, int *r);'
	hook='SCRY_REPLACE(table_get, mine)'
	body='static int mine(unsigned i, int *r) { return SCRY_ORIGINAL(table_get)(i, r); }'
	it() { printf '%s\n' "$head" "$@" >"$T/it.c"; compiles it; }
	it 'static volatile int v; __attribute__((constructor)) static void c(void) { v = 1; }' "$hook" "$body" && refused "constructors or destructors"
	it '_Thread_local int t; int *u(void); int *u(void) { return &t; }' "$hook" "$body" && refused "thread-local"
	it 'extern void *stderr; void *u(void); void *u(void) { return stderr; }' "$hook" "$body" && refused "imports 'stderr', which is data"
	it 'extern void nowhere(void); void u(void); void u(void) { nowhere(); }' "$hook" "$body" && refused "calls nowhere, which nothing"
	it 'static int n(unsigned, int *); SCRY_REPLACE(no_such_function, n) static int n(unsigned i, int *r) { return 0; }' "$hook" "$body" &&
		refused "changes no_such_function, which process"
	seen='static void seen(struct scry_patch_call *c) {}'
	it "$seen" 'SCRY_BEFORE_IN(table_get, "libfaulty.so", seen)' && refused "a library's name begins with '@'; fix: .@libc.so.6"
	it "$seen" 'SCRY_BEFORE_IN(table_get, "@libnot.so", seen)' && refused "has loaded no object 'libnot.so'"
	it 'int v = 1; int u(void); int u(void) { return v; }' && refused "no section 'scry_patch'"
	printf '%s\n' "$head" "$hook" "$body" >"$T/it.c"
	compiles it -Wl,-z,execstack && refused "executable stack"
	if compiles it -Wl,-z,pack-relative-relocs && readelf -d "$T/it.so" | grep -q RELR; then
		refused "packed relocations .DT_RELR.*nopack-relative-relocs"
	fi
	head -c 700 "$T/it.so" >"$T/cut.so" && mv "$T/cut.so" "$T/it.so" && refused "."
	echo text >"$T/it.so" && refused "is not a shared object"
	rm -f "$T/it.so" && mkfifo "$T/it.so" && refused "is not a file"
	kill "$PID"
}

@test "counters and changes are listed in the order of the source" {
	printf '%s\n' '#include <scry/patch.h>' 'SCRY_COUNTER(first)' 'SCRY_COUNTER(second)' \
		'static void seen(struct scry_patch_call *c) { scry_count(first); }' 'SCRY_BEFORE(table_get, seen)' \
		'SCRY_COUNTER(third)' >"$T/it.c"
	cc -I"$ROOT/include" -std=c11 -pedantic -Werror -Wall -shared -fPIC -O2 -nostartfiles -o "$T/it.so" "$T/it.c"
	server
	scry_ends 0 patch apply "$T/it.so" -p "$PID" --max-pause 2s
	"$SCRY" patch list -p "$PID" >"$T/list"
	[ "$(grep -oE '^  (first|second|third)' "$T/list" | xargs)" = "first second third" ]
	kill "$PID"
}

@test "a program that can throw: only with --no-exceptions" {
	printf '%s\n' '#include <scry/patch.h>' 'static int mine(int c); SCRY_REPLACE_IN(toupper, "@libc.so.6", mine)' \
		'static int mine(int c) { return SCRY_ORIGINAL(toupper)(c); }' >"$T/it.c"
	compiles it
	start throws "$TARGETS/target_throws" 1000000
	sleep 0.2
	scry_ends 4 patch apply "$T/it.so" -p "$PID"
	says "no-exceptions"
	scry_ends 0 patch apply "$T/it.so" -p "$PID" --no-exceptions --max-pause 2s
	scry_ends 0 patch undo it -p "$PID" --max-pause 2s
	kill "$PID"
}

@test "a program that cancels threads: only with --no-exceptions, or SCRY_BEFORE" {
	cat >"$T/cancels.c" <<'C'
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static int ends[2];

static void *reads(void *file)
{
	char line[80];

	return fgets(line, sizeof line, file);
}

int main(void)
{
	char line[80];
	pthread_t thread;
	FILE *file;

	if (pipe(ends) < 0)
		return 2;
	file = fdopen(ends[0], "r");
	printf("pid %d\n", getpid());
	fflush(stdout);
	fgets(line, sizeof line, stdin);
	pthread_create(&thread, NULL, reads, file);
	pthread_cancel(thread);
	pthread_join(thread, NULL);
	dprintf(ends[1], "a line\n");
	fgets(line, sizeof line, file); /* waits for ever if the lock stays taken */
	printf("read %s", line);
	return 0;
}
C
	cc -O1 -o "$T/cancels" "$T/cancels.c"
	handlers='static void in(struct scry_patch_call *c, uint64_t k[4]) {}
static void out(struct scry_patch_return *r, uint64_t k[4]) {}
static void seen(struct scry_patch_call *c) {}'
	printf '%s\n' '#include <scry/patch.h>' "$handlers" 'SCRY_WRAP_IN(read, "@libc.so.6", in, out)' >"$T/it.c"
	printf '%s\n' '#include <scry/patch.h>' "$handlers" 'SCRY_BEFORE_IN(read, "@libc.so.6", seen)' >"$T/before.c"
	compiles it
	compiles before
	listens cancels "$T/cancels"
	scry_ends 4 patch apply "$T/it.so" -p "$PID"
	says "cancels calls pthread_cancel.*--no-exceptions"
	scry_ends 0 patch apply "$T/it.so" -p "$PID" --dry-run --no-exceptions
	scry_ends 0 patch apply "$T/before.so" -p "$PID" --max-pause 2s
	echo >&8
	ended "$PID"
	in_file "^read a line$" "$T/cancels.out"
}

@test "a function that is called within its own object: kept registers, or refused" {
	body='extern int snprintf(char *, size_t, const char *, ...);
static long mine(long a, long b);
SCRY_COUNTER(calls)'
	last='static long mine(long a, long b)
{
	char t[64];
	scry_count(calls);
	snprintf(t, sizeof t, "%ld %f", a, (double)b);
	return SCRY_ORIGINAL(plain_step)(a, b);
}'
	printf '%s\n' '#include <scry/patch.h>' "$body" 'SCRY_REPLACE(plain_step, mine)' "$last" >"$T/it.c"
	compiles it
	printf '%s\n' '#include <scry/patch.h>' "$body" 'SCRY_AROUND(plain_step, mine)' "$last" >"$T/around.c"
	compiles around
	start counts_on "$TARGETS/target_counts_on"
	wait_for 10 in_file "^pid" "$T/counts_on.out"
	text_before=$(text "$PID")
	scry_ends 4 patch apply "$T/it.so" -p "$PID"
	says "called within its own object"
	scry_ends 0 patch apply "$T/around.so" -p "$PID" --max-pause 2s
	in_file "around   plain_step" "$T/scry.out"
	called() { "$SCRY" patch list -p "$PID" | grep -q "calls        [1-9][0-9][0-9][0-9]"; }
	wait_for 20 called
	scry_ends 0 patch undo around -p "$PID" --max-pause 2s
	wait_for 5 text_is "$PID" "$text_before"
	kill "$PID"
	ended "$PID"
	[ "$status" -eq 0 ]
	in_file "^right" "$T/counts_on.out"
}

@test "the undo asks nobody for memory that is not there" {
	for how in served sparse; do
		start lazy "$TARGETS/target_lazy" "$how"
		wait_for 10 grep -qE "^(pid|none)" "$T/lazy.out"
		if grep "^none" "$T/lazy.out"; then
			skip "$(cat "$T/lazy.out")"
		fi
		scry_ends 0 patch apply "$TARGETS/patch_bounds.so" -p "$PID" --max-pause 2s
		timeout 60 "$SCRY" patch undo patch_bounds -p "$PID" --max-pause 2s >"$T/undo"
		in_file "its memory is unmapped" "$T/undo"
		kill "$PID"
	done
}

@test "a handler of signals keeps a patch mapped" {
	printf '%s\n' '#include <scry/patch.h>' 'extern void *signal(int, void (*)(int));' 'SCRY_COUNTER(signals)' \
		'static void handler(int n) { scry_count(signals); }' \
		'static void seen(struct scry_patch_call *c) { static int is; if (!is) { is = 1; signal(12, handler); } }' \
		'SCRY_BEFORE(table_get, seen)' >"$T/it.c"
	compiles it
	server
	scry_ends 0 patch apply "$T/it.so" -p "$PID" --max-pause 2s
	exec 7<>"/dev/tcp/127.0.0.1/$PORT"
	[ "$(asks 3)" = "value 13" ]
	scry_ends 0 patch undo it -p "$PID" --max-pause 2s
	in_file "stay mapped, without effect, as a thread, a stack or data still leads there" "$T/scry.out"
	kill -USR2 "$PID"
	[ "$(asks 2)" = "value 12" ]
	exec 7>&-
	kill "$PID"
}

@test "killed at any system call" {
	server
	text_before=$(text "$PID")
	total=$("$TARGETS/killer" keeper 0 -- "$STORM" -f -o "$TARGETS/patch_bounds.so" "$PID" 2>&1 >/dev/null 3>&- |
		sed -n 's/^killer: stops //p')
	[ "$total" -gt 100 ]
	points=$(share 16 100000)
	killed=0
	bad=0
	for ((i = 0; i < points && bad < 3; i++)); do
		n=$((1 + i * (total - 1) / points))
		"$TARGETS/killer" keeper "$n" -- "$STORM" -f -o "$TARGETS/patch_bounds.so" "$PID" >/dev/null 2>"$T/killer.err" 3>&- || true
		grep -q "killed at" "$T/killer.err" && killed=$((killed + 1))
		exec 7<>"/dev/tcp/127.0.0.1/$PORT"
		[ "$(asks 2)" = "value 12" ]
		exec 7>&-
		if "$SCRY" patch list -p "$PID" | grep -q "patch 'patch_bounds'"; then
			scry_ends 0 patch undo patch_bounds -p "$PID" --max-pause 2s
		fi
		undo "$PID"
		wait_for 5 text_is "$PID" "$text_before" || bad=$((bad + 1))
		[ "$("$SCRY" patch list -p "$PID" | grep -c "nothing to undo")" -eq 1 ] || bad=$((bad + 1))
	done
	echo "$killed of $points points of $total stops, $bad bad"
	[ "$bad" -eq 0 ] && [ "$killed" -gt $((points / 2)) ]
	kill "$PID"
}

# What follows all functions of target_wrapped: of `plain` it checks the results that it sees, by what it kept.
wraps_all() {
	{
		echo '#include <scry/patch.h>
SCRY_COUNTER(seen)
SCRY_COUNTER(returned)
SCRY_COUNTER(unknown)
SCRY_COUNTER(odd)
static void in(struct scry_patch_call *c, uint64_t kept[4])
{
	scry_count(seen);
	kept[0] = c->arguments[0];
	kept[1] = c->arguments[1];
	kept[2] = scry_patch_call_stack(c)[1];
	kept[3] = 77;
}
static void check(struct scry_patch_return *r, const uint64_t kept[4], uint64_t result)
{
	scry_count(returned);
	if (!r->is_known)
		scry_count(unknown);
	else if (kept[3] != 77 || r->rax != result)
		scry_count(odd);
}
static void out_plain(struct scry_patch_return *r, uint64_t k[4]) { check(r, k, 3 * k[0] + k[1]); }
static void out_large(struct scry_patch_return *r, uint64_t k[4]) { check(r, k, k[0]); }
static void out_deep(struct scry_patch_return *r, uint64_t k[4]) { check(r, k, k[0] * (k[0] + 1) / 2); }
static void out_ends(struct scry_patch_return *r, uint64_t k[4]) { check(r, k, 5 * k[0]); }
static void out_jumps(struct scry_patch_return *r, uint64_t k[4]) { check(r, k, 5 * (k[0] + 1)); }
static void out_both(struct scry_patch_return *r, uint64_t k[4]) { check(r, k, r->rdx == k[0] + 2 ? k[0] + 1 : r->rax + 1); }
static void out_real(struct scry_patch_return *r, uint64_t k[4]) { check(r, k, r->xmm0[0] >= 0 && r->xmm0[0] < 2000 ? r->rax : r->rax + 1); }
static void out(struct scry_patch_return *r, uint64_t k[4]) { check(r, k, r->rax); }'
		for f in plain real wide both large many deep leaves jumps_on ends_in; do
			h=out
			case $f in plain | large | deep | both | real) h=out_$f ;; jumps_on) h=out_jumps ;; ends_in) h=out_ends ;; esac
			echo "SCRY_WRAP($f, in, $h)"
		done
	} >"$T/wrap.c"
	compiles wrap
}

counter() { # NAME: of patch 'wrap' in $PID
	"$SCRY" patch list -p "$PID" | sed -n "s/^  $1  *\([0-9]*\)$/\1/p" | tail -1
}

@test "a handler behind a function: results of all kinds, recursion, longjmp, tail calls, threads, forks" {
	wraps_all
	listens wrapped "$TARGETS/target_wrapped"
	text_before=$(text "$PID")
	scry_ends 0 patch apply "$T/wrap.so" -p "$PID" --max-pause 2s
	in_file "wrap     jumps_on of .*target_wrapped, 5 bytes" "$T/scry.out"
	for i in 1 2; do
		echo >&8
		wait_for 60 eval "[ \$(grep -c '^done' $T/wrapped.out) -eq $i ]"
	done
	grep -q "^done: made 16000, wrong 0$" "$T/wrapped.out"
	seen=$(counter seen) returned=$(counter returned)
	# by round and thread 2,000 times: eight calls, deep (0 to 49) and leaves (0 to 19) with their own
	[ "$seen" -eq $((2 * 4 * 2000 * 8 + 2 * 4 * 40 * 1275 + 2 * 4 * 100 * 210)) ]
	# all but those that a longjmp left
	[ "$returned" -eq $((seen - 2 * 4 * 100 * 210)) ]
	[ "$(counter odd)" -eq 0 ]
	for f in plain deep leaves jumps_on ends_in; do
		[ "$(counter "$f missed")" -eq 0 ]
	done
	echo "unknown $(counter unknown) of $returned"
	[ "$(counter unknown)" -lt $((returned / 100)) ]
	scry_ends 0 patch undo wrap -p "$PID" --max-pause 2s
	wait_for 5 text_is "$PID" "$text_before"
	echo >&8
	wait_for 60 eval "[ \$(grep -c '^done: made .*, wrong 0' $T/wrapped.out) -eq 3 ]"
	exec 8>&-
	ended "$PID"
	[ "$status" -eq 0 ]
}

@test "a handler behind a function that is being called at the undo runs when it returns" {
	printf '%s\n' '#include <scry/patch.h>' 'SCRY_COUNTER(in)' 'SCRY_COUNTER(out)' \
		'static void entered(struct scry_patch_call *c, uint64_t kept[4]) { scry_count(in); }' \
		'static void returned(struct scry_patch_return *r, uint64_t kept[4]) { scry_count(out); }' \
		'SCRY_WRAP_IN(read, "@libc.so.6", entered, returned)' >"$T/wrap.c"
	compiles wrap
	listens wrapped "$TARGETS/target_wrapped"
	text_before=$(text "$PID")
	scry_ends 0 patch apply "$T/wrap.so" -p "$PID" --max-pause 2s
	echo >&8
	wait_for 60 in_file "^done" "$T/wrapped.out"
	inside() { [ "$(counter in)" -ge 1 ] && [ "$(counter in)" -eq $(($(counter out) + 1)) ]; }
	wait_for 10 inside
	out=$(counter out)
	scry_ends 0 patch undo wrap -p "$PID" --max-pause 2s
	in_file "stay mapped, without effect, as a thread, a stack or data still leads there" "$T/scry.out"
	text_is "$PID" "$text_before"
	echo >&8
	wait_for 60 eval "[ \$(grep -c '^done' $T/wrapped.out) -eq 2 ]"
	[ "$(counter out)" -eq $((out + 1)) ]
	scry_ends 0 patch undo wrap -p "$PID" --max-pause 2s
	# with glibc 2.41 a word of the frame that has ended is left below the stack's end; the call of that undo is written
	# over it, so the next one finds none
	if ! in_file "its memory is unmapped" "$T/scry.out"; then
		in_file "data still leads there" "$T/scry.out"
		scry_ends 0 patch undo wrap -p "$PID" --max-pause 2s
		in_file "its memory is unmapped" "$T/scry.out"
	fi
	exec 8>&-
	ended "$PID"
	[ "$status" -eq 0 ]
}

@test "handlers behind functions put in and taken out while these are called: no result is wrong" {
	wraps_all
	listens wrapped "$TARGETS/target_wrapped"
	text_before=$(text "$PID")
	yes "" | head -100000 >&8 &
	YES=$!
	"$STORM" -n "$(share 20 300)" -t 3000 -o "$T/wrap.so" "$PID" >"$T/storm" 2>&1 || { cat "$T/storm"; kill $YES; false; }
	kill $YES
	no grep -v "^pid\|^done: made [0-9]*, wrong 0$" "$T/wrapped.out"
	[ "$(grep -c '^done' "$T/wrapped.out")" -gt 3 ]
	# what is left of one on the stack of a thread that has ended keeps its memory, and nothing else
	"$SCRY" patch list -p "$PID" >"$T/list"
	[ -z "$(grep "patch 'wrap'" "$T/list" | grep -v "taken out, still mapped")" ]
	wait_for 5 text_is "$PID" "$text_before"
	kill "$PID"
}

@test "returns that cannot be followed are refused" {
	listens wrapped "$TARGETS/target_wrapped"
	before=$(state_of "$PID")
	wraps() { # FUNCTION
		printf '%s\n' '#include <scry/patch.h>' 'static void in(struct scry_patch_call *c, uint64_t k[4]) {}' \
			'static void out(struct scry_patch_return *r, uint64_t k[4]) {}' "SCRY_WRAP_IN($1, \"@libc.so.6\", in, out)" >"$T/it.c"
		compiles it
	}
	wraps swapcontext && refused "returns twice"
	wraps longjmp && refused "leaves by another way"
	wraps dlsym && refused "looks at its caller"
	exec 8>&-
	ended "$PID"
	start throws "$TARGETS/target_throws" 1000000
	wraps toupper
	sleep 0.2
	scry_ends 4 patch apply "$T/it.so" -p "$PID"
	says "no-exceptions"
	kill "$PID"
}

@test "threads that stand within the first bytes of a function, where their stacks do not show it" {
	printf '%s\n' '#include <scry/patch.h>' 'SCRY_COUNTER(calls)' \
		'static void in(struct scry_patch_call *c) { scry_count(calls); }' 'SCRY_BEFORE_IN(step, "@target_hides", in)' >"$T/wrap.c"
	compiles wrap
	for how in green greener large restorer; do
		start hides "$TARGETS/target_hides" $how
		wait_for 10 in_file "^pid" "$T/hides.out"
		text_before=$(text "$PID")
		for _ in 1 2 3; do
			scry_ends 0 patch apply "$T/wrap.so" -p "$PID" --max-pause 2s
			is_called() { [ "$(counter calls)" -gt 1000 ]; }
			wait_for 20 is_called || { cat "$T/scry.out"; "$SCRY" patch list -p "$PID"; false; }
			scry_ends 0 patch undo wrap -p "$PID" --max-pause 2s
			wait_for 5 text_is "$PID" "$text_before"
		done
		kill "$PID"
		ended "$PID"
		echo "$how: status $status"
		[ "$status" -eq 0 ]
		rm "$T/hides.out"
	done
}

@test "a context that was interrupted there and is kept in the program's own data: refused until it has gone on" {
	printf '%s\n' '#include <scry/patch.h>' 'SCRY_COUNTER(calls)' \
		'static void in(struct scry_patch_call *c) { scry_count(calls); }' 'SCRY_BEFORE_IN(step, "@target_hides", in)' >"$T/wrap.c"
	compiles wrap
	rm -f "$T/in"
	listens hides "$TARGETS/target_hides" copied
	text_before=$(text "$PID")
	scry_ends 1 patch apply "$T/wrap.so" -p "$PID" --max-pause 2s
	says "holds an address within the first instructions"
	[ "$(text "$PID")" = "$text_before" ]
	"$SCRY" patch list -p "$PID" >"$T/list"
	in_file "nothing to undo" "$T/list"
	echo >&8
	wait_for 10 in_file "^resumed" "$T/hides.out"
	scry_ends 0 patch apply "$T/wrap.so" -p "$PID" --max-pause 2s
	kill "$PID"
	exec 8>&-
	ended "$PID"
	[ "$status" -eq 0 ]
}

@test "children: who lacks a patch and who has one is said, ps says who is patched, undo -f takes it out of all" {
	printf '%s\n' '#include <scry/patch.h>' 'SCRY_COUNTER(calls)' \
		'static void in(struct scry_patch_call *c) { scry_count(calls); }' 'SCRY_BEFORE_IN(within, "@target_hides", in)' >"$T/wrap.c"
	compiles wrap
	rm -f "$T/in"
	listens hides "$TARGETS/target_hides" closed
	printf f >&8
	wait_for 10 in_file "^child" "$T/hides.out"
	child=$(sed -n 's/^child //p' "$T/hides.out")
	scry_ends 0 patch apply "$T/wrap.so" -p "$PID" --max-pause 2s
	in_file "1 child process of it, forked before, does not have it: $child; fix: scry patch apply" "$T/scry.out"
	scry_ends 0 patch apply "$T/wrap.so" -p "$child" --max-pause 2s
	no in_file "child process" "$T/scry.out"
	"$SCRY" ps | grep -q "^ *$child .*patched: wrap"
	scry_ends 0 patch undo wrap -p "$PID" --max-pause 2s
	in_file "1 child process of it still has the patch: $child; fix: scry patch undo wrap" "$T/scry.out"
	scry_ends 0 patch undo wrap -p "$PID" --max-pause 2s -f
	in_file "process $child .*patch 'wrap' is out" "$T/scry.out"
	kill "$PID"
	exec 8>&-
}

@test "a function that a watch has hooked: it is said that it is scry's" {
	printf '%s\n' '#include <scry/patch.h>' 'SCRY_COUNTER(calls)' \
		'static void in(struct scry_patch_call *c) { scry_count(calls); }' 'SCRY_BEFORE_IN(step, "@target_hides", in)' >"$T/wrap.c"
	compiles wrap
	start hides "$TARGETS/target_hides" large
	wait_for 10 in_file "^pid" "$T/hides.out"
	HIDES=$PID
	text_before=$(text "$HIDES")
	start watch "$SCRY" patch count step@target_hides -p "$HIDES"
	is_hooked() { [ "$(text "$HIDES")" != "$text_before" ]; }
	wait_for 20 is_hooked
	scry_ends 4 patch apply "$T/wrap.so" -p "$HIDES"
	says "a watch of scry's has changed its first bytes"
	kill -INT "$PID"
	ended "$PID"
	kill "$HIDES"
}

@test "memory that is not there takes no time in the pause, and what does not fit into it is said" {
	printf '%s\n' '#include <scry/patch.h>' 'SCRY_COUNTER(calls)' \
		'static void in(struct scry_patch_call *c) { scry_count(calls); }' 'SCRY_BEFORE_IN(within, "@target_hides", in)' >"$T/wrap.c"
	compiles wrap
	for how in reserved much; do
		start hides "$TARGETS/target_hides" $how
		wait_for 10 in_file "^pid" "$T/hides.out"
		scry_ends 0 patch apply "$T/wrap.so" -p "$PID" --max-pause 100ms
		[ $how = reserved ] || says "has more memory than can be searched within --max-pause"
		kill "$PID"
		rm "$T/hides.out"
	done
}

@test "the undo looks into stacks that are closed, and into shared memory that a fork child has not touched" {
	printf '%s\n' '#include <scry/patch.h>' 'static void mine(unsigned long i);' 'SCRY_REPLACE_IN(within, "@target_hides", mine)' \
		'static volatile int after;' 'static void mine(unsigned long i) { SCRY_ORIGINAL(within)(i); after++; }' >"$T/wrap.c"
	compiles wrap
	for how in closed shared; do
		rm -f "$T/in" "$T/hides.out"
		listens hides "$TARGETS/target_hides" $how
		scry_ends 0 patch apply "$T/wrap.so" -p "$PID" --no-ipa-ra --max-pause 2s
		printf r >&8 # it leaves the function as it was, and is suspended within the patch
		wait_for 10 in_file "^resumed 1" "$T/hides.out"
		parent=$PID
		if [ $how = shared ]; then
			printf f >&8
			wait_for 10 in_file "^child" "$T/hides.out"
			PID=$(sed -n 's/^child //p' "$T/hides.out")
		fi
		scry_ends 0 patch undo wrap -p "$PID" --max-pause 2s
		in_file "stay mapped, without effect, as a thread, a stack or data still leads there" "$T/scry.out" || { cat "$T/scry.out"; false; }
		printf r >&8
		printf r >&8
		wait_for 10 in_file "^resumed 3" "$T/hides.out"
		kill "$parent"
		exec 8>&-
	done
}
