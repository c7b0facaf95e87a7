#!/usr/bin/env bats
# Followed returns (SCRY_WRAP of include/scry/patch.h) that little leads to: the undo's proof must see each of them, or
# leave the memory mapped (test/targets/asleep.c).

load lib

# wraps NAME FUNCTION: $T/NAME.so. The function is no entry 0, in whichever order the compiler puts them.
wraps() {
	printf '%s\n' '#include <scry/patch.h>' 'SCRY_COUNTER(before)' \
		'static void in(struct scry_patch_call *c, uint64_t k[4]) {}' \
		'static void out(struct scry_patch_return *r, uint64_t k[4]) {}' \
		"SCRY_WRAP($2, in, out)" 'SCRY_COUNTER(behind)' >"$T/$1.c"
	cc -I"$ROOT/include" -shared -fPIC -O1 -nostartfiles -o "$T/$1.so" "$T/$1.c"
}

# stays NAME PID: an undo that leaves the memory.
stays() {
	scry_ends 0 patch undo "$1" -p "$2" --max-pause 2s
	in_file "stay mapped, without effect" "$T/scry.out"
}

@test "a return that leads home by another patch's thunk keeps that one's memory" {
	wraps a f
	wraps b g
	listens asleep "$TARGETS/target_asleep" chain
	scry_ends 0 patch apply "$T/a.so" -p "$PID" --max-pause 2s
	scry_ends 0 patch apply "$T/b.so" -p "$PID" --max-pause 2s
	echo >&8
	wait_for 10 in_file "^in f" "$T/asleep.out"
	echo >&8
	wait_for 10 in_file "^asleep" "$T/asleep.out"
	stays a "$PID"
	echo >&8
	ended "$PID"
	[ "$status" -eq 0 ]
	in_file "^f 127$" "$T/asleep.out"
}

@test "a stack in a shared file: closed, or in a fork child" {
	wraps a f
	for how in closed child; do
		for file in "$T/stack" "/dev/shm/scry_asleep.$$"; do
			rm -f "$T/in"
			listens asleep "$TARGETS/target_asleep" "$how" "$file"
			target=$PID
			scry_ends 0 patch apply "$T/a.so" -p "$PID" --max-pause 2s
			echo >&8
			wait_for 10 in_file "^asleep" "$T/asleep.out"
			[ "$how" = closed ] || target=$(sed -n 's/^child //p' "$T/asleep.out")
			stays a "$target"
			echo >&8
			ended "$PID"
			rm -f "$file"
			[ "$status" -eq 0 ]
			in_file "^f 127$" "$T/asleep.out"
		done
	done
}

@test "a pointer to code as glibc hides it (on_exit) keeps a patch mapped" {
	cat >"$T/a.c" <<'C'
#include <scry/patch.h>
extern int on_exit(void (*)(int, void *), void *);
extern long write(int, const void *, unsigned long);
static void last(int status, void *arg) { write(1, "last\n", 5); }
static void in(struct scry_patch_call *c) { on_exit(last, NULL); }
SCRY_BEFORE(f, in)
C
	cc -I"$ROOT/include" -shared -fPIC -O1 -nostartfiles -o "$T/a.so" "$T/a.c"
	listens asleep "$TARGETS/target_asleep" chain
	scry_ends 0 patch apply "$T/a.so" -p "$PID" --max-pause 2s
	echo >&8
	wait_for 10 in_file "^in f" "$T/asleep.out"
	echo >&8
	wait_for 10 in_file "^asleep" "$T/asleep.out"
	stays a "$PID"
	echo >&8
	ended "$PID"
	[ "$status" -eq 0 ]
	in_file "^last$" "$T/asleep.out"
}

@test "two calls in one slot, of coroutines that copy their stacks: what is kept is never the other's" {
	cat >"$T/a.c" <<'C'
#include <scry/patch.h>
SCRY_COUNTER(right)
SCRY_COUNTER(wrong)
SCRY_COUNTER(unknown)
static void in(struct scry_patch_call *c, uint64_t kept[4]) { kept[0] = c->arguments[0]; }
static void out(struct scry_patch_return *r, uint64_t kept[4])
{
	if (!r->is_known)
		scry_count(unknown);
	else if (r->rax == 3 * kept[0] + 1)
		scry_count(right);
	else
		scry_count(wrong);
}
SCRY_WRAP(switches, in, out)
C
	cc -I"$ROOT/include" -shared -fPIC -O1 -nostartfiles -o "$T/a.so" "$T/a.c"
	listens asleep "$TARGETS/target_asleep" copied
	scry_ends 0 patch apply "$T/a.so" -p "$PID" --max-pause 2s
	echo >&8
	wait_for 20 in_file "^asleep" "$T/asleep.out"
	"$SCRY" patch list -p "$PID" >"$T/list"
	count() { sed -n "s/^  $1  *\([0-9]*\)$/\1/p" "$T/list"; }
	[ $(($(count right) + $(count wrong) + $(count unknown))) -ge 1998 ]
	[ "$(count right)" -gt 0 ]
	[ "$(count wrong)" -eq 0 ]
	echo >&8
	ended "$PID"
	in_file "^wrong 0$" "$T/asleep.out"
}

