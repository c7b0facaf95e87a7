#!/usr/bin/env bats
# scry syscalls where eBPF is not permitted: samples by perf events, numbers read from the code. As an ordinary user with
# CAP_PERFMON, or with kernel.perf_event_paranoid=1, against what the programs say themselves.

load lib

setup() {
	need_targets
	prepare
	need_root "to be another user"
	perfmon true || skip "no right to give CAP_PERFMON to another user"
	perfmon test -x "$SCRY" || skip "nobody may not run $SCRY"
	chmod 755 "$T"
}

teardown() {
	[ -z "${PARANOID:-}" ] || sysctl -q -w "kernel.perf_event_paranoid=$PARANOID"
}

as_nobody() {
	HOME=/ XDG_CACHE_HOME="$T/none" setpriv --reuid=65534 --regid=65534 --clear-groups "$@"
}

perfmon() {
	local caps=-all,+perfmon
	as_nobody --inh-caps=$caps --ambient-caps=$caps --bounding-set=$caps "$@"
}

# sampled ARGS...: scry's report in $T/s.json.
sampled() {
	perfmon "$SCRY" syscalls --json "$@" >"$T/all" 2>"$T/scry.err"
	sed '/^{/,$!d' "$T/all" >"$T/s.json"
	says "sampled by perf events"
	json_is "$T/s.json" 'r["totals"]["engine"] == "perf" && r["totals"]["mode"] == "sampled" && r["totals"]["ran_ns"] > 0'
}

@test "the instruction, the call and who called it; nothing is counted" {
	sampled -- "$TARGETS/target_ring" 200000
	json_is "$T/s.json" '(x = rows[0])["symbol"] == "swapcontext" && x["name"] == "rt_sigprocmask" && x["number"] == 14 && !!(x["module"] =~ /libc/ && x["caller"] =~ /pass_on/)'
	json_is "$T/s.json" 'rows.all? { |x| x["count"].nil? && x["errors"].nil? } && r["totals"]["calls"].nil? && r["totals"]["exits"].nil? && r["verdicts"] == []'
	json_is "$T/s.json" 'rows.sum { |x| x["samples"] } == r["totals"]["samples_in_calls"]'
}

# As in syscalls.bats: a virtual machine whose host is busy takes from clock and ticks unlike.
@test "the share of time in a call is that of the program's clock of its processor within five points" {
	shares() {
		sampled -r 5000 -- "$TARGETS/target_syscaller" zeros=2500 || return 2
		json_is "$T/s.json" "(rows.find { |x| x['symbol'] == 'call_zeros' }['share'] - $(sed -n 's/^zeros share //p' "$T/all")).abs < 0.05" || return 3
	}
	most_hold 2 3 shares
}

@test "a number is that of the code on the way to the call, or not known; never that of another call" {
	sampled -- "$TARGETS/target_numbers" 300000
	json_is "$T/s.json" 'rows.map { |x| x["name"] }.include?("getpgid")'
	json_is "$T/s.json" '(x = rows.select { |y| y["symbol"] == "syscall" }).map { |y| [y["name"], y["number"]] }.sort_by(&:to_s) == [["[not known]", nil], ["getppid", 110]]'
	json_is "$T/s.json" '(x = rows.select { |y| y["symbol"] == "by_branches" }).size == 1 && x[0]["name"] == "[not known]" && x[0]["number"].nil?'
	json_is "$T/s.json" 'rows.none? { |x| %w[getpid getuid getgid].include?(x["name"]) && x["symbol"] != "getpid" }'
	json_is "$T/s.json" 'r["notes"].any? { |x| x =~ /is not known of \d+ %/ }'
	# Whoever only hands the number on, as glibc does from 2.41 on, is no caller.
	json_is "$T/s.json" '(x = rows.select { |y| y["symbol"] == "by_register" }).size == 1 && x[0]["name"] == "getsid" && !!(x[0]["caller"] =~ /\Aby_handing_on/)'
	json_is "$T/s.json" '!(x = rows.select { |y| y["name"] == "write" }).empty? && x.all? { |y| y["caller"] =~ /\A(\w*write\S* < )?by_cancelling/ }'
	# The unwind table of glibc's clone3 ends before its call. Threads run for less than the usual tick.
	sampled -r 20000 -- python3 -c 'import threading
for i in range(2000): t = threading.Thread(target=int); t.start(); t.join()'
	json_is "$T/s.json" '!(x = rows.select { |y| y["symbol"] =~ /\A_*clone3\z/ }).empty? && x.all? { |y| y["name"] == "clone3" }'
	"$TARGETS/target_numbers" 1 int80 >/dev/null || skip "no int 0x80 on this kernel"
	sampled -- "$TARGETS/target_numbers" 30000 int80
	json_is "$T/s.json" '(x = rows.find { |y| y["symbol"] == "by_interrupt" })["name"] == "32-bit call 64" && x["abi"] == "32"'
}

# agrees COMMAND...: what a place's calls are by the code, the kernel says as well, which counts all of them.
agrees() {
	"$SCRY" syscalls -q -f --exact --force -o "$T/exact.json" -- "$@" >"$T/out"
	sampled -f -r 20000 -- "$@"
	"$RUBY" --disable=gems -rjson - "$T/exact.json" "$T/s.json" <<'RUBY'
exact, read = ARGV.map { |f| JSON.parse(File.read(f))["rows"].group_by { |x| x.values_at("module", "symbol", "offset") } }
seen = 0
bad = read.flat_map do |place, rows|
  names = exact[place]&.map { |x| x["name"] } or next []
  known = rows.map { |x| x["name"] } - ["[not known]"]
  seen += known.size
  (known - names).map { |name| "#{place.compact.join(" ")}: #{name}, which is #{names}" }
end
puts bad, "#{seen} places"
exit bad.empty? && seen >= 8
RUBY
}

