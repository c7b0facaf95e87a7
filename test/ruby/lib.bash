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

# Every Ruby that is tried, one a line.
rubies() {
	echo "$RUBY"
	if [ -n "${SCRY_TEST_RUBIES:-}" ]; then tr : '\n' <<<"$SCRY_TEST_RUBIES"; fi
}

# no COMMAND...: it fails. `! COMMAND` in the midst of a test proves nothing: bash goes on.
no() {
	! "$@"
}

# wait_for SECONDS COMMAND...: runs the command every 50 ms until it succeeds.
wait_for() {
	local left=$(($1 * 20))
	shift
	until "$@" >/dev/null 2>&1; do
		left=$((left - 1))
		if [ "$left" -le 0 ]; then
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

# in_file PATTERN FILE
in_file() {
	grep -q -- "$1" "$2"
}

# json FILE RUBY-EXPRESSION: the expression sees the report as `r`, its rows as `rows`.
json() {
	"$RUBY" -rjson -e 'r = JSON.parse(File.read(ARGV[0])); rows = r["rows"]; x = eval(ARGV[1]); puts x' "$1" "$2"
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
# without a JIT has none), shared anonymous ones, and whatever carries scry's name.
mappings() {
	awk '/scry/ || ($2 ~ /x/ && NF == 5) || $6 == "/dev/zero" { n++ } END { print n + 0 }' "/proc/$1/maps"
}

# text_of PID: a digest of all executable file mappings, to be equal before and after.
text_of() {
	"$RUBY" -rdigest -e '
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
	local pid=$1 before
	shift
	before=$(text_of "$pid")
	for _ in 1 2 3 4; do
		"$@" &
		sleep "0.$((RANDOM % 3))$((RANDOM % 10))"
		kill -KILL $! && wait $! 2>/dev/null || true
		grep -q "^TracerPid:	0" "/proc/$pid/status"
		grep -qE "^State:	[RS]" "/proc/$pid/status"
	done
	[ "$(mappings "$pid")" = 0 ]
	wait_for 5 has_text "$pid" "$before"
}