@test "a function with SCRY_AROUND it keeps what it does to rounding and exception flags" {
	cat >"$T/a.c" <<'C'
#include <scry/patch.h>
static int mine(int mode);
SCRY_AROUND(rounds, mine)
static int mine(int mode) { return SCRY_ORIGINAL(rounds)(mode); }
C
	cc -I"$ROOT/include" -shared -fPIC -O1 -nostartfiles -o "$T/a.so" "$T/a.c"
	listens asleep "$TARGETS/target_asleep" rounding
	scry_ends 0 patch apply "$T/a.so" -p "$PID" --max-pause 2s
	echo >&8
	ended "$PID"
	in_file "^mxcsr 7f80 x87 f7f$" "$T/asleep.out"
}

@test "a patch is found, and goes, where the kernel has joined its mapping with one below it" {
	cat >"$T/joins.c" <<'C'
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
int main(void)
{
	char line[400];
	unsigned long start;
	FILE *maps;

	printf("pid %d\n", getpid());
	fflush(stdout);
	fgets(line, sizeof line, stdin);
	maps = fopen("/proc/self/maps", "r");
	while (fgets(line, sizeof line, maps))
		if (sscanf(line, "%lx-%*x r-xp 00000000 00:00 0 %c", &start, line) == 1)
			mmap((void *)(start - 65536), 65536, PROT_READ | PROT_EXEC,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	fclose(maps);
	puts("joined");
	fflush(stdout);
	fgets(line, sizeof line, stdin);
	return 0;
}
C
	cc -O1 -o "$T/joins" "$T/joins.c"
	printf '%s\n' '#include <scry/patch.h>' 'static void in(struct scry_patch_call *c) {}' \
		'SCRY_BEFORE_IN(getppid, "@libc.so.6", in)' >"$T/a.c"
	cc -I"$ROOT/include" -shared -fPIC -O1 -nostartfiles -o "$T/a.so" "$T/a.c"
	listens joins "$T/joins"
	text_before=$(text "$PID")
	scry_ends 0 patch apply "$T/a.so" -p "$PID" --max-pause 2s
	echo >&8
	wait_for 10 in_file "^joined" "$T/joins.out"
	"$SCRY" patch list -p "$PID" >"$T/list"
	in_file "patch 'a' applied" "$T/list"
	scry_ends 0 patch undo a -p "$PID" --max-pause 2s
	wait_for 5 text_is "$PID" "$text_before"
	echo >&8
	ended "$PID"
	[ "$status" -eq 0 ]
}

@test "what a failed apply leaves is said" {
	wraps a f
	cat >"$T/busy.c" <<'C'
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
__attribute__((noinline, noclone, noipa)) long f(long x) { return 3 * x; }
static void *in_vfork(void *to)
{
	char c;

	if (!vfork()) {
		read(*(int *)to, &c, 1);
		_exit(0);
	}
	return NULL;
}
int main(void)
{
	static int ends[2];
	pthread_t thread;
	char line[8];

	if (pipe(ends) < 0)
		return 2;
	pthread_create(&thread, NULL, in_vfork, ends);
	while (f(1) != 3)
		;
	printf("pid %d\n", getpid());
	fflush(stdout);
	fgets(line, sizeof line, stdin);
	write(ends[1], line, 1);
	pthread_join(thread, NULL);
	return 0;
}
C
	cc -O1 -pthread -o "$T/busy" "$T/busy.c"
	listens busy "$T/busy"
	in_vfork() { grep -qs "State:.*D" /proc/"$PID"/task/*/status; }
	wait_for 10 in_vfork
	scry_ends 1 patch apply "$T/a.so" -p "$PID"
	says "KiB of the patch stay mapped, without effect, as .*; fix: scry patch undo a -p $PID later"
	echo >&8
	ended "$PID"
	[ "$status" -eq 0 ]
}

@test "a function that looks at its return address is refused by its code" {
	wraps a asks
	listens asleep "$TARGETS/target_asleep" rounding
	scry_ends 4 patch apply "$T/a.so" -p "$PID"
	says "asks of .*: its code looks at its return address, and would find another; fix: SCRY_BEFORE"
	echo >&8
	ended "$PID"
	[ "$status" -eq 0 ]
}
