#!/usr/bin/env bats
# scry record: several instruments on one process, in one recording. Each tells what it tells alone; a function that two
# want has one change that leads through both; each may leave before the other; the text is as before.

load lib

setup() {
	need_targets
	need_root "entering a process that is not a child of scry"
	prepare
	ROUNDS="$ROOT/test/ruby/programs/rounds.rb"
	MAKE="$(grep -n '"x" \*' "$ROUNDS" | cut -d: -f1)"
}

rounds() {
	command -v "$RUBY" >/dev/null || skip "no ruby"
	listens rounds "$RUBY" --disable-gems "$ROUNDS"
	ROUNDS_PID=$PID
	told "100 0" # the first round is not as the others
}

# told LINE: the program does so, and says that it has.
told() {
	local done
	done=$(grep -c done "$T/rounds.out" || true)
	echo "$1" >&8
	wait_for 20 has_done $((done + 1))
}
has_done() {
	[ "$(grep -c done "$T/rounds.out")" -ge "$1" ]
}

# seen NAME ARGS...: what of 500 rounds scry ARGS records, in $T/NAME.scry.
seen() {
	local name=$1
	shift
	start scry "$SCRY" "$@" --force -o "$T/$name.scry" -p "$ROUNDS_PID"
	wait_for 40 in_file "watching process" "$T/scry.err" || {
		cat "$T/scry.err"
		return 1
	}
	told "500 0"
	ends_watch "$PID"
}

# report NAME VIEW: as JSON, in $T/x.json; nothing was lost.
report() {
	"$SCRY" report "$T/$1.scry" --view "$2" --json >"$T/x.json"
	json_is "$T/x.json" 'r["data_quality"]["lost"] == 0 && r["data_quality"]["errors"] == 0'
}

# What each counts of malloc and free, in all and by the line that makes the strings. Not of other functions: a heap page
# of the VM is due at one moment or another.
calls_of() {
	report "$1" calls-sums
	json "$T/x.json" 'rows.group_by { |x| x["function"] }.map { |f, s| "#{f} #{s.sum { |x| x["calls"] }}" }.sort +
		rows.select { |x| x["line"] == '"$MAKE"' }.map { |x| "#{x["function"]} at its line #{x["calls"]}" }.sort'
}
blocks_of() {
	report "$1" malloc
	json "$T/x.json" 'r["functions"].select { |x| %w(malloc free).include?(x["function"]) }.map { |x|
			"#{x["function"]} #{x["calls"]}" }.sort +
		rows.select { |x| x["line"] == '"$MAKE"' }.map { |x| "at its line #{x["allocated"]} #{x["bytes"]}" }'
}
objects_of() {
	report "$1" objects
	json "$T/x.json" 'rows.select { |x| x["line"] == '"$MAKE"' }.map { |x| "#{x["class"]} #{x["allocated"]}" }'
}

same() { # WHAT ALONE TOGETHER
	[ "$2" = "$3" ] && return 0
	echo "$1, alone and together:"
	diff <(echo "$2") <(echo "$3")
	return 1
}

FUNCTIONS=(-x malloc -x free)

@test "calls -k and malloc of one process give the counts that each gives alone" {
	local state calls blocks
	rounds
	state=$(state_of "$ROUNDS_PID")
	seen alone calls -k "${FUNCTIONS[@]}"
	calls=$(calls_of alone)
	seen alone malloc record
	blocks=$(blocks_of alone)
	seen both record -e malloc,calls -k "${FUNCTIONS[@]}"
	same calls "$calls" "$(calls_of both)"
	same malloc "$blocks" "$(blocks_of both)"
	grep -qx "malloc at its line 500" <<<"$calls"
	grep -qE "^at its line 500 " <<<"$blocks"
	# the program waited at both ends, so they count the same calls
	[ "$(calls_of both | grep -E '^malloc [0-9]')" = "$(blocks_of both | grep -E '^malloc [0-9]')" ]
	as_before "$ROUNDS_PID" "$state" "after three watches"
}

