#!/usr/bin/env bats
# Fibers seen from outside. The programs know how many they have, what size, and where each waits; gdb is the second
# witness of where.

load lib

# standing NAME ARGS...: a target that says what it has, in $SAYS, and waits for words; its pid in $PID.
standing() {
	local name=$1
	shift
	[ -x "$TARGETS/target_$name" ] || skip "no target_$name: what it needs is not installed (tools/deps)"
	exec 8>&- # of the one before
	rm -f "$T/in"
	listens "$name" "$TARGETS/target_$name" "$@"
	SAYS=$(grep "^pid" "$T/$name.out")
}

# told WORD: the number behind a word of what the target says.
told() {
	echo "$SAYS" | sed "s/.*$1 \([0-9]*\).*/\1/"
}

# looks ARGS...: scry's JSON of $PID, in $T/fibers.json.
looks() {
	"$SCRY" fibers -p "$PID" --json "$@" >"$T/fibers.json"
}

# waits PLACE: how many are suspended there.
waits() {
	json "$T/fibers.json" "rows.select { |x| x['place'] == '$1' && x['state'] == 'suspended' }.sum { |x| x['count'] }"
}

in_state() {
	json "$T/fibers.json" "r['totals']['$1']"
}

has_tasks() {
	[ "$(ls "/proc/$PID/task" | wc -l)" -ge "$1" ]
}

ucontext_is_as_told() { # KIND PROGRAM
	standing "$2" 30 64 "$1"
	looks --all
	[ "$(waits wait_shallow)" = "$(told shallow)" ]
	[ "$(waits wait_deep)" = "$(told deep)" ]
	[ "$(in_state new)" = "$(told new)" ]
	[ "$(in_state ended)" = "$(told ended)" ]
	[ "$(in_state fibers)" = 32 ]
	[ "$(in_state threads)" = 1 ]
	"$SCRY" fibers -v -p "$PID" >"$T/all" # each total, also those that are 0
	in_file "^ *32  fibers$" "$T/all"
	in_file "^ *0  changed while they were read$" "$T/all"
	# depth: one frame, ten, forty, each of 512 bytes and some; never less than that
	json_is "$T/fibers.json" "rows.select { |x| x['state'] == 'suspended' }.map { |x| x['frames'].count { |y| y['name'] == 'descend' } }.sort == [1, 10, 40]"
	json_is "$T/fibers.json" "rows.select { |x| x['state'] == 'suspended' }.all? { |x| n = x['frames'].count { |y| y['name'] == 'descend' }; x['used_max_bytes'] >= n * 512 && x['used_max_bytes'] <= n * 700 + 8192 }"
	json_is "$T/fibers.json" "r['fibers'].size == 32 && r['fibers'].all? { |x| x['top'].hex - x['low'].hex == 65536 }"
}

@test "contexts of ucontext: how many, where, how deep; on guarded stacks" {
	ucontext_is_as_told guarded fibers_ucontext
	[ "$(in_state unguarded)" = 0 ]
	json_is "$T/fibers.json" "r['fibers'].all? { |x| x['guard_bytes'] == 4096 }"
}

@test "the same on stacks of malloc, in static data, and in a static program" {
	ucontext_is_as_told heap fibers_ucontext
	[ "$(in_state unguarded)" = 32 ]
	ucontext_is_as_told static fibers_ucontext
	ucontext_is_as_told guarded fibers_ucontext_static
}

@test "contexts whose stacks were given back to malloc are no fibers; if that cannot be told, it is said" {
	standing fibers_ucontext 30 64 heap freed
	looks
	[ "$(waits wait_shallow)" = "$(told shallow)" ]
	[ "$(waits wait_deep)" = 0 ]
	[ "$(in_state freed)" = "$(told deep)" ]
	[ "$(in_state unchecked)" = 0 ]
	standing fibers_ucontext 30 64 heap spin
	looks
	[ "$(in_state freed)" = 0 ]
	json_is "$T/fibers.json" "r['totals']['unchecked'] >= $(told shallow) && r['notes'].any? { |x| x.include?('stacks from malloc that may have been freed') }"
}

@test "gdb sees the same frames of a context, by its registers" {
	command -v gdb >/dev/null || skip "no gdb"
	standing fibers_ucontext 3 64 guarded
	looks
	# the third one is the deep one: its registers into gdb's, then its backtrace
	gdb -nx -batch -p "$PID" -ex 'set var $c = fibers[2].context.uc_mcontext.gregs' \
		-ex 'set var $rsp = $c[15]' -ex 'set var $rbp = $c[10]' -ex 'set var $rbx = $c[11]' -ex 'set var $rip = $c[16]' \
		-ex bt -ex 'set confirm off' -ex 'kill' >"$T/gdb.out" 2>&1 || true
	[ "$(grep -c ' in descend \| descend (' "$T/gdb.out")" = 40 ]
	in_file "wait_deep (" "$T/gdb.out"
	[ "$(waits wait_deep)" = 1 ]
	json_is "$T/fibers.json" "rows.find { |x| x['place'] == 'wait_deep' }['frames'].count { |y| y['name'] == 'descend' } == 40"
}

