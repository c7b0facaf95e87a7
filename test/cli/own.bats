#!/usr/bin/env bats
# One scry at a time edits a process, whatever namespaces they run in, and nobody else can keep it from that.

load lib

# squats TYPE: another user binds the name by which a scry says that it is at work on process $PID.
squats() {
	start squatter setpriv --reuid=nobody --regid=nogroup --clear-groups perl -MSocket -e '
$| = 1;
my ($pid, $type) = @ARGV;
open my $f, "<", "/proc/$pid/stat" or die;
<$f> =~ /\) (.*)/;
socket my $s, AF_UNIX, $type eq "dgram" ? SOCK_DGRAM : SOCK_SEQPACKET, 0 or die;
bind $s, sockaddr_un("\0scry-owner-$pid-" . (split / /, $1)[19]) or die;
$type eq "dgram" or listen $s, 1 or die;
print "pid\n";
sleep 1000' "$PID" "$1"
	wait_for 10 in_file "^pid" "$T/squatter.out"
}

# elsewhere NAME ARGS...: scry in a network namespace of its own, its pid in $PID.
elsewhere() {
	local name=$1
	shift
	start "$name" unshare -n "$SCRY" "$@"
}

@test "another user has taken the name by which a scry says that it is at work: it keeps nobody out" {
	need_root "another user"
	for type in dgram seqpacket; do
		target busy
		target=$PID
		squats "$type"
		scry_ends 0 patch count $WORDS -p "$target" -d 0.2s
		kill "$PID"
		finish "$PID" || true
		ends_right "$target" busy
	done
}

@test "two scrys in two network namespaces: the second is refused by name" {
	need_root "a network namespace"
	target busy
	target=$PID
	before=$(text "$target")
	elsewhere first patch count $WORDS -p "$target"
	first=$PID
	wait_for 20 hooked "$target"
	scry_ends 1 patch count $WORDS -p "$target" -d 0.1s
	says "watched already.*process [0-9]+"
	scry_ends 1 undo -p "$target"
	kill -INT "$first"
	finish "$first"
	scry_ends 0 patch count $WORDS -p "$target" -d 0.1s
	wait_for 5 text_is "$target" "$before"
	ends_right "$target" busy
}

@test "two that begin at the same moment: one at a time, and the program computes right" {
	need_root "a network namespace"
	target states
	target=$PID
	for _ in $(seq "$(share 5 50)"); do
		elsewhere one patch count work_fold -p "$target" -d 0.1s
		one=$PID
		elsewhere two patch count work_fold -p "$target" -d 0.1s
		two=$PID
		got=0
		finish "$one" || got=$((got + 1))
		finish "$two" || got=$((got + 1))
		[ "$got" -le 1 ] || {
			cat "$T/one.err" "$T/two.err"
			return 1
		}
	done
	goes_on "$T/states.out"
	ends_right "$target" states
	! "$SCRY" ps | grep -w "$target"
}

@test "one that stood still is taken over, and changes nothing when it goes on" {
	need_root "a network namespace"
	target busy
	target=$PID
	before=$(text "$target")
	elsewhere first patch count $WORDS -p "$target"
	first=$PID
	wait_for 20 hooked "$target"
	keeper=$(keeper_of "$first")
	kill -STOP "$keeper" "$first"
	free() { "$SCRY" undo -p "$target" >"$T/undo.out" 2>&1; }
	wait_for 10 free
	wait_for 5 text_is "$target" "$before"
	start second "$SCRY" patch count $WORDS -p "$target"
	second=$PID
	wait_for 20 hooked "$target"
	kill -CONT "$keeper" "$first"
	kill -INT "$first"
	finish "$first" || true
	"$SCRY" patch list -p "$target" | grep -q applied # the second's stand
	kill -INT "$second"
	finish "$second"
	in_file "^scry patch count: " "$T/second.out"
	no in_file "^incomplete: " "$T/second.out"
	wait_for 5 text_is "$target" "$before"
	ends_right "$target" busy
}

@test "each attach and detach is written to the system log" {
	local words
	target busy
	target=$PID
	SYSLOG_FILE="$T/log" LD_PRELOAD="$TARGETS/libsyslog.so" scry_ends 0 patch count $WORDS -p "$target" -d 0.2s
	ends_right "$target" busy
	cat "$T/log"
	[ "$(wc -l <"$T/log")" -eq 2 ]
	words="uid $(id -u) [a-z ]+ process $target \(target_busy\): [1-9][0-9]* bytes changed, longest pause [1-9][0-9]* us"
	sed -n 1p "$T/log" | grep -qxE "attach: $words, undo pending"
	sed -n 2p "$T/log" | grep -qxE "detach: $words, undo verified"
}