@test "calls and objects of one process give the counts that each gives alone" {
	local calls objects
	rounds
	seen first objects # a Ruby that is not known yet is learned
	seen alone calls -k "${FUNCTIONS[@]}"
	calls=$(calls_of alone | grep "at its line")
	seen alone objects
	objects=$(objects_of alone)
	seen both record -e calls,objects -k "${FUNCTIONS[@]}"
	same calls "$calls" "$(calls_of both | grep "at its line")"
	same objects "$objects" "$(objects_of both)"
	[ "$objects" = "String 500" ]
	seen all record -e calls,objects,malloc -k "${FUNCTIONS[@]}"
	same objects "$objects" "$(objects_of all)"
	same calls "$calls" "$(calls_of all | grep "at its line")"
	blocks_of all | grep -qE "^at its line 500 "
}

# What patch VERB counts of malloc and free.
patched() { # NAME VERB
	if [ "$2" = log ]; then
		"$SCRY" info "$T/$1.scry" --section log --json >"$T/x.json"
		json_is "$T/x.json" 'r["data_quality"].values_at("lost", "errors") == [0, 0]'
		"$SCRY" report "$T/$1.scry" --section log --json | grep -oE '"function": "(malloc|free)"' | sort | uniq -c
	else
		"$SCRY" report "$T/$1.scry" --section "$2" --json >"$T/x.json"
		json_is "$T/x.json" 'r["data_quality"]["lost"] == 0 && r["data_quality"]["errors"] == 0'
		json "$T/x.json" 'rows.map { |x| "#{x["symbol"]} #{x["calls"]}" }.sort'
	fi
}

@test "what patch counts, times and logs beside others is what it does alone" {
	local verb with state alone
	rounds
	state=$(got "$ROUNDS_PID")
	while read -r verb with; do
		seen alone patch "$verb" malloc free
		alone=$(patched alone "$verb")
		grep -q malloc <<<"$alone"
		seen both record -e "$with,$verb" "${FUNCTIONS[@]}"
		same "$verb" "$alone" "$(patched both "$verb")"
	done <<<"count malloc
time malloc
log gvl"
	[ "$(got "$ROUNDS_PID")" = "$state" ]
}

# takes_of NAME: how often the one thread that works took the VM's lock.
takes_of() {
	"$SCRY" report "$T/$1.scry" --section gvl --json >"$T/x.json"
	json_is "$T/x.json" 'r["data_quality"]["lost"] == 0 && r["data_quality"]["errors"] == 0'
	json "$T/x.json" 'r["threads"].map { |t| t["takes"] }.max'
}

@test "diff compares the section of gvl where it is asked for, and where one has no objects" {
	local loop='2.times.map { Thread.new { 20_000.times { |i| i.to_s } } }.each(&:join)'
	"$SCRY" record -e objects,gvl -o "$T/a.scry" -- "$RUBY" -e "$loop"
	"$SCRY" record -e gvl,malloc -o "$T/b.scry" -- "$RUBY" -e "$loop"
	"$SCRY" diff "$T/a.scry" "$T/a.scry" --json >"$T/x.json"
	json_is "$T/x.json" 'r["schema"] == "scry.diff/3"'
	"$SCRY" diff "$T/a.scry" "$T/a.scry" --section gvl --json >"$T/x.json"
	json_is "$T/x.json" 'r["schema"] == "scry.gvl_diff/2" && r["totals"]["changed"] == 0 && r["totals"]["waits_before"] == r["totals"]["waits_after"]'
	"$SCRY" diff "$T/a.scry" "$T/b.scry" --json >"$T/x.json"
	json_is "$T/x.json" 'r["schema"] == "scry.gvl_diff/2"'
	scry_ends 1 diff "$T/a.scry" "$T/b.scry" --section objects
	says "objects was not recorded"
	scry_ends 1 diff "$T/a.scry" "$T/b.scry" --section malloc
	says "malloc was not recorded"
}