@test "one that runs on a processor is not called suspended without a doubt" {
	standing fibers_ucontext 6 64 guarded spin
	looks
	json_is "$T/fibers.json" "r['totals']['threads_running'] == 1"
	json_is "$T/fibers.json" "r['notes'].any? { |x| x.start_with?('1 thread ran while scry read') }"
	[ "$(waits spin)" = "" ] || [ "$(waits spin)" = 0 ]
}

@test "fibers of libscryfiber: states, names, sizes, guards of both kinds, static and shared" {
	for program in fibers_scry fibers_scry_shared; do
		for guard in madvise mprotect; do
			export SCRY_STACK_GUARD=$guard
			standing "$program" 40 128
			looks --all
			[ "$(waits wait_asleep)" = 40 ]
			[ "$(waits wait_reading)" = 3 ]
			[ "$(in_state new)" = 2 ]
			[ "$(in_state ended)" = 1 ]
			[ "$(in_state fibers)" = 46 ]
			json_is "$T/fibers.json" "r['fibers'].count { |x| x['name'] == 'sleeper' } == 40"
			json_is "$T/fibers.json" "r['fibers'].all? { |x| x['kind'] == 'scryfiber' && x['guard_bytes'] >= 65536 }"
			json_is "$T/fibers.json" "rows.find { |x| x['place'] == 'wait_asleep' }['size_max_bytes'] == 128 * 1024"
		done
	done
}

@test "fibers of a process whose first thread has ended before the others" {
	standing fibers_scry 20 64 second
	wait_for 10 grep -q "^State:.*Z" "/proc/$PID/status"
	looks
	[ "$(waits wait_asleep)" = 20 ]
	[ "$(in_state fibers)" = 26 ]
}

@test "fibers of a thread that has ended with its scheduler open are said to be nobody's" {
	standing fibers_scry 20 64 left
	looks
	[ "$(waits wait_asleep)" = 20 ]
	[ "$(in_state fibers)" = 26 ]
	json_is "$T/fibers.json" "rows.select { |x| x['state'] != 'ended' }.all? { |x| x['word'] == 'thread ended' }"
	command -v gdb >/dev/null || return 0
	gdb -nx -batch -p "$PID" -ex "source $BATS_TEST_DIRNAME/../../src/fiber/scryfiber-gdb.py" -ex scry-fibers >"$T/gdb.out" 2>&1
	[ "$(grep -c " lost .* sleeper  sleeper" "$T/gdb.out")" = 20 ]
}

@test "in the child of a fork its own fibers are shown, and none of its parent's" {
	standing fibers_scry 20 64 child
	PID=$(told pid)
	looks --all
	[ "$(in_state fibers)" = 2 ]
	[ "$(waits wait_asleep)" = 2 ]
	json_is "$T/fibers.json" "r['fibers'].all? { |x| x['name'] == 'of the child' }"
	# what the child has of its parent's stacks is nobody's, and can never be used
	json_is "$T/fibers.json" "r['totals']['spare_stacks'] == 26"
	command -v gdb >/dev/null || return 0
	gdb -nx -batch -p "$PID" -ex "source $BATS_TEST_DIRNAME/../../src/fiber/scryfiber-gdb.py" -ex scry-fibers >"$T/gdb.out" 2>&1
	[ "$(grep -c "of the child" "$T/gdb.out")" = 2 ]
	[ "$(grep -c " KiB " "$T/gdb.out")" = 2 ]
}

@test "a fiber that its timer took off the processor stands where it was, below the library's frames" {
	standing fibers_scry 1 64 preempted
	looks --all
	[ "$(waits spins)" = 4 ]
	[ "$(in_state unknown)" = 0 ]
	json_is "$T/fibers.json" "x = rows.find { |y| y['place'] == 'spins' }['frames'].map { |y| y['name'] }; x.index('scry_preempt_trampoline') < x.index('spins') && x.last == 'scry_fiber_begin'"
}

@test "a stack for signals is no fiber, whether its handler runs or has run" {
	standing fibers_scry 1 64 overflowed
	wait_for 10 eval 'looks; [ "$(in_state threads_running)" = 0 ]'
	[ "$(in_state ended)" = 2 ]
	[ "$(in_state unknown)" = 0 ]
	[ "$(in_state running)" = 0 ]
	[ "$(in_state fibers)" = 8 ] # 1 and 3 that wait, 2 new ones, 2 that ended
}

@test "pages of a file that a private mapping never wrote are not looked through" {
	start mapper /usr/bin/python3 -c 'import mmap, os, sys, time
f = os.memfd_create("x")
os.truncate(f, 64 << 20)
all = [mmap.mmap(f, 64 << 20, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE) for i in range(8)]
shared = mmap.mmap(f, 64 << 20)
for i in range(0, 64 << 20, 4096):
    shared[i] = 1
sums = [sum(m[i] for i in range(0, 64 << 20, 4096)) for m in all]
all[0][0] = 2
print("pid", os.getpid(), sums[7], flush=True)
time.sleep(1000)'
	wait_for 60 in_file "^pid" "$T/mapper.out"
	looks
	json_is "$T/fibers.json" "r['totals']['read_bytes'] > 4096 && r['totals']['read_bytes'] < 64 << 20"
}

