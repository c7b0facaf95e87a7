#!/usr/bin/env bats
# `scry objects --source hooks`: the VM's own functions are hooked instead of its events. All that is
# proven of events holds of hooks: the same scripts, the same truth; and what is different is told.

load lib

setup() {
	prepare
	"$RUBY" -e 'sleep' &
	PID=$!
	STARTED="$PID"
	wait_for 10 bash -c "'$SCRY' doctor -p $PID | grep -q '^ok.*switch for events'"
	"$SCRY" doctor -p "$PID" >"$T/doctor" || true
	grep -q "^ok *allocation hooks" "$T/doctor" || skip "hooks are not proven on this ruby: $(grep 'allocation hooks' "$T/doctor")"
}

need_tables() {
	"$RUBY" -e 'exit RUBY_VERSION.start_with?("3.1.")' || skip "the tables of truth/ are of Ruby 3.1; SCRY_TEST_RUBIES is for others"
}

# by_hooks FILE [BATS-OPTIONS...]: the tests of another file, with every watch by hooks.
by_hooks() {
	local file=$1
	shift
	cat >"$T/scry" <<-SH
		#!/bin/bash
		if [ "\$1" = objects ]; then
			shift
			exec -a scry "$(readlink -f "$SCRY")" objects --source hooks "\$@"
		fi
		exec "$(readlink -f "$SCRY")" "\$@"
	SH
	chmod +x "$T/scry"
	SCRY="$T/scry" bats "$@" "$HERE/$file" >"$T/bats.out" 2>&1 3>&- || {
		grep -A30 "^not ok" "$T/bats.out" | head -60
		return 1
	}
	grep -q "^ok" "$T/bats.out"
}

@test "the functions that make and free objects are found by counting, once, and kept" {
	grep -qE "^ok *allocation functions +[0-9]+ functions, 1 frees .* made [0-9]+ objects; [0-9]+ freed" "$T/doctor"
	export XDG_CACHE_HOME="$T/cache"
	mkdir -p "$XDG_CACHE_HOME"
	"$SCRY" doctor -p "$PID" >"$T/first" || true
	grep -q "^ok *layout *learned now" "$T/first"
	"$SCRY" doctor -p "$PID" >"$T/second" || true
	grep -q "^ok *layout *from the cache" "$T/second"
	diff <(grep "allocation functions" "$T/first") <(grep "allocation functions" "$T/second")
	# a started ruby learns its layout each time, but not this
	"$SCRY" objects --source hooks -o "$T/o.json" -- "$RUBY" -e '1' 2>"$T/err"
	no grep -q "by counting" "$T/err"
}

@test "counts per line and class are those of the VM's own account: truth" {
	need_tables
	by_hooks objects_truth.bats -f "^truth"
}

@test "counts per line and class are those of the VM's own account: late" {
	need_tables
	by_hooks objects_truth.bats -f "^late"
}

@test "the same on the Rubies of SCRY_TEST_RUBIES" {
	by_hooks objects_rubies.bats
}

@test "the living, the freed, ages and GCs" {
	by_hooks objects_live.bats
}

@test "events and hooks say the same of one program" {
	cat >"$T/p.rb" <<-'RUBY'
		class Kept; end
		class Dropped; end
		KEPT = []
		20_000.times do |i|
		  KEPT << Kept.new if i % 10 == 0
		  Dropped.new
		  [i, "text #{i}", { i => 2**70 }]
		end
		3.times { GC.start }
	RUBY
	"$SCRY" objects --top 0 -o "$T/event.json" -- "$RUBY" --disable=gems "$T/p.rb"
	"$SCRY" objects --source hooks --top 0 -o "$T/hooks.json" -- "$RUBY" --disable=gems "$T/p.rb"
	"$RUBY" --disable=gems -rjson -e '
	  a, b = ARGV.map { |f| JSON.parse(File.read(f)) }
	  rows = [a, b].map { |r| r["rows"].select { |x| x["file"]&.end_with?("p.rb") }.to_h { |x| [[x["line"], x["class"]], x.values_at("allocated", "live")] } }
	  # a String may be kept by a stale word on the stack
	  bad = (rows[0].keys | rows[1].keys).reject { |k| x, y = rows.map { |r| r[k] }; x && y && x[0] == y[0] && (x[1] - y[1]).abs <= 2 }
	  abort "differ: #{bad.map { |k| [k, rows.map { |r| r[k] }] }}" unless bad.empty? && rows[0].size >= 6
	  abort "GCs: #{[a, b].map { |r| r["data_quality"].values_at("gcs", "full_gcs") }}" unless a["data_quality"]["full_gcs"] == b["data_quality"]["full_gcs"] && b["data_quality"]["full_gcs"] >= 3
	  [a, b].each { |r| abort "data_quality: #{r["data_quality"]}" unless r["data_quality"]["lost"] == 0 && r["data_quality"]["errors"] == 0 }' \
		"$T/event.json" "$T/hooks.json"
}