@test "gvl beside objects, malloc and calls: each gives the counts that it gives alone" {
	local takes calls objects list
	rounds
	seen first objects
	seen alone gvl
	takes=$(takes_of alone)
	[ "$takes" -gt 0 ]
	seen alone calls -k "${FUNCTIONS[@]}"
	calls=$(calls_of alone | grep "at its line")
	for list in gvl,objects calls,gvl objects,calls,malloc,gvl; do
		seen both record -e "$list" $([[ $list = *calls* ]] && echo "-k ${FUNCTIONS[*]}")
		same "gvl in $list" "$takes" "$(takes_of both)"
		[[ $list != *objects* ]] || same objects "String 500" "$(objects_of both)"
		[[ $list != *calls* ]] || same calls "$calls" "$(calls_of both | grep "at its line")"
		[[ $list != *malloc* ]] || blocks_of both | grep -qE "^at its line 500 "
	done
}

@test "who holds the GVL for so long, by its own clock, is known beside others" {
	local list scry rounds held
	command -v "$RUBY" >/dev/null || skip "no ruby"
	listens share "$RUBY" "$ROOT/test/ruby/gvl/share.rb"
	ROUNDS_PID=$PID
	echo "hog 1" >&8 # those that compute stop
	wait_for 20 in_file "^held" "$T/share.out"
	rounds=1
	for list in "gvl,objects" "malloc,gvl,calls -x malloc"; do
		# shellcheck disable=SC2086 # words
		start scry "$SCRY" record -e $list --force -o "$T/x.scry" -p "$ROUNDS_PID"
		scry=$PID
		wait_for 40 in_file "watching process" "$T/scry.err"
		echo "hog 400" >&8
		rounds=$((rounds + 1))
		wait_for 20 has_held "$rounds"
		ends_watch "$scry"
		"$SCRY" report "$T/x.scry" --section gvl --json >"$T/gvl.json"
		held=$(sed -n 's/^held //p' "$T/share.out" | tail -1)
		# between two looks at its clock it may also have waited for it
		json_is "$T/gvl.json" 'r["data_quality"].values_at("lost", "errors") == [0, 0] &&
			r["threads"].max_by { |t| t["held_ns"] }.then { |t|
				t["name"] == "hog" && t["held_ns"] < 1.2 * '"$held"' &&
					t.values_at("held_ns", "wanted_ns", "granted_ns").sum > 0.98 * '"$held"' }'
	done
}
has_held() {
	[ "$(grep -c "^held" "$T/share.out")" -ge "$1" ]
}

@test "a started program: each has all of it, and its own callers" {
	scry_ends 0 record -e malloc,calls "${FUNCTIONS[@]}" --force -o "$T/x.scry" -- "$TARGETS/target_malloc_known"
	grep -qx right "$T/scry.out"
	report x malloc
	json "$T/x.json" 'r["functions"].select { |x| %w(malloc free).include?(x["function"]) }.map { |x|
		"#{x["function"]} #{x["calls"]}" }.sort' >"$T/blocks"
	# callers are the program's, not what calls are followed by
	json_is "$T/x.json" 'rows.any? { |x| x["module"].to_s.end_with?("target_malloc_known") } && rows.none? { |x| x["module"].to_s.empty? }'
	report x calls-sums
	json "$T/x.json" 'rows.map { |x| "#{x["function"]} #{x["calls"]}" }.sort' >"$T/calls"
	# what the allocator does of itself within a call is no event of malloc, but a call
	while read -r function count; do
		[ "$(sed -n "s/^$function //p" "$T/calls")" -ge "$count" ]
	done <"$T/blocks"
	[ "$(wc -l <"$T/blocks")" -eq 2 ]
}

