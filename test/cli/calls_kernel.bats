#!/usr/bin/env bats
# scry calls -S: system calls, by the kernel's tracepoints, among the calls of functions.

load lib

need_tracepoints() {
	need_root "tracepoints"
	"$SCRY" calls -L -S -- true >"$T/out" 2>&1 || skip "no tracepoints here: $(tail -1 "$T/out")"
}

# asked THREADS TIMES ROUNDS FILE: JSON lines of target_asks: each system call with its arguments and result; each
# getppid of the kernel within one of the library's, but for some ms, by which two clocks differ whose reading was interrupted.
asked() {
	"$RUBY" --disable=gems -rjson - "$@" <<'RUBY'
threads, times, rounds = ARGV[0, 3].map(&:to_i)
calls = File.foreach(ARGV[3]).grep(/^{/).map { |line| JSON.parse(line) }
data_quality = calls.pop["data_quality"]
bad = []
bad << data_quality unless data_quality.values_at("lost", "errors") == [0, 0]
by = calls.group_by { |c| c["function"] }
all = threads * times * rounds
bad << by.transform_values(&:size) unless %w[getppid SYS_getppid SYS_lseek].all? { |f| by[f].to_a.size == all }
seeks = by["SYS_lseek"].to_a
bad << seeks.first unless seeks.all? { |c| c["result"] == -9 && c["library"] == "kernel" && c["args"].size == 3 }
bad << "offsets" unless seeks.map { |c| Integer(c["args"][1]) }.tally == (0...times).to_h { |i| [1000 + i, threads * rounds] }
bad << "results" unless %w[getppid SYS_getppid].map { |f| by[f].to_a.map { |c| Integer(c["result"]) }.uniq }.uniq.size == 1
inside = by["getppid"].to_a.group_by { |c| c["tid"] }
by["SYS_getppid"].to_a.group_by { |c| c["tid"] }.each do |tid, of|
  bad << "times" unless of.zip(inside[tid]).all? { |s, c| s["time_ns"].between?(c["time_ns"] - 5_000_000, c["time_ns"] + c["duration_ns"] + 5_000_000) }
  bad << "threads" unless of.size == times
end if rounds == 1
puts bad.first(3).inspect
exit bad.empty?
RUBY
}

@test "a started program, in all its threads" {
	need_tracepoints
	echo >"$T/in"
	"$SCRY" calls -S -x getppid --json -- "$TARGETS/target_asks" 4 500 <"$T/in" >"$T/scry.out" 2>"$T/scry.err"
	asked 4 500 1 "$T/scry.out"
}

@test "attached: threads that are there and that come; nothing is stopped afterwards" {
	local pid before
	need_tracepoints
	listens asks "$TARGETS/target_asks" 3 200
	pid=$PID
	before=$(state_of "$pid")
	start scry "$SCRY" calls -S -p "$pid" -x getppid --json
	scry=$PID
	wait_for 20 in_file "watching process $pid" "$T/scry.err"
	echo >&8
	wait_for 20 in_file "^asked" "$T/asks.out"
	echo >&8
	wait_for 20 bash -c "[ \$(grep -c ^asked '$T/asks.out') -eq 2 ]"
	kill -INT "$scry"
	finish "$scry"
	asked 3 200 2 "$T/scry.out"
	as_before "$pid" "$before" "after -S"
	exec 8>&-
	finish "$pid"
}

@test "in the form of ltrace, alone and in sums" {
	need_tracepoints
	echo >"$T/in"
	"$SCRY" calls -L -S -T -- "$TARGETS/target_asks" 1 2 <"$T/in" >"$T/scry.out"
	grep -qE '^(\[pid [0-9]+\] )?SYS_lseek\(-7, 1000, SEEK_CUR\) = -9 EBADF \(Bad file descriptor\) <0\.[0-9]{9}>$' "$T/scry.out"
	grep -qE 'SYS_write\(1, ("[^"]+"|0x[0-9a-f]+), 8( <unfinished \.\.\.>|\) = 8 )' "$T/scry.out"
	"$SCRY" calls -L -S -c -- "$TARGETS/target_asks" 1 20 <"$T/in" | grep -qE ' 20 .*SYS_lseek'
}

@test "where it is not permitted it is refused, with what to do" {
	need_root "becoming somebody who may not"
	command -v setpriv >/dev/null || skip "no setpriv"
	mkdir "$T/o" && chmod 777 "$T" "$T/o"
	run setpriv --reuid=65534 --regid=65534 --clear-groups "$SCRY" calls -S -L -- "$TARGETS/target_asks"
	[ "$status" -eq 125 ] || [ "$status" -eq 126 ]
	[ "$status" -eq 126 ] && skip "the build cannot be run by others"
	[[ "$output" == *"system calls cannot be traced"*"fix: run scry as root"* ]]
}

# family CHILDREN TIMES: of target_asks: each child and grandchild with all of its calls, once.
family() {
	"$RUBY" --disable=gems -rjson - "$@" "$T/scry.out" <<'RUBY'
children, times = ARGV[0, 2].map(&:to_i)
calls = File.foreach(ARGV[2]).grep(/^{/).map { |line| JSON.parse(line) }
data_quality = calls.pop["data_quality"]
bad = []
bad << data_quality unless data_quality.values_at("lost", "errors") == [0, 0] && data_quality["events"] == calls.size
by = calls.group_by { |c| c["pid"] }.transform_values { |of| of.group_by { |c| c["function"] } }
asked = by.values.map { |of| [of["getppid"].to_a.size, of["SYS_lseek"].to_a.size] }.reject { |n| n.max < times }.tally # the shell asks too
bad << asked unless asked == { [times, times] => children + 1, [0, times] => children }
by.each_value do |of|
  offsets = of["SYS_lseek"].to_a.map { |c| Integer(c["args"][1]) }
  bad << offsets.first(5) unless offsets.empty? || offsets == [*1000...1000 + times]
  next unless of["getppid"].to_a.size == times
  inside = of["getppid"].map { |c| c["time_ns"]..c["time_ns"] + c["duration_ns"] }
  asked = of["SYS_getppid"].to_a.last(times) # the first ones wait
  bad << "getppid without the kernel's" unless asked.size == times
  bad << "order" unless inside.zip(asked).all? { |range, c| c && c["time_ns"].between?(range.begin - 5_000_000, range.end + 5_000_000) }
end
puts bad.first(3).inspect
exit bad.empty?
RUBY
}

# all_of CHILDREN TIMES COMMAND...
all_of() {
	"$SCRY" calls -S -f -x getppid --json -- "${@:3}" >"$T/scry.out" 2>"$T/scry.err"
	family "$1" "$2"
}

@test "-f: children that call what is traced and children that do not, theirs, and those that outlive their parent" {
	need_tracepoints
	all_of 3 200 "$TARGETS/target_asks" 3 200 family
	all_of 2 100 sh -c "'$TARGETS/target_asks' 2 100 family; true"
}

@test "-f: each of 400 processes is made by the one before it, which then ends" {
	need_tracepoints
	"$SCRY" calls -S -f -x getppid --json -- "$TARGETS/target_asks" 400 3 relay >"$T/scry.out" 2>"$T/scry.err"
	[ "$(grep -c '"SYS_lseek"' "$T/scry.out")" -eq 1200 ]
	tail -1 "$T/scry.out" | grep -q '"lost": 0,'
}

@test "calls that a seccomp filter answers, and calls with numbers that no kernel has" {
	need_tracepoints
	cat >"$T/answered.c" <<-'EOF_C'
		#include <errno.h>
		#include <linux/filter.h>
		#include <linux/seccomp.h>
		#include <pthread.h>
		#include <stddef.h>
		#include <sys/prctl.h>
		#include <sys/syscall.h>
		#include <sys/wait.h>
		#include <unistd.h>
		static void *ask(void *arg)
		{
			for (int i = 0; i < 3; i++)
				syscall(SYS_getuid);
			return arg;
		}
		int main(void)
		{
			struct sock_filter filter[] = {
				BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
				BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getuid, 0, 1),
				BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
				BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
			struct sock_fprog program = {4, filter};
			pthread_t t;
			syscall(1000, 1, 2);
			syscall(70000, 5);
			prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
			if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
				return 2;
			ask(NULL);
			syscall(SYS_getgid);
			pthread_create(&t, NULL, ask, NULL);
			pthread_join(t, NULL);
			if (!fork()) {
				ask(NULL);
				_exit(0);
			}
			wait(NULL);
			return 0;
		}
	EOF_C
	cc -pthread -o "$T/answered" "$T/answered.c"
	scry_ends 0 calls -f -L -S -- "$T/answered"
	cat "$T/scry.out" "$T/scry.err"
	[ "$(grep -cE 'SYS_getuid\(\) = -1 EPERM' "$T/scry.out")" -eq 9 ]
	[ "$(grep -c 'SYS_getgid() = ' "$T/scry.out")" -eq 1 ]
	grep -qE 'SYS_1000\(1, 2, .*\) = -38 ENOSYS' "$T/scry.out"
	grep -qE 'SYS_70000\(5, .*\) = -38 ENOSYS' "$T/scry.out"
	# a child's first look at the kernel is the end of the call that made it
	[ "$(grep -cE 'SYS_clone3?\(' "$T/scry.out")" -eq 2 ]
	says "9 system calls were answered without being made, as a seccomp filter"
}
