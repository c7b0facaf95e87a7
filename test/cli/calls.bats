#!/usr/bin/env bats
# scry calls on C programs whose calls are known: each one, its arguments, its result, its end.

load lib

# traced THREADS ROUNDS: starts it, its pid in $PID; `go` lets it do one round more.
traced() {
	listens traced "$TARGETS/target_traced" "$@"
}

rounds() {
	[ "$(grep -c "^round .* wrong 0$" "$T/traced.out")" -eq "$1" ]
}

go() { # NUMBER of the round
	echo >&8
	wait_for 60 rounds "$1" || {
		tail -3 "$T/traced.out"
		return 1
	}
}

# known THREADS ROUNDS TIMES FILE: JSON lines of exactly these calls of target_traced, each with its arguments and
# result, in the order of its thread, those of traced_inner inside their caller.
known() {
	"$RUBY" --disable=gems -rjson - "$@" <<'RUBY'
threads, rounds, times = ARGV[0, 3].map(&:to_i)
calls = File.foreach(ARGV[3]).map { |line| JSON.parse(line) }
data_quality = calls.pop["data_quality"]
bad = []
bad << data_quality unless data_quality["lost"].zero? && data_quality["errors"].zero? && data_quality["events"] == calls.size
sums, inner = calls.partition { |c| c["function"] == "traced_sum" }
want = (0...threads).flat_map { |t| (0...rounds).map { |i| [t, i, t ^ i] } }
got = sums.group_by { |c| c["args"].first(3).map { |a| Integer(a) } }
bad << "arguments" unless got.size == want.size && want.all? { |w| got[w]&.size == times }
bad << "inner #{inner.size}" unless inner.size == threads * times * ((rounds + 3) / 4)
value = ->(v) { v.is_a?(String) ? [Integer(v)].pack("Q").unpack1("q") : v }
sums.each do |c|
  t, i, = c["args"].map { |a| Integer(a) }
  right = t * 1_000_003 + i * 7 + (t ^ i) - (i % 4 == 0 ? i : 0)
  bad << c unless value[c["result"]] == right && c["state"] == "returned" && c["library"].end_with?("target_traced")
end
sums.group_by { |c| c["tid"] }.each_value do |one|
  bad << "order" unless one.each_cons(2).all? { |a, b| Integer(b["args"][1]) == Integer(a["args"][1]) + 1 &&
                                                      b["time_ns"] >= a["time_ns"] + a["duration_ns"] - 1000 }
end
puts bad.first(5)
exit bad.empty?
RUBY
}

@test "16 threads at full speed: every call with its arguments and result, and nothing else" {
	local rounds before pid
	need_root "entering a process that is not a child of scry"
	rounds=$(share 3000 100000)
	traced 16 "$rounds"
	pid=$PID
	before=$(state_of "$pid")
	traces "$pid" -x 'traced_*' --json
	scry=$PID
	go 1
	go 2
	ends_watch "$scry"
	known 16 "$rounds" 2 "$T/scry.out"
	as_before "$pid" "$before" "after a trace"
	go 3
	exec 8>&-
	finish "$pid"
}

@test "a started program: from its first call to its last, its own exit status" {
	scry_ends 0 calls -x 'traced_*' --json -- "$TARGETS/target_traced" 4 1000 2
	grep -v '^pid\|^round' "$T/scry.out" >"$T/lines"
	known 4 1000 2 "$T/lines"
	[ "$(grep -c "wrong 0" "$T/scry.out")" -eq 2 ]
	scry_ends 3 calls -x getenv -- sh -c 'exit 3'
}