@test "busy threads are entered and left again and again: no call is lost, the answer is right" {
	local text i
	target malloc_known run
	text=$(text "$PID")
	for ((i = 0; i < $(share 5 20); i++)); do
		scry_ends 0 record -e malloc,calls "${FUNCTIONS[@]}" -d 0.1s --force -o "$T/x.scry" -p "$PID"
		text_is "$PID" "$text"
		"$SCRY" report "$T/x.scry" >"$T/report"
		[ "$(grep -c "^scry " "$T/report")" -eq 2 ]
		no grep -E "^incomplete: .* errors?(,|\$)" "$T/report"
	done
	ends_right "$PID" malloc_known
	grep -qx right "$T/malloc_known.out"
}

@test "one that ends before its time is written, the other goes on, and the text is as before" {
	local text
	rounds
	text=$(text "$ROUNDS_PID")
	start scry "$SCRY" record -e malloc,calls -k "${FUNCTIONS[@]}" --memory 1M --force -o "$T/x.scry" -p "$ROUNDS_PID"
	wait_for 40 in_file "watching process" "$T/scry.err"
	told "0 200000"
	wait_for 20 in_file "the watch of malloc in process $ROUNDS_PID ended before its time" "$T/scry.err"
	told "700 0"
	ends_watch "$PID"
	report x calls-sums
	json_is "$T/x.json" 'rows.select { |x| x["function"] == "malloc" && x["line"] == '"$MAKE"' }.sum { |x| x["calls"] } == 200_700'
	no grep -q "living blocks" "$T/x.json" # that is malloc's
	"$SCRY" report "$T/x.scry" --view malloc >"$T/report"
	grep -q "^note: the watch ended before its time: the table of living blocks is full" "$T/report"
	text_is "$ROUNDS_PID" "$text"
	told "10 0"
}

@test "calls may end before malloc: what was over its handlers is taken out, and they go on" {
	cat >"$T/map.py" <<'PY'
import mmap, os, sys
held = []
print("pid", os.getpid(), flush=True)
for line in sys.stdin:
    if line == "map\n":  # code of an unwinder that nobody may follow calls beside
        with open(sys.argv[1], "rb") as f:
            held.append(mmap.mmap(f.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_EXEC))
    else:
        for i in range(int(line)):
            bytearray(1000 + i % 500)
    print("done", flush=True)
PY
	cp "$TARGETS/target_busy" "$T/libunwind.so.8"
	listens rounds /usr/bin/python3 "$T/map.py" "$T/libunwind.so.8"
	ROUNDS_PID=$PID
	start scry "$SCRY" record -e malloc,calls "${FUNCTIONS[@]}" --force -o "$T/x.scry" -p "$ROUNDS_PID"
	wait_for 40 in_file "watching process" "$T/scry.err"
	told 3000
	told map
	wait_for 20 in_file "the watch of calls in process $ROUNDS_PID ended before its time" "$T/scry.err"
	told 5000
	ends_watch "$PID"
	report x malloc
	json_is "$T/x.json" 'r["functions"].find { |x| x["function"] == "malloc" }["calls"] >= 8000'
	no grep -q "ended before its time" "$T/x.json"
	"$SCRY" report "$T/x.scry" --view calls-sums --json >"$T/x.json"
	json_is "$T/x.json" '(3000...8000).cover?(rows.find { |x| x["function"] == "malloc" }["calls"])'
	grep -q "ended before its time" "$T/x.json"
	grep -q "other instruments went on" "$T/x.json"
	told 10
	"$SCRY" ps | grep -w "$ROUNDS_PID" | grep -q "watched by" && return 1
	[ "$(mappings "$ROUNDS_PID")" -eq 0 ]
}

@test "locks beside malloc: whoever follows returns stands over the other" {
	local text
	target malloc_known run
	text=$(text "$PID")
	scry_ends 0 record -e malloc,locks -w 0 -d 0.2s --force -o "$T/x.scry" -p "$PID"
	"$SCRY" info "$T/x.scry" | grep -q "locks  instrument"
	text_is "$PID" "$text"
	ends_right "$PID" malloc_known
}

