#!/usr/bin/env bats
# scry record -f: fork children and what they run. Each instrument has each process's numbers that it has alone.

load lib

setup() {
	need_targets
	prepare
	command -v "$RUBY" >/dev/null || skip "no ruby"
	KIDS="$ROOT/test/ruby/programs/known_family.rb"
	MAKE="$(grep -n '"x" \*' "$KIDS" | cut -d: -f1)"
}

FUNCTIONS=(-x malloc -x free)

# kids NAME ARGS...: what `scry ARGS` records of all of the family, in $T/NAME.scry.
kids() {
	local name=$1
	shift
	rm -f "$T/in"
	listens scry bash -c 'echo pid; exec "$@"' scry "$SCRY" "$@" --force -o "$T/$name.scry" -- "$RUBY" --disable-gems "$KIDS"
	wait_for 60 in_file "^all" "$T/scry.out" || {
		cat "$T/scry.err"
		return 1
	}
	wait_for 20 are_known "$T/$name.scry" # who they are
	echo >&8
	finish "$PID"
}
are_known() { # of each section: five processes that live
	local section
	for section in $("$SCRY" info "$1" 2>/dev/null | sed -n 's/^ *\([a-z]*\)  instrument.*/\1/p'); do
		"$SCRY" info "$1" --section "$section" --json >"$T/known.json" 2>/dev/null || return 1
		json "$T/known.json" 'r["data_quality"]["processes"].size >= 5' | grep -qx true || return 1
	done
}

clean() { # FILE
	json_is "$1" 'r["data_quality"]["lost"] == 0 && r["data_quality"]["errors"] == 0'
}

# What each process called, a line for each program that it ran. With objects only where no Ruby starts: what scry puts
# into a VM takes some blocks.
blocks_of() { # NAME
	"$SCRY" report "$T/$1.scry" --view malloc --json >"$T/x.json"
	clean "$T/x.json"
	json "$T/x.json" 'r["processes"].map { |x| x["calls"] }.reject { |n| n > 5000 }.sort'
}
all_blocks_of() {
	"$SCRY" report "$T/$1.scry" --view malloc --json >"$T/x.json"
	clean "$T/x.json"
	json "$T/x.json" 'r["processes"].map { |x| x["calls"] }.sort'
}
calls_of() {
	"$SCRY" report "$T/$1.scry" --view calls-sums --json >"$T/x.json"
	clean "$T/x.json"
	json "$T/x.json" 'rows.select { |x| x["line"] == '"$MAKE"' || x["file"] == "-e" }.group_by { |x| [x["function"], x["line"]] }.map { |k, s|
		"#{k} #{s.sum { |x| x["calls"] }}" }.sort'
}
objects_of() {
	"$SCRY" report "$T/$1.scry" --view objects --json >"$T/x.json"
	clean "$T/x.json"
	json "$T/x.json" 'rows.select { |x| x["class"] == "String" && x["line"] == '"$MAKE"' && x["file"].end_with?("known_family.rb") }.map { |x| x["allocated"] }.sort'
}

same() { # WHAT ALONE TOGETHER
	[ "$2" = "$3" ] && return 0
	echo "$1, alone and together:"
	diff <(echo "$2") <(echo "$3")
	return 1
}

@test "malloc and calls of a family: each process's numbers are those that each instrument gives alone" {
	local blocks calls
	kids alone malloc record -f
	blocks=$(all_blocks_of alone)
	[ "$(wc -l <<<"$blocks")" -ge 1 ]
	kids alone calls -k -f "${FUNCTIONS[@]}"
	calls=$(calls_of alone)
	grep -qE "malloc.* 22[12][0-9]$" <<<"$calls" # 1000, 200, 400, 600, 10; and now and then a heap page
	kids both record -f -e malloc,calls -k "${FUNCTIONS[@]}"
	same malloc "$blocks" "$(all_blocks_of both)"
	same calls "$calls" "$(calls_of both)"
	clean "$T/x.json"
}

