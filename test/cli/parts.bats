#!/usr/bin/env bats
# The agent's parts: only what a watch needs is open in the program, and a process that holds an agent already gets the
# part that it lacks, whoever dies meanwhile.

load lib

# open_in PID: bytes of the agent's reservation by the kernel: "CODE DATA", as far as they may be touched: what lies
# before control page, account page and ring, the stack for calls and the journal included.
open_in() {
	"$RUBY" --disable=gems -e '
	  maps = File.readlines("/proc/#{ARGV[0]}/maps").map(&:split).map { |r, p, _, _, i, f| [*r.split("-").map(&:hex), p, i == "0" && f.nil?, f.to_s] }
	  ends = maps.index { |m| m[4].start_with?("/memfd:scry") && m[1] - m[0] == (8 << 20) + 2 * 4096 }
	  first = ends
	  first -= 1 while maps[first - 1][1] == maps[first][0] && maps[first - 1][3]
	  code, data = maps[first...ends].select { |m| m[2].include?("r") }.partition { |m| m[2].include?("x") }
	  puts [code, data].map { |a| a.sum { |m| m[1] - m[0] } }.join(" ")' "$1"
}

# has CODE DATA_MIB ARGS...: while `scry ARGS -p PID` is on, so many bytes of code are open, and of data, beside the
# journal's 8 MiB, at least DATA_MIB - 1 and less than DATA_MIB.
has() {
	local code=$1 mib=$2 front
	local -a is
	shift 2
	"$SCRY" "$@" -p "$PID" >"$T/has.out" 2>"$T/has.err" 3>&- &
	front=$!
	wait_for 20 watched "$PID" || {
		cat "$T/has.err"
		return 1
	}
	wait_for 20 hooked "$PID"
	read -r -a is <<<"$(open_in "$PID")"
	kill -INT "$front"
	finish "$front" || cat "$T/has.err"
	[ "${is[0]}" -eq "$code" ] && [ $((is[1] >> 20)) -eq $((8 + mib - 1)) ] && return 0
	echo "$* has ${is[*]} bytes open, not $code of code and $mib MiB of data"
	return 1
}

@test "a watch has its own parts, and no others" {
	target busy
	has 12288 1 patch count exit
	has 12288 1 patch log exit
	has 32768 11 patch time exit
	has 32768 11 calls -x exit
	has 40960 25 calls -x exit -w 8
	has 28672 1 malloc record --force -o "$T/o.scry"
	has 36864 16 malloc record --stack=8 --force -o "$T/o.scry"
	ends_right "$PID" busy
}

# left_by ARGS...: front and keeper are killed while the watch is on: the agent stays.
left_by() {
	local front keeper
	"$SCRY" "$@" -p "$PID" >/dev/null 2>&1 3>&- &
	front=$!
	wait_for 20 hooked "$PID"
	keeper=$(keeper_of "$front")
	kill -9 "$front" "$keeper"
	wait_for 4 is_gone "$keeper"
}

@test "who finds the agent of a dead scry adds the part that is missing" {
	local state
	target busy
	state=$(state_of "$PID")
	left_by patch count work_mix
	scry_ends 0 patch time work_mix -p "$PID" -d 0.2s --json
	json_is "$T/scry.out" 'r["rows"].first["returned"] > 0'
	as_before "$PID" "$state" "after a part more"
	left_by patch time work_mix
	scry_ends 0 malloc record -p "$PID" -d 0.1s --force -o "$T/o.scry"
	as_before "$PID" "$state" "after another one"
	ends_right "$PID" busy
}

# The keeper is killed at one of its system calls while it adds the part, and the program is left as it was.
@test "killed at any syscall while it adds a part" {
	local state total n i points bad=0 killed=0
	target busy
	state=$(state_of "$PID")
	left_by patch count work_mix
	total=$("$TARGETS/killer" both 0 -- "$SCRY" patch time work_mix -p "$PID" -d 0.02s 2>&1 >/dev/null 3>&- |
		sed -n 's/^killer: stops //p')
	[ "$total" -gt 100 ]
	points=$(share 12 "$total")
	for ((i = 0; i < points && bad < 5; i++)); do
		n=$((1 + i * (total - 1) / points))
		undo "$PID"
		left_by patch count work_mix
		if "$TARGETS/killer" both "$n" -- "$SCRY" patch time work_mix -p "$PID" -d 0.02s \
			>/dev/null 2>"$T/killer.err" 3>&-; then
			killed=$((killed + 1))
		fi
		wait_for 4 is_gone "$(sed -n 's/^killer: keeper //p' "$T/killer.err")"
		undo "$PID"
		as_before "$PID" "$state" "$(grep 'killed at' "$T/killer.err")" || bad=$((bad + 1))
	done
	echo "$killed of $points points of $total stops, $bad bad"
	[ "$bad" -eq 0 ] && [ "$killed" -gt $((points / 2)) ]
	ends_right "$PID" busy
}