@test "a report shows each section as its own; JSON is of one; what is not there is refused" {
	scry_ends 0 record -e calls,malloc -x malloc --force -o "$T/x.scry" -- "$TARGETS/target_malloc_known"
	"$SCRY" report "$T/x.scry" >"$T/report"
	[ "$(grep -c '^scry ' "$T/report")" -eq 2 ]
	grep -q "^scry malloc: " "$T/report"
	grep -q "^scry calls: " "$T/report"
	"$SCRY" report "$T/x.scry" --view malloc >"$T/report"
	[ "$(grep -c '^scry ' "$T/report")" -eq 1 ]
	no grep -q "followed" "$T/report"
	"$SCRY" report "$T/x.scry" --section calls >"$T/report" 2>"$T/data_quality"
	grep -q "^malloc(" "$T/report"
	grep -q "^scry calls: " "$T/data_quality"
	scry_ends 1 report "$T/x.scry" --json
	says "2 instruments have recorded.*--section"
	scry_ends 1 report "$T/x.scry" --view objects
	says "of objects, and this is one of malloc and calls"
	scry_ends 1 report "$T/x.scry" --section locks
	says "'locks' was not recorded"
	"$SCRY" info "$T/x.scry" --section calls --json >"$T/x.json"
	json_is "$T/x.json" 'r["totals"]["instrument"] == "calls"'
	scry_ends 0 malloc export "$T/x.scry" # its reader finds its section
	grep -q malloc "$T/scry.out"
}

@test "what does not go together is refused, with the reason" {
	scry_ends 2 record -e calls,locks -- true
	says "calls and locks|locks and calls"
	scry_ends 2 record -e malloc,stacks -- true
	says "'stacks' is not an instrument"
	scry_ends 2 record -e malloc,log -x free -- true
	says "malloc and log cannot be recorded together: both record in one table"
	scry_ends 2 record -e malloc,count -- true
	says "need names of functions"
	scry_ends 2 record -e malloc -x malloc -- true
	says "-x is an option of calls"
	scry_ends 2 record -e malloc,calls --stack -w 5 -- true
	says "one instrument's native stacks"
	scry_ends 2 record -e malloc,calls -o "$T/x.json" -- true
	says "form of one instrument"
	scry_ends 2 record -- true
	says "-e LIST"
}

@test "one alone is recorded as by its own command" {
	scry_ends 0 record -e malloc --force -o "$T/x.scry" -- cat /dev/null
	report x malloc
	json "$T/x.json" 'r["functions"].map { |x| "#{x["function"]} #{x["calls"]}" }.sort' >"$T/one"
	scry_ends 0 malloc record --force -o "$T/x.scry" -- cat /dev/null
	report x malloc
	json "$T/x.json" 'r["functions"].map { |x| "#{x["function"]} #{x["calls"]}" }.sort' | diff "$T/one" -
}

@test "--dry-run names what each would change, and touches nothing" {
	local state
	target malloc_known run
	state=$(state_of "$PID")
	scry_ends 0 record -e malloc,calls -x malloc --dry-run -p "$PID"
	[ "$(grep -c "nothing was touched" "$T/scry.out")" -eq 2 ]
	as_before "$PID" "$state" "after a dry run"
	ends_right "$PID" malloc_known
}

@test "a report of several sections gives each the options that it has, and says what one lacks" {
	scry_ends 0 record -e malloc,calls "${FUNCTIONS[@]}" --force -o "$T/x.scry" -- "$TARGETS/target_malloc_known"
	"$SCRY" report "$T/x.scry" --at end >"$T/out"
	grep -q "^note: calls-sums has no --at, and is shown without" "$T/out"
	[ "$(grep -c "^scry malloc: \|^scry calls: " "$T/out")" -eq 2 ]
	no "$SCRY" report "$T/x.scry" --live >"$T/out" 2>"$T/err"
	grep -q "has no --live" "$T/err"
	[ ! -s "$T/out" ]
	no "$SCRY" report "$T/x.scry" --by gem >"$T/out" 2>"$T/err"
	grep -q "no section has these options with these values" "$T/err"
}

