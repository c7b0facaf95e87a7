#!/usr/bin/env bats
# `-f` and death: scry, its keeper or both are killed while children are forked all the time. All
# children compute right, and `scry undo -f` leaves nothing in any of them.

load lib

setup() {
	need_targets
	need_root "entering a process that is not a child of scry"
	prepare
}

kids() {
	start kids "$RUBY" "$ROOT/test/ruby/programs/kids.rb"
	wait_for 10 in_file "^children [1-9]" "$T/kids.out"
}

kids_end_right() {
	kill -TERM "$1"
	finish "$1" || {
		tail -n 5 "$T/kids.out" "$T/kids.err"
		return 1
	}
	tail -1 "$T/kids.out" | grep -q "^children [1-9][0-9]* wrong 0$"
}

# Of the process and its children: none has a mapping of scry's.
all_clean() {
	local pid
	for pid in "$1" $(pgrep -P "$1"); do
		[ "$(mappings "$pid" 2>/dev/null || echo 0)" -eq 0 ] || return 1
	done
}

# undone PID: by `scry undo -f`, which a child between two events may need twice.
undone() {
	"$SCRY" undo -f -p "$1" >"$T/undo.out" 2>&1
	all_clean "$1"
}

killed_in_storm() {
	local who=$1 times i scry keeper
	kids
	times=$(share 4 40)
	for ((i = 0; i < times; i++)); do
		"$SCRY" objects -f -p "$PID" >/dev/null 2>&1 3>&- &
		scry=$!
		wait_for 10 watched "$PID"
		sleep "0.$((RANDOM % 10))"
		keeper=$(keeper_of "$scry")
		[ "$who" = front ] || kill -KILL "$keeper"
		[ "$who" = keeper ] || kill -KILL "$scry" 2>/dev/null || true
		wait "$scry" 2>/dev/null || true
		[ "$who" != front ] || wait_for 10 is_gone "$keeper"
		wait_for 10 undone "$PID" || {
			cat "$T/undo.out"
			"$SCRY" ps
			return 1
		}
	done
	kids_end_right "$PID"
}

@test "the keeper is killed while children are forked" { killed_in_storm keeper; }
@test "the front is killed while children are forked" { killed_in_storm front; }
@test "both are killed while children are forked" { killed_in_storm both; }

@test "a clean end leaves nothing in the parent, nor in a child that goes on" {
	kids
	for i in 1 2 3; do
		"$SCRY" objects -f -p "$PID" -d 500ms --force -o "$T/o.json"
	done
	wait_for 10 undone "$PID"
	json_is "$T/o.json" 'r["data_quality"]["errors"] == 0'
	kids_end_right "$PID"
}

@test "ps shows a followed child with its owner, and undo is refused by name" {
	kids
	start scry "$SCRY" objects -f -p "$PID" -d 20s
	scry=$PID
	parent="${STARTED# }"
	parent="${parent%% *}"
	long="$(pgrep -P "$parent" | head -1)"
	wait_for 10 watched "$long"
	"$SCRY" ps | grep -w "^ *$long" | grep -q "watched by scry objects"
	scry_ends 1 undo -p "$long"
	says "watched already"
	kill -INT "$scry"
	finish "$scry" || { cat "$T/scry.err"; false; }
	kids_end_right "$parent"
}

@test "a shell and what it starts end right when the keeper is killed at any moment" {
	cat >"$T/tree.sh" <<'SH'
for i in 1 2 3 4 5 6 7 8; do
	ruby --disable-gems -e 'x = 0; 2000.times { |i| x += [i].size }; exit(x == 2000)' || exit 1
done
echo right >"$1"
SH
	for ((i = 0; i < $(share 6 60); i++)); do
		rm -f "$T/right"
		start front "$SCRY" objects -f --force -o "$T/o.scry" -- sh "$T/tree.sh" "$T/right"
		front=$PID
		sleep "0.$((RANDOM % 6))$((RANDOM % 10))"
		keeper=$(pgrep -P "$front" scry-keeper) || true # it may be early or late
		[ -z "$keeper" ] || kill -KILL "$keeper" || true
		wait_for 20 in_file right "$T/right"
		finish "$front" || true
	done
}

# Lanes whose process is not found yet have no number, like the parent of a namespace's first
# process. All of /proc is looked through when numbers begin anew, so they are made to.
@test "nobody else's process is taken in a storm of children whose numbers wrap" {
	unshare -pf --mount-proc -n true 2>/dev/null || skip "no right to make a pid namespace"
	unshare -pf --mount-proc sh -c 'echo 300 >/proc/sys/kernel/ns_last_pid' 2>/dev/null ||
		skip "no right to say which number comes next (CONFIG_CHECKPOINT_RESTORE)"
	cat >"$T/space.sh" <<'SH'
"$RUBY" --disable-gems -e 'puts "runs"; $stdout.flush; loop { Object.new; sleep 0.01 }' >"$T/stranger.out" &
stranger=$!
until grep -q runs "$T/stranger.out"; do sleep 0.05; done
"$SCRY" objects -f --force -o "$T/o.scry" -- "$RUBY" --disable-gems "$STORM" 1000000 8 &
front=$!
until grep -q scry-owner- /proc/net/unix; do sleep 0.05; done
for i in 1 2 3 4 5 6; do
	echo 20000 >/proc/sys/kernel/ns_last_pid
	sleep 0.3
	echo 2000 >/proc/sys/kernel/ns_last_pid
	sleep 0.3
	grep "scry-owner-$stranger-" /proc/net/unix && taken=1
done
kill -KILL "$stranger"
kill -TERM "$front"
wait "$front"
exit ${taken:-0}
SH
	export RUBY SCRY T STORM="$ROOT/test/ruby/programs/storm.rb"
	run timeout 60 unshare -pf --kill-child --mount-proc -n bash "$T/space.sh"
	[ "$status" -eq 0 ] || { echo "$output" | tail -5; false; }
}