@test "strings are read as far as their function reads them, and no further" {
	scry_ends 0 calls --clients -s 256 -o "$T/x.scry" --args=full -- "$TARGETS/target_traced_text"
	grep -q right "$T/scry.out"
	"$SCRY" report --objects never "$T/x.scry" >"$T/lines"
	"$RUBY" - >"$T/want" <<'RUBY'
puts 'sqlite3_prepare_v2(nil, "constructor", -1, nil, nil) = 11'
def call(name, text, rest, result) = puts(%(#{name}(0x1230, #{text}#{rest}) = #{result}))
call "mysql_real_query", '"SELECT 1"', ", 8", 49
call "mysql_real_query", '"SELECT"', ", 6", 84
call "mysql_real_query", '"a\0b\n""', ", 5", 34
call "mysql_real_query", "nil", ", 0", -1
call "mysql_real_query", '""', ", 0", -1
(1..17).each do |n|
  y, less = "\"#{"y" * n}\"", "\"#{"y" * (n - 1)}\""
  call "mysql_real_query", y, ", #{n}", 121
  call "sqlite3_prepare_v2", y, ", #{n}, nil, nil", n
  call "mysql_query", less, "", n - 1
  call "sqlite3_prepare_v2", less, ", -1, nil, nil", n - 1
  call "sqlite3_prepare_v2", less, ", 100, nil, nil", n - 1
end
call "mysql_query", "nil", "", -1
call "mysql_query", "\"#{"x" * 256}\"...", "", 3000
call "mysql_real_query", "\"#{"x" * 256}\"...", ", 3000", 120
call "mysql_query", "\"#{"x" * 256}\"", "", 256
puts "+++ exited (status 0) +++"
RUBY
	diff "$T/want" "$T/lines"
}

@test "what is kept holds no literals unless they are asked for" {
	scry_ends 0 calls --clients -o "$T/x.scry" -- "$TARGETS/target_traced_text"
	run grep -c secret "$T/x.scry"
	[ "$output" -eq 0 ]
	"$SCRY" report "$T/x.scry" | grep -qF 'mysql_real_query@libmariadb_known.so(0x1230, "SELECT ?", 8)'
	scry_ends 0 calls --args=none -x mysql_real_query -- "$TARGETS/target_traced_text"
	grep -qF 'mysql_real_query(...) = 49' "$T/scry.out"
}

@test "lines: nested and interleaved calls, times, sums, and the same from a recording" {
	scry_ends 0 calls -x 'traced_*' -o "$T/x.scry" -- "$TARGETS/target_traced" 1 2 1
	TZ=UTC "$SCRY" report -n 2 "$T/x.scry" >"$T/lines"
	grep -qE '^traced_sum\(0, 0, 0.* <unfinished \.\.\.>$' "$T/lines"
	grep -qE '^  traced_inner\(0.*\) = 0$' "$T/lines"
	grep -qE '^<\.\.\. traced_sum resumed> \) = 0$' "$T/lines"
	grep -qE '^traced_sum\(0, 1, 1.*\) = 8$' "$T/lines"
	[ "$(wc -l <"$T/lines")" -eq 5 ]
	[ "$(tail -1 "$T/lines")" = "+++ exited (status 0) +++" ]
	TZ=UTC "$SCRY" report -ttt -r -T "$T/x.scry" | grep -qE '^  0\.[0-9]{9} 1[0-9]{9}\.[0-9]{6} traced_sum\(0, 1, 1.*\) = 8 <0\.0000[0-9]{5}>$'
	"$SCRY" report --view calls-sums --top 1 "$T/x.scry" >"$T/top"
	[ "$(grep -c " more functions\? \(is\|are\) not shown; --top 0 shows" "$T/top")" -eq 1 ]
	"$SCRY" report --view calls-sums --json "$T/x.scry" >"$T/o.json"
	json_is "$T/o.json" 'rows.to_h { |r| [r["function"], r["calls"]] } == {"traced_sum" => 2, "traced_inner" => 1}'
	scry_ends 0 calls -c -x 'traced_*' -- "$TARGETS/target_traced" 4 1000 1
	grep -qE ' 4000 .*traced_sum' "$T/scry.out"
	scry_ends 0 calls --slow 1s -x 'traced_*' -- "$TARGETS/target_traced" 4 1000 1
	run grep -c '^traced' "$T/scry.out"
	[ "$output" -eq 0 ]
}

@test "lines appear while it runs" {
	need_root "entering a process that is not a child of scry"
	traced 1 3
	traces "$PID" -x traced_sum
	go 1
	wait_for 5 in_file "^traced_sum(0, 2, 2" "$T/scry.out"
	go 2
	wait_for 5 bash -c "[ \$(grep -c 'traced_sum(0, 2, 2' '$T/scry.out') -eq 2 ]"
}

@test "a reader that leaves, or is slow, harms nobody" {
	local pid before
	need_root "entering a process that is not a child of scry"
	traced 2 2000
	pid=$PID
	before=$(state_of "$pid")
	start scry bash -c '"$0" calls -p "$1" -x "traced_*" 2>"$2" | head -n 3' "$SCRY" "$pid" "$T/err"
	scry=$PID
	wait_for 20 in_file "watching process $pid" "$T/err"
	go 1
	finish "$scry"
	[ "$(wc -l <"$T/scry.out")" -eq 3 ]
	as_before "$pid" "$before" "after its reader left"
	go 2
}

@test "a reader that does not read: the program goes on, memory is bounded, what is lost is counted" {
	local pid
	need_root "entering a process that is not a child of scry"
	traced 2 500000
	pid=$PID
	start scry bash -c 'exec 8>&-; "$0" calls -p "$1" -x traced_sum --memory 4MiB 2>"$2" | { read -r; until [ -e "$3" ]; do sleep 0.1; done; cat; }' \
		"$SCRY" "$pid" "$T/err" "$T/read"
	scry=$PID
	wait_for 20 in_file "watching process $pid" "$T/err"
	go 1
	touch "$T/read"
	exec 8>&-
	finish "$pid"
	finish "$scry"
	"$RUBY" -e '
	  shown = 1 + File.readlines(ARGV[0]).grep(/traced_sum\(/).size
	  lost = File.read(ARGV[1])[/([\d,]+) lost/, 1].delete(",").to_i
	  puts "shown #{shown} lost #{lost}"
	  exit lost > 0 && (1_000_000 - lost..1_000_000).cover?(shown)' "$T/scry.out" "$T/err"
}

@test "jumps and exceptions through traced calls: told as left, the program is right" {
	local pid before
	need_root "entering a process that is not a child of scry"
	listens returner "$TARGETS/target_returner" "$TARGETS/libthrowing.so"
	pid=$PID
	before=$(state_of "$pid")
	traces "$pid" -x 'ret_*' -x '*thrower*' -x throwing_storm --json
	scry=$PID
	for mode in "jump 99" "tail 100" "fibers 4" "cancel 4" "fork 3" "signals 50" "deep 2" "throw 2"; do
		echo "$mode" >&8
		wait_for 120 grep -qE "^$mode right$" "$T/returner.out"
	done
	ends_watch "$scry"
	as_before "$pid" "$before" "after jumps and exceptions"
	"$RUBY" --disable=gems -rjson - "$T/scry.out" "$T/returner.out" <<'RUBY'
calls = File.foreach(ARGV[0]).map { |line| JSON.parse(line) }
data_quality = calls.pop["data_quality"]
told = File.readlines(ARGV[1]).map(&:split).select { |f| f[0] == "count" }.to_h { |f| [f[1], f[2..].map(&:to_i)] }
by = calls.group_by { |c| c["function"] }
lost = data_quality["lost"] # what signal handlers called that came while we were recording
bad = told.reject do |name, want|
  seen = [by[name].size, by[name].count { |c| c["state"] == "returned" }]
  name =~ /signal|outer|inner/ ? (want[0] - lost..want[0]).cover?(seen[0]) : seen == want
end
bad.each { |name, want| puts "#{name}: told #{want}, seen #{by[name]&.map { |x| x["state"] }&.tally}" }
left = by["ret_jump"].count { |c| c["state"] == "left" }
puts "left #{left}" unless left == 99 / 3 * 11
puts data_quality unless data_quality["errors"].zero?
exit(bad.empty? && left == 99 / 3 * 11 && data_quality["errors"].zero?)
RUBY
	exec 8>&-
	finish "$pid"
	in_file "wrong 0$" "$T/returner.out"
}

@test "C++, whose unwinder is loaded while it is traced: exceptions pass" {
	[ -f "$TARGETS/libthrowing.so" ] || skip "no C++ compiler"
	mkfifo "$T/in"
	(echo "throw 3" >"$T/in") &
	"$SCRY" calls -x '*thrower*' -x throwing_storm -o "$T/x.scry" -- "$TARGETS/target_returner" "$TARGETS/libthrowing.so" \
		<"$T/in" >"$T/scry.out" 2>"$T/scry.err" 3>&- || {
		tail -n 5 "$T/scry.out" "$T/scry.err"
		return 1
	}
	in_file "^throw 3 right" "$T/scry.out"
	"$SCRY" report --view calls-sums --json "$T/x.scry" >"$T/o.json"
	# once at its start, then as it is told
	json_is "$T/o.json" 'rows.find { |r| r["function"] == "throwing_storm" }.values_at("calls", "returned") == [4, 4]'
	json_is "$T/o.json" 'rows.find { |r| r["function"] =~ /thrower/ }.values_at("calls", "returned") == [4 * 7450, 0]'
	json_is "$T/o.json" 'r["data_quality"]["lost"] == 0 && r["data_quality"]["errors"] == 0'
}

@test "front and keeper are killed: the program lives and computes right" {
	local pid before keeper
	need_root "entering a process that is not a child of scry"
	traced 4 20000
	pid=$PID
	before=$(state_of "$pid")
	for who in front both; do
		traces "$pid" -x 'traced_*' -c
		scry=$PID
		keeper=$(keeper_of "$scry")
		echo >&8
		if [ $who = both ]; then kill -KILL "$keeper"; fi
		kill -KILL "$scry" || true
		finish "$scry" || true
		wait_for 10 is_gone "$keeper"
		[ $who = both ] && undo "$pid"
		as_before "$pid" "$before" "after $who died"
	done
	go 3
	exec 8>&-
	finish "$pid"
}

@test "a library that is loaded later, and what is never loaded" {
	local python=/usr/bin/python3
	"$python" -c 'import ctypes; ctypes.CDLL("libsqlite3.so.0")' 2>/dev/null || skip "no python3 with libsqlite3"
	scry_ends 0 calls --clients -- "$python" -c '
import ctypes
s = ctypes.CDLL("libsqlite3.so.0")
db = ctypes.c_void_p()
s.sqlite3_open(b":memory:", ctypes.byref(db))
for i in range(3):
    s.sqlite3_exec(db, b"SELECT %d" % i, None, None, None)
'
	grep -q '^sqlite3_open@libsqlite3[.so0-9]*(":memory:", 0x[0-9a-f]*' "$T/scry.out"
	[ "$(grep -cE '^sqlite3_exec@libsqlite3[.so0-9]*\(0x[0-9a-f]+, "SELECT [012]", nil, nil, nil' "$T/scry.out")" -eq 3 ]
	scry_ends 125 calls -x no_such_function -- "$python" -c 1
	says "no object was ever loaded that defines 'no_such_function"
}

@test "libraries that are loaded one after the other, an unwinder between them" {
	/usr/bin/python3 -c 'import ctypes; ctypes.CDLL("libsqlite3.so.0")' 2>/dev/null || skip "no python3 with libsqlite3"
	# the first to be hooked are the calls, the unwinder comes later
	scry_ends 0 calls -x 'sqlite3_libversion*@libsqlite3*' -- /usr/bin/python3 -c '
import ctypes
s = ctypes.CDLL("libsqlite3.so.0")
s.sqlite3_libversion_number()
ctypes.CDLL("libgcc_s.so.1")
for i in range(1000):
    s.sqlite3_libversion_number()
'
	[ "$(grep -c "^sqlite3_libversion_number(.* = 0x" "$T/scry.out")" -ge 1000 ]
}

@test "an unwinder is loaded while the keeper stands still: exceptions pass, calls are followed again later" {
	[ -f "$TARGETS/libthrowing.so" ] || skip "no C++ compiler"
	scry_ends 0 calls -x work_call@libwork* -o "$T/x.scry" -- /usr/bin/python3 -c '
import ctypes, os, signal, subprocess, sys, time
work = ctypes.CDLL(sys.argv[1])
front = os.getppid() # which would wake a keeper that traces this program
keeper = int(subprocess.check_output(["pgrep", "-P", str(front), "scry-keeper"]))
# should this program not live to do it
other = subprocess.Popen(["sh", "-c", "sleep 5; kill -CONT %d %d" % (keeper, front)], start_new_session=True)
os.kill(front, signal.SIGSTOP)
os.kill(keeper, signal.SIGSTOP)
try:
    lib = ctypes.CDLL(sys.argv[2])
    assert lib.throwing_through(work.work_through) == len("thirteen")
finally:
    os.kill(keeper, signal.SIGCONT)
    os.kill(front, signal.SIGCONT)
for i in range(200):
    time.sleep(0.01)
    assert lib.throwing_through(work.work_through) == len("thirteen")
os.killpg(other.pid, signal.SIGKILL)
' "$TARGETS/libwork.so" "$TARGETS/libthrowing.so"
	"$SCRY" report --view calls-sums --json "$T/x.scry" >"$T/o.json"
	json_is "$T/o.json" 'rows.find { |r| r["function"] == "work_call" }["calls"] > 0'
	json_is "$T/o.json" 'r["data_quality"]["lost"] > 0' # those that were not followed
}

@test "a dry run says what would be changed" {
	need_root "entering a process that is not a child of scry"
	traced 1 1
	scry_ends 0 calls -p "$PID" -x 'traced_*' -x later@libnone --dry-run
	grep -q "the entry of traced_sum" "$T/scry.out"
	grep -q "wait .*later@libnone" "$T/scry.out"
}
