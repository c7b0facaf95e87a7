#!/usr/bin/env bats
# scry calls -f: the calls of children, of theirs, and of what they run; and of what a program runs in its place.

load lib

teardown() {
	touch "$T/stop" # for a shell whose tracer was killed
	end_started
}

# lines_are N FILE: JSON lines of the calls of `target_family N`: each argument as often as it is made, and those of
# one process with one pid. Calls of programs that were noticed too late to be traced may be missing when that is noted.
lines_are() {
	"$RUBY" --disable=gems -rjson - "$@" <<'RUBY'
n = ARGV[0].to_i
lines = File.foreach(ARGV[1]).grep(/^{/).map { |line| JSON.parse(line) }
data_quality = lines.pop["data_quality"]
want = Hash.new(0)
(0...n).each { |i| want[i] += i + (i % 4 == 1 ? 1 : 0) + (i % 4 == 2 ? 1 : 0) }
want[0] += 1
want.delete_if { |_, v| v.zero? }
bad = []
bad << data_quality unless data_quality.values_at("lost", "errors") == [0, 0]
got = lines.map { |c| Integer(c["args"][0]) }.tally
bad << [got.to_a - want.to_a, want.to_a - got.to_a] unless got == want
bad << lines.reject { |c| c["result"] == Integer(c["args"][0]) && c["state"] == "returned" && c["function"] == "labs" }.first
lines.group_by { |c| c["pid"] }.each_value { |of| bad << of.map { |c| c["args"][0] } if of.map { |c| c["args"][0] }.uniq.size > 1 }
bad.compact!
puts bad.first(3).inspect
exit bad.empty?
RUBY
}

@test "children, their children, exec and vfork" {
	local n
	n=$(share 30 200)
	scry_ends 0 calls -f -x labs --json -- "$TARGETS/target_family" "$n"
	lines_are "$n" "$T/scry.out"
	grep -q "^calls " "$T/scry.out"
	scry_ends 0 calls -f -c -x labs -o "$T/x.scry" -- "$TARGETS/target_family" "$n"
	calls=$(awk '/^calls/ { print $2 }' "$T/scry.out")
	"$SCRY" report --view calls-sums --json "$T/x.scry" >"$T/o.json"
	json_is "$T/o.json" "rows.map { |r| r['calls'] } == [$calls] && r['data_quality']['lost'] == 0"
}

@test "lines say whose they are" {
	scry_ends 0 calls -f -x labs -- "$TARGETS/target_family" 4
	grep -qE '^\[pid [0-9]+\] labs\(3[,)].*= 3$' "$T/scry.out"
	[ "$(sed -nE 's/^\[pid ([0-9]+)\] labs\(3[,)].*/\1/p' "$T/scry.out" | sort -u | wc -l)" -eq 1 ]
}

@test "without -f what a program runs in its place is traced, its children are not" {
	scry_ends 0 calls -x labs --json -- env X=1 sh -c 'exec "$0" 6' "$TARGETS/target_family"
	"$RUBY" --disable=gems -rjson -e 'lines = File.readlines(ARGV[0]).grep(/^{/).map { |l| JSON.parse(l) }
		exit lines.none? { |c| c["function"] == "labs" }' "$T/scry.out"
	scry_ends 0 calls -x labs --json -- env X=1 sh -c 'exec "$0" leaf 7' "$TARGETS/target_family"
	grep -q '"function": "labs".*"args": \[7' "$T/scry.out"
}

@test "a shell's pipes and children, by -f, and the exit status" {
	scry_ends 7 calls -f -x labs -- sh -c '"$0" leaf 5 | cat; "$0" 3 >/dev/null; exit 7' "$TARGETS/target_family"
	grep -qE 'labs\(5[,)]' "$T/scry.out"
	[ "$(grep -cE 'labs\(2[,)]' "$T/scry.out")" -eq 3 ]
}

@test "attached: children that it forks from then on; all are left as they were" {
	local pid before
	need_root "entering a process that is not a child of scry"
	listens returner "$TARGETS/target_returner" ""
	pid=$PID
	before=$(state_of "$pid")
	start scry "$SCRY" calls -f -p "$pid" -x 'ret_*' --json
	scry=$PID
	wait_for 20 in_file "watching process $pid" "$T/scry.err"
	for mode in "fork 20" "spawn 5" "deep 2" "tail 10"; do
		echo "$mode" >&8
		wait_for 60 grep -qE "^$mode (right|wrong)$" "$T/returner.out"
		grep -qE "^$mode right$" "$T/returner.out"
	done
	kill -INT "$scry"
	finish "$scry" || {
		cat "$T/scry.err"
		return 1
	}
	as_before "$pid" "$before" "after its children were traced"
	"$RUBY" --disable=gems -rjson -e 'l = File.foreach(ARGV[0]).map { |x| JSON.parse(x) }; h = l.pop["data_quality"]
		pids = l.map { |c| c["pid"] }.uniq
		puts pids.size, h.slice("lost", "errors")
		exit pids.size >= 20 && h["errors"] == 0 && h["lost"] == 0' "$T/scry.out"
	exec 8>&-
	finish "$pid"
}

children_are() { # N
	[ "$(grep -c "^child" "$T/family.out")" -eq "$1" ]
}

# Of each child some calls were shown.
all_are_shown() {
	local child
	for child in $(awk '/^child/ { print $2 }' "$T/family.out"); do
		grep -q "\"pid\": $child," "$T/scry.out" || return 1
	done
}

@test "children that were there and that come, which live on: all are left as they were" {
	local pid before child
	need_root "entering a process that is not a child of scry"
	listens family "$TARGETS/target_family" stay 4
	wait_for 20 children_are 4
	pid=$(awk '/^pid/ { print $2 }' "$T/family.out")
	before=$(state_of "$pid")
	for child in $(awk '/^child/ { print $2 }' "$T/family.out"); do
		state_of "$child" >"$T/before.$child"
	done
	start scry "$SCRY" calls -f -p "$pid" -x labs --json
	scry=$PID
	wait_for 20 in_file "watching process $pid" "$T/scry.err"
	echo >&8
	wait_for 20 children_are 6
	wait_for 20 all_are_shown
	kill -INT "$scry"
	finish "$scry" || {
		cat "$T/scry.err"
		return 1
	}
	# who was there before missed nothing that the watch was to have
	tail -1 "$T/scry.out" | grep -q '"is_complete": true, .*"lost": 0, "errors": 0' || {
		tail -1 "$T/scry.out"
		return 1
	}
	as_before "$pid" "$before" "after its children were traced"
	for child in $(awk '/^child/ { print $2 }' "$T/family.out"); do
		[ -e "$T/before.$child" ] || continue
		as_before "$child" "$(cat "$T/before.$child")" "after it was traced as a child"
	done
	child=$(awk '/^child/ { print $2 }' "$T/family.out" | tail -1)
	as_before "$child" "$(cat "$T"/before.* | head -4)" "after it was born traced" || [ "$(mappings "$child")" -eq 0 ]
	exec 8>&-
	finish "$pid"
	in_file "^stayed right" "$T/family.out"
}

@test "front and keeper are killed: children and parent go on" {
	local pid
	start scry "$SCRY" calls -f -x labs -c -- sh -c 'while [ ! -e "$1" ]; do "$0" 12 || exit 9; done; echo all' "$TARGETS/target_family" "$T/stop"
	scry=$PID
	wait_for 20 in_file "^calls" "$T/scry.out"
	kill -KILL "$(keeper_of "$scry")"
	lines=$(wc -l <"$T/scry.out")
	wait_for 20 bash -c "[ \$(wc -l <'$T/scry.out') -gt $((lines + 3)) ]"
	touch "$T/stop"
	wait_for 20 in_file "^all" "$T/scry.out"
	finish "$scry" || true
}

@test "programs that a process runs in its place: one process" {
	"$SCRY" calls -x getppid -o "$T/x.scry" -- /usr/bin/env /usr/bin/env true
	"$SCRY" report "$T/x.scry" >"$T/lines" 2>"$T/err"
	cat "$T/err"
	grep -qE "^scry calls: pid [0-9]+ \([23] programs\), " "$T/err"
}

@test "functions that were watched and not called: a note, which names its process once" {
	"$SCRY" calls -c -x labs -x getppid -- sh -c 'exec env true' >"$T/out" 2>&1
	cat "$T/out"
	grep -qE "[0-9]+ functions? (was|were) watched, and (not|none was) called" "$T/out"
	no grep -E "process [0-9]+: process" "$T/out"
}

@test "libraries that fork children load are not traced, and that is said" {
	cat >"$T/loads.c" <<-'EOF_C'
		#include <dlfcn.h>
		#include <stdlib.h>
		#include <sys/wait.h>
		#include <unistd.h>
		int main(int argc, char **argv)
		{
			for (int i = 0; i < 3; i++) {
				if (!fork()) {
					if (i == 2) labs(i);
					_exit(argc > 1 && !dlopen(argv[1], RTLD_NOW));
				}
				wait(NULL);
			}
			return argc > 2 && !dlopen(argv[1], RTLD_NOW);
		}
	EOF_C
	cc -O0 -fno-builtin -o "$T/loads" "$T/loads.c" -ldl
	printf 'void nothing(void) { }\n' >"$T/lib.c"
	cc -shared -fPIC -o "$T/lib.so" "$T/lib.c"
	local note="fork children loaded or unloaded libraries 3 times: functions and calls of what they loaded are not traced"
	scry_ends 0 calls -f -x labs --json -- "$T/loads" "$T/lib.so"
	jq -e --arg note "$note" 'select(.data_quality) | .notes | index($note)' "$T/scry.out"
	scry_ends 0 calls -f -c -x labs -x nothing@lib.so -- "$T/loads" "$T/lib.so" too
	grep -qF "$note" "$T/scry.out"
	for args in "-f -c -x labs -- $T/loads" "-f -c -- $T/loads $T/lib.so" "-c -x labs -- $T/loads $T/lib.so"; do
		scry_ends 0 calls $args
		no grep -q "fork children loaded" "$T/scry.out" "$T/scry.err"
	done
}

# A slot of an IFUNC holds scry's stub when it is looked at again, which once looked like something new, and for what is
# new a program was followed no more.
@test "programs that a traced one starts are found, also after its slots and new libraries were looked at" {
	cat >"$T/starts.c" <<-'EOF_C'
		#include <dlfcn.h>
		#include <stdlib.h>
		#include <string.h>
		#include <sys/wait.h>
		#include <unistd.h>
		int main(int argc, char **argv)
		{
			volatile size_t n = 0;
			if (argc == 2)
				return labs(7) != 7;
			for (int i = 0; i < 3; i++)
				n += strlen(argv[i % argc]);
			for (int i = 0; i < 9; i++) {
				char *args[] = {argv[0], "child", NULL};
				pid_t pid;
				if (argc > 3 && i % 3 == 0 && !dlopen(argv[3 + i / 3], RTLD_NOW))
					return 2;
				pid = *argv[1] == 'v' ? vfork() : fork();
				if (!pid) {
					execv(argv[0], args);
					_exit(127);
				}
				waitpid(pid, NULL, 0);
			}
			return 0;
		}
	EOF_C
	cc -O0 -fno-builtin -o "$T/starts" "$T/starts.c" -ldl
	printf 'void nothing(void) { }\n' >"$T/lib.c"
	for i in 1 2 3; do
		cc -shared -fPIC -o "$T/lib$i.so" "$T/lib.c"
	done
	for how in vfork fork; do
		for args in "-e @MAIN -- $T/starts $how 2" \
			"-x labs -x nothing -- $T/starts $how 2 $T/lib1.so $T/lib2.so $T/lib3.so"; do
			scry_ends 0 calls -f -c --json $args
			# one that was noticed late is missing, and said to be
			json_is "$T/scry.out" "n = r['rows'].select { |f| f['function'] == 'labs' }.sum { |f| f['calls'] }
				n == 9 || (n < 9 && !r['data_quality']['is_complete'])"
		done
	done
}

# runs_programs: a program for the tests below. In `ARGS`: a number of programs to start one after the other; each of
# them calls labs(7) and ends. Before that: "signals", which makes ptrace let it go, or "thread", in which another
# thread than the first becomes such a program itself.
runs_programs() {
	cat >"$T/runs.c" <<-'EOF_C'
		#include <pthread.h>
		#include <signal.h>
		#include <stdio.h>
		#include <stdlib.h>
		#include <string.h>
		#include <sys/wait.h>
		#include <unistd.h>
		static char *self;
		static void nothing(int s) { }
		static void *become(void *arg)
		{
			execl(self, self, NULL);
			return NULL;
		}
		int main(int argc, char **argv)
		{
			char line[16];
			pthread_t t;
			self = argv[0];
			if (argc == 1)
				return labs(7) != 7;
			if (!strcmp(argv[1], "thread")) {
				if (pthread_create(&t, NULL, become, NULL))
					return 2;
				for (;;)
					pause();
			}
			if (!strcmp(argv[1], "signals")) {
				signal(SIGUSR1, nothing);
				for (int i = 0; i < 40; i++)
					raise(SIGUSR1);
			}
			if (!strcmp(argv[1], "asked")) {
				printf("pid %d\n", (int)getpid());
				fflush(stdout);
				if (!fgets(line, sizeof(line), stdin))
					return 2;
			}
			for (int i = 0; i < atoi(argv[2]); i++) {
				pid_t pid = fork();
				if (!pid)
					become(NULL);
				waitpid(pid, NULL, 0);
			}
			puts("done");
			return 0;
		}
	EOF_C
	cc -O0 -fno-builtin -pthread -o "$T/runs" "$T/runs.c"
}

# none_is_silent N FILE: of N programs each has its call of labs, or is counted as missed, or as not to be entered, in
# line one and in a note.
none_is_silent() {
	"$RUBY" --disable=gems -rjson - "$@" <<'RUBY'
lines = File.foreach(ARGV[1]).grep(/^{/).map { |line| JSON.parse(line) }
quality, notes = lines.pop.values_at("data_quality", "notes")
traced = lines.count { |c| c["function"] == "labs" }
missed = notes.sum { |n| n[/^(\d+) programs? (?:that .* ended before scry could enter|could not be entered)/, 1].to_i }
puts "#{traced} traced, #{missed} missed", quality["is_complete"], notes
exit traced + missed == ARGV[0].to_i && quality["is_complete"] == missed.zero? && (traced.positive? || ARGV[0] == "1")
RUBY
}

@test "a program that another thread than the first runs in its place is traced, or counted" {
	need_root "news of programs"
	runs_programs
	for _ in 1 2 3 4 5 6; do
		for follow in -f ""; do
			scry_ends 0 calls $follow -x labs --json -- "$T/runs" thread
			none_is_silent 1 "$T/scry.out"
		done
	done
}

@test "programs that are started when ptrace no longer follows are traced, or counted" {
	need_root "news of programs"
	runs_programs
	scry_ends 0 calls -f -x labs --json -- "$T/runs" signals 20
	none_is_silent 20 "$T/scry.out"
	listens runs "$T/runs" asked 20
	local pid=$PID scry
	start scry "$SCRY" calls -f -p "$pid" -x labs --json
	scry=$PID
	wait_for 20 in_file "watching process $pid" "$T/scry.err"
	echo >&8
	wait_for 60 in_file "^done" "$T/runs.out"
	exec 8>&-
	finish "$pid"
	finish "$scry" || true
	none_is_silent 20 "$T/scry.out"
}

# Each child says between which two moments it made its call.
@test "the first calls of fork children have the times at which they were made" {
	cat >"$T/stamps.c" <<-'EOF_C'
		#include <stdio.h>
		#include <stdlib.h>
		#include <sys/wait.h>
		#include <time.h>
		#include <unistd.h>
		static long long now(void)
		{
			struct timespec t;
			clock_gettime(CLOCK_REALTIME, &t);
			return t.tv_sec * 1000000000LL + t.tv_nsec;
		}
		int main(void)
		{
			volatile long sum = 0;
			for (int i = 0; i < 20; i++) {
				sum += labs(-1);
				if (!fork()) {
					long long before = now(), after;
					sum += labs(i);
					after = now();
					fprintf(stderr, "%d %lld %lld\n", i, before, after);
					return 0;
				}
				wait(NULL);
				usleep(3000);
			}
			return 0;
		}
	EOF_C
	cc -O0 -fno-builtin -o "$T/stamps" "$T/stamps.c"
	for more in "" -S; do
		[ -z "$more" ] || [ "$(id -u)" = 0 ] || continue
		scry_ends 0 calls -f $more -ttt -x labs -- "$T/stamps"
		"$RUBY" --disable=gems -e '
			text, moments = ARGV.map { |name| File.read(name) }
			moments = moments.scan(/^(\d+) (\d+) (\d+)$/).to_h { |l| [l[0].to_i, l[1, 2].map { |ns| ns.to_i / 1000 }] }
			calls = text.scan(/(\d+)\.(\d{6}) (?:\S+@)?labs\((\d+)/).map { |s, us, i| [i.to_i, s.to_i * 1_000_000 + us.to_i] }
			off = calls.map { |i, us| [us - moments[i][1], moments[i][0] - us].max }
			puts "off by #{off.max} us", calls.size
			exit calls.size == 20 && moments.size == 20 && off.max < 100' "$T/scry.out" "$T/scry.err"
	done
}

@test "who may not have the kernel's news of programs reads that some may be missing" {
	need_root "becoming somebody who may not"
	command -v setpriv >/dev/null || skip "no setpriv"
	[ "$(cat /proc/sys/kernel/perf_event_paranoid)" -gt 0 ] || skip "perf_event_paranoid allows it to all"
	runs_programs
	local dir
	dir=$(mktemp -d) # bats' own are closed to others
	mkdir "$dir/home"
	cp "$T/runs" "$dir"
	chmod 755 "$dir"
	chown 65534 "$dir/home"
	XDG_CACHE_HOME=$dir/home run setpriv --reuid=65534 --regid=65534 --clear-groups \
		"$SCRY" calls -f -x labs --json -- "$dir/runs" signals 20
	rm -rf "$dir"
	[ "$status" -eq 126 ] && skip "the build cannot be run by others"
	[ "$status" -eq 0 ]
	[[ "$output" == *"may be missing, as scry may not read the kernel's news of them"*"fix: run scry as root"* ]]
	[[ "$output" == *'"is_complete": false'* ]]
}
