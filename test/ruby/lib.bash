# shellcheck shell=bash disable=SC2034
# Shared by the bats files of this folder: where scry is, waiting without sleeping, and programs that
# are ended by their pid when the test is over.

ROOT="$(cd "$BATS_TEST_DIRNAME/../.." && pwd)"
HERE="$BATS_TEST_DIRNAME"
SCRY="${SCRY:-$ROOT/build/scry}"
RUBY="${RUBY:-ruby}"
unset RUBYOPT RUBYLIB

need_scry() {
	[ -x "$SCRY" ] || skip "no scry at $SCRY: run make first"
}

# need_gem NAME: skips aloud where the library is not installed.
need_gem() {
	"$RUBY" -e 'require ARGV[0]' "$1" 2>/dev/null || skip "ruby has no library '$1': run make deps"
}

# need_bpf: where the kernel lets us; else skipped with its reason. Who has the rights fails in probe_bpf.
need_bpf() {
	local why
	why="$("$SCRY" doctor | sed -n 's/^-- *eBPF *//p')"
	[ -z "$why" ] || skip "$why"
}

# Every Ruby that is tried, one a line.
rubies() {
	echo "$RUBY"
	if [ -n "${SCRY_TEST_RUBIES:-}" ]; then tr : '\n' <<<"$SCRY_TEST_RUBIES"; fi
}

# share SHORT WHOLE: what a test takes, in `make test` and in `make soak`.
share() {
	if [ -n "${SCRY_SOAK:-}" ]; then echo "$2"; else echo "$1"; fi
}

# no COMMAND...: it fails. `! COMMAND` in the midst of a test proves nothing: bash goes on.
no() {
	! "$@"
}

# most_hold NEEDED OF COMMAND...: of OF measurements NEEDED are right. COMMAND says what it measured and returns 0; 1:
# the machine was too busy for it to say anything; any other status: wrong. It ends when nothing can change the answer.
# For figures that chance takes off their mark in one run, but not in most; the caller says what chance that is.
most_hold() {
	local needed=$1 of=$2 right=0 wrong=0 mute=0 got
	shift 2
	while [ "$right" -lt "$needed" ] && [ "$wrong" -le $((of - needed)) ] && [ $((right + wrong + mute)) -lt "$of" ]; do
		got=0
		"$@" || got=$?
		case $got in
		0) right=$((right + 1)) ;;
		1) mute=$((mute + 1)) ;;
		*) wrong=$((wrong + 1)) ;;
		esac
	done
	echo "$*: right $right, wrong $wrong, no answer $mute; $needed of $of must be right"
	[ "$right" -lt "$needed" ] || return 0
	[ "$wrong" -le $((of - needed)) ] || return 1
	skip "the machine is too busy: $mute of $of measurements say nothing"
}

# wait_for SECONDS COMMAND...: runs the command every 50 ms until it succeeds; where the machine has much
# else to do, or the command takes long, for up to four times as long.
wait_for() {
	local left=$(($1 * 20)) till=$((SECONDS + $1 * 4))
	shift
	until "$@" >/dev/null 2>&1; do
		left=$((left - 1))
		if [ "$left" -le 0 ] || [ "$SECONDS" -gt "$till" ]; then
			echo "gave up waiting for: $*"
			return 1
		fi
		sleep 0.05
	done
}

# start NAME COMMAND...: in the background, output in $BATS_TEST_TMPDIR/NAME.{out,err}, pid in $PID.
start() {
	local name=$1
	shift
	rm -f "$BATS_TEST_TMPDIR/$name.out" "$BATS_TEST_TMPDIR/$name.err" # who waits for a line sees none of the one before
	"$@" >"$BATS_TEST_TMPDIR/$name.out" 2>"$BATS_TEST_TMPDIR/$name.err" 3>&- &
	PID=$!
	STARTED="$STARTED $PID"
}

# finish PID: waits for the end of a started program, returns its status.
finish() {
	STARTED="${STARTED/ $1/}"
	wait "$1"
}

# At the end of a test. All are killed before one is waited for: a traced program ends only after its
# tracer. $HELD: processes that are no children of ours.
end_started() {
	local pid
	for pid in $HELD $STARTED; do
		kill -KILL "$pid" 2>/dev/null || true
	done
	for pid in $STARTED; do
		wait "$pid" 2>/dev/null || true
	done
	STARTED="" HELD=""
}

# prepare: what a test begins with. A file that needs more has a setup of its own, with this in it.
prepare() {
	need_scry
	T="$BATS_TEST_TMPDIR"
	STARTED="" HELD=""
}

setup() {
	prepare
}

teardown() {
	end_started
}

