#!/bin/bash
# The long tests, whole: every kill point, fifty random moments, a hundred cycles, and a busy Ruby with
# 64 threads under GC stress entered and left 300 times. `make soak` calls it.
#
#   test/soak/soak.sh [BUILD]
#
# Then the stacks of a program whose possible stacks are known, a million samples of threads by each way
# to sample, in each Ruby (SCRY_TEST_RUBIES), and memory of saved Rubies damaged under the walker.
# Then functions of busy programs hooked and let go of: 1,000,000 changes in a program of 64 threads, and
# 1,000 cycles in a Ruby of 8. Then a million fibers, ticks that take them off, and loops that share the time.
#
# Writes what was done, how often and when to its section of bench/soak.md. Ends with 1 if anything failed. A round
# takes about two and a half hours; SOAK_CYCLES (300), SOAK_FILES (kill parts states disk contract hooked) and SOAK_PARTS
# (files stressed_ruby stacks damaged million hooked_ruby fibers), SOAK_SAMPLES (1000000) and SOAK_TICKS
# (100000000) make it shorter.
set -u

root=$(cd "$(dirname "$0")/../.." && pwd)
build=${1:-$root/build}
case "$build" in /*) ;; *) build=$root/$build ;; esac
SCRY=$build/scry
[ -x "$SCRY" ] || SCRY=$build/src/cmd/scry
export SCRY SCRY_BUILD=$build SCRY_SOAK=1
ruby=${RUBY:-ruby}
cycles=${SOAK_CYCLES:-300}
hooks=${SOAK_HOOKS:-1000}
files=${SOAK_FILES:-kill parts states disk contract hooked}
parts=${SOAK_PARTS:-files stressed_ruby stacks damaged million hooked_ruby fibers}
samples=${SOAK_SAMPLES:-1000000}
ticks=${SOAK_TICKS:-100000000}
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
		lost=$((lost + $("$ruby" -rjson -e 'puts JSON.parse(File.read(ARGV[0]))["data_quality"]["lost"]' "$work/o.json" || echo 0)))
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

files() {
	for file in $files; do run_file "$file"; done
}

# A program of known calls, in which code, objects, threads and fibers come and go and objects are moved,
# sampled until there are enough samples of threads: no stack that cannot be; held, none rejected either.
known_stacks() { # RUBY... -- OPTIONS...
	local began=$SECONDS program=() bad=0 seen=0 unseen=0 sums="0 0 0 0 0 0 0 0" tries=0
	while [ "$1" != -- ]; do program+=("$1") && shift; done
	shift
	"${program[@]}" --disable=gems "$root/test/ruby/sampled_stacks/possible.rb" 86400 >"$work/possible.out" 2>&1 &
	ruby_pid=$!
	for _ in $(seq 200); do
		grep -q "^ready" "$work/possible.out" && break
		sleep 0.1
	done
	while [ "$seen" -lt "$samples" ] && [ $((tries += 1)) -le 60 ]; do
		if ! "$SCRY" stacks -q "$@" -d 30s --stacks --force -o "$work/p.json" -p "$ruby_pid"; then
			unseen=$((unseen + 1)) # the machine may have no time for it
			continue
		fi
		if ! "$ruby" "$root/test/ruby/sampled_stacks/check_possible.rb" "$work/p.json" 1 >"$work/possible"; then
			bad=$((bad + 1))
			cat "$work/possible"
		fi
		sums=$("$ruby" -rjson -e '
		  t = JSON.parse(File.read(ARGV[0]))["totals"]
		  old = ARGV[1].split.map(&:to_i)
		  add = %w[samples valid repaired rejected dropped held_looks held_ns held_longest_ns].map { |k| t[k].to_i }
		  sum = add.each_with_index.map { |n, i| n + old[i].to_i }
		  sum[7] = [old[7].to_i, add[7]].max
		  puts sum.join(" ")' "$work/p.json" "$sums")
		seen=${sums%% *}
	done
	kill -KILL "$ruby_pid"
	wait "$ruby_pid" 2>/dev/null
	ruby_pid=""
	# shellcheck disable=SC2086
	set -- "$*" $sums
	case "$1" in *--pause*) [ "$4" -eq 0 ] && [ "$5" -eq 0 ] || bad=$((bad + 1)) ;; esac
	[ "$bad" -eq 0 ] && [ "$seen" -ge "$samples" ] || failed=1
	row "stacks of known calls, \`$1\`, $("${program[@]}" -e 'print RUBY_ENGINE, " ", RUBY_VERSION, (" yjit" if defined?(RubyVM::YJIT.enabled?) && RubyVM::YJIT.enabled?)')" \
		"$2 samples of threads: valid $3, repaired $4, rejected $5, newest frame left out $6; looks with a stop $7, $(($8 / 1000000)) ms in all, longest $(($9 / 1000)) us" \
		"$bad rounds with an impossible stack, or held and not exact; $unseen without an answer" "$((SECONDS - began)) s"
}

stacks() {
	local words way
	while read -ra words; do
		"${words[@]}" -e 'exit(RUBY_VERSION >= "3.0")' || continue # syntax
		for way in "--engine=read -r 5000" "--engine=bpf -r 2000" "--pause -r 5000"; do
			if [[ $way == *bpf* ]] && ! "$SCRY" doctor | grep -q '^ok *eBPF'; then
				row "stacks of known calls, \`$way\`" "eBPF is not allowed here" "not tried" "0 s"
				continue
			fi
			# shellcheck disable=SC2086
			known_stacks "${words[@]}" -- $way
		done
	done < <(echo "$ruby"; if [ -n "${SCRY_TEST_RUBIES:-}" ]; then tr : '\n' <<<"$SCRY_TEST_RUBIES"; fi)
}

# The walker, the lists of threads and the collector's state over damaged memory and code.
damaged() {
	local began=$SECONDS bad=0
	"$build/test/unit_vm_walk" >"$work/walk" 2>&1 || { bad=$((bad + 1)) && tail -5 "$work/walk"; }
	"$build/test/unit_vm_gc" >"$work/gc" 2>&1 || { bad=$((bad + 1)) && tail -5 "$work/gc"; }
	[ "$bad" -eq 0 ] || failed=1
	row "damaged memory of saved Rubies" "$(grep "walks of damaged" "$work/walk"); $(grep "damaged codes" "$work/gc")" "$bad failed" "$((SECONDS - began)) s"
}

# 1,000 functions, on and off 500 times, which 64 threads and 3,000 signals a second are calling.
million() {
	local began=$SECONDS bad=0 before
	"$build/test/targets/target_thousand" 64 0 2000 >"$work/thousand.out" 2>&1 &
	ruby_pid=$!
	for _ in $(seq 100); do
		grep -q "^round" "$work/thousand.out" && break
		sleep 0.1
	done
	before=$(text)
	"$build/test/hook_storm" -n 500 "$ruby_pid" "fn_*@target_thousand" >"$work/storm" 2>&1 || bad=$((bad + 1))
	[ "$(text)" = "$before" ] || { bad=$((bad + 1)) && echo "the text differs"; }
	kill -TERM "$ruby_pid"
	wait "$ruby_pid" || bad=$((bad + 1))
	ruby_pid=""
	[ "$bad" -eq 0 ] || { failed=1 && tail -n 5 "$work/storm" "$work/thousand.out"; }
	row "1,000 functions on and off 500 times, 64 busy threads" \
		"$(grep "^functions" "$work/storm"); $(grep "^pause" "$work/storm"); $(tail -1 "$work/thousand.out")" \
		"$bad failed" "$((SECONDS - began)) s"
}

# What must not grow: mappings that can be scry's, descriptors, threads.
left_behind() {
	echo "$(awk '/scry/ || ($2 ~ /x/ && NF == 5)' "/proc/$ruby_pid/maps" | wc -l) mappings," \
		"$(ls "/proc/$ruby_pid/fd" | wc -l) descriptors, $(ls "/proc/$ruby_pid/task" | wc -l) threads"
}

# A Ruby of 8 threads that checks its answers: hooks on part of libruby, libcrypto or libc, each time by
# a scry of its own.
hooked_ruby() {
	local began=$SECONDS bad=0 done_=0 before left i globs=('rb_str_*@libruby' 'rb_*@libruby' 'EVP_*@libcrypto' 'mem*@libc.so.6')
	"$ruby" "$root/test/targets/hooked.rb" 8 >"$work/hooked.out" 2>&1 &
	ruby_pid=$!
	for _ in $(seq 100); do
		grep -q "^round" "$work/hooked.out" && break
		sleep 0.1
	done
	before=$(text) left=$(left_behind)
	for ((i = 0; i < hooks; i++)); do
		if ! "$SCRY" patch count "${globs[i % ${#globs[@]}]}" -p "$ruby_pid" -d 10ms >"$work/counts" 2>"$work/counts.err"; then
			bad=$((bad + 1))
			cat "$work/counts.err"
		fi
		kill -0 "$ruby_pid" || break
		done_=$((done_ + 1))
		[ $((i % 10)) -ne 0 ] || [ "$(text)" = "$before" ] || { bad=$((bad + 1)) && echo "the text differs after cycle $i"; }
	done
	[ "$(text)" = "$before" ] || { bad=$((bad + 1)) && echo "the text differs at the end"; }
	[ "$(left_behind)" = "$left" ] || { bad=$((bad + 1)) && echo "$left became $(left_behind)"; }
	kill -TERM "$ruby_pid"
	wait "$ruby_pid" || { bad=$((bad + 1)) && tail -5 "$work/hooked.out"; }
	ruby_pid=""
	[ "$bad" -eq 0 ] && [ "$done_" -eq "$hooks" ] || failed=1
	row "8 Ruby threads, functions of its libraries counted" "$done_ cycles, $(tail -1 "$work/hooked.out"); left $left" "$bad failed" \
		"$((SECONDS - began)) s"
}

# A million fibers that live; ticks under malloc, stdio and floating point; loops that share the time.
fibers() {
	local began=$SECONDS bad=0
	ninja -C "$build" --quiet bench/ring/fiber_cost
	"$build/bench/ring/fiber_cost" --live 1000000 >"$work/fibers" || bad=1
	awk '/live fibers/ { seen = 1; exit !($1 == 1000000 && $(NF - 2) <= 100) } END { exit !seen }' "$work/fibers" || bad=$((bad + 1))
	SCRY_SOAK_TICKS=$ticks "$build/test/unit_fiber_preempt" >"$work/preempt" 2>&1 || bad=$((bad + 1))
	SCRY_SOAK_SECONDS=10 "$build/test/unit_fiber_preempt" >>"$work/preempt" 2>&1 || bad=$((bad + 1))
	[ "$bad" -eq 0 ] || cat "$work/fibers" "$work/preempt"
	[ "$bad" -eq 0 ] || failed=1
	row "libscryfiber" "$(grep 'live fibers' "$work/fibers"); $(grep -E ' ticks, |^slices' "$work/preempt" | tr '\n' ';')" "$bad failed" "$((SECONDS - began)) s"
}

for part in $parts; do "$part"; done
[ -f "$out" ] || echo "# Soaks: the long tests, run whole" >"$out"
{
	echo "$(date -u +%Y-%m-%dT%H:%MZ), $("$SCRY" --version), commit $(git -C "$root" rev-parse --short HEAD 2>/dev/null || echo '?'), $(uname -sr),"
	echo "$(nproc) CPUs, $("$ruby" -e 'puts RUBY_DESCRIPTION' 2>/dev/null)."
	echo
	echo "| what | done | failed | time |"
	echo "|---|---|---|---|"
	cat "$work/rows"
} | "$ruby" -r"$root/bench/page" -e 'page_section(ARGV[0], "The last round of make soak", $stdin.read)' "$out"
exit $failed