@test "--pid shows the sections in which the process is, and says in which it is not" {
	scry_ends 0 record -f -e objects,malloc -q --force -o "$T/x.scry" -- bash -c "$RUBY --disable-gems -e 'Object.new'; true"
	"$SCRY" info "$T/x.scry" --section malloc --json >"$T/x.json"
	"$SCRY" report "$T/x.scry" --pid "$(json "$T/x.json" 'r["data_quality"]["processes"][0]["pid"]')" >"$T/out"
	grep -q "^note: process [0-9]* is not in the section of objects" "$T/out"
	grep -q "^scry malloc: " "$T/out"
	no grep -q "^scry objects: " "$T/out"
	no "$SCRY" report "$T/x.scry" --pid 1 >"$T/out" 2>&1
	grep -q "process 1 is not in this recording" "$T/out"
}

@test "a section says what another instrument changes of what it measures" {
	"$SCRY" record -e objects,malloc,time -x malloc --force -o "$T/x.scry" -- "$RUBY" --disable-gems -e 'Object.new' >"$T/out" 2>&1
	"$SCRY" report "$T/x.scry" --section time --json >"$T/x.json"
	json_is "$T/x.json" 'r["notes"].one? { |n| n.start_with?("objects are recorded beside") } && r["notes"].one? { |n| n.start_with?("malloc is recorded beside") }'
	"$SCRY" report "$T/x.scry" --section malloc --json >"$T/x.json"
	json_is "$T/x.json" 'r["notes"].none? { |n| n.include?("recorded beside") }'
}

@test "locks beside another instrument has places as scry locks has them" {
	"$SCRY" record -e locks,malloc --force -o "$T/x.scry" -- "$TARGETS/target_contended" hold 3 300 >"$T/out" 2>&1 3>&-
	"$SCRY" report "$T/x.scry" --section locks --json >"$T/x.json"
	json_is "$T/x.json" 'rows.any? { |x| x["frames"].to_a.any? { |f| f["name"] == "take_queue" } }'
}

@test "an option of an instrument that is not in the list is refused" {
	scry_ends 2 record -e malloc -s 10 -- true
	grep -q "^scry: -s is an option of calls, which -e does not name" "$T/scry.err"
}

@test "a request whose functions another one has asked for is met" {
	"$SCRY" record -e malloc,count -x malloc -x 'mallo[c]' -x nowhere@libnothing.so --force -o "$T/x.scry" -- "$TARGETS/target_malloc_known" >"$T/out" 2>&1
	"$SCRY" report "$T/x.scry" --section count --json >"$T/x.json"
	json_is "$T/x.json" 'r["notes"].grep(/ever loaded/) == ["nowhere@libnothing.so: no object that defines it was ever loaded"]'
	"$SCRY" record -e malloc,calls -x malloc -x 'mallo[c]' -x nowhere@libnothing.so --force -o "$T/x.scry" -- "$TARGETS/target_malloc_known" >"$T/out" 2>&1
	"$SCRY" report "$T/x.scry" --view calls-sums --json >"$T/x.json"
	json_is "$T/x.json" 'r["notes"].grep(/ever loaded/).size == 1'
}

@test "where one instrument found nothing, the others' recording is not said to be none" {
	scry_ends 125 record -e malloc,calls -x nowhere@libnothing.so --force -o "$T/x.scry" -- "$TARGETS/target_malloc_known"
	grep -q "the program ran on, and ended with status 0" "$T/scry.err"
	no grep -q "without scry" "$T/scry.err"
}
