#!/usr/bin/env bats
# A Ruby whose threads all sleep cannot let go of the agent. What stays is small, and without effect; what was unmapped
# is the program's, whoever dies and whenever; the next watch works, and the agent goes when the program wakes.

load lib

LEFT_MAX=131072 # bytes
PATIENT=(--max-pause 2s) # the machine may be busy

# idle [VARIABLE=VALUE...]: the program, its pid in $PID; descriptor 8 wakes it, 7 speaks to libsquat's thread.
idle() {
	mkfifo "$T/squat"
	exec 7<>"$T/squat"
	: >"$T/squat.out"
	listens idle env "$@" LD_PRELOAD="$TARGETS/libsquat.so" SQUAT="$T/squat" SQUAT_OUT="$T/squat.out" \
		"$RUBY" "$ROOT/test/ruby/programs/idle.rb"
	IDLE=$PID
	wait_for 10 sleeps
}

sleeps() {
	! grep -l "^State:.*R" "/proc/$IDLE"/task/*/status 2>/dev/null | grep -q .
}

answers() {
	grep -c "^answer 4000$" "$T/idle.out"
}

has_answered() { # COUNT
	[ "$(answers)" -ge "$1" ]
}

# It wakes, computes right, and sleeps again.
wakes() {
	local before
	before=$(answers) || true
	echo >&8
	wait_for 10 has_answered $((before + 1)) && wait_for 10 sleeps
	no grep -vE "^(pid|answer 4000$)" "$T/idle.out"
}

# squats WORD ANSWER
squats() {
	: >"$T/squat.out"
	echo "$1" >&7
	wait_for 10 in_file "$2" "$T/squat.out" || {
		echo "no '$2' for $1:"
		cat "$T/squat.out"
		return 1
	}
}

left_of() { # PID: bytes, by scry
	"$SCRY" ps --json | "$RUBY" --disable=gems -rjson -e 'puts JSON.parse($stdin.read)["rows"].find { |r| r["pid"] == ARGV[0].to_i }&.fetch("agent_bytes") || 0' "$1"
}

# bytes_of PID: of the mappings that can be scry's, by the kernel: memfds, and anonymous code with what lies around it: the
# gate before; behind it code that is closed, and then data.
bytes_of() {
	"$RUBY" --disable=gems -e '
	  maps = File.readlines("/proc/#{ARGV[0]}/maps").map(&:split).map { |r, p, _, _, i, f| [*r.split("-").map(&:hex), p, i == "0" && f.nil?, f.to_s] }
	  sum = maps.sum { |a, b, _, _, f| f.start_with?("/memfd:scry") ? b - a : 0 }
	  around = maps.each_index.select { |i| maps[i][2].include?("x") && maps[i][3] }.flat_map { |i| [*[i - 1, 0].max..i + 2] }.uniq
	  sum += maps.values_at(*around).sum { |a, b, p, anon| anon && p.include?("r") ? b - a : 0 }
	  puts sum' "$1"
}

small() {
	local scry kernel
	scry=$(left_of "$IDLE")
	kernel=$(bytes_of "$IDLE")
	[ "$scry" -gt 0 ] && [ "$scry" -le "$LEFT_MAX" ] && [ "$kernel" -eq "$scry" ] && return 0
	echo "$scry bytes left by scry, $kernel by the kernel, $1"
	return 1
}

gone() {
	[ "$(mappings "$IDLE")" -eq 0 ]
}

taken_out() {
	undo "$IDLE" && gone
}

@test "what stays in an idle ruby is small, and is said; a later watch is exact; it goes when the program wakes" {
	idle
	for watch in "objects" "objects --sample 16" "calls --clients -c" "objects --source hooks" "malloc record --force -o $T/m.scry" "objects -f"; do
		# shellcheck disable=SC2086
		scry_ends 0 $watch "${PATIENT[@]}" -p "$IDLE" -d 0.3s
		[ "${watch%% *}" = malloc ] || grep -qE "[0-9]+ KiB of the agent stay mapped in process $IDLE, without effect, as Ruby still has its address; fix: scry undo -p $IDLE once" \
			"$T/scry.out" "$T/scry.err"
		small "after $watch"
	done
	"$SCRY" ps | grep -w "$IDLE" | grep -E "idle, [0-9]+ KiB until Ruby code runs; scry undo -p $IDLE"
	undo "$IDLE"
	small "after undo"
	wakes
	taken_out
	wakes
}

@test "parts that were closed when the agent became idle are not used by the next watch" {
	local scry
	idle
	scry_ends 0 objects "${PATIENT[@]}" -p "$IDLE" -d 0.3s
	scry_ends 0 malloc record --stack=4 --force -o "$T/m.scry" "${PATIENT[@]}" -p "$IDLE" -d 0.3s
	for watch in "malloc record --no-lines --force -o $T/m.scry" "calls -c -x calloc"; do
		# shellcheck disable=SC2086
		"$SCRY" $watch "${PATIENT[@]}" -p "$IDLE" >"$T/scry.out" 2>&1 3>&- &
		scry=$!
		wait_for 20 hooked "$IDLE"
		wakes
		kill -INT "$scry"
		finish "$scry"
	done
	wakes
	taken_out
}

@test "a handler on the list of a ruby that fell asleep: the rest is unmapped, the program wakes and computes on" {
	idle
	for watch in "" "--sample 16" "--source hooks"; do
		# shellcheck disable=SC2086
		start scry "$SCRY" objects $watch "${PATIENT[@]}" -p "$IDLE" -o "$T/o.json" --force
		scry=$PID
		wait_for 20 in_file "watching process" "$T/scry.err"
		wakes
		wakes
		kill -INT "$scry"
		finish "$scry"
		json_is "$T/o.json" 'r["summary"]["allocated"] >= 4000' || json_is "$T/o.json" 'rows.sum { |x| x["allocated"] } >= 4000'
		small "after objects $watch"
		wakes
		taken_out
		wakes
	done
}

@test "what the program maps where scry was stays as it is, and a watch says why it cannot begin" {
	idle
	scry_ends 0 objects "${PATIENT[@]}" -p "$IDLE" -d 0.2s
	squats take "^taken [1-9]"
	scry_ends 1 objects "${PATIENT[@]}" -p "$IDLE" -d 0.2s
	says "mapped its own memory where scry's was; fix: let one of its Ruby threads run"
	undo "$IDLE"
	squats check "^checked [1-9].* wrong 0$"
	small "and another was refused" || true # neighbours are the program's
	wakes
	taken_out
	squats check "^checked [1-9].* wrong 0$"
	squats free "^freed"
	scry_ends 0 objects "${PATIENT[@]}" -p "$IDLE" -d 0.2s
	wakes
	taken_out
}

@test "memory that is locked, and a fork child of such a process" {
	idle SQUAT_LOCK=1
	for _ in 1 2; do
		scry_ends 0 objects "${PATIENT[@]}" -p "$IDLE" -d 0.2s
		small "in locked memory"
	done
	squats fork "^child"
	child=$(sed -n 's/^child //p' "$T/squat.out")
	HELD=$child
	undo "$child"
	scry_ends 0 calls --clients -c "${PATIENT[@]}" -p "$child" -d 0.2s
	kill -0 "$child"
	[ "$(left_of "$child")" -le "$LEFT_MAX" ]
	wakes
	taken_out
	wakes
}

@test "--wait ends when the program has woken and nothing is left" {
	idle
	start scry "$SCRY" objects --wait "${PATIENT[@]}" -p "$IDLE" -d 0.2s
	wait_for 20 in_file "waiting until nothing of scry is mapped" "$T/scry.err"
	small "while scry waits"
	wakes
	finish "$PID"
	gone
	scry_ends 0 objects "${PATIENT[@]}" -p "$IDLE" -d 0.2s
	start undo "$SCRY" undo --wait "${PATIENT[@]}" -p "$IDLE"
	wait_for 20 in_file "without effect" "$T/undo.out"
	wakes
	finish "$PID"
	gone
}

# killed_at N ARGS...: scry and its keeper die there; KILLS counts it.
killed_at() {
	local n=$1 where
	shift
	"$TARGETS/killer" both "$n" -- "$SCRY" "$@" >/dev/null 2>"$T/killer.err" 3>&- || true
	where=$(grep "killed at" "$T/killer.err") || return 0
	KILLS=$((KILLS + 1))
	wait_for 4 is_gone "$(sed -n 's/^killer: keeper //p' "$T/killer.err")"
	is_harmless "$where, of $*"
}

# is_harmless WHERE: a scry was killed there. Then the program takes all addresses that are free.
is_harmless() {
	local bad=0
	squats take "^taken [1-9]" || bad=1
	undo "$IDLE" || bad=1
	squats check "^checked [1-9].* wrong 0$" || bad=1
	wakes || bad=1
	taken_out || bad=1
	squats check "^checked [1-9].* wrong 0$" || bad=1
	squats free "^freed" || bad=1
	[ "$bad" -eq 0 ] || {
		echo "$1"
		return 1
	}
}

# The program has woken and taken all out; with AGAIN an agent idles in it again.
before_kill() {
	wakes
	taken_out
	[ -z "$AGAIN" ] || scry_ends 0 objects "${PATIENT[@]}" -p "$IDLE" -d 0.05s
}

# Points beyond those of the watch itself, where scry leaves, and where it comes back.
killed_leaving() { # FROM-THE-END STEP ARGS...
	local back=$1 step=$2 total="" stops n bad=0 points=0
	shift 2
	KILLS=0
	scry_ends 0 "$@" # what is not known yet is learned first
	for _ in 1 2 3; do # hundreds more or less each time: of the least most lives have as many
		before_kill
		stops=$("$TARGETS/killer" both 0 -- "$SCRY" "$@" 2>&1 >/dev/null 3>&- | sed -n 's/^killer: stops //p')
		[ "$stops" -gt 100 ]
		[ -n "$total" ] && [ "$total" -le "$stops" ] || total=$stops
	done
	for ((n = total - back > 0 ? total - back : 1; n < total && bad < 3; n += step)); do
		before_kill
		killed_at "$n" "$@" || bad=$((bad + 1))
		points=$((points + 1))
	done
	echo "$KILLS kills at $points points of $total, $bad bad"
	[ "$bad" -eq 0 ] && [ "$points" -ge 20 ] && [ "$KILLS" -gt $((points / 4)) ]
}

@test "killed between what it does to map its agent: what the program maps there is never unmapped" {
	command -v strace >/dev/null || skip "strace is not installed: run make deps"
	idle
	for n in $(seq 5 "$(share 40 120)"); do
		strace -f -o "$T/strace" -e trace=ptrace -e "inject=ptrace:signal=SIGKILL:when=$n" \
			"$SCRY" objects "${PATIENT[@]}" -p "$IDLE" -d 0.05s >/dev/null 2>&1 3>&- || true
		is_harmless "killed at ptrace call $n"
	done
}

@test "killed at any syscall of the leaving: nothing of the program's is taken for scry's" {
	AGAIN=""
	idle
	killed_leaving 300 "$(share 12 2)" objects "${PATIENT[@]}" -p "$IDLE" -d 0.05s
	wakes
}

@test "killed at any syscall of coming back to an idle agent" {
	AGAIN=1
	idle
	killed_leaving 100000 "$(share 400 3)" objects "${PATIENT[@]}" -p "$IDLE" -d 0.05s
	wakes
}
