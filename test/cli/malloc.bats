#!/usr/bin/env bats
# scry malloc record: what is in a recording is what the program knows that it called, under each allocator; whoever is
# killed, the program lives and what had returned is there; a program that was entered is as before.

load lib

source "$BATS_TEST_DIRNAME/malloc.bash"

setup() {
	need_targets
	need_python
	prepare
}

@test "every call, from the first constructor to the last destructor: glibc" {
	knows "" "libc.so.6, glibc 2"
}

@test "every call: jemalloc" {
	KNOWN_NO_PVALLOC=1 knows "$(lib libjemalloc.so.2)" jemalloc
}

@test "every call: tcmalloc" {
	knows "$(lib libtcmalloc_minimal.so.4)" tcmalloc
}

@test "every call: mimalloc" {
	knows "$(lib libmimalloc.so.2.0 libmimalloc.so.3)" mimalloc
}

@test "every call: a static program" {
	[ -x "$TARGETS/target_malloc_known_static" ] || skip "no static programs with this toolchain"
	records "" "$TARGETS/target_malloc_known_static"
	grep -qx right "$T/known.out"
	grep -qE " 0 frees inserted, 0 calls recorded too late" "$T/scry.err"
	same known target_malloc_known_static --symbols # its libc is the same module
}

@test "memory of a program that is started is looked at before its first call: none of its blocks are older" {
	records "" /usr/bin/python3 -c 'x = [bytes(1000) for i in range(20000)]'
	jq -es 'map(.event) | index("memory") < index("attach")' "$T/events"
	jq -es 'map(select(.event == "memory"))[0].rss_anon < 1000000' "$T/events"
}

@test "a program's own functions that are called as jemalloc's get their arguments" {
	local program="$TARGETS/target_malloc_mine_static"
	[ -x "$program" ] || skip "no static programs with this toolchain"
	records "" "$program"
	grep -qx right "$T/known.out"
	"$SCRY" report "$T/x.scry" --json >"$T/report"
	[ "$(jq '.functions[] | select(.function == "realloc").calls' "$T/report")" -eq 1000 ]
}

@test "a block whose end is not seen: the recording says that a free was inserted" {
	need_python
	records "" /usr/bin/python3 -c 'if True:
		import ctypes
		libc = ctypes.CDLL(None)
		libc.malloc.restype = ctypes.c_void_p
		first = libc.malloc(ctypes.c_size_t(1 << 24)) # is mapped by itself
		libc.munmap(ctypes.c_void_p(first - 16), ctypes.c_size_t((1 << 24) + 4096))
		print(libc.malloc(ctypes.c_size_t(1 << 24)) == first)'
	grep -qx True "$T/known.out"
	"$SCRY" report "$T/x.scry" --json >"$T/report"
	jq -e '[.notes[] | select(test("^1 times an address was reused without a recorded free"))] | length == 1' "$T/report"
}

@test "mallocx and its like: jemalloc" {
	records "$(lib libjemalloc.so.2)" "$TARGETS/target_malloc_x"
	grep -qx right "$T/known.out"
	grep -qE " 0 ends of unknown blocks, 0 frees inserted, 0 calls recorded too late" "$T/scry.err"
	"$SCRY" report "$T/x.scry" --json >"$T/report"
	[ "$(jq '.functions[] | select(.function == "memalign").calls' "$T/report")" -eq 1000 ]
	[ "$(jq '.functions[] | select(.function == "calloc").calls' "$T/report")" -ge 1000 ]
	[ "$(jq '.functions[] | select(.function == "realloc").calls' "$T/report")" -eq 3000 ]
	[ "$(jq '.functions[] | select(.function == "free").calls' "$T/report")" -ge 2990 ]
	[ "$(jq .totals.failed "$T/report")" -eq 1000 ] # what xallocx could not make larger
}

@test "every call: a program of musl, whose loader makes its list late" {
	local program="$TARGETS/target_malloc_small_musl"
	[ -x "$program" ] || skip "no musl-gcc (Debian: musl-tools)"
	LD_PRELOAD="" "$SCRY" malloc record -v --force -o "$T/x.scry" -- "$program" >"$T/known.out" 2>"$T/scry.err" 3>&- || [ $? -eq 3 ]
	grep -q "served by .*musl" "$T/scry.err"
	grep -qx right "$T/known.out"
	events "$T/x.scry"
	calls target_malloc_small_musl >"$T/recorded"
	diff <(grep ^known "$T/known.out") <(grep -E "known (malloc|realloc|free) " "$T/recorded" | cut -d" " -f1-3)
}

