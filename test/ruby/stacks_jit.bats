#!/usr/bin/env bats
# scry stacks of Rubies that compile to machine code while they run: the truths of stacks_sampled.bats and
# stacks_bpf.bats, on each Ruby that has such a compiler; the deep stack on the others too, as interpreted.

load lib

setup() {
	prepare
	K="$HERE/sampled_stacks"
}

# share SHORT WHOLE
share() {
	if [ -n "${SCRY_SOAK:-}" ]; then echo "$2"; else echo "$1"; fi
}

# Each Ruby with each compiler that it has, one a line.
jits() {
	local words option
	while read -ra words; do
		for option in --yjit --zjit; do
			"${words[@]}" --disable=gems "$option" -e 'exit(%w[YJIT ZJIT].any? { |n| RubyVM.const_defined?(n) && RubyVM.const_get(n).enabled? })' 2>/dev/null || continue
			echo "${words[*]} $option --disable=gems"
		done
	done < <(rubies)
}

need_jit() {
	[ -n "$(jits)" ] || skip "no Ruby here has a JIT: SCRY_TEST_RUBIES names none"
}

# What can be sampled with.
engines() {
	echo read
	if "$SCRY" doctor | grep -q '^ok *eBPF'; then echo bpf; fi
}

# busy ENGINE: the weight by which that engine counts a thread that never waits. By reading, beside other
# programs' work, it may meet only a thread that is ready, never one that runs.
busy() {
	if [ "$1" = bpf ]; then echo --cpu; else echo --wall; fi
}

# deep RUBY...: the stack of deep.rb, by each engine.
deep() {
	local engine
	rm -f "$T/deep.json"
	start deep "$@" "$K/deep.rb" 300 "$T/deep.json"
	wait_for 20 test -e "$T/deep.json"
	for engine in $(engines); do
		"$SCRY" stacks -q --engine="$engine" "$(busy "$engine")" -d 400ms --stacks --force -o "$T/d.json" -p "$PID"
		"$RUBY" --disable=gems "$K/check_deep.rb" "$T/deep.json" "$T/d.json" 3 || { echo "$engine: $*"; return 1; }
	done
	kill -KILL "$PID"
	finish "$PID" 2>/dev/null || true
}

@test "interpreted: a deep stack, all callers, line by line, as the VM tells them" {
	while read -ra words; do
		deep "${words[@]}" --disable=gems
	done < <(rubies)
}

@test "compiled: a deep stack, all callers, line by line, as the VM tells them" {
	need_jit
	while read -ra words; do
		deep "${words[@]}"
	done < <(jits)
}

@test "compiled: every stack is possible, while code, objects, threads and fibers come and go" {
	need_jit
	while read -ra words; do
		for engine in $(engines); do
			"$SCRY" stacks -q --engine="$engine" "$(busy "$engine")" -r 4000 --stacks --force -o "$T/p.json" -- "${words[@]}" "$K/possible.rb" "$(share 0.8 10)" >"$T/out"
			"$RUBY" --disable=gems "$K/check_possible.rb" "$T/p.json" 20 jit || { echo "$engine: ${words[*]}"; return 1; }
		done
	done < <(jits)
}

@test "compiled: calls as fast as can be: every stack is possible" {
	need_jit
	while read -ra words; do
		rm -f "$T/tight.out"
		start tight "${words[@]}" "$K/tight.rb"
		wait_for 20 in_file ready "$T/tight.out"
		for engine in $(engines); do
			"$SCRY" stacks -q --engine="$engine" "$(busy "$engine")" -r 5000 -d 400ms --stacks --force -o "$T/t.json" -p "$PID"
			"$RUBY" --disable=gems "$K/check_tight.rb" "$T/t.json" 5 || { echo "$engine: ${words[*]}"; return 1; }
		done
		kill -KILL "$PID"
		finish "$PID" 2>/dev/null || true
	done < <(jits)
}