@test "objects, malloc, calls and gvl of a family: the same, and cat is in those sections only that want it" {
	local blocks objects calls
	kids alone objects -f
	objects=$(objects_of alone)
	kids alone malloc record -f
	blocks=$(blocks_of alone)
	kids alone calls -k -f "${FUNCTIONS[@]}"
	calls=$(calls_of alone)
	kids all record -f -e objects,malloc,calls,gvl -k "${FUNCTIONS[@]}"
	same objects "$objects" "$(objects_of all)"
	[ "$(tail -1 <<<"$objects")" -eq 1000 ]
	same malloc "$blocks" "$(blocks_of all)"
	same calls "$calls" "$(calls_of all)"
	"$SCRY" report "$T/all.scry" --section gvl --json >"$T/x.json"
	json_is "$T/x.json" 'r["data_quality"]["errors"] == 0 && r["threads"].sum { |t| t["takes"] } > 0 && r["data_quality"]["processes"].size >= 5 &&
		r["data_quality"]["processes"].none? { |x| x["exe"].to_s.end_with?("/cat") }'
	"$SCRY" report "$T/all.scry" --section malloc --json >"$T/x.json"
	json_is "$T/x.json" 'r["processes"].any? { |x| x["exe"].to_s.end_with?("/cat") }'
}

@test "busy children of a live process: nothing is counted as lost, and all are left as they were" {
	local text i
	need_root "entering a process that is not a child of scry"
	target forker
	text=$(text "$PID")
	for ((i = 0; i < $(share 3 20); i++)); do
		scry_ends 0 record -f -e malloc,calls -x work_mix -x work_fold -d 0.5s --force -o "$T/x.scry" -p "$PID"
		text_is "$PID" "$text"
		"$SCRY" report "$T/x.scry" >"$T/report"
		[ "$(grep -c "^scry " "$T/report")" -eq 2 ]
		no grep -E "^incomplete: .*(events lost|errors?(,|$))" "$T/report" # of who is gone nobody knows
	done
	as_nothing_left "$PID"
	ends_right "$PID" forker
}

as_nothing_left() { # PID...
	local pid
	for pid in "$@"; do
		wait_for 5 is_left "$pid" || {
			"$SCRY" ps
			return 1
		}
	done
}
is_left() { # a Ruby that sleeps has its agent still, without effect
	[ "$(mappings "$1")" -eq 0 ] || "$SCRY" ps | grep -w "^ *$1" | grep -q "idle"
}

@test "children that were there before are entered, and left as they were" {
	local pid all
	need_root "entering a process that is not a child of scry"
	listens kids "$RUBY" --disable-gems "$KIDS"
	wait_for 20 in_file "^all" "$T/kids.out"
	all=("$PID" $(pgrep -P "$PID"))
	[ "${#all[@]}" -eq 5 ]
	scry_ends 0 objects -p "$PID" -d 0.1s # a Ruby that is not known yet is learned
	for pid in "${all[@]}"; do text "$pid" >"$T/text.$pid"; done
	scry_ends 0 record -f -e objects,malloc,calls,gvl "${FUNCTIONS[@]}" -d 2s --max-pause 2s --force -o "$T/x.scry" -p "$PID"
	for section in objects malloc calls gvl; do
		"$SCRY" info "$T/x.scry" --section "$section" --json >"$T/x.json"
		json_is "$T/x.json" 'r["data_quality"]["processes"].map { |x| x["pid"] }.uniq.size == 5 && r["data_quality"]["errors"] == 0'
	done
	for pid in "${all[@]}"; do text_is "$pid" "$(cat "$T/text.$pid")"; done
	as_nothing_left "${all[@]}"
	echo >&8
	finish "$PID"
}

@test "what follows no children is refused with -f, by name" {
	scry_ends 2 record -f -e malloc,locks -- true
	says "locks does not follow children"
	scry_ends 2 record -f -e count,malloc -x free -- true
	says "count does not follow children"
}