@test "a static program of musl that has no calloc" {
	command -v musl-gcc >/dev/null || skip "no musl-gcc (Debian: musl-tools)"
	cat >"$T/few.c" <<-'END'
		#include <signal.h>
		#include <stdlib.h>
		int main(void)
		{
			signal(SIGUSR1, SIG_IGN);
			for (int i = 0; i < 1000; i++) {
				void *volatile p = malloc(100 + i);
				p = realloc(p, 3000);
				if (i % 2)
					free(p);
			}
			return 0;
		}
	END
	musl-gcc -static -O1 -fno-builtin -o "$T/few" "$T/few.c"
	records "" "$T/few"
	"$SCRY" report "$T/x.scry" --json >"$T/report"
	jq -e '[.functions[] | [.function, .calls]] == [["malloc", 1000], ["realloc", 1000], ["free", 500]]' "$T/report"
	jq -e '.totals.allocator == "musl"' "$T/report"
}

@test "a library that is loaded later with a malloc of its own is told of" {
	cat >"$T/own.c" <<-'END'
		#include <stddef.h>
		static char room[1 << 20];
		static size_t at;
		void *malloc(size_t n) { at += (n + 31) & ~15ul; return at < sizeof(room) ? room + at - n : NULL; }
		void free(void *p) { (void)p; }
		void *asks(void) { return malloc(50); }
	END
	cat >"$T/loads.c" <<-'END'
		#include <dlfcn.h>
		#include <signal.h>
		#include <unistd.h>
		int main(int argc, char **argv)
		{
			void *(*asks)(void) = dlsym(dlopen(argv[1], RTLD_NOW | RTLD_DEEPBIND), "asks");
			int wrong = !asks || !asks();
			while (access(argv[2], F_OK))
				usleep(10000);
			return wrong;
		}
	END
	gcc -shared -fPIC -O1 -fno-builtin -o "$T/libown.so" "$T/own.c"
	gcc -O1 -o "$T/loads" "$T/loads.c" -ldl
	start scry "${RECORD[@]}" --force -o "$T/x.scry" -- "$T/loads" "$T/libown.so" "$T/go"
	wait_for 20 bash -c "'$SCRY' report '$T/x.scry' --view events | grep -q 'libown.so was loaded later'"
	touch "$T/go"
	finish "$PID"
	"$SCRY" report "$T/x.scry" --json | jq -e '[.notes[] | select(test("libown.so was loaded later and has its own malloc"))] | length == 1'
}

@test "operators new and delete, their exceptions too" {
	[ -x "$TARGETS/target_malloc_cxx" ] || skip "no C++ compiler"
	local name
	for name in libjemalloc.so.2 libtcmalloc_minimal.so.4; do
		records "$(lib $name)" "$TARGETS/target_malloc_cxx"
		grep -qx right "$T/known.out"
		same known target_malloc_cxx --cxx
	done
	KNOWN_NO_OOM=1 records "$(lib libmimalloc.so.2.0 libmimalloc.so.3)" "$TARGETS/target_malloc_cxx"
	same known target_malloc_cxx --cxx
	records "" "$TARGETS/target_malloc_cxx" # glibc has none: they are malloc's callers
	grep -qx right "$T/known.out"
}

@test "attach and detach in mid-life, again and again: nothing is changed, nothing is lost" {
	need_root "entering a process that is not a child of scry"
	target malloc_known run
	local before i
	before=$(text "$PID")
	for ((i = 0; i < $(share 2 50); i++)); do
		scry_ends 0 malloc record -v -p "$PID" -d 0.2s --force -o "$T/x.scry"
		grep -qE " 0 calls recorded too late" "$T/scry.err" || { cat "$T/scry.err"; return 1; }
		events "$T/x.scry"
		no grep -q '"event": "lost"' "$T/events"
		calls target_malloc_known >"$T/recorded"
		grep -qE "known malloc [1-9]" "$T/recorded"
		text_is "$PID" "$before"
	done
	wait_for 2 bash -c "! '$SCRY' ps | grep -w '^ *$PID' | grep -q 'scry undo'"
	ends_right "$PID" malloc_known
	grep -qx right "$T/malloc_known.out"
}

