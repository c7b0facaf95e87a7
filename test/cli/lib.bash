# shellcheck shell=bash disable=SC2034,SC1091
# What the tests of entering and leaving share: the targets, and comparing a process before and after.
# The rest comes from test/ruby/lib.bash.

source "$BATS_TEST_DIRNAME/../ruby/lib.bash"

BUILD="${SCRY_BUILD:-$ROOT/build}"
TARGETS="$BUILD/test/targets"
COUNTED="$ROOT/test/ruby/programs/counted.rb"
WORDS="busy_scale busy_six work_fold work_mix" # what of target_busy is counted

need_targets() {
	need_scry
	[ -x "$TARGETS/target_busy" ] || skip "no targets in $TARGETS: run make first"
}

setup() {
	need_targets
	prepare
}

# own_cache: learned layouts are this test's own, none at first.
own_cache() {
	export XDG_CACHE_HOME="$T/cache"
	mkdir "$XDG_CACHE_HOME"
	RUBY_FILE="$(readlink -f "$(command -v "$RUBY")")"
}

need_root() {
	[ "$(id -u)" -eq 0 ] || skip "$1 needs root"
}

# target NAME ARGS...: starts a target program, its pid in $PID, and waits until it runs.
target() {
	local name=$1
	shift
	start "$name" "$TARGETS/target_$name" "$@"
	wait_for 10 grep -qE "^(round|ok|pid)" "$T/$name.out"
}

# listens NAME COMMAND...: a program that says "pid" and then does what it reads: its input is our descriptor 8, its
# pid in $PID.
listens() {
	local name=$1
	shift
	mkfifo "$T/in"
	exec 8<>"$T/in"
	start "$name" bash -c 'exec "$@" <"$0" 8>&-' "$T/in" "$@"
	wait_for 20 in_file "^pid" "$T/$name.out"
}

# Starts counted.rb, its pid in $PID, and waits until it runs.
counted() {
	start counted "$RUBY" "$COUNTED"
	wait_for 10 in_file "^pid" "$T/counted.out"
}

# text PID, got PID: what of a process must be as before.
text() {
	"$TARGETS/text_hash" "$1"
}
got() {
	"$TARGETS/text_hash" --got "$1"
}

# What must be as before, in one line each: the memory of files, mappings, descriptors, threads.
# Heap arenas of threads may come at any time: only mappings that can be scry's are counted.
state_of() {
	got "$1"
	echo "scry's mappings $(mappings "$1")"
	echo "descriptors $(ls "/proc/$1/fd" | wc -l)"
	echo "threads $(ls "/proc/$1/task" | wc -l)"
}

is_as() { # PID STATE
	[ "$(state_of "$1")" = "$2" ]
}

# as_before PID STATE WHAT: fails, and shows both, unless it is so within seconds.
as_before() {
	wait_for 5 is_as "$1" "$2" >/dev/null && return 0
	echo "process $1 is not as it was, $3:"
	diff <(echo "$2") <(state_of "$1")
	return 1
}

text_is() { # PID TEXT
	[ "$(text "$1")" = "$2" ]
}

# scry_ends STATUS ARGS...: runs scry, output in $T/scry.{out,err}; fails, and shows it, unless it
# ends so.
scry_ends() {
	local want=$1 got=0
	shift
	"$SCRY" "$@" >"$T/scry.out" 2>"$T/scry.err" 3>&- || got=$?
	[ "$got" -eq "$want" ] && return 0
	echo "scry $* ended with $got, not $want:"
	head -20 "$T/scry.out" "$T/scry.err"
	return 1
}

# says PATTERN: what the last scry_ends said on stderr.
says() {
	grep -qiE -- "$1" "$T/scry.err" && return 0
	echo "no '$1' in:"
	cat "$T/scry.err"
	return 1
}

undo() {
	scry_ends 0 undo -p "$1" --max-pause 2s # the machine may be busy
}

# undo_all PID: the same; a Ruby that had no processor meanwhile may hold the agent's address still, and is waited for.
undo_all() {
	undo "$1" || return 1
	no grep -q "as Ruby still has its address" "$T/scry.out" || scry_ends 0 undo -p "$1" --max-pause 2s --wait
}

# ended PID: waits for the end of a started program, its status in $status.
ended() {
	status=0
	finish "$1" || status=$?
}

# hooked PID: changes of scry stand in it, and its keeper lives.
hooked() {
	watched "$1" && "$SCRY" patch list -p "$1" | grep -q applied
}

# keeper_of FRONT: the keeper's pid, as soon as it has its name. A keeper that follows a program has the program
# beside it.
keeper_of() {
	for _ in $(seq 200); do # pgrep may pass over one that is there
		pgrep -P "$1" scry-keeper && return 0
		sleep 0.05
	done
	return 1
}

# watched PID: scry has entered it.
watched() {
	"$SCRY" ps | grep -w "^ *$1" | grep -q "watched by"
}

# ends_right PID NAME: SIGTERM, status 0 and no wrong result.
ends_right() {
	kill -TERM "$1"
	finish "$1" || {
		echo "$2 ended with $?:"
		tail -n 5 "$T/$2.out" "$T/$2.err"
		return 1
	}
	! grep -E "^wrong|wrong [1-9]" "$T/$2.out"
}

# goes_on FILE: the program prints more lines within ten seconds.
goes_on() {
	local lines
	lines=$(wc -l <"$1")
	wait_for 10 bash -c "[ \$(wc -l <'$1') -gt $((lines + 1)) ]"
}

# traces PID ARGS...: starts scry calls on it, its pid in $PID, and waits until calls are followed.
traces() {
	local pid=$1
	shift
	start scry "$SCRY" calls -p "$pid" "$@"
	wait_for 20 in_file "watching process $pid" "$T/scry.err" || {
		cat "$T/scry.err"
		return 1
	}
}

ends_watch() { # PID of scry
	kill -INT "$1"
	finish "$1" || {
		cat "$T/scry.err"
		return 1
	}
}
