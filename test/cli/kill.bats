#!/usr/bin/env bats
# SIGKILL to the front, to the keeper, to both: at every syscall of the keeper's life, and at random
# moments. What is promised: the target lives and computes right; after the front's death it is
# unhooked within two seconds; else `scry undo` takes everything out; the text is byte-identical.
#
# `make test` takes some points, evenly over the keeper's life, and who is killed changes from one to the next; `make
# soak` kills each at every point.

load lib

setup() {
	need_targets
	prepare
	RANDOM=4711
}

# stops ARGS...: how many syscall stops the keeper of this command makes.
stops() {
	"$TARGETS/killer" both 0 -- "$SCRY" "$@" 2>&1 >/dev/null 3>&- | sed -n 's/^killer: stops //p'
}

keeper_killed() {
	sed -n 's/^killer: keeper //p' "$T/killer.err"
}

# After a kill: WHO PID STATE WHERE.
check() {
	local who=$1 pid=$2 state=$3 where=$4 keeper
	kill -0 "$pid" || {
		echo "the target is dead, $where"
		return 1
	}
	keeper=$(keeper_killed)
	if [ "$who" != front ]; then # one that is killed is not gone at once
		[ -z "$keeper" ] || wait_for 4 is_gone "$keeper"
	else
		# Promised: 2 s. A machine that is busy with other tests gets twice that.
		if [ -n "$keeper" ] && ! wait_for 4 is_gone "$keeper"; then
			echo "the keeper $keeper lives on, $where"
			return 1
		fi
		text_is "$pid" "$(head -1 <<<"$state")" || {
			echo "the keeper left and the text is changed, $where"
			return 1
		}
	fi
	undo_all "$pid" || {
		echo "undo failed, $where"
		return 1
	}
	as_before "$pid" "$state" "$where"
}

# points_of SHORT WHOLE TOTAL WHO...: "N WHO" for each kill: SHORT points of TOTAL, at each the next of WHO, and in a soak
# WHOLE points, at each all of WHO.
points_of() {
	local points total=$3 i n who
	points=$(share "$1" "$2")
	[ "$points" -lt "$total" ] || points=$total
	shift 3
	for ((i = 0; i < points; i++)); do
		n=$((1 + i * (total - 1) / points))
		if [ -n "${SCRY_SOAK:-}" ]; then
			for who in "$@"; do echo "$n $who"; done
		else
			echo "$n ${*:1 + i % $#:1}"
		fi
	done
}

# enough TRIES KILLS WHO...: more than half of the kills of each came about. The arrays have a number for each WHO.
enough() {
	local -n of=$1 came=$2
	local who bad=0
	shift 2
	for who in "$@"; do
		echo "$who: ${came[$who]:-0} of ${of[$who]:-0} kills"
		[ $((2 * ${came[$who]:-0})) -gt "${of[$who]:-0}" ] || bad=1
	done
	[ "$bad" -eq 0 ]
}

# kill_at "WHO..." SHORT WHOLE PID ARGS...: all problems are shown, not only the first.
kill_at() {
	local pid=$4 who total state n kills each bad=0
	local -a of=("$2" "$3") whos
	local -A tries=() killed=()
	read -r -a whos <<<"$1"
	shift 4
	total=$(stops "$@")
	[ "$total" -gt 100 ] || {
		echo "only $total stops: $*"
		return 1
	}
	undo_all "$pid"
	state=$(state_of "$pid")
	mapfile -t kills < <(points_of "${of[@]}" "$total" "${whos[@]}")
	for each in "${kills[@]}"; do
		[ "$bad" -lt 5 ] || break
		read -r n who <<<"$each"
		tries[$who]=$((${tries[$who]:-0} + 1))
		if "$TARGETS/killer" "$who" "$n" -- "$SCRY" "$@" >"$T/killed.out" 2>"$T/killer.err" 3>&-; then
			killed[$who]=$((${killed[$who]:-0} + 1))
		fi
		if ! check "$who" "$pid" "$state" "$(grep 'killed at' "$T/killer.err")"; then
			bad=$((bad + 1))
			state=$(state_of "$pid")
		fi
	done
	echo "${#kills[@]} kills at $total stops, $bad bad"
	enough tries killed "${whos[@]}" && [ "$bad" -eq 0 ]
}

busy_at() {
	target busy "$(share 2 4)"
	# shellcheck disable=SC2086
	kill_at "$1" 18 100000 "$PID" patch count $WORDS -p "$PID" -d 0.02s
	scry_ends 0 patch count work_mix -p "$PID" -d 0.05s
	ends_right "$PID" busy
}