@test "a fork child's calls are not its parent's" {
	# target_malloc_known forks one, whose thousand blocks no recording of it may have: knows() compares.
	cat >"$T/fork.py" <<'PY'
import os, sys
for i in range(20):
    if os.fork() == 0:
        x = [str(n) * 10 for n in range(20000)]
        os._exit(len(x) % 7)
    os.wait()
print("right")
PY
	records "" /usr/bin/python3 "$T/fork.py"
	grep -qx right "$T/known.out"
	grep -qE " 0 frees inserted, 0 calls recorded too late" "$T/scry.err"
}

@test "the program is killed: what had returned is recorded" {
	scry_ends 137 malloc record --force -o "$T/x.scry" -- "$TARGETS/target_malloc_known" tell "$T/told" 100000
	recorded_all 2
}

@test "the front is killed: what had returned until the keeper left is recorded, the program goes on" {
	need_root "entering a process that is not a child of scry"
	start program "$TARGETS/target_malloc_known" steady
	local program=$PID scry keeper before
	wait_for 10 in_file "^round" "$T/program.out"
	before=$(text "$program")
	start scry "$SCRY" malloc record --force -o "$T/x.scry" -p "$program"
	scry=$PID
	wait_for 20 hooked "$program"
	keeper=$(keeper_of "$scry")
	kill -KILL "$scry"
	ended "$scry"
	wait_for 10 is_gone "$keeper"
	text_is "$program" "$before"
	events "$T/x.scry"
	calls target_malloc_known >"$T/recorded"
	grep -q '"event": "totals"' "$T/events"
	ends_right "$program" program
}

@test "the keeper is killed: the program goes on, what was written is whole, undo takes the hooks out" {
	need_root "entering a process that is not a child of scry"
	start program "$TARGETS/target_malloc_known" steady
	local program=$PID scry before
	wait_for 10 in_file "^round" "$T/program.out"
	before=$(state_of "$program")
	start scry "$SCRY" malloc record --force -o "$T/x.scry" -p "$program"
	scry=$PID
	wait_for 20 hooked "$program"
	wait_for 20 test -s "$T/x.scry"
	kill -KILL "$(keeper_of "$scry")"
	ended "$scry"
	goes_on "$T/program.out"
	"$SCRY" info "$T/x.scry" >/dev/null
	"$SCRY" report "$T/x.scry" >"$T/report"
	sed -n 1p "$T/report" | grep -q "^as far as the recording goes: "
	undo "$program"
	as_before "$program" "$before" "after undo"
	scry_ends 0 malloc record --force -o "$T/x.scry" -p "$program" -d 0.2s
	ends_right "$program" program
}

@test "threads that hand over each block at once: no block ends before it begins" {
	local program
	for program in "2 1000000" "4 1000000" "2 200000 30" "2 20000 600"; do
		# shellcheck disable=SC2086
		"$SCRY" malloc record -v --force -o "$T/x.scry" -- "$TARGETS/target_malloc_swap" $program 2>"$T/scry.err"
		grep -qE " 0 ends of unknown blocks, 0 frees inserted, 0 calls recorded too late" "$T/scry.err" || { cat "$T/scry.err"; return 1; }
	done
}

@test "a disk that stands for a while: threads wait, no call is lost" {
	local kind
	starts_on_a_slow_disk -- "$TARGETS/target_malloc_known" run
	wait_for 8 all_wait "$(program_of "$PID")" # it waits for ten seconds
	touch "$T/disk/go"
	goes_far "$T/scry.out"
	ends_recorded "$PID"
	jq -e '.data_quality | .lost == 0 and .errors == 0' "$T/report"
	jq -e '[.notes[] | select(test("^threads waited [1-9][0-9]* times? until their calls were taken"))] | length == 1' "$T/report" || { jq .notes "$T/report"; return 1; }
	grep -qE " 0 ends of unknown blocks, 0 frees inserted, 0 calls recorded too late" "$T/scry.err"
	for kind in malloc realloc; do # others call them too: libc for streams, the loader
		local recorded known
		recorded=$(jq "[.functions[] | select(.function == \"$kind\").calls] | add" "$T/report")
		known=$(awk "/^known $kind / { print \$3 }" "$T/scry.out")
		echo "$kind: recorded $recorded, known $known"
		[ "$recorded" -ge "$known" ]
		[ "$recorded" -le "$((known + 50))" ]
	done
}

