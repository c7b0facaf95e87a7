#!/usr/bin/env bats
# scry stacks --names=probe: all code that comes into being is told of, as memory says; nothing of the
# program's changes. Names of code that is gone, and the kernel's side: test/unit/sample_iseq_events.c.

load lib
bats_require_minimum_version 1.5.0

setup() {
	prepare
	K="$HERE/names"
	# Where nobody may load a program into the kernel there is nothing to test: said aloud.
	local got=0 out
	out="$("$SCRY" stacks -q --names=probe --force -o "$T/try.scry" -- "$RUBY" -e 'sleep 0.3' 2>&1)" || got=$?
	[ "$got" -ne 125 ] || [[ "$out" != *CAP_BPF* ]] || skip "$out"
}

# naming FILE.scry KEY: of its naming event
naming() {
	"$SCRY" report --view events "$1" | sed -n "s/.* naming .*$2=\([0-9]*\).*/\1/p"
}

has_head() {
	[ -s "$1" ] && "$SCRY" info "$1" >/dev/null 2>&1
}

# compare PID: its code with that of its files: 0 the same, 3 not
compare() {
	"$RUBY" --disable=gems -e '
		File.readlines("/proc/#{ARGV[0]}/maps").each do |line|
			range, perms, offset, _, _, path = line.split
			next unless perms.include?("x") && path&.start_with?("/")
			from, to = range.split("-").map(&:hex)
			file = File.binread(path, to - from, offset.hex)
			memory = File.open("/proc/#{ARGV[0]}/mem", "rb") { |f| f.seek(from); f.read(file.size) }
			exit 3 if memory != file
		end' "$1"
}

unchanged() {
	compare "$1"
}

changed() {
	local got=0
	compare "$1" || got=$?
	[ "$got" -eq 3 ]
}

@test "all code that comes into being is told of, and memory says the same" {
	while read -ra words; do
		rm -f "$T/in" && mkfifo "$T/in"
		exec 5<>"$T/in"
		start born "${words[@]}" "$K/born.rb" <"$T/in" 5>&-
		local born=$PID
		wait_for 20 in_file ready "$T/born.out"
		start scry "$SCRY" stacks -q --names=probe --force -o "$T/b.scry" -p "$born"
		local scry=$PID
		wait_for 20 has_head "$T/b.scry"
		wait_for 20 changed "$born" # the breakpoint is there
		echo >&5
		wait_for 20 in_file made "$T/born.out"
		kill -INT "$scry"
		finish "$scry"
		exec 5>&-
		finish "$born"
		local made told late
		made="$(sed -n 's/^made //p' "$T/born.out")"
		told="$(naming "$T/b.scry" born)"
		late="$(naming "$T/b.scry" late)"
		echo "${words[*]}: made $made, told $told, of binary form $late"
		[ "$late" -eq 3 ]
		# Since 3.2 each that is loaded from binary form makes a second one, which never runs.
		[ "$made" -eq "$told" ] || [ "$made" -eq $((told + late)) ]
		[ "$made" -gt 20 ]
		[ "$(naming "$T/b.scry" agree)" -ge "$told" ]
		[ "$(naming "$T/b.scry" differ)" -eq 0 ]
		[ "$(naming "$T/b.scry" lost)" -eq 0 ]
		[ "$(naming "$T/b.scry" nameless)" -eq 0 ]
	done < <(rubies)
}

@test "evaluated code that is gone at once is named where stacks come by eBPF; by reading much is not" {
	for how in read probe; do
		"$SCRY" stacks -q --cpu --engine=bpf --names=$how -r 2000 --force -o "$T/$how.json" -- "$RUBY" "$K/busy.rb" "${SCRY_SOAK:+1}2" "$T/truth"
	done
	"$RUBY" --disable=gems "$K/check_busy.rb" "$T/probe.json" "$T/truth" "$T/read.json"
}

# has_made N: so many lines of possible.rb's, each for 1200 pieces of code
has_made() {
	[ "$(grep -c made "$T/possible.out")" -ge "$1" ]
}

@test "while code, objects, threads and fibers come and go: every stack is possible, no name is told otherwise" {
	"$RUBY" -e 'exit(RUBY_VERSION >= "3.0")' || skip "possible.rb is not for this Ruby"
	start possible "$RUBY" --disable=gems "$HERE/sampled_stacks/possible.rb" 100
	wait_for 20 in_file ready "$T/possible.out"
	local possible=$PID made
	start scry "$SCRY" stacks -q --names=probe -r 4000 --stacks --force -o "$T/p.scry" -p "$possible"
	wait_for 20 changed "$possible" || { cat "$T/scry.err"; return 1; } # the breakpoint is there
	made="$(grep -c made "$T/possible.out" || true)"
	# How much that is in a second, is the machine's and the Ruby's affair: from 3.3 on, a thread holds the VM for long.
	wait_for 60 has_made $((made + 2))
	kill -INT "$PID"
	finish "$PID"
	"$SCRY" report --stacks --force -o "$T/p.json" "$T/p.scry"
	"$RUBY" "$HERE/sampled_stacks/check_possible.rb" "$T/p.json" 200
	json_is "$T/p.json" 'r["totals"]["code_born"] > 1200 && r["totals"]["names_differ"] == 0 && r["totals"]["names_agree"] > 0'
}

@test "SIGKILL of scry at any moment: the program computes on, its code is as before" {
	start loop "$RUBY" "$K/loop.rb"
	wait_for 10 in_file ready "$T/loop.out"
	local loop=$PID
	unchanged "$loop"
	for _ in 1 2 3 4; do
		start scry "$SCRY" stacks -q --names=probe --force -o "$T/k.scry" -p "$loop"
		wait_for 10 changed "$loop"
		kill -KILL "$PID"
		finish "$PID" || true
		wait_for 10 unchanged "$loop"
	done
	kill -TERM "$loop"
	finish "$loop"
	grep -q "^right" "$T/loop.out"
}

@test "where other code stands at the place it is refused, with what mends it" {
	start loop "$RUBY" "$K/loop.rb"
	wait_for 10 in_file ready "$T/loop.out"
	local loop=$PID
	start scry "$SCRY" patch count rb_iseq_insns_info_encode_positions -q -o "$T/c.scry" -p "$loop"
	wait_for 10 changed "$loop"
	run "$SCRY" stacks -q --names=probe -d 1s -p "$loop"
	[ "$status" -eq 4 ]
	[[ "$output" == *"is hooked already; fix: "* ]]
	kill -INT "$PID"
	finish "$PID"
	unchanged "$loop"
}
