#!/usr/bin/env bats
# A program that scry starts: what was kept of an earlier start is used, and believed only as far as it
# is proven on this very process.

load lib

setup() {
	need_scry
	prepare
	own_cache
}

MADE='20_000.times { Object.new }; exit 3'

# watch [OPTION...]: the program's report in $T/o.json; it must end as it does alone.
watch() {
	run "$SCRY" objects "$@" --top 0 -o "$T/o.json" --force -- "$RUBY_FILE" --disable=gems -e "$MADE"
	[ "$status" -eq 3 ] || { echo "$output"; return 1; }
}

is_right() {
	json_is "$T/o.json" 'r["data_quality"]["is_complete"] && r["data_quality"]["errors"] == 0 &&
		r["rows"].any? { |x| x["class"] == "Object" && x["line"] == 1 && x["allocated"] == 20_000 }'
}

# The program may end before so many events that the layout is judged.
is_refused() {
	json_is "$T/o.json" 'refused = r["notes"].any? { |n| n =~ /the watch was refused, nothing is counted: the learned layout does not fit/ }
		ended = r["notes"].any? { |n| n =~ /ended before its layout, .*could be validated on it: nothing is counted; the next run learns it anew/ }
		!r["data_quality"]["is_complete"] && r["totals"]["allocated"] == 0 && (ended || refused && r["data_quality"]["errors"] > 0)'
}

entry() { echo "$XDG_CACHE_HOME"/scry/layout-*; }

@test "a kept layout that was changed after its rehearsal is learned anew" {
	watch
	is_right
	for field in frame_size frame_pc frame_iseq ec_cfp ec_thread vm_root iseq_body body_path body_label \
		insns_entry_line class_ext slot_size trace_data string_len leaf_count 'sizes.rule[0]'; do
		before="$(stat -c '%i %y' "$(entry)")"
		"$TARGETS/../layout_bend" "$(entry)" "$field"
		echo "$field"
		watch
		is_right
		[ "$(stat -c '%i %y' "$(entry)")" != "$before" ]
	done
}

@test "a kept layout that does not hold: nothing is counted, the watch is refused, the next is right" {
	watch
	is_right
	for field in frame_size frame_pc frame_iseq ec_cfp ec_thread iseq_body body_label class_ext; do
		"$TARGETS/../layout_bend" "$(entry)" "$field" stamped
		echo "$field"
		watch
		is_refused
		[ ! -e "$(entry)" ]
		watch
		is_right
	done
}

@test "a kept layout of which nothing is whole is none" {
	watch
	is_right
	file="$(entry)"
	cp "$file" "$T/whole"
	size="$(stat -c %s "$file")"
	for damage in cut empty zeros huge version owner mode directory link; do
		rm -rf "$file"
		cp "$T/whole" "$file"
		case $damage in
		cut) truncate -s $((size / 2)) "$file" ;;
		empty) truncate -s 0 "$file" ;;
		zeros) head -c "$size" /dev/zero >"$file" ;;
		huge) truncate -s 8G "$file" ;;
		version) printf '\377' | dd of="$file" bs=1 seek=16 conv=notrunc status=none ;;
		owner) [ "$(id -u)" -ne 0 ] || chown 65534 "$file" ;;
		mode) chmod 644 "$file" ;;
		directory) rm "$file" && mkdir "$file" ;;
		link) rm "$file" && ln -s "$T/whole" "$file" ;;
		esac
		echo "$damage"
		watch
		is_right
		[ "$(head -c 4 "$T/whole")" = scry ]
	done
}

@test "what a program made before its layout could be judged on it is not counted" {
	watch
	is_right
	run "$SCRY" objects -- "$RUBY_FILE" --version
	[ "$status" -eq 0 ]
	[ ! -e "$(entry)" ]
	[[ "$output" == *"losses unknown"*"could be validated on it: nothing is counted"* ]]
}

@test "a started program: system calls before the loader is done are said to be missing" {
	"$SCRY" calls -L -S -- true >"$T/out" 2>&1 || skip "no tracepoints here: $(tail -1 "$T/out")"
	grep -q "losses unknown" "$T/out"
	grep -q "until its loader was done, when -S began" "$T/out"
	"$SCRY" calls -L -S --json -- true | tail -1 >"$T/o.json"
	json_is "$T/o.json" '!r["data_quality"]["is_complete"]'
}