@test "compaction, GC.stress" {
	by_hooks objects_moved.bats -f "$(share "the living|every object|GC.stress" ".")"
}

@test "sampling" {
	by_hooks objects_sampled.bats
}

@test "stacks" {
	by_hooks objects_stacks.bats -f "stacks: (blocks|code|the same|sixty|five)"
}

@test "fork children with -f" {
	by_hooks objects_follow.bats -f "$(share "children and|daemon|killed|from its start" "children|daemon|killed|puma")"
}

@test "puma under load, forks, races of attach and detach" {
	by_hooks objects_attach.bats -f "$(share "twenty|forks|text is as before" "puma|fork|text is as before|idle")"
}

@test "attach and detach under load leave the text as it was" {
	start load "$RUBY" "$HERE/programs/counted.rb"
	local load=$PID
	wait_for 10 in_file "^pid" "$T/load.out"
	text_of "$load" >"$T/before"
	for i in 1 2 3 4 5 6 7 8; do
		"$SCRY" objects --source hooks -p "$load" -d 150ms --top 0 -o "$T/o$i.json"
		# a busy machine loses some, and says so
		json_is "$T/o$i.json" '(r["data_quality"]["lost"] > 0 || r["data_quality"]["errors"] == 0) && r["totals"]["allocated"] > 0'
		text_of "$load" | diff "$T/before" -
	done
	[ "$(mappings "$load")" -eq 0 ]
	kill -TERM "$load"
	finish "$load"
	tail -1 "$T/load.out" | grep -q "^rounds [0-9]"
}

@test "while it watches, the changed bytes are listed; a dry run changes none" {
	start load "$RUBY" "$HERE/programs/counted.rb"
	local load=$PID
	wait_for 10 in_file "^pid" "$T/load.out"
	text_of "$load" >"$T/before"
	"$SCRY" objects --source hooks -p "$load" --dry-run >"$T/dry"
	grep -q "hooks on the functions that make objects" "$T/dry"
	[ "$(grep -c "change *5 bytes" "$T/dry")" -ge 3 ]
	text_of "$load" | diff "$T/before" -
	start scry "$SCRY" objects --source hooks -p "$load" -o "$T/o.json"
	local scry=$PID
	wait_for 30 in_file "watching process" "$T/scry.err"
	"$SCRY" patch list -p "$load" | grep -q applied
	! text_of "$load" | diff -q "$T/before" - || false
	kill -INT "$scry"
	finish "$scry"
	text_of "$load" | diff "$T/before" -
	kill -TERM "$load"
	finish "$load"
}

@test "a program that makes a ractor while it is watched lives on, and the report says so" {
	"$SCRY" objects --source hooks -o "$T/o.json" -- "$RUBY" -W0 -e '
	  3.times { Array.new(1000) { "x" } }
	  puts Ractor.new { Array.new(50_000) { "y" }.size }.take' >"$T/out"
	grep -q "^50000$" "$T/out"
	json_is "$T/o.json" 'r["notes"].any? { |n| n.include?("made a ractor") }'
}

@test "where hooks cannot be, the reason is said; auto takes events" {
	"$RUBY" --yjit -e 1 2>/dev/null || skip "this ruby has no JIT"
	local status=0
	"$SCRY" objects --source hooks -- "$RUBY" --yjit -e '1' >"$T/out" 2>"$T/err" || status=$?
	[ "$status" -ne 0 ]
	grep -q "made at run time (a JIT); fix: --source event" "$T/err"
	"$SCRY" objects -v --source auto -o "$T/o.json" -- "$RUBY" --yjit -e '1000.times { "x" }' 2>"$T/err"
	grep -q "a JIT" "$T/err"
	json_is "$T/o.json" 'r["totals"]["allocated"] >= 1000'
	"$SCRY" objects --source auto -p "$PID" --dry-run | grep -q "hooks on the functions"
}

@test "while functions are counted, objects are not hooked: who owns the process is said" {
	start load "$RUBY" "$HERE/programs/counted.rb"
	local load=$PID
	wait_for 10 in_file "^pid" "$T/load.out"
	start count "$SCRY" patch count rb_gc_start -p "$load" --via=entry
	local count=$PID
	wait_for 10 in_file "watching process" "$T/count.err"
	no "$SCRY" objects --source hooks -p "$load" -d 100ms 2>"$T/err"
	grep -qE "is watched|owned|by scry" "$T/err"
	kill -INT "$count"
	finish "$count"
	kill -TERM "$load"
	finish "$load"
}