@test "ten thousand are counted exactly" {
	standing fibers_scry 10000 64
	looks
	[ "$(waits wait_asleep)" = 10000 ]
	[ "$(in_state fibers)" = 10006 ]
	json_is "$T/fibers.json" "rows.size == 4 && r['totals']['lost'] == 0"
}

@test "contexts of Boost: the block that is led to is the one, dead ones below and above are not" {
	for kind in guarded "guarded room" heap "heap room"; do
		# shellcheck disable=SC2086
		standing fibers_boost 30 64 $kind
		looks --all
		json_is "$T/fibers.json" "n = ->(s) { rows.select { |x| x['place'].include?(s) && x['state'] == 'suspended' }.sum { |x| x['count'] } }; n['wait_shallow'] == $(told shallow) && n['wait_deep'] == $(told deep)"
		[ "$(in_state fibers)" = 30 ]
		json_is "$T/fibers.json" "r['fibers'].all? { |x| x['top'].hex - x['low'].hex == 65536 }"
		json_is "$T/fibers.json" "rows.all? { |x| x['frames'].last['name'].include?('fiber_entry') }"
	done
	[ "$(in_state unguarded)" = 30 ]
}

@test "a thread that waits within a context of Boost on a stack of malloc: it runs, on a stack of that size" {
	standing fibers_boost 6 64 heap within
	wait_for 10 eval "looks; json_is $T/fibers.json \"r['totals']['running'] == 1\""
	[ "$(in_state fibers)" = 7 ]
	json_is "$T/fibers.json" "x = rows.find { |y| y['state'] == 'running' }; x['kind'] == 'boost' && x['size_max_bytes'] == 65536 && x['frames'].any? { |y| y['name'].include?('wait_for_end') }"
}

@test "fibers of Boost.Fiber, of two threads" {
	standing fibers_boost_fiber 20
	looks
	json_is "$T/fibers.json" "rows.select { |x| x['place'].include?('wait_here') }.sum { |x| x['count'] } == $(told waiting)"
	[ "$(in_state threads)" = 2 ]
	# each thread's dispatcher is one more
	[ "$(in_state fibers)" = $(($(told waiting) + 2)) ]
}

@test "fibers that switch while they are read have changed; of a process that is stopped all are of one moment" {
	standing fibers_boost_fiber 100 busy
	wait_for 20 eval 'looks && [ "$(in_state changed)" -gt 50 ]' # all have begun
	json_is "$T/fibers.json" "r['notes'].any? { |x| x.include?('ran while scry read; to see') && x.include?('kill -STOP $PID') }"
	json_is "$T/fibers.json" "rows.none? { |x| x['state'] == 'unknown' && x['place'].include?('switch unknown') && x['count'] > 10 }"
	kill -STOP "$PID"
	wait_for 20 grep -q "^State:.*T" "/proc/$PID/status" # on a busy machine it has yet to have its turn
	looks
	kill -CONT "$PID"
	[ "$(in_state changed)" = 0 ]
	# stopped in the middle of a switch, the thread may have where the one that it leaves waits in a register only
	[ "$(in_state unknown)" -le 1 ]
	# a thread's dispatcher is one more; of them all one runs. The dispatcher has a stack of malloc: there it is not
	# seen when it was stopped in the middle of its switch, which has no unwind tables
	[ "$(in_state running)" -le 1 ]
	[ "$(in_state fibers)" = $((100 + $(in_state running))) ]
	kill -KILL "$PID"
}

@test "threads of GNU Pth; its scheduler runs" {
	standing fibers_pth 20 64
	looks
	[ "$(waits wait_here)" = 20 ]
	[ "$(in_state running)" = 1 ]
	[ "$(in_state fibers)" = 21 ]
	json_is "$T/fibers.json" "rows.find { |x| x['state'] == 'running' }['frames'].any? { |x| x['name'] == '__pth_scheduler' }"
}