time_at() {
	target busy "$(share 2 4)"
	# shellcheck disable=SC2086
	kill_at "$1" 10 100000 "$PID" patch time $WORDS -p "$PID" -d 0.02s
	scry_ends 0 patch time work_mix -p "$PID" -d 0.05s
	ends_right "$PID" busy
}

got_at() {
	target busy 2
	kill_at "$1" 8 100000 "$PID" patch count work_fold work_mix --via=got -p "$PID" -d 0.02s
	ends_right "$PID" busy
}

# Calls by breakpoints, which stand when the keeper dies: the program passes them until the undo.
breaks_at() {
	target busy "$(share 2 4)"
	kill_at "$1" 8 2000 "$PID" calls --engine=breakpoint -c -x work_fold -x work_mix -p "$PID" -d 0.02s
	scry_ends 0 calls --engine=breakpoint -c -x work_mix -p "$PID" -d 0.05s
	ends_right "$PID" busy
}

malloc_at() {
	target malloc_known steady
	kill_at "$1" 12 100000 "$PID" malloc record -p "$PID" -d 0.02s --force -o "$T/o.scry"
	scry_ends 0 malloc record -p "$PID" -d 0.05s --force -o "$T/o.scry"
	ends_right "$PID" malloc_known
}

# Two instruments, the changes of one over those of the other.
both_at() {
	target malloc_known steady
	kill_at "$1" 12 100000 "$PID" record -e malloc,calls -x malloc -x free -p "$PID" -d 0.02s --force -o "$T/o.scry"
	scry_ends 0 record -e malloc,calls -x malloc -x free -p "$PID" -d 0.05s --force -o "$T/o.scry"
	ends_right "$PID" malloc_known
}

ruby_at() { # WHO [OPTIONS...]
	local who=$1
	shift
	counted
	scry_ends 0 objects "$@" -p "$PID" -d 0.02s # one not known yet is learned first: 5,000 stops more
	kill_at "$who" 12 1000 "$PID" objects "$@" -p "$PID" -d 0.02s
	scry_ends 0 objects "$@" -p "$PID" -d 0.2s
	grep -q "counted.rb:11" "$T/scry.out"
	kill -TERM "$PID"
	finish "$PID"
	tail -1 "$T/counted.out" | grep -q "^rounds [0-9]"
}

# The same with children that come and go, in sets of lanes.
kin_at() {
	target forker
	kill_at "$1" 9 100000 "$PID" record -f -e malloc,calls -x work_mix -x work_fold -p "$PID" -d 0.02s --force -o "$T/o.scry"
	scry_ends 0 record -f -e malloc,calls -x work_mix -p "$PID" -d 0.05s --force -o "$T/o.scry"
	ends_right "$PID" forker
}

# All that go together, in a Ruby whose threads hand their lock on; each round of theirs has a known result.
four_at() {
	local rounds
	start turning "$RUBY" "$ROOT/test/ruby/gvl/turning.rb"
	wait_for 20 in_file "^pid" "$T/turning.out"
	set -- "$1" record -e objects,malloc,gvl,calls -x malloc -x free --max-pause 2s --force -o "$T/o.scry" -p "$PID" -d
	scry_ends 0 "${@:2}" 0.02s # one not known yet is learned first
	kill_at "$1" 9 100000 "$PID" "${@:2}" 0.02s
	scry_ends 0 "${@:2}" 0.3s
	kill -TERM "$PID"
	finish "$PID"
	rounds=$(sed -n 's/^right //p' "$T/turning.out")
	[ "${rounds:-0}" -gt 0 ]
}

# Threads of a Ruby hand their lock on; each round of theirs has a known result. gvl_at WHO [OPTIONS]
gvl_at() {
	local rounds who=$1
	shift
	start turning "$RUBY" "$ROOT/test/ruby/gvl/turning.rb"
	wait_for 20 in_file "^pid" "$T/turning.out"
	scry_ends 0 gvl "$@" -p "$PID" -d 0.02s --max-pause 2s # one not known yet is learned first
	kill_at "$who" 9 1000 "$PID" gvl "$@" -p "$PID" -d 0.02s --max-pause 2s
	scry_ends 0 gvl "$@" -p "$PID" -d 0.3s --max-pause 2s
	kill -TERM "$PID"
	finish "$PID"
	rounds=$(sed -n 's/^right //p' "$T/turning.out")
	[ "${rounds:-0}" -gt 0 ]
}