@test "a disk that stands for good: in the end the program goes on, and all say what is lost" {
	starts_on_a_slow_disk -- "$TARGETS/target_malloc_known" run
	goes_far "$T/scry.out"
	touch "$T/disk/go"
	ends_recorded "$PID"
	# or, where the machine is busy and a minute went by, that nothing was recorded from then on
	jq -e '[.notes[] | select(test("held up for (up to .*threads that found no room waited|[0-9]+ s, and nothing was recorded)"))] | length == 1' "$T/report"
	jq -e '.data_quality.lost > 0' "$T/report"
	grep -q "[0-9] calls are missing from the recording, which has [0-9]" "$T/scry.err"
	"$SCRY" malloc replay "$T/x.scry" --runs 1 --with glibc,glibc:MALLOC_ARENA_MAX=1 >"$T/replay" 2>&1
	grep -Eq "cannot tell: (at least )?[0-9]+ calls were lost when this was recorded" "$T/replay"
	"$SCRY" malloc export "$T/x.scry" -o "$T/x.txt"
	grep -q "^lost count=[1-9]" "$T/x.txt"
	"$SCRY" malloc import "$T/x.txt" --force -o "$T/x.scry"
	"$SCRY" report "$T/x.scry" --json | jq -e '.data_quality.lost > 0'
}

# stops_keeper: $program is recorded by $scry, whose $keeper is stopped.
stops_keeper() {
	start program "$TARGETS/target_malloc_known" run
	program=$PID
	wait_for 10 in_file "^round" "$T/program.out"
	start scry "$SCRY" malloc record --force -o "$T/x.scry" -p "$program"
	scry=$PID
	wait_for 20 in_file "watching process" "$T/scry.err" # not only hooked: calls are recorded
	keeper=$(keeper_of "$scry")
	HELD=$keeper
	kill -STOP "$keeper"
	# the others of its threads stop when the one has that takes the signal
	wait_for 10 no grep -qs "^State:.[^T]" /proc/"$keeper"/task/*/status
}

@test "a keeper that is stopped: nobody waits for longer than its lease, losses are counted" {
	need_root "entering a process that is not a child of scry"
	local program scry keeper
	stops_keeper
	goes_far "$T/program.out"
	kill -CONT "$keeper"
	kill -INT "$scry"
	finish "$scry"
	events "$T/x.scry"
	grep -q '"event": "lost".*keeper' "$T/events"
	ends_right "$program" program
}

# lease_ends PID: as if a minute had passed since its keeper was stopped.
lease_ends() {
	/usr/bin/python3 - "$1" <<-'END'
		import struct, sys
		with open("/proc/%s/maps" % sys.argv[1]) as maps, open("/proc/%s/mem" % sys.argv[1], "r+b", 0) as mem:
		    for line in maps:
		        at = int(line.split("-")[0], 16)
		        if line.split()[1] != "rw-s":
		            continue
		        mem.seek(at)
		        if mem.read(8) == struct.pack("<Q", 0x31727463797263):  # struct scry_control
		            mem.seek(at + 40)
		            mem.write(struct.pack("<QQ", 1, 1))
	END
}

@test "a keeper that comes back after its lease's end: that nothing was recorded since is said, and nothing told of it" {
	need_root "entering a process that is not a child of scry"
	need_python
	local program scry keeper lost
	stops_keeper
	lease_ends "$program"
	goes_far "$T/program.out"
	kill -CONT "$keeper"
	goes_far "$T/program.out"
	kill -INT "$scry"
	finish "$scry"
	# one, and those that found no room where it took a while until the lease was over
	lost=$(sed -nE 's/.*held up for [0-9]* s, and nothing was recorded from then on: ([0-9]+) calls are missing at least.*/\1/p' "$T/scry.err")
	[ "$lost" -ge 1 ] || { cat "$T/scry.err"; false; }
	"$SCRY" report "$T/x.scry" --json >"$T/report"
	jq -e --argjson lost "$lost" '.data_quality | .lost == $lost and (.is_complete | not)' "$T/report"
	jq -e '[.notes[] | select(test("an unknown number of events lost: process [0-9]+: scry was held up"))] | length == 1' "$T/report"
	"$SCRY" malloc export "$T/x.scry" -o "$T/x.txt"
	"$SCRY" malloc import "$T/x.txt" --force -o "$T/x.scry"
	"$SCRY" malloc replay "$T/x.scry" --runs 1 --with glibc,glibc:MALLOC_ARENA_MAX=1 >"$T/replay" 2>&1
	grep -q "cannot tell: at least $lost calls were lost" "$T/replay"
	ends_right "$program" program
}