@test "fibers of a Ruby: lines, those that run, none of those that did not begin or have ended" {
	cat >"$T/fibers.rb" <<'RUBY'
def park = Fiber.yield(1)
def deep(n) = n == 0 ? park : deep(n - 1)
kept = 30.times.map { |i| Fiber.new { deep(10 * (i % 3)) }.tap(&:resume) }
never = Fiber.new { 1 }
over = Fiber.new { 1 }.tap(&:resume)
Thread.new { Fiber.new { sleep }.resume }
Thread.pass until Thread.list.all? { |t| t == Thread.main || t.stop? }
puts "pid #{$$}"
$stdout.flush
sleep
RUBY
	start fibers "$RUBY" "$T/fibers.rb"
	wait_for 20 in_file "^pid" "$T/fibers.out"
	looks
	[ "$(waits "Object#park fibers.rb:1")" = 30 ]
	[ "$(in_state running)" = 1 ]
	[ "$(in_state fibers)" = 31 ]
	[ "$(in_state threads)" -ge 2 ]
	json_is "$T/fibers.json" "rows.select { |x| x['state'] == 'suspended' }.map { |x| x['frames'].count { |y| y['method'] == 'Object#deep' } }.sort == [1, 11, 21]"
	# both stacks of each, woven: natively it was resumed by the VM
	json_is "$T/fibers.json" "rows.all? { |x| x['kind'] == 'ruby' && x['frames'].last['name'] != nil || x['frames'].last['module'].include?('ruby') }"
}

@test "a core of the kernel's says what the process did" {
	grep -qE '^core[.%a-z]*$' /proc/sys/kernel/core_pattern || skip "the kernel gives cores to a program: kernel.core_pattern"
	for name in "fibers_scry 20 64" "fibers_ucontext 30 64 guarded" "fibers_boost 30 64 guarded"; do
		mkdir -p "$T/core" && rm -f "$T"/core/*
		cd "$T/core"
		ulimit -S -c unlimited
		# shellcheck disable=SC2086
		standing $name
		looks
		kill -ABRT "$PID"
		wait_for 20 ended "$PID" || true
		"$SCRY" fibers --core "$(echo "$T"/core/core*)" --json >"$T/core.json"
		"$RUBY" --disable=gems -rjson -e 'a, b = ARGV.map { |x| JSON.parse(File.read(x))["rows"].map { |y| y.values_at("count", "kind", "state", "place", "size_max_bytes", "used_max_bytes") }.sort_by(&:to_s) }; puts a.inspect, b.inspect; exit a == b' "$T/fibers.json" "$T/core.json"
		json_is "$T/core.json" "r['totals']['core'] != nil"
	done
}

@test "fibers of a Ruby that were entered by transfer and have ended are no suspended ones" {
	start transfers "$RUBY" -rfiber -e 'main = Fiber.current
GC.disable
20.times { Fiber.new { 1 }.transfer }
kept = 4.times.map { Fiber.new { main.transfer }.tap(&:transfer) }
puts "pid #{$$}"
$stdout.flush
sleep'
	wait_for 20 in_file "^pid" "$T/transfers.out"
	looks
	[ "$(in_state suspended)" = 4 ]
	[ "$(in_state ended)" = "$(($(in_state fibers) - 4))" ]
}

@test "fibers of a Ruby whose thread has ended; the one that is nearest to the end of its Ruby stack" {
	start ended "$RUBY" -e 'GC.disable
kept = []
5.times { Thread.new { kept << Fiber.new { Fiber.yield }.tap(&:resume) }.join }
def deep(n) = n == 0 ? Fiber.yield : deep(n - 1)
def wide(n) = n == 0 ? Fiber.yield : [1].each { wide(n - 1) }
live = [Fiber.new { deep(1000) }.tap(&:resume), Fiber.new { wide(100) }.tap(&:resume)]
puts "pid #{$$}"
$stdout.flush
sleep'
	wait_for 20 in_file "^pid" "$T/ended.out"
	looks
	[ "$(in_state suspended)" = 2 ]
	"$SCRY" fibers -p "$PID" >"$T/ended.txt"
	in_file "stacks are kept for new fibers, or have fibers whose thread has ended" "$T/ended.txt"
	json_is "$T/fibers.json" "r['notes'].any? { |x| x.start_with?('nearest to a SystemStackError') && x.include?('Object#deep') } && r['notes'].any? { |x| x.start_with?('nearest to the end of its native stack') && x.include?('Object#wide') }"
}

@test "threads of a Ruby that wait without a thread of the system's are no fibers" {
	"$RUBY" -e 'exit RUBY_VERSION >= "3.3"' || skip "no Ruby with M:N threads: 3.3 or later"
	export RUBY_MN_THREADS=1
	start threads "$RUBY" -e 'kept = []
5.times { q = Queue.new; Thread.new { kept << Fiber.new { Fiber.yield }.tap(&:resume); q << 1; sleep }; q.pop }
Thread.pass until Thread.list.all? { |t| t == Thread.main || t.stop? }
puts "pid #{$$}"
$stdout.flush
sleep'
	unset RUBY_MN_THREADS
	wait_for 20 in_file "^pid" "$T/threads.out"
	looks
	[ "$(in_state running)" = 0 ]
	[ "$(in_state suspended)" = 5 ]
	[ "$(in_state unmanned_threads)" -ge 1 ]
}

@test "a stack of a Ruby with more frames than are kept says so" {
	export RUBY_FIBER_VM_STACK_SIZE=1048576
	start deep "$RUBY" -e 'def deep(n) = n == 0 ? Fiber.yield : deep(n - 1)
kept = Fiber.new { deep(1600) }.tap(&:resume)
puts "pid #{$$}"
$stdout.flush
sleep'
	unset RUBY_FIBER_VM_STACK_SIZE
	wait_for 20 in_file "^pid" "$T/deep.out"
	looks
	json_is "$T/fibers.json" "rows.size == 1 && rows[0]['state'] == 'suspended' && rows[0]['is_cut']"
	"$SCRY" fibers -p "$PID" 2>/dev/null | grep -q '\.\.\. > Object#deep'
}

@test "a program whose file is gone, and may not be reached any more, is walked by what its memory has" {
	local place nobody=(setpriv --reuid=65534 --regid=65534 --clear-groups)
	command -v setpriv >/dev/null && [ "$(id -u)" = 0 ] || skip "no setpriv, or not root"
	"${nobody[@]}" test -x "$SCRY" || skip "nobody may not run $SCRY"
	place=$(mktemp -d) # bats' own folders are root's
	cp "$TARGETS/target_fibers_ucontext" "$place/gone"
	chmod a+rx "$place" "$place/gone"
	listens gone "${nobody[@]}" "$place/gone" 30 64 guarded
	rm -r "$place"
	SAYS=$(grep "^pid" "$T/gone.out")
	"${nobody[@]}" "$SCRY" fibers -p "$PID" --json >"$T/fibers.json"
	[ "$(in_state suspended)" = $(($(told shallow) + $(told deep))) ]
	json_is "$T/fibers.json" "rows.select { |x| x['state'] == 'suspended' }.map { |x| x['frames'].size }.uniq.size == 3"
}

@test "a stripped program has the names of its debug file, if that is its own" {
	local debug="$T/d/.debug/fibers.debug"
	mkdir -p "$T/d/.debug"
	objcopy --only-keep-debug "$TARGETS/target_fibers_ucontext" "$debug"
	objcopy --strip-all --add-gnu-debuglink="$debug" "$TARGETS/target_fibers_ucontext" "$T/d/fibers"
	listens stripped "$T/d/fibers" 30 64 guarded
	SAYS=$(grep "^pid" "$T/stripped.out")
	looks
	[ "$(waits wait_shallow)" = "$(told shallow)" ]
	objcopy --only-keep-debug "$TARGETS/target_taken" "$debug" # of another build
	looks
	[ "$(waits wait_shallow)" = 0 ]
}

@test "a 32-bit program is refused" {
	echo 'void _start(void) { for (;;) __asm__ volatile("int $0x80" : : "a"(29)); }' >"$T/narrow.c"
	cc -m32 -nostdlib -static -fno-pie -no-pie -o "$T/narrow" "$T/narrow.c" 2>/dev/null || skip "cc makes no 32-bit programs"
	"$T/narrow" & # forks before it runs: another program until then
	PID=$!
	wait_for 10 eval '[ "$(readlink /proc/$PID/exe)" = "$T/narrow" ]'
	run "$SCRY" fibers -p "$PID"
	kill "$PID"
	[ "$status" = 4 ]
	[[ "$output" == *"is a 32-bit program"* ]]
}

# dies WAY [PROGRAM]: a program with six suspended contexts has died of a seventh; its core is $CORE.
dies() {
	grep -qE '^core[.%a-z]*$' /proc/sys/kernel/core_pattern || skip "the kernel gives cores to a program: kernel.core_pattern"
	mkdir -p "$T/core" && rm -f "$T"/core/*
	cd "$T/core"
	ulimit -S -c unlimited
	start dies "${2:-$TARGETS/target_fibers_ucontext}" 6 64 guarded "$1"
	wait_for 20 ended "$PID" || true
	CORE=$(echo "$T"/core/core*)
}

@test "a core whose program is gone, or was replaced, says so in the second line; --exe mends it" {
	cp "$TARGETS/target_fibers_ucontext" "$T/program"
	dies abort "$T/program"
	mv "$T/program" "$T/kept"
	"$SCRY" fibers --core "$CORE" --json >"$T/fibers.json"
	json_is "$T/fibers.json" "r['notes'][1].include?(\"'$T/program', which cannot be read\") && r['notes'][1].include?('--exe')"
	cp "$TARGETS/target_fibers_scry" "$T/program"
	"$SCRY" fibers --core "$CORE" --json >"$T/fibers.json"
	json_is "$T/fibers.json" "r['notes'][1].include?('which was replaced since')"
	"$SCRY" fibers --core "$CORE" --exe "$T/kept" --json >"$T/fibers.json"
	json_is "$T/fibers.json" "r['notes'].none? { |x| x.include?('--exe') }"
	[ "$(waits wait_shallow)" = 4 ]
}

@test "a core of an overflow: the fiber that stands in its guard is the one that runs" {
	dies overflow
	"$SCRY" fibers --core "$CORE" --json >"$T/fibers.json"
	json_is "$T/fibers.json" "x = rows.select { |y| y['state'] == 'running' }; x.size == 1 && x[0]['count'] == 1 && x[0]['place'].start_with?('overflow') && x[0]['kind'] == 'ucontext'"
	[ "$(waits wait_shallow)" = 4 ]
	[ "$(in_state fibers)" = 9 ]
}

@test "a core of a handler on a stack of its own: the fiber that it has interrupted runs" {
	dies abort
	"$SCRY" fibers --core "$CORE" --json >"$T/fibers.json"
	json_is "$T/fibers.json" "x = rows.select { |y| y['state'] == 'running' }; x.size == 1 && x[0]['frames'].map { |y| y['name'] }.last(2) == %w[crash wait_and_crash] && x[0]['frames'].any? { |y| y['name'] == 'give_up' }"
	[ "$(waits wait_shallow)" = 4 ]
	[ "$(in_state fibers)" = 9 ]
}

@test "of stacks that a core lacks it is not known how much was used" {
	local low offset
	dies abort
	"$SCRY" fibers --core "$CORE" --json --all >"$T/fibers.json"
	json_is "$T/fibers.json" "r['totals']['use_unknown'] == 0 && r['fibers'].all? { |x| x['used_bytes'] > 0 }"
	low=$(json "$T/fibers.json" "r['fibers'].map { |x| x['low'].hex }.sort[1].to_s(16)")
	offset=$(readelf -lW "$CORE" | awk -v low="$low" '$1 == "LOAD" && index($3, low) { print $2; exit }')
	truncate -s $((offset + 8192)) "$CORE" # the lowest stack is whole, the second one lacks its upper end
	"$SCRY" fibers --core "$CORE" --json --all >"$T/cut.json"
	json_is "$T/cut.json" "x = r['fibers'].sort_by { |y| y['low'].hex }; x.size == 9 && x[0]['used_bytes'] > 0 && x[1..].all? { |y| y['used_bytes'].nil? && y['left_bytes'].nil? }"
	json_is "$T/cut.json" "r['totals']['use_unknown'] == 8 && r['notes'].any? { |x| x.start_with?('8 stacks are missing from the core') }"
	json_is "$T/cut.json" "rows.sum { |x| x['used_bytes'].to_i } == r['totals']['used_bytes'] && rows.any? { |x| x['used_max_bytes'].nil? }"
	"$SCRY" fibers --core "$CORE" --all >"$T/cut.txt"
	[ "$(sed -n '/each of them/,$p' "$T/cut.txt" | grep -c '^0x.* - *-  ')" = 8 ]
}

@test "a core that gdb has made says what it lacks" {
	command -v gcore >/dev/null || skip "no gcore: install gdb"
	standing fibers_scry 20 64
	gcore -o "$T/core" "$PID" >"$T/gcore.out" 2>&1
	"$SCRY" fibers --core "$T/core.$PID" --json >"$T/core.json"
	json_is "$T/core.json" "r['totals']['unreadable'] > 0 && r['notes'].any? { |x| x.include?('gdb') }"
}

@test "programs without fibers have none: threads, a thread's memory without a guard, a JVM" {
	target crowd 50
	wait_for 10 has_tasks 50
	looks
	[ "$(in_state fibers)" = 0 ]
	[ "$(in_state threads)" = 50 ] || { cat "$T/fibers.json"; false; }
	if command -v java >/dev/null; then
		printf 'public class T { public static void main(String[] a) throws Exception { System.out.println("pid"); Thread.sleep(1000000); } }' >"$T/T.java"
		start java java "$T/T.java"
		wait_for 60 in_file "^pid" "$T/java.out"
		looks
		[ "$(in_state fibers)" = 0 ]
	fi
}

@test "what lies is looked at in bounded time, and goes on" {
	for kind in registry contexts blocks threads changes; do
		standing fibers_liar "$kind"
		timeout 120 "$SCRY" fibers -p "$PID" --json >"$T/fibers.json"
		kill -0 "$PID"
		json_is "$T/fibers.json" "r['totals']['fibers'] <= 64"
	done
}

@test "what is not searched or judged within --max-time is counted, and the first line says so" {
	standing fibers_scry 10000 16
	looks --max-time 1ms
	json_is "$T/fibers.json" "r['totals']['unsearched_bytes'] > 0 && r['totals']['fibers'] < 10006 && !r['totals']['is_complete']"
	json_is "$T/fibers.json" "r['notes'][0].include?('incomplete: --max-time was over') && r['notes'].any? { |x| x.include?('of its mappings were not searched') }"
	looks --max-time 0
	json_is "$T/fibers.json" "r['totals'].values_at('unsearched_bytes', 'unjudged') == [0, 0] && r['totals']['fibers'] == 10006 && r['totals']['is_complete']"
	json_is "$T/fibers.json" "r['notes'].none? { |x| x.include?('incomplete') }"
}

@test "more frames than there is room for are left out, of the smallest groups" {
	standing fibers_liar deep
	"$SCRY" fibers -p "$PID" --top 0 -o "$T/fibers.txt"
	said=$(sed -n 's/^note: \([0-9,]*\) groups are shown without their stacks.*/\1/p' "$T/fibers.txt")
	[ "${said/,/}" -gt 0 ] && [ "${said/,/}" -lt 900 ]
	[ "$(grep -c '^ .*\[left out\]' "$T/fibers.txt")" = "${said/,/}" ]
	in_file "900 fibers: 900 suspended" "$T/fibers.txt"
	[ "$(wc -c <"$T/fibers.txt")" -lt 100000000 ]
}

@test "greenlets have no stacks; --count says what they copy, exactly" {
	/usr/bin/python3 -c 'import greenlet' 2>/dev/null || skip "no python3-greenlet"
	need_root "entering"
	cat >"$T/greenlets.py" <<'PY'
import greenlet, os, sys
main = greenlet.getcurrent()
def turn():
    while True:
        main.switch()
all = [greenlet.greenlet(turn) for i in range(3)]
for g in all:
    g.switch()
print("pid", os.getpid(), flush=True)
for line in sys.stdin:
    for i in range(1000):
        for g in all:
            g.switch()
    print("switched", 6000, flush=True)
PY
	listens greenlets /usr/bin/python3 "$T/greenlets.py"
	looks
	[ "$(in_state fibers)" = 0 ]
	json_is "$T/fibers.json" "r['notes'].any? { |x| x.include?('greenlets') }"
	start scry "$SCRY" fibers --count -p "$PID" --max-pause 2s -o "$T/count.scry"
	scry=$PID
	wait_for 20 in_file "watching process" "$T/scry.err"
	echo >&8
	wait_for 20 in_file "^switched" "$T/greenlets.out"
	kill -INT "$scry"
	wait "$scry" || true
	"$SCRY" report "$T/count.scry" --view greenlets --json >"$T/count.json"
	"$SCRY" report "$T/count.scry" --view events --json | grep '"event": "entry"' >"$T/copies"
	# one part out, one back: what lay in the heap is the end of one and the beginning of another
	"$RUBY" --disable=gems -rjson -e '
		copies = ARGF.map { |x| JSON.parse(x).values_at("arg1", "arg2") }
		to, from = copies.transpose.map { |x| x.to_h { |a| [a, true] } }
		parts = copies.count { |t, f| to[f] || from[t] }
		abort "#{parts} of #{copies.size}" unless parts == 12_000' "$T/copies"
	/usr/bin/python3 -c 'import sys; sys.exit(sys.version_info >= (3, 12))' || frames=1
	[ -n "${frames:-}" ] || [ "$(wc -l <"$T/copies")" = 12000 ]
	json_is "$T/count.json" "r['totals']['copies'] == $(wc -l <"$T/copies") && rows.sum { |x| x['copies'] } == r['totals']['copies']"
	json_is "$T/count.json" "rows.sum { |x| x['bytes'] } == r['totals']['bytes'] && r['data_quality']['is_complete']"
}

@test "uWSGI's ugreen: a context for each request that waits; those that were answered have ended" {
	local plugins=/usr/lib/uwsgi/plugins
	[ -e "$plugins/ugreen_plugin.so" ] && [ -e "$plugins/python311_plugin.so" ] || skip "no uwsgi-core with uwsgi-plugin-python3"
	cat >"$T/app.py" <<'PY'
import uwsgi
def application(env, start):
    uwsgi.async_sleep(100000 if env['PATH_INFO'] == '/wait' else 1)
    uwsgi.suspend()
    start('200 OK', [('Content-Type', 'text/plain')])
    return [b'answered']
PY
	start uwsgi uwsgi-core --need-app --die-on-term --plugins-dir "$plugins" --plugin python311,ugreen --ugreen --async 20 \
		--http-socket 127.0.0.1:0 --wsgi-file "$T/app.py"
	wait_for 60 in_file "spawned uWSGI worker" "$T/uwsgi.err"
	cat >"$T/asks.py" <<'PY'
import os, socket, sys, time
all = []
for i in range(12):
    one = socket.create_connection(('127.0.0.1', int(sys.argv[1])))
    one.sendall(b'GET /%s HTTP/1.0\r\n\r\n' % (b'quick' if i % 4 else b'wait'))
    all.append(one)
answered = [one for i, one in enumerate(all) if i % 4 and b'200 OK' in one.recv(1000)]
print("answered", len(answered), flush=True)
time.sleep(100000)
PY
	local uwsgi=$PID port
	port=$(sed -n 's/.*bound to TCP address 127.0.0.1:\([0-9]*\).*/\1/p' "$T/uwsgi.err")
	start asks /usr/bin/python3 "$T/asks.py" "$port"
	wait_for 60 in_file "^answered 9" "$T/asks.out"
	PID=$uwsgi
	# the last ones to wait may not have been read yet
	wait_for 20 eval 'looks && [ "$(in_state suspended)" = 3 ]'
	[ "$(in_state ended)" = 9 ]
	json_is "$T/fibers.json" "rows.all? { |x| x['kind'] == 'ucontext' && x['unguarded'] == 0 && x['size_max_bytes'] == 262144 }"
	json_is "$T/fibers.json" "x = rows.find { |y| y['state'] == 'suspended' }; x['place'].start_with?('ugreen_plugin.so') && x['frames'].last['name'] == 'async_schedule_to_req_green'"
	json_is "$T/fibers.json" "rows.find { |y| y['state'] == 'suspended' }['frames'].any? { |x| x['name'] == 'py_uwsgi_suspend' }"
}

@test "Ruby's async: a fiber for each task that waits" {
	"$RUBY" -e 'require "async"' 2>/dev/null || skip "no ruby-async for $RUBY"
	cat >"$T/tasks.rb" <<'RUBY'
require "async"
def waits_here(task) = task.sleep(100_000)
Async do |main|
  30.times { main.async { |task| waits_here(task) } }
  5.times { main.async {} } # these have ended
  puts "pid #{$$}"
  $stdout.flush
end
RUBY
	listens tasks "$RUBY" "$T/tasks.rb"
	looks
	[ "$(in_state suspended)" = 30 ]
	json_is "$T/fibers.json" "rows.select { |x| x['state'] == 'suspended' }.all? { |x| x['kind'] == 'ruby' && x['frames'].any? { |y| y['method'] == 'Object#waits_here' } }"
}

@test "gevent has greenlets" {
	/usr/bin/python3 -c 'import gevent' 2>/dev/null || skip "no python3-gevent"
	start gevent /usr/bin/python3 -c 'import gevent, os
all = [gevent.spawn(gevent.sleep, 1000000) for i in range(50)]
gevent.sleep(0)
print("pid", os.getpid(), flush=True)
gevent.sleep(1000000)'
	wait_for 20 in_file "^pid" "$T/gevent.out"
	looks
	[ "$(in_state fibers)" = 0 ]
	json_is "$T/fibers.json" "r['notes'].any? { |x| x.include?('greenlets') }"
}

# goes_away HOW: what scry says, and its status, of $PID, to which HOW (a shell's words) is done when it has read
# it 40,000 times, and walks stacks. scry stands still meanwhile.
goes_away() {
	cat >"$T/goes_away.rb" <<'RUBY'
pid, how, *scry = ARGV
child = spawn(*scry, out: ENV["T"] + "/away.out", err: ENV["T"] + "/away.err")
nil until File.read("/proc/#{child}/io")[/syscr: (\d+)/, 1].to_i > 40_000
Process.kill("STOP", child)
before = File.stat("/proc/#{pid}/exe").ino
system(how)
sleep 0.01 while (File.stat("/proc/#{pid}/exe").ino == before rescue false)
Process.kill("CONT", child)
Process.wait(child)
exit $?.exitstatus || 100 + $?.termsig
RUBY
	run env T="$T" "$RUBY" "$T/goes_away.rb" "$PID" "$1" "$SCRY" fibers -p "$PID" --json
}

@test "of a process that ends, or executes another program, there is no report" {
	standing fibers_scry 20000 16
	goes_away "echo exec >&8"
	[ "$status" = 5 ]
	in_file "process $PID executed another program while scry read it" "$T/away.err"
	[ ! -s "$T/away.out" ]
	standing fibers_scry 20000 16
	goes_away "kill -9 $PID"
	[ "$status" = 5 ]
	in_file "process $PID ended while scry read it" "$T/away.err"
	[ ! -s "$T/away.out" ]
}

@test "nothing is stopped or written: the program's memory and its turns are as before" {
	standing fibers_scry 20 64
	local before
	before=$(state_of "$PID")
	turns=$(sed -n 's/^nonvoluntary_ctxt_switches\|^voluntary_ctxt_switches//p' "/proc/$PID/status")
	looks
	[ "$(state_of "$PID")" = "$before" ]
	[ "$(sed -n 's/^nonvoluntary_ctxt_switches\|^voluntary_ctxt_switches//p' "/proc/$PID/status")" = "$turns" ]
}

@test "what cannot be asked is refused, with the way out" {
	run "$SCRY" fibers
	[ "$status" = 2 ]
	[[ "$output" == *"say which process, or which core"* ]]
	run "$SCRY" fibers -p 1 --exe /bin/true
	[ "$status" = 2 ]
	run "$SCRY" fibers -p 4194304
	[ "$status" = 5 ]
	run "$SCRY" fibers --core /dev/null
	[ "$status" != 0 ]
	standing fibers_scry 1 64
	run "$SCRY" fibers -p "$PID" -o "$T/x.svg"
	[ "$status" = 2 ]
	"$SCRY" fibers -p "$PID" -o "$T/x.json"
	run "$SCRY" fibers -p "$PID" -o "$T/x.json"
	[ "$status" != 0 ]
	[[ "$output" == *"--force"* ]]
	if [ "$(id -u)" = 0 ] && id nobody >/dev/null 2>&1; then
		run setpriv --reuid=nobody --clear-groups "$SCRY" fibers -p "$PID"
		[ "$status" = 3 ]
	fi
}
