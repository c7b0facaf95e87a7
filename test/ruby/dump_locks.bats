#!/usr/bin/env bats
# scry dump: who keeps a thread waiting. The judge is the program, which knows who holds what.

load lib

# answers RUBY...: each thread that waits has the kind and the owner that the program says.
answers() {
	start locks "$@" "$HERE/dump/locks.rb"
	wait_for 20 in_file "^ready" "$T/locks.out" || return 1
	"$SCRY" dump --json -p "$PID" >"$T/dump.json" || return 1
	right "$T/dump.json"
}

right() {
	"$RUBY" --disable=gems -rjson -e '
	  threads = JSON.parse(File.read(ARGV[0]))["threads"].to_h { |t| [t["name"].tr(" ", "_"), t["waits_for"]] }
	  lines = File.readlines(ARGV[1], chomp: true) - ["ready"]
	  lines.size == 11 or abort "the program gave #{lines.size} answers"
	  lines.each do |line|
	    name, kind, owner = line.split(" ", 3)
	    got = threads[name] or abort "no thread #{name} that waits"
	    got.values_at("kind", "owner_name", "why_unknown") == [kind, owner, nil] or abort "#{line}: #{got}"
	  end
	  # a Ruby notes the fiber of all that are held, or of none
	  fibers = %w[wants_fiber wants_mutex wants_monitor left].map { |name| threads[name]["is_other_fiber"] }
	  [[true, false, false, false], [nil] * 4].include?(fibers) or abort "fibers: #{fibers}"' "$1" "$T/locks.out"
}

# deadlocked FILE: the one cycle is the two threads that the program names so.
deadlocked() {
	json_is "$1" 'ids = r["threads"].select { |t| %w[left right].include?(t["name"]) }.map { |t| t["tid"] }
	  r["totals"]["deadlocks"].map(&:sort) == [ids.sort] && r["totals"]["timed_cycles"].empty?'
}

@test "owners of Mutex and Monitor, queues, conditions, joins, full names, and a deadlock" {
	answers "$RUBY"
	deadlocked "$T/dump.json"
	json_is "$T/dump.json" 'r["schema"] == "scry.dump/3" && r["verdict"].start_with?("deadlock: thread ")'
	"$SCRY" dump -p "$PID" >"$T/out"
	# the verdict first, then which process it is, then its threads
	[[ "$(head -n 1 "$T/out")" == "deadlock: thread "* ]]
	grep -qE "^process $PID \\(ruby[^)]*\\), ruby .*: [0-9]+ Ruby threads" "$T/out"
	grep -qE '^deadlock: thread [0-9]+ "left" waits for Thread::Mutex 0x[0-9a-f]+, which thread [0-9]+ "right"(, or one of its fibers,)? holds, and that one waits for Thread::Mutex 0x[0-9a-f]+, which thread [0-9]+ "left"(, or one of its fibers,)? holds$' "$T/out"
	grep -qE '^    waits for Monitor 0x[0-9a-f]+, which thread [0-9]+ "a thread whose name has more than fifteen bytes"(, or one of its fibers,)? holds$' "$T/out"
	grep -qE 'which (a suspended fiber of thread [0-9]+ "has fibers"|thread [0-9]+ "has fibers", or one of its fibers,) holds$' "$T/out"
	"$SCRY" dump --pause --max-pause 2s --json -p "$PID" >"$T/dump.json"
	right "$T/dump.json"
	deadlocked "$T/dump.json"
}

@test "owners, on every Ruby" {
	[ -n "${SCRY_TEST_RUBIES:-}" ] || skip "SCRY_TEST_RUBIES names no other Ruby"
	while read -r -a words; do
		answers "${words[@]}" || { echo "${words[*]}"; return 1; }
		deadlocked "$T/dump.json"
		kill -KILL "$PID"
		finish "$PID" 2>/dev/null || true
	done < <(rubies | tail -n +2)
}

@test "owners and full names in a core" {
	command -v gcore >/dev/null || skip "no gcore: install gdb"
	export MALLOC_ARENA_MAX=1
	answers "$RUBY"
	gcore -o "$T/core" "$PID" >"$T/gcore.out" 2>&1
	"$SCRY" dump --json --core "$T/core.$PID" >"$T/core.json"
	right "$T/core.json"
	deadlocked "$T/core.json"
}

@test "a cycle in which a thread waits within Timeout.timeout is no deadlock" {
	start timed "$RUBY" -rtimeout -e '
	  def named(name, &block) = Thread.new { Thread.current.name = name; block.call }
	  a, b = Mutex.new, Mutex.new
	  left = named("left") { a.lock; sleep 0.01 until b.locked?; Timeout.timeout(1000) { b.lock } }
	  right = named("right") { b.lock; sleep 0.01 until a.locked?; a.lock }
	  sleep 0.01 until [left, right].all? { |t| t.stop? && t.backtrace[0] =~ /lock./ }
	  $stdout.syswrite("ready")
	  sleep'
	wait_for 10 in_file ready "$T/timed.out"
	"$SCRY" dump --json -p "$PID" >"$T/dump.json"
	json_is "$T/dump.json" 'ids = r["threads"].select { |t| %w[left right].include?(t["name"]) }.map { |t| t["tid"] }
	  r["totals"]["deadlocks"].empty? && r["totals"]["timed_cycles"].map(&:sort) == [ids.sort]'
	"$SCRY" dump -p "$PID" >"$T/out"
	grep -qE '^a cycle of locks; Timeout may end it: thread [0-9]+ "(left|right)" waits for ' "$T/out"
	no grep -q '^deadlock' "$T/out"
}

@test "of many threads that wait for one, each is asked for its object once" {
	command -v strace >/dev/null || skip "no strace: run make deps"
	start many "$RUBY" -e '
	  last = nil
	  all = 250.times.map { Thread.new { sleep 0.01 until last; last.join } }
	  last = Thread.new { Thread.current.name = "last"; sleep }
	  sleep 0.01 until all.all? { |t| t.stop? && t.backtrace[0] =~ /join/ }
	  $stdout.syswrite("ready")
	  sleep'
	wait_for 30 in_file ready "$T/many.out"
	strace -f -qq -e trace=process_vm_readv,pread64 -o "$T/calls" "$SCRY" dump --json -p "$PID" >"$T/dump.json"
	json_is "$T/dump.json" 'w = r["threads"].map { |t| t["waits_for"] }.compact
	  w.size == 250 && w.all? { |x| x["owner_name"] == "last" && x["others"] == 249 }'
	[ "$(wc -l <"$T/calls")" -lt $((250 * 250)) ] # a read for each pair would be more
	"$SCRY" dump -p "$PID" >"$T/out"
	grep -q '^250 threads alike: ' "$T/out"
	(ulimit -Sn 200 && "$SCRY" dump -p "$PID" >"$T/out") # two files a thread
	grep -q '^250 threads alike: ' "$T/out"
}

@test "threads that take two Mutexes in turn, but in one order, are no deadlock" {
	start order "$RUBY" -e '
	  a, b = Mutex.new, Mutex.new
	  4.times { Thread.new { loop { a.synchronize { b.synchronize { sleep 0.001 } } } } }
	  $stdout.syswrite("ready")
	  sleep'
	wait_for 10 in_file ready "$T/order.out"
	for _ in $(seq 20); do
		"$SCRY" dump --json -p "$PID" >"$T/dump.json"
		json_is "$T/dump.json" 'r["totals"]["deadlocks"].empty?'
		cat "$T/dump.json" >>"$T/all.json"
	done
	grep -q '"kind": "mutex"' "$T/all.json" # some were seen waiting
}