@test "numbers read from the code are those that the kernel sees: a shell, git, a Python, a Perl, a Ruby" {
	need_bpf
	agrees sh -c 'for i in 1 2 3 4 5 6 7 8 9 10; do git --version; ls -l /usr; cat /etc/passwd | wc; done'
	agrees python3 -c 'import os, tempfile
for i in range(2000): os.stat("/"); os.getppid(); os.close(os.open("/", 0)); os.listdir("/"); os.pipe() if i < 20 else 0; os.urandom(8)'
	agrees perl -e 'for (1 .. 3000) { opendir my $d, "/"; readdir $d; stat "/"; getppid; kill 0, $$; open my $f, "<", "/etc/passwd"; my @l = <$f> }'
	agrees "$RUBY" --disable=gems -e '2000.times { File.stat("/"); Dir.children("/"); File.read("/etc/passwd"); Process.ppid; Thread.new { }.join }'
}

@test "each thread's, and with -f each child's; what a shell becomes by exec" {
	sampled --by thread -- "$TARGETS/target_syscaller" threads=150000
	json_is "$T/s.json" '(1..3).all? { |n| rows.any? { |x| x["thread"] == "caller #{n * 150000}" } } && rows.map { |x| x["pid"] }.uniq.size == 1'
	sampled -f --by thread -- "$TARGETS/target_syscaller" children=150000
	# The parent waits for them.
	json_is "$T/s.json" 'rows.map { |x| x["pid"] }.uniq.size >= 3 && r["data_quality"]["processes"].size == 4'
	sampled -- "$TARGETS/target_syscaller" children=150000
	json_is "$T/s.json" 'rows.none? { |x| x["symbol"] == "call_children" } && r["notes"].any? { |x| x =~ /3 child processes were not watched/ }'
	sampled -- sh -c "exec '$TARGETS/target_ring' 200000"
	json_is "$T/s.json" 'rows[0]["symbol"] == "swapcontext" && r["data_quality"]["processes"].map { |x| x["exe"] } == ["'"$TARGETS"'/target_ring"]'
}

@test "-p of a process that runs, with its threads and children; it goes on, and is as it was" {
	start ring setpriv --reuid=65534 --regid=65534 --clear-groups "$TARGETS/target_ring" 40000000
	ring=$PID
	wait_for 10 in_file "^pid" "$T/ring.out"
	before=$(state_of "$ring")
	sampled -p "$ring" -d 1s
	as_before "$ring" "$before" "after the watch"
	json_is "$T/s.json" 'rows[0]["symbol"] == "swapcontext" && r["totals"]["samples"] * 2_000_000 > r["totals"]["ran_ns"]'
	kill "$ring"
}

@test "threads that run for less than a tick are in no sample, which is said" {
	sampled -r 500 -f -- sh -c 'for i in 1 2 3 4 5 6 7 8 9 10 11 12; do for j in 1 2 3 4 5 6 7 8 9 10; do /bin/true; done; done'
	json_is "$T/s.json" 'r["notes"].any? { |x| x =~ /of the processor time \d+ % is in no sample/ }'
}

@test "--exact is refused with what mends it" {
	for how in --exact --latency -c; do
		status=0
		perfmon "$SCRY" syscalls $how -- echo ran >"$T/out" 2>"$T/scry.err" || status=$?
		[ "$status" -eq 125 ]
		[ ! -s "$T/out" ]
		says "CAP_BPF.*fix: sudo"
	done
}

@test "without any right: by perf_event_paranoid, which is named with its value" {
	level=$(cat /proc/sys/kernel/perf_event_paranoid)
	sysctl -q -w kernel.perf_event_paranoid=2 2>/dev/null || skip "kernel.perf_event_paranoid cannot be set here"
	PARANOID=$level
	status=0
	as_nobody "$SCRY" syscalls -- echo ran >"$T/out" 2>"$T/scry.err" || status=$?
	[ "$status" -eq 125 ]
	[ ! -s "$T/out" ]
	says "perf_event_paranoid is 2, .*fix: sudo scry .*sysctl kernel.perf_event_paranoid=1"
	as_nobody "$SCRY" doctor >"$T/doctor" || true
	in_file "^-- *syscalls: samples .*perf_event_paranoid is 2" "$T/doctor"
	sysctl -q -w kernel.perf_event_paranoid=1
	as_nobody "$SCRY" doctor >"$T/doctor" || true
	in_file "^ok *syscalls: samples " "$T/doctor"
	as_nobody "$SCRY" syscalls --json -- "$TARGETS/target_ring" 200000 2>"$T/scry.err" | sed '/^{/,$!d' >"$T/s.json"
	json_is "$T/s.json" 'r["totals"]["engine"] == "perf" && rows[0]["symbol"] == "swapcontext"'
	# Another user's is not to be looked at.
	status=0
	as_nobody "$SCRY" syscalls -p $$ -d 1s >"$T/out" 2>"$T/scry.err" || status=$?
	[ "$status" -eq 3 ]
	says "not permitted.*fix: sudo"
}