@test "ruby, python3, perl and php print what they print without" {
	json_as_without 20000
	if command -v perl >/dev/null; then
		# shellcheck disable=SC2016
		as_without perl -e 'my %h; $h{$_} = "z" x ($_ % 400) for 1..50000; my $n = 0; $n += length for values %h; print "$n\n"'
	fi
	if command -v php >/dev/null; then
		# shellcheck disable=SC2016
		as_without php -r '$a = []; for ($i = 0; $i < 50000; $i++) $a[] = str_repeat("q", $i % 3000); echo strlen(implode($a)), "\n";'
	fi
}

# answers: what a database says, the same however it is asked.
answers() {
	mariadb --no-defaults -S "$T/sock" -u root -N test -e "
		drop table if exists a; create table a (i int primary key, s varchar(1000)) engine=innodb;
		insert into a select seq, repeat('x', seq % 1000) from seq_1_to_20000;
		select count(*), sum(length(s)) from a; select s, count(*) n from a group by s having n <> 20;
		select md5(group_concat(i order by s, i)) from a where i < 5000;"
}

is_up() {
	mariadb-admin --no-defaults -S "$T/sock" -u root ping 2>/dev/null | grep -q alive
}

@test "mariadbd under load, started and attached to: its answers are right" {
	need_root "running a database here"
	[ -x /usr/sbin/mariadbd ] && command -v mariadb-slap >/dev/null || skip "no mariadbd (Debian: mariadb-server)"
	local load server how i
	mkdir "$T/data"
	mariadb-install-db --user=root --datadir="$T/data" --auth-root-authentication-method=normal >/dev/null 2>&1
	for how in started attached; do
		set -- /usr/sbin/mariadbd --no-defaults --datadir="$T/data" --socket="$T/sock" --skip-networking \
			--user=root --innodb-buffer-pool-size=32M --pid-file="$T/pid"
		[ "$how" = attached ] || set -- "$SCRY" malloc record -v --force -o "$T/x.scry" -- "$@"
		start server "$@"
		server=$PID
		wait_for 60 is_up
		mariadb --no-defaults -S "$T/sock" -u root -e "create database if not exists test"
		start load mariadb-slap --no-defaults -S "$T/sock" -u root --auto-generate-sql --concurrency=8 \
			--auto-generate-sql-load-type=mixed --number-of-queries="$(share 2000 50000)"
		load=$PID
		for ((i = 0; i < 2; i++)); do
			if [ "$how" = attached ]; then
				start rec "$SCRY" malloc record -v --force -o "$T/x.scry" -p "$(cat "$T/pid")"
				wait_for 30 in_file "^scry: watching process" "$T/rec.err"
			fi
			answers >"$T/answer"
			if [ "$how" = attached ]; then
				kill -INT "$PID"
				finish "$PID"
			fi
			cat "$T/answer" >>"$T/answers"
		done
		finish "$load"
		mariadb-admin --no-defaults -S "$T/sock" -u root shutdown
		finish "$server"
		cp "$T/$([ "$how" = attached ] && echo rec || echo server).err" "$T/scry.err"
		grep -qE " 0 calls recorded too late" "$T/scry.err"
		events "$T/x.scry"
		no grep -q '"event": "lost"' "$T/events"
		[ "$(grep -c '"event": "malloc"' "$T/events")" -gt 1000 ] # the queries alone make more
	done
	grep -q "^20000.9990000$" "$T/answers"
	[ "$(wc -l <"$T/answers")" -eq 8 ]
	[ "$(sort -u "$T/answers" | wc -l)" -eq 2 ]
}

@test "a dry run says who serves malloc and what would be changed, and touches nothing" {
	need_root "entering a process that is not a child of scry"
	target malloc_known steady
	local before
	before=$(state_of "$PID")
	scry_ends 0 malloc record --dry-run -p "$PID"
	grep -qE "allocator +/.*libc.so.6: glibc" "$T/scry.out"
	grep -qE "bytes at 0x[0-9a-f]+, the entry of malloc in .*libc.so.6" "$T/scry.out"
	grep -qE "the entry of free in" "$T/scry.out"
	is_as "$PID" "$before"
	ends_right "$PID" malloc_known
}

