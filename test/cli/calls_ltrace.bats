#!/usr/bin/env bats
# scry calls for those who know ltrace: what is traced without a filter, how lines look, which calls are shown.

load lib

# caller N ARGS...: target_caller_lazy, N rounds, under scry calls ARGS: lines in $T/lines.
caller() {
	echo "call $1" >"$T/in"
	shift
	"$SCRY" calls "$@" --force --args=full -o "$T/lines.txt" -- "$TARGETS/target_caller_lazy" <"$T/in" >"$T/scry.out" 2>"$T/scry.err" 3>&- || {
		cat "$T/scry.err"
		return 1
	}
}

@test "no filter: what the program calls through its PLT, without what starts it" {
	caller 3
	[ "$(grep -c '^work_fold(' "$T/lines.txt")" -eq 3 ]
	grep -qE '^strlen\("a*"\) = [0-9]+$' "$T/lines.txt"
	grep -qE '^printf\("sum %016llx %s\\n", .*, "right"\)' "$T/lines.txt"
	no grep -q "work_mix\|__libc_start_main\|__cxa_finalize" "$T/lines.txt"
	caller 3 -e __libc_start_main
	grep -q '^__libc_start_main(' "$T/lines.txt"
	grep -q "work_mix" <(caller 3 -e '*' --objects=never && cat "$T/lines.txt")
	for engine in hooks breakpoint; do # all of the program's own
		"$SCRY" calls -q --engine=$engine -x '*@MAIN' --force -o "$T/x.json" -- "$TARGETS/target_caller_lazy" <"$T/in" >"$T/scry.out" 3>&-
		grep -q '"function": "main"' "$T/x.json"
		no grep -qE '"function": "(_start|_init|_fini|frame_dummy|(de)?register_tm_clones|__do_global_dtors_aux)"' "$T/x.json"
	done
}

@test "breakpoints refuse what names callers, and say so" {
	scry_ends 2 calls --engine=breakpoint -- true
	says "breakpoints do not know the caller"
}