@test "counting in busy threads, killed at any syscall" { busy_at "keeper both front"; }
@test "timing in busy threads, killed at any syscall" { time_at "keeper both"; }
@test "counting through the GOT, both killed at any syscall" { got_at both; }
@test "calls by breakpoints, killed at any syscall" { breaks_at "keeper both"; }
@test "malloc in busy threads, killed at any syscall" { malloc_at "keeper both front"; }
@test "malloc and calls of one process, killed at any syscall" { both_at "keeper both front"; }
@test "malloc and calls of a family, killed at any syscall" { kin_at "keeper both front"; }
@test "objects, malloc, the lock and calls of one ruby, killed at any syscall" { four_at "keeper both front"; }
@test "objects of a running ruby, killed at any syscall" { ruby_at "keeper both front"; }
@test "objects by hooks, killed at any syscall" { ruby_at "keeper both" --source hooks; }
@test "the lock of a ruby, killed at any syscall" { gvl_at "keeper front"; }
@test "the lock of a ruby, with stacks, both killed at any syscall" { gvl_at both --stacks; }

# killed_started WHO N: a started answer.rb, with a kill at that stop, which is counted in `tries` and `killed`.
killed_started() {
	tries[$1]=$((${tries[$1]:-0} + 1))
	if "$TARGETS/killer" "$1" "$2" -- "$SCRY" objects --force -o "$T/o.json" -- "$RUBY" "$T/answer.rb" "$T/answer" \
		>/dev/null 2>"$T/killer.err" 3>&-; then
		killed[$1]=$((${killed[$1]:-0} + 1))
	fi
}

# started_at WHO: `-- CMD`. The program says its answer and ends with 7, whatever happens to scry.
started_at() {
	local who=$1 points total n i status answer bad=0
	local -A tries=() killed=()
	cat >"$T/answer.rb" <<'RUBY'
sum = 0
20_000.times { |i| sum += [i, i.to_s].size }
File.write(ARGV[0], "answer #{sum}\n")
exit 7
RUBY
	total=$(stops objects -o "$T/o.json" -- "$RUBY" "$T/answer.rb" "$T/answer")
	answer=$(cat "$T/answer")
	grep -q "^answer [1-9]" "$T/answer"
	[ "$total" -gt 100 ]
	points=$(share 5 400)
	for ((i = 0; i < points && bad < 5; i++)); do
		n=$((1 + i * (total - 1) / points))
		rm -f "$T/answer"
		killed_started "$who" "$n"
		status=$(sed -n 's/^killer: front ended //p' "$T/killer.err")
		# 125 is scry's own failure, which it is when its keeper is killed.
		if ! wait_for 10 in_file "^$answer$" "$T/answer"; then
			bad=$((bad + 1))
			echo "no answer, $(tr '\n' ' ' <"$T/killer.err")"
		elif [ "$status" -ne 7 ] && [ "$status" -ne 125 ]; then
			bad=$((bad + 1))
			echo "status $status, $(tr '\n' ' ' <"$T/killer.err")"
		fi
	done
	enough tries killed "$who" && [ "$bad" -eq 0 ]
}

@test "a started program ends right, with its status, when the keeper is killed at any syscall" {
	started_at keeper
}

# The front is killed: the program either never began (its pipe closed) or ends right; nobody hangs.
started_and_left() {
	local kills total n answer who each bad=0
	local -A tries=() killed=()
	cat >"$T/answer.rb" <<'RUBY'
sum = 0
20_000.times { |i| sum += [i, i.to_s].size }
File.write(ARGV[0], "answer #{sum}\n")
RUBY
	total=$(stops objects -o "$T/o.json" -- "$RUBY" "$T/answer.rb" "$T/answer")
	answer=$(cat "$T/answer")
	[ "$total" -gt 100 ]
	mapfile -t kills < <(points_of 10 400 "$total" "$@")
	for each in "${kills[@]}"; do
		[ "$bad" -lt 5 ] || break
		read -r n who <<<"$each"
		rm -f "$T/answer"
		killed_started "$who" "$n"
		if ! wait_for 10 no_process_of "$T/answer.rb"; then
			bad=$((bad + 1))
			echo "it hangs, $(tr '\n' ' ' <"$T/killer.err")"
			HELD="$HELD $(pgrep -f "$T/answer.rb")"
			break
		elif [ -e "$T/answer" ] && [ "$(cat "$T/answer")" != "$answer" ]; then
			bad=$((bad + 1))
			echo "wrong, $(tr '\n' ' ' <"$T/killer.err")"
		elif [ ! -e "$T/answer" ] && [ "$n" -gt $((total / 2)) ]; then
			bad=$((bad + 1))
			echo "no answer, $(tr '\n' ' ' <"$T/killer.err")"
		fi
	done
	enough tries killed "$@" && [ "$bad" -eq 0 ]
}