@test "a program whose malloc cannot be found is refused, and runs all the same" {
	[ -x "$TARGETS/target_malloc_known_static" ] || skip "no static programs with this toolchain"
	strip -o "$T/stripped" "$TARGETS/target_malloc_known_static"
	scry_ends 125 malloc record --force -o "$T/x.scry" -- "$T/stripped"
	says "no malloc that can be found.*static without symbols"
	says "the program ran on without scry, and ended with status 0"
	grep -qx right "$T/scry.out"
}

# caller_rows FILE: of the report: module, symbol or null, offset.
caller_rows() {
	"$SCRY" report "$1" --json --top 0 | jq -r '.rows[] | [.module, .symbol, .offset] | @tsv'
}

@test "callers have names: static functions, too; where there are none, addresses that addr2line takes" {
	local program="$TARGETS/target_malloc_sums" id module at function
	"$SCRY" malloc record -q --force -o "$T/x.scry" -- "$program" >/dev/null
	caller_rows "$T/x.scry" | cut -f2 | sort -u >"$T/names"
	grep -qx begin "$T/names" # both are static
	grep -qx resize "$T/names"
	strip -o "$T/stripped" "$program"
	"$SCRY" malloc record -q --force -o "$T/x.scry" -- "$T/stripped" >/dev/null
	"$SCRY" report "$T/x.scry" --top 0 | grep -o "stripped+0x[0-9a-f]*" | sort -u >"$T/at"
	[ -s "$T/at" ]
	while IFS=+ read -r module at; do
		addr2line -f -e "$program" "$(printf %x $((at - 1)))" | head -1
	done <"$T/at" | sort -u >"$T/told"
	grep -xE "begin|resize|end" "$T/names" >"$T/want"
	diff "$T/want" <(grep -xE "begin|resize|end" "$T/told")
}

@test "callers have names: of a separate file with symbols" {
	local libc id debug symbol
	libc=$(ldd "$TARGETS/target_malloc_known" | awk '/libc.so/ { print $3 }')
	id=$(readelf -n "$libc" | awk '/Build ID/ { print $3 }')
	debug="/usr/lib/debug/.build-id/${id:0:2}/${id:2}.debug"
	[ -e "$debug" ] || skip "no symbols of libc (Debian: libc6-dbg)"
	LC_ALL=C.UTF-8 "$SCRY" malloc record -q --force -o "$T/x.scry" -- /usr/bin/python3 -c 'print(1)' >/dev/null
	caller_rows "$T/x.scry" | awk -F'\t' '$1 ~ /libc.so/ { print $2 }' | sort -u >"$T/names"
	no grep -xE "null|" "$T/names"
	nm -D --defined-only "$libc" | sed 's/.* //; s/@.*//' | sort -u >"$T/exported"
	comm -23 "$T/names" "$T/exported" >"$T/static"
	[ -s "$T/static" ]
	nm "$debug" | sed 's/.* //; s/@.*//' | sort -u >"$T/all"
	[ -z "$(comm -23 "$T/static" "$T/all")" ]
}

@test "an allocator that is built in under its own names: said, and recorded by --prefix" {
	local program="$TARGETS/target_malloc_own"
	scry_ends 0 malloc record --force -o "$T/x.scry" -- "$program"
	"$SCRY" report "$T/x.scry" >"$T/report"
	grep -q "note: $program has its own allocator, je_malloc: .* not in this recording; fix: --prefix je_" "$T/report"
	grep -qE "^1,00[0-9]  malloc" "$T/report" # libc's: 1000, and stdout's buffer
	strip -o "$T/stripped" "$program"
	scry_ends 0 malloc record --force -o "$T/x.scry" -- "$T/stripped"
	"$SCRY" report "$T/x.scry" | grep -q "note: $T/stripped has jemalloc built in, and its functions have no symbols"
	scry_ends 0 malloc record -v --prefix je_ --force -o "$T/x.scry" -- "$program"
	says "malloc is served by $program, je_malloc"
	says " 0 ends of unknown blocks, 0 frees inserted, 0 calls recorded too late"
	grep -qx right "$T/scry.out"
	"$SCRY" report "$T/x.scry" --json >"$T/report"
	[ "$(jq -c '[.functions[] | [.function, .calls]] | sort' "$T/report")" = \
		'[["calloc",1000],["free",2990],["malloc",1000],["malloc_usable_size",1000],["memalign",1000],["realloc",4000]]' ]
	[ "$(jq .totals.bytes "$T/report")" -eq "$(awk '/^bytes/ { print $2 }' "$T/scry.out")" ]
	[ "$(jq .totals.end_blocks "$T/report")" -eq 10 ]
	# a program without it is recorded as always
	scry_ends 0 malloc record -v --prefix je_ --force -o "$T/x.scry" -- /bin/true
	says "malloc is served by .*libc.so.6, glibc"
}

