#!/bin/bash
# The long tests, whole: every kill point, fifty random moments, a hundred cycles, and a busy Ruby with
# 64 threads under GC stress entered and left 300 times. `make soak` calls it.
#
#   test/soak/soak.sh [BUILD]
#
# Writes what was done, how often and when to bench/soak.md. Ends with 1 if anything failed. A round
# takes about an hour; SOAK_CYCLES (300) and SOAK_FILES (kill states disk contract) make it shorter.
set -u

root=$(cd "$(dirname "$0")/../.." && pwd)
build=${1:-$root/build}
case "$build" in /*) ;; *) build=$root/$build ;; esac
SCRY=$build/scry
[ -x "$SCRY" ] || SCRY=$build/src/cmd/scry
export SCRY SCRY_BUILD=$build SCRY_SOAK=1
ruby=${RUBY:-ruby}
cycles=${SOAK_CYCLES:-300}
files=${SOAK_FILES:-kill states disk contract}
out=${SOAK_OUT:-$root/bench/soak.md}
work=$(mktemp -d)
failed=0
ruby_pid=""

end() {
	[ -z "$ruby_pid" ] || kill -KILL "$ruby_pid" 2>/dev/null
	rm -rf "$work"
}
trap end EXIT

row() {
	printf '| %s | %s | %s | %s |\n' "$@" | tee -a "$work/rows"
}

# One bats file, whole.
run_file() {
	local began=$SECONDS ok bad skipped
	bats --tap "$root/test/cli/$1.bats" >"$work/$1.tap" 2>&1 </dev/null
	ok=$(grep -c "^ok " "$work/$1.tap")
	bad=$(grep -c "^not ok " "$work/$1.tap")
	skipped=$(grep -ci "^ok .*# skip" "$work/$1.tap")
	grep -A 12 "^not ok " "$work/$1.tap"
	[ "$bad" -eq 0 ] && [ "$ok" -gt 0 ] || failed=1
	row "test/cli/$1.bats" "$ok passed, $skipped of them skipped" "$bad failed" "$((SECONDS - began)) s"
}

text() {
	"$build/test/targets/text_hash" "$ruby_pid"
}

# 64 threads that allocate, compare what they made, and now and then run under GC.stress.
stressed_ruby() {
	local began=$SECONDS bad=0 done_=0 before lost=0 i
	"$ruby" "$root/test/soak/stress.rb" >"$work/stress.out" 2>&1 &
	ruby_pid=$!
	for _ in $(seq 100); do
		grep -q "^pid" "$work/stress.out" && break
		sleep 0.1
	done
	before=$(text)
	for ((i = 0; i < cycles; i++)); do
		if ! "$SCRY" objects -p "$ruby_pid" -d "$((20 + i % 5 * 40))ms" --json >"$work/o.json" 2>"$work/o.err"; then
			bad=$((bad + 1))
			cat "$work/o.err"
		fi
		kill -0 "$ruby_pid" || break
		done_=$((done_ + 1))
		lost=$((lost + $("$ruby" -rjson -e 'puts JSON.parse(File.read(ARGV[0]))["honesty"]["lost"]' "$work/o.json" || echo 0)))
		[ "$(text)" = "$before" ] || { bad=$((bad + 1)) && echo "the text differs after cycle $i"; }
	done
	"$SCRY" undo -p "$ruby_pid" || bad=$((bad + 1))
	kill -TERM "$ruby_pid"
	wait "$ruby_pid" || { bad=$((bad + 1)) && tail -5 "$work/stress.out"; }
	ruby_pid=""
	grep "^wrong" "$work/stress.out" && bad=$((bad + 1))
	[ "$bad" -eq 0 ] && [ "$done_" -eq "$cycles" ] || failed=1
	row "64 Ruby threads under GC stress" "$done_ cycles, $(tail -1 "$work/stress.out"), $lost events lost" "$bad failed" "$((SECONDS - began)) s"
}

for file in $files; do run_file "$file"; done
stressed_ruby
{
	echo "# The last soak"
	echo
	echo "$(date -u +%Y-%m-%dT%H:%MZ), $("$SCRY" --version), commit $(git -C "$root" rev-parse --short HEAD 2>/dev/null || echo '?'), $(uname -sr),"
	echo "$(nproc) CPUs, $("$ruby" -e 'puts RUBY_DESCRIPTION' 2>/dev/null). Made by \`make soak\` (test/soak/soak.sh)."
	echo
	echo "| what | done | failed | time |"
	echo "|---|---|---|---|"
	cat "$work/rows"
} >"$out"
exit $failed