no_process_of() {
	no pgrep -f "$1" >/dev/null
}

@test "a started program is never left hanging when the front is killed at any syscall, or both" {
	started_and_left front both
}

# The keeper takes out what the front has left, while undo waits for it.
@test "undo beside the keeper of a front that was killed finds nothing, or undoes" {
	need_root "entering a process that is not a child of scry"
	start escapes "$TARGETS/target_escapes"
	wait_for 10 in_file "^round" "$T/escapes.out"
	target=$PID
	for _ in 1 2 3; do
		"$SCRY" patch time malloc -p "$target" >/dev/null 2>&1 3>&- &
		scry=$!
		wait_for 10 grep -q scry "/proc/$target/maps"
		kill -KILL "$scry"
		scry_ends 0 undo -p "$target"
		grep -Eq "nothing to undo|nothing was changed|undone" "$T/scry.out"
		wait "$scry" 2>/dev/null || true
	done
	ends_right "$target" escapes
}

@test "a started program goes on when the front is killed" {
	cat >"$T/long.rb" <<'RUBY'
$stdout.sync = true
puts "pid #{$$}"
t = Process.clock_gettime(Process::CLOCK_MONOTONIC)
n = 0
n += [n].size while Process.clock_gettime(Process::CLOCK_MONOTONIC) - t < 2
File.write(ARGV[0], n == 0 ? "wrong" : "right")
RUBY
	for who in front both; do
		rm -f "$T/long.done" "$T/long.out"
		start long "$SCRY" objects -o "$T/$who.scry" -- "$RUBY" "$T/long.rb" "$T/long.done"
		scry=$PID
		wait_for 10 in_file "^pid" "$T/long.out"
		ruby="$(sed -n 's/^pid //p' "$T/long.out")"
		STARTED="$STARTED $ruby"
		keeper=$(keeper_of "$scry")
		[ "$who" = front ] || kill -KILL "$keeper"
		kill -KILL "$scry"
		ended "$scry"
		wait_for 4 is_gone "$keeper"
		kill -0 "$ruby"
		wait_for 10 in_file right "$T/long.done"
	done
}

stands() { # PID: stopped, or ended
	case "$(sed 's/.*) //; s/ .*//' "/proc/$1/stat" 2>/dev/null)" in T | t | Z | X | "") ;; *) return 1 ;; esac
}

# randomly WHO TIMES PID ARGS...: kills at random moments of the first 400 ms.
randomly() {
	local who=$1 times=$2 pid=$3 state i bad=0 scry keeper ms
	shift 3
	undo_all "$pid"
	state=$(state_of "$pid")
	for ((i = 0; i < times && bad < 5; i++)); do
		"$SCRY" "$@" >/dev/null 2>&1 3>&- &
		scry=$!
		ms=$((RANDOM % 400))
		sleep "0.$(printf %03d $ms)"
		# When it stands it makes no keeper that would not be seen.
		kill -STOP "$scry" 2>/dev/null && wait_for 10 stands "$scry"
		keeper=$(pgrep -P "$scry" 2>/dev/null | head -1) || true
		echo "killer: keeper $keeper" >"$T/killer.err"
		[ "$who" = front ] || [ -z "$keeper" ] || kill -KILL "$keeper" || true
		[ "$who" = keeper ] || kill -KILL "$scry" 2>/dev/null || true
		kill -CONT "$scry" 2>/dev/null || true
		wait "$scry" 2>/dev/null || true
		if ! check "$who" "$pid" "$state" "$who killed after $ms ms"; then
			bad=$((bad + 1))
			state=$(state_of "$pid")
		fi
	done
	[ "$bad" -eq 0 ]
}

@test "random moments: front, keeper and both, in a program that counts" {
	target busy
	for who in front keeper both; do
		# shellcheck disable=SC2086
		randomly $who "$(share 4 50)" "$PID" patch count $WORDS -p "$PID" -d 0.3s
	done
	ends_right "$PID" busy
}

@test "random moments: front, keeper and both, in a ruby" {
	counted
	for who in front keeper both; do
		randomly $who "$(share 4 50)" "$PID" objects -p "$PID" -d 0.3s
	done
	kill -TERM "$PID"
	finish "$PID"
}

# stand PID: all of WORDS are hooked.
stand() {
	[ "$("$SCRY" patch list -p "$1" | grep -c applied)" -ge "$(wc -w <<<"$WORDS")" ]
}

