#!/usr/bin/env bats
# scry syscalls, of calls that a signal, a new program or a filter comes between (test/targets/between.c).

load lib

setup() {
	need_targets
	prepare
	need_root "eBPF"
	need_bpf
}

@test "a sample on the way to a handler is of the place that made the call; rt_sigreturn has none" {
	scry_ends 0 syscalls -o "$T/o.json" -- "$TARGETS/target_between" handlers 300
	json_is "$T/o.json" 'x = rows.select { |y| y["name"] == "tgkill" }; x.map { |y| y["symbol"] } - ["syscall", nil] == [] && x.sum { |y| y["samples"] } > 50'
	json_is "$T/o.json" 'rows.find { |y| y["name"] == "tgkill" && y["symbol"].nil? }.to_h["samples"].to_i * 100 <= rows.sum { |y| y["samples"] }'
	json_is "$T/o.json" 'rows.select { |y| y["name"] == "rt_sigreturn" }.all? { |y| y["module"].nil? }'
}

@test "a sample at the end of execve is of no place of the new program" {
	scry_ends 0 syscalls -f -o "$T/o.json" -- sh -c 'for i in 0 1 2 3 4 5 6 7 8 9; do for k in 0 1 2 3 4 5 6 7 8 9; do /bin/true; done; done'
	json_is "$T/o.json" 'rows.select { |y| y["name"] == "execve" }.all? { |y| y["module"].nil? || y["symbol"] == "execve" || y["module"] == "[not looked at]" }'
}

@test "rt_sigreturn is one row, with its samples, and counted whatever its handler leaves in ax" {
	scry_ends 0 syscalls -c -o "$T/o.json" -- "$TARGETS/target_between" handlers 200
	hits=$(sed -n 's/^hits //p' "$T/scry.out")
	json_is "$T/o.json" "(x = rows.select { |y| y['name'] == 'rt_sigreturn' }).size == 1 && x[0]['count'] == $hits && x[0]['samples'] > 0"
	for how in --exact --latency; do
		scry_ends 0 syscalls "$how" --force -o "$T/o.json" -- "$TARGETS/target_between" enosys 1000
		in_file "^hits 1000$" "$T/scry.out"
		json_is "$T/o.json" 'rows.select { |y| y["name"] == "rt_sigreturn" }.map { |y| y["count"] } == [1000]'
		json_is "$T/o.json" 'rows.none? { |y| y["name"] =~ /no such/ }'
	done
}

@test "calls that no kernel has are counted with their errors, and are no rt_sigreturn" {
	for how in --exact --latency; do
		scry_ends 0 syscalls "$how" --by syscall --force -o "$T/o.json" -- "$TARGETS/target_between" none 500
		json_is "$T/o.json" 'rows.select { |y| y["name"] =~ /no such/ }.map { |y| y.values_at("name", "number", "count", "errors") }.sort == [["[no such 32-bit call]", nil, 500, 500], ["[no such call]", nil, 1000, 1000]]'
		json_is "$T/o.json" 'rows.none? { |y| y["name"] == "rt_sigreturn" }'
	done
}

@test "what a filter may have answered is not proven; below one that lets the call pass it is" {
	for how in --exact --latency; do
		scry_ends 0 syscalls "$how" --force -o "$T/o.json" -- "$TARGETS/target_between" answered 3000
		json_is "$T/o.json" 'rows.find { |y| y["name"] == "rt_sigprocmask" }["count"] == 3000 && r["verdicts"].none? { |v| v["grade"] == "proven" }'
		scry_ends 0 syscalls "$how" --force -o "$T/o.json" -- "$TARGETS/target_between" passed 3000
		json_is "$T/o.json" 'r["verdicts"].find { |v| v["pattern"] == "mask" }.to_h["count"].to_i >= 2999'
	done
}

@test "directories of files that are not there are weighed by their calls, and are no other verdict's" {
	scry_ends 0 syscalls --exact -o "$T/o.json" -- "$TARGETS/target_between" paths 100000
	json_is "$T/o.json" 'r["verdicts"].find { |v| v["pattern"] == "enoent" && v["of"] > 100000 }.to_h["directories"].to_s.match?(%r{^/nowhere/late (9[89]|100) %})'
	[ -e /etc/localtime ] || skip "no /etc/localtime"
	scry_ends 0 syscalls --exact -o "$T/x.scry" -- "$TARGETS/target_between" localtime 100000
	scry_ends 0 report "$T/x.scry" --json
	json_is "$T/scry.out" '(x = r["verdicts"].select { |v| v["of"] > 100000 }).map { |v| v["pattern"] } == ["localtime"] && x[0]["directories"].nil? && x[0]["paths"].nil?'
	scry_ends 0 report "$T/x.scry"
	no in_file "asked for in .*nowhere" "$T/scry.out"
}

@test "--grep /REGEX/ is of each text of a row apart: its ends are those of a name" {
	scry_ends 0 syscalls --exact -q -o "$T/x.scry" -- "$TARGETS/target_between" none 10
	for pattern in '/^openat$/' '/^access$/' '/access\+0x[0-9a-f]+$/' '/^ld-linux/' '/openat .*ld-linux/'; do
		scry_ends 0 report "$T/x.scry" --grep "$pattern" --json
		json_is "$T/scry.out" "rows.size.between?(1, 20)"
	done
	scry_ends 0 report "$T/x.scry" --grep '/^penat$/' --json
	json_is "$T/scry.out" 'rows.empty?'
	scry_ends 0 report "$T/x.scry" --by syscall --grep '/^openat$/' --json
	json_is "$T/scry.out" 'rows.map { |x| x["name"] } == ["openat"]'
	# What is not shown, and how it is.
	scry_ends 0 report "$T/x.scry" --top 1
	in_file "more rows are not shown; --top 0 shows them$" "$T/scry.out"
	scry_ends 0 report "$T/x.scry" --grep '/^openat$/'
	in_file "rows are left out by --grep$" "$T/scry.out"
}

@test "-c is by syscall, and no other rows; too few descriptors are no old kernel" {
	scry_ends 2 syscalls -c --by site -- true
	says "-c is --by syscall"
	scry_ends 2 syscalls -c --by thread -- true
	scry_ends 0 syscalls -c --by syscall -- true
	in_file "total$" "$T/scry.out"
	got=0
	(ulimit -n 16 && exec "$SCRY" syscalls -- true) >"$T/scry.out" 2>"$T/scry.err" 3>&- || got=$?
	[ "$got" -eq 125 ]
	says "ulimit -n"
	no in_file "Linux 5.8" "$T/scry.err"
}

@test "the first line has no errors beside the program's own; calls of 32-bit numbers are said not to be examined" {
	scry_ends 0 syscalls --exact -- "$TARGETS/target_between" none 500
	in_file "^scry syscalls: .* system calls" "$T/scry.out"
	no in_file "^incomplete: " "$T/scry.out"
	in_file "^note: 500 calls have numbers of 32-bit programs" "$T/scry.out"
}