@test "a started program that becomes another one by exec: what that does is said to be missing" {
	local again='Object.new; exec("sleep", "0.5")'
	"$SCRY" objects -o "$T/o.json" -- "$RUBY" --disable-gems -e "$again" >"$T/out" 2>&1
	json_is "$T/o.json" '!r["data_quality"]["is_complete"] && r["notes"].any? { |n| n =~ /ran another program .exec. after \d+ ms, which is not followed; fix: -f/ }'
	"$SCRY" patch count malloc -o "$T/c.json" -- "$RUBY" --disable-gems -e "$again" >"$T/out" 2>&1
	json_is "$T/c.json" '!r["data_quality"]["is_complete"] && r["notes"].any? { |n| n =~ /ran another program .exec. after \d+ ms, which is not followed$/ }'
}

@test "what a started program does as another one, before scry looks, is said to be missing in each section" {
	local name
	"$SCRY" patch count malloc -o "$T/count.json" -- bash -c 'exec true' >"$T/out" 2>&1
	json_is "$T/count.json" '!r["data_quality"]["is_complete"] && r["notes"].any? { |n| n =~ /ran another program .exec. shortly before it ended|ran another program .exec. after/ }'
	"$SCRY" record -e malloc,count -x malloc -o "$T/two.scry" -- bash -c 'exec true' >"$T/out" 2>&1
	for name in malloc count; do
		"$SCRY" report "$T/two.scry" --section "$name" --json >"$T/x.json"
		json_is "$T/x.json" '!r["data_quality"]["is_complete"] && r["notes"].one? { |n| n =~ /^process \d+ ran another program .exec./ }'
	done
}

@test "-d of a started program begins when it does, however long its Ruby is learned" {
	SCRY_NO_CACHE=1 "$SCRY" objects -d 300ms -o "$T/o.json" -- "$RUBY" --disable-gems -e 't = Time.now; Object.new while Time.now - t < 2' >"$T/out" 2>&1
	json_is "$T/o.json" 'w = r["data_quality"]["watched_ns"]; w >= 290_000_000 && r["totals"]["allocated"] > 1000'
}

# kept_watch WHEN CODE: by a kept layout, with a keeper that is stopped before main, until WHEN.
kept_watch() {
	local keeper program status=0

	rm -f "$T/keeper"
	"$SCRY" objects --top 0 -o "$T/o.json" --force -- env LD_PRELOAD="$TARGETS/libstop_keeper.so" \
		KEEPER_FILE="$T/keeper" "$RUBY_FILE" --disable=gems -e "$2" 2>"$T/err" &
	PID=$!
	wait_for 20 test -s "$T/keeper"
	read -r keeper program <"$T/keeper"
	wait_for 20 "$1" "$program" || { kill -CONT "$keeper"; return 1; }
	kill -CONT "$keeper"
	wait "$PID" || status=$?
	[ "$status" -eq 3 ] || { cat "$T/err"; return 1; }
}
is_over() { ! [ -e /proc/"$1"/stat ] || [[ "$(sed 's/.*) //' /proc/"$1"/stat)" == Z* ]]; }
waits() { is_over "$1" || [[ "$(cat /proc/"$1"/syscall)" == "202 "* ]]; } # in a futex

@test "a program with a kept layout that nobody judged in time: nothing is counted, the layout stays" {
	watch
	before="$(stat -c '%i %y' "$(entry)")"
	kept_watch is_over "$MADE"
	json_is "$T/o.json" '!r["data_quality"]["is_complete"] && r["totals"]["allocated"] == 0 &&
		r["notes"].any? { |n| n =~ /nothing is counted; scry had no processor while it waited; fix: try again/ }'
	[ "$(stat -c '%i %y' "$(entry)")" = "$before" ]
	watch
	is_right
}

# Before its code a VM makes objects with a frame that runs nothing: no layout can be judged then.
@test "a short program waits until its layout was judged at its first code" {
	watch
	before="$(stat -c '%i %y' "$(entry)")"
	for _ in 1 2 3 4; do
		kept_watch waits 'Object.new; exit 3'
		json_is "$T/o.json" 'r["data_quality"]["is_complete"] && r["rows"].any? { |x| x["class"] == "Object" && x["line"] == 1 && x["allocated"] == 1 }'
	done
	[ "$(stat -c '%i %y' "$(entry)")" = "$before" ]
}
