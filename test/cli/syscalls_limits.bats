#!/usr/bin/env bats
# scry syscalls at its limits: the kernel's tables are full, and it dies at each step of its start. All that is lost is
# counted and shown; nothing of scry stays in the kernel, and the program goes on.

load lib

setup() {
	need_targets
	prepare
	need_root "eBPF"
	need_bpf
}

# fills PLACES ARGS...: of calls at so many places, each made twice, a row or the count of those without one.
fills() {
	local places=$1 most=$2
	shift 2
	scry_ends 0 syscalls "$@" --by syscall -o "$T/full.scry" --force -- "$TARGETS/target_places" "$places" 2
	"$SCRY" report --by syscall -o "$T/full.json" --force "$T/full.scry"
	calls=$(sed -n 's/^places [0-9]* calls //p' "$T/scry.out")
	json_is "$T/full.json" "(x = rows.find { |y| y['name'] == 'getppid' }['count'] + r['totals']['calls_in_no_row']) >= $calls && rows.sum { |y| y['count'] } + r['totals']['calls_in_no_row'] == r['totals']['calls'] && x < $calls + 50"
	# As many as there is room for, less those of the loader and of libc.
	json_is "$T/full.json" "(x = r['totals']['calls_in_no_row']) >= 2 * ($places - $most) && x <= 2 * ($places - $most) + 200"
	json_is "$T/full.json" 'r["data_quality"]["is_complete"] == false && r["data_quality"]["lost"] == r["totals"]["calls_in_no_row"] && r["notes"].any? { |x| x =~ /^#{r["totals"]["calls_in_no_row"]} of #{r["totals"]["calls"]} calls are in no row/ }'
	json_is "$T/full.json" 'rows.sum { |x| x["samples"] } + r["totals"]["samples_in_no_row"] == r["totals"]["samples_in_calls"]'
	"$SCRY" report --by syscall "$T/full.scry" >"$T/full.txt" 2>&1
	sed -n 2p "$T/full.txt" | grep -E "^incomplete: $(sed ':a;s/\B[0-9]\{3\}\>/,&/;ta' <<<"$(json "$T/full.json" 'r["data_quality"]["lost"]')") events lost"
}

@test "more places than the kernel's table has room for: each call is in a row, or counted as in none" {
	fills 160000 131072 --exact
	fills 50000 32768 --latency
}

# Everything that it has loaded carries this user's number.
ALONE=54321

of_ours() {
	python3 - $ALONE <<'PYTHON'
import ctypes, os, struct, sys

libc = ctypes.CDLL(None, use_errno=True)
number, found = 0, 0

def bpf(command, attr):
    return libc.syscall(321, command, attr, len(attr))

while True:
    attr = ctypes.create_string_buffer(struct.pack("IIII", number, 0, 0, 0))
    if bpf(11, attr) < 0:  # BPF_PROG_GET_NEXT_ID
        break
    number = struct.unpack("IIII", attr.raw[:16])[1]
    fd = bpf(13, ctypes.create_string_buffer(struct.pack("IIII", number, 0, 0, 0)))
    if fd < 0:  # it has gone
        continue
    info = ctypes.create_string_buffer(256)
    if bpf(15, ctypes.create_string_buffer(struct.pack("IIQ", fd, len(info), ctypes.addressof(info)))) == 0:
        found += struct.unpack("I", info.raw[48:52])[0] == int(sys.argv[1])
    os.close(fd)
print(found)
PYTHON
}

some_of_ours() {
	[ "$(of_ours)" -gt 0 ]
}

none_of_ours() {
	[ "$(of_ours)" -eq 0 ]
}

CAPS=-all,+bpf,+perfmon,+sys_ptrace,+dac_read_search
AS_ALONE=(setpriv "--reuid=$ALONE" "--regid=$ALONE" --clear-groups "--inh-caps=$CAPS" "--ambient-caps=$CAPS" "--bounding-set=$CAPS")

# dies CALL N ARGS...: scry is killed at its Nth CALL. CALL "": it is not; how often it makes each is in $T/counts.
dies() {
	local call=$1 n=$2 status=0
	shift 2
	if [ "$call" ]; then
		strace -f -qq -o /dev/null -e trace=bpf,perf_event_open,ioctl -e inject="$call":signal=KILL:when="$n" \
			"${AS_ALONE[@]}" "$SCRY" syscalls "$@" >"$T/dies.out" 2>"$T/dies.err" || status=$?
		echo "$call $n: $status"
		[ "$status" -eq 137 ]
	else
		strace -f -qq -c -o "$T/counts" -e trace=bpf,perf_event_open,ioctl \
			"${AS_ALONE[@]}" "$SCRY" syscalls "$@" >"$T/dies.out" 2>"$T/dies.err"
	fi
}

# how_often CALL: in the last one that was not killed.
how_often() {
	awk -v call="$1" '$NF == call { print $4 }' "$T/counts"
}

@test "killed at each step of its start: nothing of it is in the kernel, and the program is as it was" {
	"${AS_ALONE[@]}" test -x "$SCRY" || skip "user $ALONE may not run $SCRY"
	start ring setpriv --reuid=$ALONE --regid=$ALONE --clear-groups "$TARGETS/target_ring" 400000000
	ring=$PID
	wait_for 10 in_file "^pid" "$T/ring.out"
	before=$(state_of "$ring")
	# It would be seen.
	start scry "${AS_ALONE[@]}" "$SCRY" syscalls -p "$ring"
	wait_for 20 some_of_ours
	kill -KILL "$PID"
	ended "$PID"
	wait_for 10 none_of_ours
	for how in "" --latency; do
		# shellcheck disable=SC2086
		dies "" 0 -p "$ring" $how -d 0.2s
		for call in bpf perf_event_open ioctl; do
			made=$(how_often $call)
			[ "${made:-0}" -gt 0 ] || continue
			for n in 1 $((made / 2 + 1)) "$made"; do
				# shellcheck disable=SC2086
				dies $call "$n" -p "$ring" $how -d 5s
				wait_for 10 none_of_ours
			done
		done
	done
	[ "$(how_often perf_event_open)" -gt 0 ]
	as_before "$ring" "$before" "after scry was killed"
	kill -0 "$ring"
	kill "$ring"
}

@test "killed before the program of its own begins: it does not begin" {
	"${AS_ALONE[@]}" test -x "$SCRY" || skip "user $ALONE may not run $SCRY"
	chmod 777 "$T"
	dies "" 0 --exact -- touch "$T/ran"
	[ -e "$T/ran" ]
	rm "$T/ran"
	made=$(how_often bpf)
	for n in 1 $((made / 2)); do
		dies bpf "$n" --exact -- touch "$T/ran"
		wait_for 10 none_of_ours
		[ ! -e "$T/ran" ]
	done
	dies perf_event_open 1 --exact -- touch "$T/ran"
	wait_for 10 none_of_ours
	[ ! -e "$T/ran" ]
}