# is_gone PID: it has ended, though perhaps nobody has waited for it yet.
is_gone() {
	! kill -0 "$1" 2>/dev/null || grep -q "^State:.*Z" "/proc/$1/status" 2>/dev/null
}

# goes_unseen: the program that runs programs/stop_keeper.rb, with STOPPED=$T/stopped, ends; then its keeper goes on.
goes_unseen() {
	local keeper target
	wait_for 20 test -e "$T/stopped"
	read -r keeper target <"$T/stopped"
	HELD="$HELD $keeper"
	wait_for 20 is_gone "$target"
	kill -CONT "$keeper"
}

# free_port: one that nobody listens to, and that nobody is given who asks for none.
free_port() {
	"$RUBY" --disable=gems -rsocket -e '
	  low = File.read("/proc/sys/net/ipv4/ip_local_port_range").to_i
	  low = 32768 if low < 4096 # services have those below
	  begin
	    TCPServer.new("127.0.0.1", port = rand(low / 2...low)).close
	  rescue Errno::EADDRINUSE
	    retry
	  end
	  puts port'
}

# spent PID: its processor time so far, in hundredths of a second.
spent() {
	awk '{ sub(/.*\) /, ""); print $12 + $13 }' "/proc/$1/stat"
}

has_spent() { # PID HUNDREDTHS
	[ "$(spent "$1")" -ge "$2" ]
}

# works_on PID: waits until it has had a twentieth of a second more of a processor.
works_on() {
	wait_for 10 has_spent "$1" $(($(spent "$1") + 5))
}

# was_late STACKS.json: the machine had no time for scry, or kept the program waiting for a processor for a third
# of the time that it had one: it stands where it was driven off more often than where it runs. Shares that are off
# then say nothing.
was_late() {
	json_is "$1" 't = r["totals"]; t["missed"] * 20 > t["ticks"] || t["state_runnable_ns"] * 3 > t["state_cpu_ns"]' >/dev/null
}

# in_file PATTERN FILE
in_file() {
	grep -q -- "$1" "$2"
}

# json FILE RUBY-EXPRESSION: the expression sees the report as `r`, its rows as `rows`.
json() {
	"$RUBY" --disable=gems -rjson -e 'r = JSON.parse(File.read(ARGV[0])); rows = r["rows"]; x = eval(ARGV[1]); puts x' "$1" "$2"
}

# json_is FILE RUBY-EXPRESSION: fails, and shows the report's head, unless it is true.
json_is() {
	local got
	got="$(json "$1" "$2")" || return 1
	[ "$got" = true ] && return 0
	echo "not true of $1: $2 (it is: $got)"
	head -c 2000 "$1"
	return 1
}

# mappings PID: how many mappings of the target can only be scry's: executable ones of no file (Ruby
# without a JIT has none), and memfds of scry's. Not whatever has "scry" in its path: test programs lie in a clone that
# is called so.
mappings() {
	awk '$6 ~ "^/memfd:scry" || ($2 ~ /x/ && NF == 5) { n++ } END { print n + 0 }' "/proc/$1/maps"
}

# text_of PID: a digest of all executable file mappings, to be equal before and after.
text_of() {
	"$RUBY" --disable=gems -rdigest -e '
	  pid = ARGV[0]
	  File.open("/proc/#{pid}/mem", "rb") do |mem|
	    File.foreach("/proc/#{pid}/maps") do |line|
	      range, perms, _, _, _, path = line.split
	      next unless perms.include?("x") && path&.start_with?("/")
	      from, to = range.split("-").map(&:hex)
	      mem.seek(from)
	      puts "#{range} #{path} #{Digest::MD5.hexdigest(mem.read(to - from))}"
	    end
	  end' "$1"
}

has_text() { # PID TEXT
	[ "$(text_of "$1")" = "$2" ]
}

# stays_well PID COMMAND...: scry, killed at any moment, leaves the program as it was.
stays_well() {
	local pid=$1 before status PID # the caller's stays
	shift
	before=$(text_of "$pid")
	for _ in 1 2 3 4; do
		start killed "$@"
		sleep "0.$((RANDOM % 3))$((RANDOM % 10))"
		kill -KILL "$PID" 2>/dev/null || true
		status=0
		finish "$PID" || status=$?
		if [ "$status" -ne 137 ]; then # else this would be no proof
			echo "scry had ended by itself, with $status: $(cat "$T/killed.err")"
			return 1
		fi
		grep -q "^TracerPid:	0" "/proc/$pid/status"
		wait_for 5 grep -qE "^State:	[RS]" "/proc/$pid/status" # D: its page is being brought
	done
	[ "$(mappings "$pid")" = 0 ]
	wait_for 5 has_text "$pid" "$before"
}
