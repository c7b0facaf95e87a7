# shellcheck shell=bash disable=SC2034,SC1091
# scry looks at programs that do it harm. It is root, they are not. It may work, or refuse; it ends by itself within a
# minute, writes nothing that they may only read, and goes on with the other programs that it watches, as another scry does.

source "$BATS_TEST_DIRNAME/../cli/lib.bash"

# Of the file that they may only read.
victim() {
	stat -c "%s %y" "$T/victim"
}

setup() {
	need_targets
	need_root "entering a process of another user"
	prepare
	THEIRS=$(mktemp -d /tmp/theirs.XXXXXX) # where they come, too
	chmod 777 "$THEIRS"
	truncate -s 64M "$T/victim"
	chmod 444 "$T/victim"
	before=$(victim)
	target busy 1 # one thread each: they are to be watched, not to take the processors from scry
	BUSY=$PID
	start other "$SCRY" patch count work_fold -p "$BUSY"
	OTHER=$PID
	wait_for 20 hooked "$BUSY"
	start beside "$TARGETS/target_busy" 1
	BESIDE=$PID
	wait_for 10 in_file "^round" "$T/beside.out"
}

teardown() {
	end_started
	rm -rf "$THEIRS"
}

# looks KIND FILE WHAT ARGS...: scry ARGS at one such program, and at one that does nothing wrong.
looks() {
	local kind=$1 file=$2 got=0
	shift 2
	start enemy setpriv --reuid=65534 --regid=65534 --clear-groups "$TARGETS/target_enemy" "$kind" "$file"
	wait_for 20 in_file "^pid" "$T/enemy.out"
	timeout -k 1 60 "$SCRY" "$@" -p "$PID" >"$T/out" 2>"$T/err" 3>&- || got=$?
	kill -KILL "$PID" 2>/dev/null || true
	finish "$PID" || true
	! grep -q "^met" "$T/enemy.out" || touch "$T/met"
	[ "$got" -lt 124 ] || {
		echo "$kind, scry $*: ended with $got"
		tail -5 "$T/err"
		return 1
	}
	grep -q "internal error\|Segmentation" "$T/err" && {
		tail -5 "$T/err"
		return 1
	}
	[ "$(victim)" = "$before" ] || {
		echo "$kind, scry $*: the file was written"
		return 1
	}
}

# beside_goes_on KIND: the other one of the same watch was watched to its end.
beside_goes_on() {
	grep -qx "scry: process $BESIDE ended: duration" "$T/err" || {
		echo "$1: the watch of the other program was ended, too"
		tail -5 "$T/err"
		return 1
	}
}

# enemies KIND...: each is looked at by $LOOKS.
enemies() {
	local kind
	for kind in "$@"; do
		rm -f "$T/met"
		all_look "$kind"
		[ -z "${MEETS:-}" ] || [ -e "$T/met" ] || {
			echo "$kind never met what scry put into it"
			return 1
		}
	done
	others_go_on
}

LOOKS="calls"

all_look() { # KIND
	local how file=$THEIRS/lib.so
	for how in $LOOKS; do
		if [[ "$1" = file-* ]]; then
			rm -rf "$file"
			cp "$TARGETS/libwork.so" "$file"
			chown 65534 "$file"
		fi
		case $how in
		calls)
			looks "$1" "$file" calls -v -c --json -x work_fold -w 4 -d 0.1s -p "$BESIDE"
			beside_goes_on "$1"
			;;
		malloc) looks "$1" "$file" malloc record --stack=4 -d 0.1s -o "$T/m.scry" --force ;;
		esac
	done
}

others_go_on() {
	kill -INT "$OTHER"
	finish "$OTHER" || {
		cat "$T/other.err"
		return 1
	}
	grep -q "^scry patch count: " "$T/other.out"
	no grep "^incomplete: " "$T/other.out"
	ends_right "$BUSY" busy
	ends_right "$BESIDE" beside
}