@test "what scry has resident in a process is not counted as the process's" {
	local program='if True:
		kept = [bytes(600 + i % 3000) for i in range(20000)]
		print([int(l.split()[1]) for l in open("/proc/self/status") if l.startswith("RssAnon")][0])'
	alone=$(/usr/bin/python3 -c "$program")
	RECORD+=(--stack)
	records "" /usr/bin/python3 -c "$program"
	kib=$(sed -nE "s/.*up to ([0-9]+) KiB of resident memory were scry's.*/\1/p" "$T/scry.err")
	echo "alone $alone KiB, recorded $(cat "$T/known.out") KiB, of these scry's $kib"
	[ "$kib" -gt 1024 ]
	[ "$(cat "$T/known.out")" -gt $((alone + 1000)) ]
	jq -es --argjson alone "$alone" 'map(select(.event == "memory").rss_anon / 1024) | max < $alone + 600' "$T/events"
	"$SCRY" report "$T/x.scry" | grep -q "MiB of resident memory were scry's own"
}

@test "how long a program that is started is held is a figure of its own, not its longest pause" {
	records "" /bin/true
	"$SCRY" report "$T/x.scry" --json >"$T/report"
	jq -e '.data_quality.held_at_start_us > 0 and .data_quality.pause_max_us == 0' "$T/report"
	"$SCRY" report "$T/x.scry" | grep -q "^scry malloc: .*, held .* before its first instruction"
}

@test "a live process that another allocator serves, and that does nothing: its older blocks are said to be unknown" {
	LD_PRELOAD=$(lib libjemalloc.so.2) listens blocks "$TARGETS/target_malloc_blocks"
	enters
	"$SCRY" report "$T/x.scry" >"$T/report"
	sed -n 1p "$T/report" | grep -qx "no call of malloc was recorded"
	grep -q "note: blocks older than the recording were not found, .*: only the heap of libc.so.6 is read" "$T/report"
	exec 8>&-
	finish "$PID"
}

# enters ARGS...: records $PID at the first moment at which its threads can be stopped within --max-pause; what scry says
# is in $T/scry.err. Any other refusal is none of the moment.
enters() {
	wait_for 20 entered_or_refused "$@"
	[ "$entered" = 0 ] && return 0
	cat "$T/scry.err"
	return 1
}
entered_or_refused() {
	entered=0
	"$SCRY" malloc record -p "$PID" -d 0.05s --force -o "$T/x.scry" "$@" >"$T/scry.out" 2>"$T/scry.err" 3>&- || entered=$?
	[ "$entered" = 0 ] || ! grep -q "would not stop within\|could be held within" "$T/scry.err"
}

@test "a heap that is too large for --max-pause: what was found is known, and it is said how long it takes" {
	listens blocks "$TARGETS/target_malloc_blocks"
	enters --max-pause 3ms
	says "too large to be read within --max-pause: [0-9]+ blocks in .* MiB were found, .* fix: --max-pause [0-9]+ms$"
	"$SCRY" report "$T/x.scry" --json >"$T/part"
	jq -e '.notes | any(test("too large to be read within --max-pause"))' "$T/part"
	enters --max-pause 5s
	no says "too large"
	"$SCRY" report "$T/x.scry" --json >"$T/all"
	[ "$(jq '.totals.older_blocks // 0' "$T/part")" -lt "$(jq .totals.older_blocks "$T/all")" ]
	[ "$(jq .totals.older_blocks "$T/all")" -gt 20000 ]
	"$SCRY" malloc export "$T/x.scry" >"$T/text"
	grep -q "^memory .* held=$(sed -n 's/^table .* held //p' "$T/blocks.out") " "$T/text" # its own word
	exec 8>&-
	finish "$PID"
}