@test "both killed: the hooks pass through, the ring does not grow, undo takes them out" {
	target busy
	busy=$PID
	before=$(state_of "$busy")
	# shellcheck disable=SC2086
	start scry "$SCRY" patch count $WORDS -p "$busy" -d 60s
	scry=$PID
	wait_for 10 stand "$busy"
	kill -KILL "$(keeper_of "$scry")" "$scry" # a keeper whose front is gone undoes
	ended "$scry"
	wait_for 10 no watched "$busy" # a keeper may take its time to die
	goes_on "$T/busy.out"
	"$SCRY" ps | grep -w "$busy" | grep -E "[4-9] changes in place; scry undo -p $busy"
	no text_is "$busy" "$(head -1 <<<"$before")"
	undo "$busy"
	grep -qE "[4-9] changes undone" "$T/scry.out"
	as_before "$busy" "$before" "after undo"
	ends_right "$busy" busy
}

@test "both killed: the next one, of the same functions, puts back what was left, and watches" {
	local dead alive
	target busy
	busy=$PID
	before=$(state_of "$busy")
	for dead in "patch count" "patch time" "calls -c -x"; do
		for alive in "patch count" "patch time" "calls -c -x"; do
			# shellcheck disable=SC2086
			start scry "$SCRY" $dead busy_scale -p "$busy" -d 60s
			scry=$PID
			wait_for 10 hooked "$busy"
			kill -KILL "$(keeper_of "$scry")" "$scry"
			ended "$scry"
			wait_for 10 no watched "$busy"
			# shellcheck disable=SC2086
			scry_ends 0 $alive busy_scale -p "$busy" -d 0.1s || { echo "$alive after $dead"; return 1; }
			grep -q busy_scale "$T/scry.out"
			no grep "a watch of scry" "$T/scry.out" "$T/scry.err" || return 1
			as_before "$busy" "$before" "$alive after $dead"
		done
	done
	ends_right "$busy" busy
}

@test "both killed: a watched ruby goes on, undo takes the agent out" {
	counted
	ruby=$PID
	before=$(state_of "$ruby")
	start scry "$SCRY" objects -p "$ruby" -d 60s --max-pause 2s
	scry=$PID
	wait_for 10 watched "$ruby"
	kill -KILL "$(keeper_of "$scry")" "$scry" # a keeper whose front is gone undoes
	ended "$scry"
	sleep 2 # the lease is over, the ring has had time to run over
	"$SCRY" ps | grep -w "$ruby" | grep "scry undo -p $ruby"
	undo_all "$ruby"
	as_before "$ruby" "$before" "after undo"
	scry_ends 0 objects -p "$ruby" -d 2s
	grep -q "counted.rb:11" "$T/scry.out"
	kill -TERM "$ruby"
	finish "$ruby"
}

@test "a keeper that is stopped for three seconds: losses are counted, the watch goes on" {
	counted
	ruby=$PID
	start scry "$SCRY" objects -p "$ruby" -d 5s --top 0 -o "$T/o.json"
	scry=$PID
	wait_for 10 watched "$ruby"
	keeper=$(keeper_of "$scry")
	HELD=$keeper
	kill -STOP "$keeper"
	sleep 3
	kill -CONT "$keeper"
	finish "$scry"
	json_is "$T/o.json" 'r["data_quality"]["lost"] > 0'
	json_is "$T/o.json" 'rows.any? { |x| x["file"].to_s.end_with?("counted.rb") && x["allocated"] > 1000 }'
	"$SCRY" undo -p "$ruby"
	kill -TERM "$ruby"
	finish "$ruby"
	tail -1 "$T/counted.out" | grep -q "^rounds [0-9]"
}

# The target has made the memory that it shares with scry, mapped it or not, and still has it open: of the control page,
# of counters.
@test "killed while a shared memory is open in the target: undo closes it" {
	command -v strace >/dev/null || skip "strace is not installed: run make deps"
	target busy
	undo "$PID"
	state=$(state_of "$PID")
	for which in 1 2; do
		strace -f -o "$T/strace" -e trace=pidfd_getfd -e "inject=pidfd_getfd:signal=SIGKILL:when=$which" \
			"$SCRY" patch count work_mix -p "$PID" -d 0.05s >"$T/out" 2>"$T/err" 3>&- || true
		ls -l "/proc/$PID/fd" | grep -q "memfd:scry-shared" || {
			echo "nothing was open at $which"
			cat "$T/strace"
			return 1
		}
		undo "$PID"
		as_before "$PID" "$state" "killed at $which"
	done
	scry_ends 0 patch count work_mix -p "$PID" -d 0.05s
	as_before "$PID" "$state" "and watched again"
	ends_right "$PID" busy
}