@test "lines say who calls, or whose function it is, where several objects are traced" {
	caller 2 -e 'work_*'
	[ "$(grep -c '^target_caller_lazy->work_fold(' "$T/lines.txt")" -eq 2 ]
	grep -q '^libwork.so->work_mix(' "$T/lines.txt"
	grep -q '^<... work_fold resumed> ' "$T/lines.txt"
	caller 2 -e 'work_*@MAIN'
	[ "$(grep -c '^work_fold(' "$T/lines.txt")" -eq 2 ]
	caller 2 -x work_fold -x strlen@libc.so.6 --objects always
	grep -q '^work_fold@libwork.so(' "$T/lines.txt"
	"$SCRY" calls -q -e 'work_*' --json -- "$TARGETS/target_caller_lazy" <"$T/in" | grep '"function": "work_' >"$T/json"
	[ "$(grep -c '"work_fold".*"caller": "[^"]*/target_caller_lazy"' "$T/json")" -eq 2 ]
	[ "$(grep -c '"work_mix".*"caller": "[^"]*/libwork.so"' "$T/json")" -eq 4 ]
}

@test "-i: the address that each call returns to, and no stack below the line" {
	caller 2 -i -e 'work_*@MAIN'
	[ "$(grep -cE '^\[0x[0-9a-f]+\] work_fold\(' "$T/lines.txt")" -eq 2 ]
	[ "$(grep -oE '^\[0x[0-9a-f]+\] work_fold' "$T/lines.txt" | sort -u | wc -l)" -eq 1 ]
	no grep -q '^ > ' "$T/lines.txt"
	caller 2 -i -w 2 -e 'work_*@MAIN'
	grep -q '^ > target_caller_lazy(' "$T/lines.txt"
}

@test "-T, -r: nanoseconds; -C is taken; a time may begin with a point" {
	caller 1 -T -r -C -d 50.5s -e 'strlen@MAIN'
	grep -qE '^ +0\.000000000 strlen\("[^"]*"\) = [0-9]+ <0\.[0-9]{9}>$' "$T/lines.txt"
	scry_ends 2 calls -d .s -- true
	says "is not a time"
	scry_ends 0 calls -q -d .5s -e strlen -- true
}

@test "--where: arguments, texts, results, durations, joined; what cannot be compared is counted" {
	caller 60 --where 'ret > 57' -e strlen@MAIN
	[ "$(grep -c '^strlen(' "$T/lines.txt")" -eq 2 ]
	caller 60 --where 'ret == 3 || (ret >= 0x10 && !(ret >= 18))' -e strlen@MAIN
	[ "$(sed -n 's/^strlen.*= //p' "$T/lines.txt" | tr '\n' ' ')" = "3 16 17 " ]
	caller 60 --where 'arg1 ~ "aa?"' -e strlen@MAIN
	[ "$(sed -n 's/^strlen.*= //p' "$T/lines.txt" | tr '\n' ' ')" = "3 " ]
	caller 60 --where 'arg1 == "aa" && duration < 1m' -e strlen@MAIN
	[ "$(grep -c '^strlen(' "$T/lines.txt")" -eq 1 ]
	caller 60 --where 'ret < -1' -e strlen@MAIN
	no grep -q '^strlen(' "$T/lines.txt"
	caller 5 --where 'arg1 == 1' -e strlen@MAIN
	grep -q "5 calls were not shown: what --where compares was not recorded" "$T/lines.txt" "$T/scry.err"
	for bad in 'ret' 'ret >' 'arg0 == 1' 'ret < "x"' '(ret == 1' 'ret == 1 ret == 2' 'size == 1' ''; do
		scry_ends 2 calls --where "$bad" -- true
		says "--where: .* is missing at"
	done
	scry_ends 2 calls --hist --where 'ret < 0' -- true
}

@test "--where: a text that was cut is compared only as far as it is known; an enum has its number, too" {
	for where in 'arg1 ~ "*a"' 'arg1 !~ "*b"' 'arg1 == "aaa"' 'arg1 != "aaa"' 'arg1 == "aaaaa"'; do
		caller 60 -s 3 --where "$where && ret == 50" -e strlen@MAIN
		no grep -q '^strlen(' "$T/lines.txt"
		grep -q "1 call was not shown: what --where compares was not recorded" "$T/lines.txt" "$T/scry.err"
	done
	caller 60 -s 3 --where 'arg1 != "b" && ret == 50' -e strlen@MAIN
	[ "$(grep -c '^strlen("aaa"\.\.\.' "$T/lines.txt")" -eq 1 ]
	echo "ulong work_fold(addr, enum(TWO=2, NINE=9));" >"$T/enum.conf"
	for where in 'arg2 == 2' 'arg2 < 3' 'arg2 == "TWO"'; do
		caller 2 -F "$T/enum.conf" --where "$where" -e work_fold@MAIN
		[ "$(grep -c '^work_fold(.*TWO)' "$T/lines.txt")" -eq 2 ]
	done
}

@test "--where with a bare number is ltrace's -w" {
	caller 2 --where 1 -e 'work_*@MAIN'
	[ "$(grep -c '^ > target_caller_lazy(' "$T/lines.txt")" -eq 2 ]
}

@test "--hist and --tree: each call is in them once" {
	echo "call 20" >"$T/in"
	"$SCRY" calls -q -e 'work_*+strlen@MAIN' --force -o "$T/x.scry" -- "$TARGETS/target_caller_lazy" <"$T/in" >"$T/scry.out" 3>&-
	"$SCRY" report --view calls-hist --json "$T/x.scry" >"$T/h.json"
	json_is "$T/h.json" 'r["rows"].group_by { |x| x["function"] }.transform_values { |g| g.sum { |x| x["calls"] } }.slice("work_fold", "work_mix", "strlen") == {"work_fold" => 20, "work_mix" => 40, "strlen" => 20}'
	json_is "$T/h.json" 'r["rows"].all? { |x| x["below_ns"] == [2 * x["from_ns"], 1].max }'
	"$SCRY" report --view calls-tree --json "$T/x.scry" >"$T/t.json"
	json_is "$T/t.json" 'r["rows"].map { |x| x.values_at("depth", "function", "calls") }.sort == [[0, "strlen", 20], [0, "work_fold", 20], [1, "work_mix", 40]]'
	json_is "$T/t.json" 'r["rows"].each_cons(2).any? { |a, b| a["function"] == "work_fold" && b["function"] == "work_mix" && a["own_ns"] == a["total_ns"] - b["total_ns"] }'
	"$SCRY" report --view calls-tree "$T/x.scry" | grep -q '^ .* 40    work_mix$'
	scry_ends 2 calls --tree --hist -- true
}

@test "-u: the program runs as that user, with its groups" {
	need_root "becoming another user"
	scry_ends 0 calls -q -u nobody -e getuid -- id
	grep -q "uid=$(id -u nobody)(nobody) gid=$(id -g nobody).* groups=$(id -G nobody)" "$T/scry.out"
	scry_ends 2 calls -u no-such-user -- id
	says "there is no user 'no-such-user'"
	scry_ends 2 calls -u nobody -p 1
	says "is for a command"
}

@test "-F: a directory, and several with colons between" {
	mkdir "$T/conf"
	echo "ulong strlen(hex(ulong));" >"$T/conf/a.conf"
	echo "nonsense" >"$T/conf/ignored.txt"
	echo "addr work_fold(addr, hex(int));" >"$T/b.conf"
	caller 1 -F "$T/conf:$T/b.conf" -e 'strlen@MAIN+work_fold@MAIN'
	grep -qE '^strlen\(0x[0-9a-f]+\) = 0$' "$T/lines.txt"
	grep -qE '^work_fold\(0x[0-9a-f]+, 0x2\) = ' "$T/lines.txt"
	mkdir "$T/empty"
	scry_ends 2 calls -F "$T/empty" -- true
	says "no file of '$T/empty' ends in .conf"
}

@test "-A: so many elements of an array" {
	echo "long work_fold(array(ulong, arg2)*, ulong);" >"$T/a.conf"
	caller 1 -F "$T/a.conf" -A 1 -e work_fold@MAIN
	grep -qE '^work_fold\(\[ [0-9]+\.\.\. \], 2\)' "$T/lines.txt"
	caller 1 -F "$T/a.conf" -e work_fold@MAIN
	grep -qE '^work_fold\(\[ [0-9]+, [0-9]+ \], 2\)' "$T/lines.txt"
	scry_ends 2 calls -A 257 -- true
}

@test "-S: the error of a system call that failed, by its name" {
	"$SCRY" calls -L -S -q --force -o "$T/x.scry" -- cat "$T/nothing-here" >"$T/scry.out" 2>&1 3>&- || true
	grep -q "Operation not permitted\|cannot be traced" "$T/scry.out" && skip "no tracepoints here"
	"$SCRY" report "$T/x.scry" >"$T/lines"
	grep -qE '^SYS_openat\(.*\) = -2 ENOENT \(No such file or directory\)$' "$T/lines"
	no grep -qE '= [0-9]+ E[A-Z]+' "$T/lines"
	"$SCRY" report --json "$T/x.scry" | grep -q '"result": -2, "error": "ENOENT"'
}

@test "--tree and --hist: calls that exceptions left are closed in the tree, and said beside the histogram" {
	cat >"$T/left.cc" <<'EOF'
extern "C" __attribute__((noinline)) int deep(int n) { if (!n) throw 1; return deep(n - 1) + 1; }
extern "C" __attribute__((noinline)) int outer(int n) { try { deep(2); } catch (int) { n++; } return n; }
int main() { return outer(outer(outer(0))) != 3; }
EOF
	g++ -O1 -o "$T/left" "$T/left.cc"
	"$SCRY" calls -q -x 'deep+outer@MAIN' --force -o "$T/x.scry" -- "$T/left" >"$T/scry.out" 3>&-
	"$SCRY" report --view calls-tree --json "$T/x.scry" >"$T/t.json"
	json_is "$T/t.json" 'r["rows"].map { |x| x.values_at("depth", "function", "calls") } == [[0, "outer", 3], [1, "deep", 3], [2, "deep", 3], [3, "deep", 3]]'
	"$SCRY" report --view calls-hist "$T/x.scry" >"$T/hist"
	# each of the 3 + 9 calls is in a row or told of, once
	[ "$("$RUBY" -e 'puts $<.read.scan(/^ *(?:outer|deep) .*?(\d+)(?: +#+)?$|(\d+) more calls? w/).flatten.compact.sum(&:to_i)' "$T/hist")" -eq 12 ]
}

@test "--hist: a call that does not return is told of, and no share is said of times that hold each other" {
	cat >"$T/ends.c" <<'EOF'
#include <stdlib.h>
__attribute__((noinline)) void inner(int n) { for (volatile int i = 0; i < 100000; i++); if (n == 3) exit(0); }
__attribute__((noinline)) void outer(int n) { inner(n); __asm__ volatile(""); }
int main(void) { for (int i = 0;; i++) outer(i); }
EOF
	cc -O1 -o "$T/ends" "$T/ends.c"
	"$SCRY" calls -q -x 'inner+outer@MAIN' --force -o "$T/x.scry" -- "$T/ends" >"$T/scry.out" 3>&-
	"$SCRY" report --view calls-hist "$T/x.scry" >"$T/hist"
	grep -q "^2 more calls were not seen to end" "$T/hist"
	"$SCRY" report --view calls-sums "$T/x.scry" >"$T/sums"
	grep -q "^outer took most: .* in 3 calls, the longest " "$T/sums"
}

@test "lines of signals: who gets them, in order with the calls, by both engines and with -S; and of exec" {
	need_root "the tracepoint signal_deliver"
	cat >"$T/signals.c" <<'EOC'
#include <pthread.h>
#include <signal.h>
#include <ctype.h>
#include <unistd.h>
static void on(int s) { toupper(s); }
static void *run(void *arg) { kill(getpid(), 0); pthread_kill(pthread_self(), SIGUSR2); return arg; }
int main(int argc, char **argv) {
	pthread_t t;
	if (argc > 1) { execl(argv[0], argv[0], (char *)NULL); }
	signal(SIGUSR1, on); signal(SIGUSR2, on); signal(SIGRTMIN + 2, on); signal(SIGALRM, SIG_IGN);
	toupper(1); kill(getpid(), SIGUSR1); toupper(2); kill(getpid(), SIGALRM); kill(getpid(), SIGRTMIN + 2); toupper(3);
	pthread_create(&t, NULL, run, NULL); pthread_join(t, NULL);
	kill(getpid(), SIGTERM);
}
EOC
	cc -O0 -fno-builtin -o "$T/signals" "$T/signals.c" -lpthread
	cat >"$T/want" <<'EOL'
toupper(1)
--- SIGUSR1 (User defined signal 1) ---
toupper(10)
toupper(2)
--- SIGRTMIN+2 (Real-time signal 2) ---
toupper(36)
toupper(3)
--- SIGUSR2 (User defined signal 2) ---
toupper(12)
--- SIGTERM (Terminated) ---
+++ killed by SIGTERM +++
EOL
	for how in --engine=hooks --engine=breakpoint -S; do
		"$SCRY" calls -q $how -x toupper -- "$T/signals" >"$T/lines" 3>&- || [ $? -eq 143 ]
		sed -E 's/^\[pid [0-9]+\] //; s/^(toupper\([0-9]+\)).*/\1/; /SYS_/d; /^<\.\.\./d' "$T/lines" | diff "$T/want" -
		[ "$(sed -nE 's/^\[pid ([0-9]+)\] --- SIGUSR2.*/\1/p' "$T/lines")" -ne "$(sed -nE 's/^\[pid ([0-9]+)\] .*SIGTERM \(.*/\1/p' "$T/lines")" ]
	done
	"$SCRY" calls -q -x toupper --force -o "$T/x.scry" -- "$T/signals" again >"$T/scry.out" 3>&- || [ $? -eq 143 ]
	"$SCRY" report "$T/x.scry" >"$T/lines"
	[ "$(sed -n 1p "$T/lines")" = "--- Called exec() ---" ]
	[ "$(grep -c '^\(\[pid [0-9]*\] \)\?--- SIG' "$T/lines")" -eq 4 ]
	"$SCRY" calls -q -x toupper --json -- "$T/signals" >"$T/o.json" 3>&- || [ $? -eq 143 ]
	[ "$(grep -c '^{"pid"' "$T/o.json")" -eq 6 ]
}

@test "signals of fork children have lines, however soon they end; those of a child without a call are counted" {
	need_root "the tracepoint signal_deliver"
	cat >"$T/young.c" <<'EOC'
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
static void on(int s) { (void)s; }
int main(void) {
	signal(SIGUSR1, on);
	getenv("A");
	for (int k = 0; k < 10; k++) {
		if (!fork()) { if (k < 9) getenv("B"); for (int i = 0; i < 5; i++) raise(SIGUSR1); kill(getpid(), SIGTERM); }
		wait(NULL);
	}
}
EOC
	cc -O0 -o "$T/young" "$T/young.c"
	"$SCRY" calls -f -x getenv -- "$T/young" >"$T/lines" 2>"$T/scry.err" 3>&-
	cat "$T/scry.err"
	shown=$(grep -cE -- '--- SIG(USR1|TERM)' "$T/lines")
	unshown=$(sed -nE 's/.*: ([0-9]+) signals of children that were not yet watched have no line/\1/p' "$T/scry.err")
	[ "$unshown" -ge 6 ]
	grep -q "signals have no lines: .* found no room" "$T/scry.err" || [ $((shown + unshown)) -eq 60 ]
	no grep -qvE '^\[pid [0-9]+\] ' <(tail -n +2 "$T/lines")
}

@test "in a container a signal's line names the thread as the calls' lines do, also the signal that ends a child" {
	need_root "the tracepoint signal_deliver"
	unshare -pf true || skip "no pid namespaces"
	cat >"$T/inside.c" <<'EOC'
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
int main(void) {
	for (;;) {
		if (!fork()) { getenv("B"); usleep(300000); kill(getpid(), SIGSEGV); }
		wait(NULL);
	}
}
EOC
	cc -O0 -o "$T/inside" "$T/inside.c"
	start outer unshare -pf --kill-child "$T/inside" # however long scry takes to come in, it is there
	outer=$PID
	wait_for 5 pgrep -P "$outer"
	"$SCRY" calls -q -f -x getenv -d 1500ms -p "$(pgrep -P "$outer")" >"$T/lines" 3>&-
	cat "$T/lines"
	sed -nE 's/^\[pid ([0-9]+)\] --- SIGSEGV.*/\1/p' "$T/lines" >"$T/ended"
	[ -s "$T/ended" ]
	while read -r tid; do [ "$tid" -lt "$outer" ]; done <"$T/ended" # as the kernel counts there
}

@test "many signals of children without a call take no room from those of children with one" {
	need_root "the tracepoint signal_deliver"
	cat >"$T/room.c" <<'EOC'
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
static void on(int s) { (void)s; }
int main(void) {
	signal(SIGUSR1, on); signal(SIGUSR2, on);
	getenv("A");
	if (!fork()) { for (int i = 0; i < 5000; i++) { raise(SIGUSR1); usleep(20); } _exit(0); }
	wait(NULL);
	if (!fork()) { for (int i = 0; i < 5; i++) raise(SIGUSR2); getenv("B"); _exit(0); }
	wait(NULL);
}
EOC
	cc -O0 -o "$T/room" "$T/room.c"
	"$SCRY" calls -f -x getenv -- "$T/room" >"$T/lines" 2>"$T/scry.err" 3>&-
	cat "$T/scry.err"
	[ "$(grep -c -- '--- SIGUSR2' "$T/lines")" -eq 5 ]
	no grep -q -- '--- SIGUSR1' "$T/lines"
	unshown=$(sed -nE 's/.*: ([0-9]+) signals of children that were not yet watched have no line/\1/p' "$T/scry.err")
	grep -q "signals have no lines: .* found no room" "$T/scry.err" || [ "$unshown" -eq 5000 ]
}

# recorded KEEPER: bytes of its recording that are in memory.
recorded() {
	local fd blocks=0
	for fd in /proc/"$1"/fd/*; do
		case "$(readlink "$fd")" in "/memfd:scry (deleted)") blocks=$(stat -Lc %b "$fd") ;; esac
	done
	echo $((blocks * 512))
}

raised() {
	[ -s "$T/storm.out" ] && [ "$(tail -1 "$T/storm.out")" -gt "$1" ]
}

@test "a storm of signals that nobody shows: memory ends at its limit, and what is dropped is in line one" {
	need_root "the tracepoint signal_deliver"
	cat >"$T/storm.c" <<'EOC'
#include <signal.h>
#include <stdio.h>
static volatile sig_atomic_t ends;
static void on(int s) { if (s == SIGTERM) ends = 1; }
int main(void) {
	signal(SIGUSR1, on); signal(SIGTERM, on);
	for (long n = 0; !ends;) {
		for (int i = 0; i < 20000 && !ends; i++) raise(SIGUSR1);
		printf("%ld\n", n += 20000); fflush(stdout);
	}
}
EOC
	cc -O1 -o "$T/storm" "$T/storm.c"
	start storm "$T/storm"
	storm=$PID
	start scry "$SCRY" calls -x getenv --memory 1M -o "$T/x.txt" -p "$storm"
	scry=$PID
	wait_for 20 hooked "$storm"
	keeper=$(keeper_of "$scry")
	kill -STOP "$scry" # it shows nothing
	HELD=$scry
	wait_for 60 raised 0
	wait_for 100 raised $(($(tail -1 "$T/storm.out") + 160000)) # 4 MB, if all are kept
	[ "$(recorded "$keeper")" -gt 0 ]
	[ "$(recorded "$keeper")" -lt $((3 << 20)) ]
	kill -CONT "$scry"
	kill -INT "$scry"
	finish "$scry"
	kill -TERM "$storm"
	finish "$storm"
	cat "$T/scry.err" "$T/scry.out"
	tail -5 "$T/x.txt"
	cat "$T/scry.err" "$T/x.txt" | grep -q "signals of all processes that found no room"
}

@test "signals of others have no lines, and who may not see them reads why" {
	need_root "becoming somebody who may not"
	command -v setpriv >/dev/null || skip "no setpriv"
	echo "call 1" >"$T/in"
	(trap : URG; while :; do kill -URG "$BASHPID"; sleep 0.001; done) 3>&- & # with a handler: else none is delivered
	other=$!
	"$SCRY" calls -x work_fold -- "$TARGETS/target_caller_lazy" <"$T/in" >"$T/lines" 2>"$T/scry.err" 3>&-
	kill "$other"
	no grep -q "SIGURG" "$T/lines"
	no grep -q "signals have no lines" "$T/scry.err"
	chmod 777 "$T"
	nobody() { run setpriv --reuid=65534 --regid=65534 --clear-groups "$SCRY" calls "$@"; }
	nobody -x work_fold -- "$TARGETS/target_caller_lazy" <"$T/in" # handles no signal
	[ "$status" -eq 126 ] && skip "the build cannot be run by others"
	[ "$status" -eq 0 ]
	[[ $output != *"signals have no lines"* ]]
	nobody -x getenv -- bash -c 'trap : USR1; sleep 0.3'
	[ "$status" -eq 0 ]
	[[ $output == *"signals have no lines: the tracepoint signal_deliver cannot be read"* ]]
}

@test "functions whose return may not be followed are told when they are entered, and do what they did" {
	cat >"$T/alone.c" <<'EOC'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>
static jmp_buf back;
static ucontext_t from, to;
static char stack[1 << 16];
static void there(void) { puts("there"); swapcontext(&to, &from); }
static void *leave(void *arg) { pthread_exit((char *)arg + 7); }
int main(void) {
	volatile int n = 0;
	pthread_t t; void *r; int s; pid_t p;
	if (setjmp(back) < 3) { n++; longjmp(back, n); }
	printf("jumped %d\n", n);
	printf("next %d\n", dlsym(RTLD_NEXT, "puts") == dlsym(RTLD_DEFAULT, "puts"));
	printf("opened %d", dlopen("libm.so.6", RTLD_NOW) != NULL);
	printf(" %d\n", dlopen("libnone.so", RTLD_NOW) != NULL);
	if (!(p = vfork())) _exit(5);
	waitpid(p, &s, 0); printf("child %d\n", WEXITSTATUS(s));
	getcontext(&to); to.uc_stack.ss_sp = stack; to.uc_stack.ss_size = sizeof(stack); to.uc_link = &from;
	makecontext(&to, there, 0); swapcontext(&from, &to);
	pthread_create(&t, NULL, leave, NULL); pthread_join(t, &r); printf("left %ld\n", (long)r);
}
EOC
	cc -O1 -o "$T/alone" "$T/alone.c"
	"$T/alone" >"$T/want"
	for filter in "" "-x dl*+*setjmp+*longjmp+vfork+*context+pthread_exit"; do # by slots, and by entries
		"$SCRY" calls -q $filter --args=full --objects=never --force -o "$T/x.scry" -- "$T/alone" >"$T/got" 3>&-
		diff "$T/want" "$T/got"
		"$SCRY" report --objects=never "$T/x.scry" >"$T/lines"
		grep -qF 'dlsym(0xffffffffffffffff, "puts") = ? <no return>' "$T/lines"
		grep -qF 'dlopen("libm.so.6", RTLD_NOW) = ? <no return>' "$T/lines"
		grep -qE 'pthread_exit\(0x7\) = \? <no return>' "$T/lines"
		[ "$(grep -cE '(setjmp|longjmp|vfork|swapcontext|getcontext)\(.*\) = \? <no return>$' "$T/lines")" -ge 8 ]
		"$SCRY" report --view calls-sums --json "$T/x.scry" >"$T/o.json"
		json_is "$T/o.json" 'rows.find { |r| r["function"] == "dlsym" }.values_at("calls", "alone", "returned", "unfinished", "total_ns") == [2, 2, 0, 0, nil]'
		"$SCRY" report --view calls-hist "$T/x.scry" | grep -qE '^[0-9]+ more calls? ha(s|ve) no time, as (its|their) returns? (is|are) not followed$'
		"$SCRY" report --view calls-tree --json "$T/x.scry" >"$T/o.json"
		json_is "$T/o.json" 'rows.find { |r| r["function"] == "dlsym" }.values_at("calls", "returned", "total_ns", "own_ns") == [2, 0, nil, nil]'
	done
	"$SCRY" calls -q -c -x dlopen -- "$T/alone" >"$T/lines" 3>&-
	grep -q '^2 calls of dlopen were seen; their returns are not followed, so no time is known$' "$T/lines"
	grep -qE '^ +- +- +- +2 .* dlopen$' "$T/lines"
	"$SCRY" calls -q -w 1 -x dlopen -- "$T/alone" >"$T/lines" 3>&-
	[ "$(grep -A1 '^dlopen(' "$T/lines" | grep -c '^ > alone(main+')" -eq 2 ]
	"$SCRY" calls -q -c -x dlopen --where 'arg2 == 77' -- "$T/alone" >"$T/lines" 3>&-
	grep -q '^2 calls were seen, and none fits --where$' "$T/lines"
}

@test "a followed function that ends in a call of dlsym: RTLD_NEXT means its object" {
	cat >"$T/next.c" <<'EOC'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
__attribute__((noinline)) void *find(const char *name) { return dlsym(RTLD_NEXT, name); }
int main(void) { printf("%d\n", find("puts") != NULL); }
EOC
	cc -O2 -o "$T/next" "$T/next.c"
	[ "$("$SCRY" calls -q -x find --force -o "$T/x.txt" -- "$T/next" 3>&-)" -eq 1 ]
	[ "$("$SCRY" calls -q -x find -x dlsym --force -o "$T/x.txt" -- "$T/next" 3>&-)" -eq 1 ]
	[ "$("$SCRY" patch time -q find --force -o "$T/x.json" -- "$T/next" 3>&-)" -eq 1 ]
	[ "$("$SCRY" patch time -q find dlsym --force -o "$T/x.json" -- "$T/next" 3>&-)" -eq 1 ] # though it is refused
	printf '.globl dlsym\n.type dlsym,@function\ndlsym: ret\n.size dlsym,1\n.globl next\n.type next,@function\nnext: ret\n' >"$T/one.s"
	cc -shared -o "$T/libone.so" "$T/one.s" # of one byte: no hook finds room there
	cc -O2 -o "$T/next" "$T/next.c" -Wl,--no-as-needed -lc -L"$T" -lone -Wl,-rpath,"$T"
	"$SCRY" calls -x find -- "$T/next" 3>&- 2>&1 | grep "dlsym in .*libone.so cannot be guarded (.*): if a followed function"
}