@test "the limit of --memory is reached: said when it is recorded and in the report, with what mends it" {
	"$SCRY" malloc record --memory 1M -o "$T/x.scry" -- "$TARGETS/target_malloc_forks" 200000 1 50 >"$T/out" 2>"$T/err"
	grep "ended before its time: the table of living blocks is full: .* in 1 MiB; fix: --memory" "$T/err"
	"$SCRY" report "$T/x.scry" | grep "note: .*ended before its time: the table of living blocks is full: .*; fix: --memory"
}

@test "options that would be passed by in silence are refused, with a sentence" {
	"$SCRY" malloc record -o "$T/x.scry" -- /bin/true
	for word in "--slow 1ms" -t -r "-n 3" -T; do
		scry_ends 1 report "$T/x.scry" $word
		says "the malloc view has no ${word% *}; fix: without, or one of "
	done
	scry_ends 1 report "$T/x.scry" --cpu
	says "the malloc view has no --cpu; fix"
	scry_ends 1 report "$T/x.scry" --view info --at end
	says "the info view has no --at; fix: without, as it has none at all"
	scry_ends 2 report "$T/x.scry" -o "$T/x.svg"
	says "does not draw reports as SVG; fix: --folded"
	[ ! -e "$T/x.svg" ]
	scry_ends 2 malloc record --json -o "$T/y.scry" -- /bin/true
	says "'$T/y.scry' keeps the recording; fix: -o x.json"
	[ ! -e "$T/y.scry" ]
	scry_ends 0 malloc record --json -o "$T/y.json" -- /bin/true
}

@test "words that are not understood are refused" {
	scry_ends 2 malloc
	scry_ends 2 malloc recrod
	scry_ends 2 malloc record
	says "-p PID, or -- CMD"
	scry_ends 0 malloc --help
	scry_ends 0 malloc record --help
}

@test "an alignment that is no power of two is recorded as the next one, as glibc has it" {
	"$SCRY" malloc record -q -o "$T/x.scry" -- /usr/bin/python3 -c 'import ctypes; ctypes.CDLL(None).memalign(40, 123457)'
	"$SCRY" malloc export "$T/x.scry" >"$T/text"
	grep -q "memalign(123457) .* align=64" "$T/text"
}

@test "two processes: what one of them does ends its own watch only" {
	cat >"$T/grow.c" <<-'END'
		#include <stdlib.h>
		#include <string.h>
		#include <unistd.h>
		static void say(const char *text) { if (write(1, text, strlen(text)) < 0) _exit(1); }
		int main(int argc, char **argv)
		{
			char line[16];
			say("pid\n");
			if (read(0, line, sizeof(line)) < 0)
				return 1;
			for (int i = 0; i < atoi(argv[1]); i++) {
				void *volatile p = malloc(32);
				if (argc > 2)
					free(p);
			}
			say("made\n");
			return read(0, line, sizeof(line)) < 0;
		}
	END
	gcc -O1 -o "$T/grow" "$T/grow.c"
	mkfifo "$T/in.1" "$T/in.2"
	exec 6<>"$T/in.1" 7<>"$T/in.2"
	start one sh -c 'exec "$1" 200000 <"$2" 6>&- 7>&-' sh "$T/grow" "$T/in.1"
	local one=$PID
	start two sh -c 'exec "$1" 500 free <"$2" 6>&- 7>&-' sh "$T/grow" "$T/in.2"
	local two=$PID
	wait_for 20 in_file "^pid" "$T/one.out"
	wait_for 20 in_file "^pid" "$T/two.out"
	start scry "$SCRY" malloc record -p "$one" -p "$two" --memory 1MiB --force -o "$T/x.scry"
	local scry=$PID
	wait_for 20 hooked "$two"
	echo go >&6
	wait_for 30 in_file "the watch of process $one ended before its time" "$T/scry.err"
	echo go >&7
	wait_for 30 in_file "^made" "$T/two.out"
	echo end >&7
	ended "$scry"
	[ "$status" -eq 0 ]
	echo end >&6
	exec 6>&- 7>&-
	"$SCRY" report "$T/x.scry" --pid "$two" --json >"$T/two.json"
	[ "$(jq .totals.allocated "$T/two.json")" -eq 500 ]
	"$SCRY" report "$T/x.scry" | grep -q "process $one: the watch ended before its time: the table of living blocks is full"
}
