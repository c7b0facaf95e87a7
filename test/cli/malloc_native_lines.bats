#!/usr/bin/env bats
# shellcheck disable=SC2154
# Lines of native callers in a report of malloc: those of the very build that was recorded, or none.

load lib

setup() {
	prepare
	export XDG_CACHE_HOME="$T/cache"
	command -v cc >/dev/null || skip "no cc, which makes the program whose lines are asked for"
	cat >"$T/lines.c" <<'END'
#include <stdlib.h>
void *same_one(void);
static inline __attribute__((always_inline)) char *inner(size_t n)
{
	char *p = malloc(n); /* the allocator's line */
	*(volatile char *)p = 1;
	return p;
}
__attribute__((noinline)) char *with_inner(void)
{
	char *p = inner(3000); /* in with_inner */
	*(volatile char *)p = 2;
	return p;
}
static __attribute__((noinline)) char *plain(void)
{
	char *p = malloc(2000); /* in plain */
	*(volatile char *)p = 2;
	return p;
}
static __attribute__((noinline)) char *twice(void)
{
	char *p = malloc(1000);
	*(volatile char *)p = 3;
	return p;
}
int main(void)
{
	free(with_inner());
	free(plain());
	free(twice());
	free(same_one());
	return 0;
}
END
	cat >"$T/other.c" <<'END'
#include <stdlib.h>
static __attribute__((noinline)) char *twice(void)
{
	char *p = malloc(500);
	*(volatile char *)p = 3;
	return p;
}
void *same_one(void)
{
	char *p = twice();
	*(volatile char *)p = 4;
	return p;
}
END
	build -g
}

build() {
	cc -O2 -Wl,--build-id "$@" -o "$T/lines" "$T/lines.c" "$T/other.c"
}

recorded() {
	"$SCRY" malloc record --force -o "$T/x.scry" -- "$T/lines" 2>"$T/err"
}

# reports: what is shown of the program's own callers, in $T/own.
reports() {
	"$SCRY" report "$T/x.scry" --top 0 >"$T/all"
	sed '/^$/,$!d' "$T/all" | grep -E "(with_inner|plain|twice)\+0x" | grep "100 " >"$T/own" || true
	[ "$(grep -c "plain+0x" "$T/own")" -ge 1 ]
}

at() {
	grep -n "in $1" "$T/lines.c" | cut -d: -f1
}

@test "malloc lines: a caller has the line of its call, also of one that is inlined into it" {
	recorded
	reports
	grep -qE "plain\+0x[0-9a-f]+ \(lines\) lines.c:$(at plain)$" "$T/own"
	grep -qE "with_inner\+0x[0-9a-f]+ \(lines\) lines.c:$(at with_inner)$" "$T/own"
	"$SCRY" report "$T/x.scry" --json >"$T/x.json"
	grep -q "\"source_file\": \"$T/lines.c\", \"source_line\": $(at plain)" "$T/x.json"
	# what was read is kept, and says the same
	cp "$T/own" "$T/before"
	find "$T/cache/scry" -name 'prototypes-*' -printf '%f %i\n' | sort >"$T/kept"
	[ -s "$T/kept" ]
	reports
	diff "$T/before" "$T/own"
	# a file of which nothing can be read is written anew
	find "$T/cache/scry" -name 'prototypes-*' -printf '%f %i\n' | sort | diff "$T/kept" -
}

@test "malloc lines: a row that is a whole module or function has none, though it has one caller" {
	local by
	cc -g -o "$T/one" -xc - <<<'#include <stdlib.h>
		int main(void) { return !malloc(1000); }'
	"$SCRY" malloc record --force -o "$T/x.scry" -- "$T/one" 2>"$T/err"
	"$SCRY" report "$T/x.scry" --top 0 | grep -qE "main\+0x[0-9a-f]+ \(one\) <stdin>:2$"
	for by in module file; do
		"$SCRY" report "$T/x.scry" --by $by --top 0 >"$T/by"
		grep -qE "^ +1,000 .* $T/one$" "$T/by"
	done
	"$SCRY" report "$T/x.scry" --by method --top 0 | grep -qE "^ +1,000 .* main"
	[ -z "$("$SCRY" report "$T/x.scry" --by method --top 0 | grep stdin)" ]
}

@test "malloc lines: a function whose name another one has too has none" {
	recorded
	reports
	[ "$(grep -c "twice+0x" "$T/own")" -ge 2 ]
	[ -z "$(grep "twice+0x" "$T/own" | grep "lines.c\|other.c")" ]
}

@test "malloc lines: without debug information, and of another build than the recorded one, there are none" {
	recorded
	strip --strip-debug "$T/lines"
	reports
	[ -z "$(grep "lines.c" "$T/own")" ]
	build -g -DOTHER -fno-omit-frame-pointer
	reports
	[ -z "$(grep "lines.c" "$T/own")" ]
	rm "$T/lines"
	reports
	[ -z "$(grep "lines.c" "$T/own")" ]
	build -g
	reports
	grep -q "plain.*lines.c:$(at plain)$" "$T/own"
}

@test "malloc lines: a library's are those of its debug file, by build-id" {
	local id file
	id=$(readelf -n "$(ldd "$T/lines" | awk '/libc\.so/ { print $3 }')" | awk '/Build ID/ { print $3 }')
	file=/usr/lib/debug/.build-id/${id:0:2}/${id:2}.debug
	[ -e "$file" ] || skip "no debug file of libc (libc6-dbg)"
	"$SCRY" malloc record --force -o "$T/x.scry" -- /bin/ls / >/dev/null 2>"$T/err"
	"$SCRY" report "$T/x.scry" --top 0 >"$T/all"
	grep -qE "_IO_file_doallocate\+0x[0-9a-f]+ \(libc.so.6\) filedoalloc.c:[0-9]+$" "$T/all"
	"$SCRY" report "$T/x.scry" --json | grep -q '"source_file": "[^"]*filedoalloc.c", "source_line": [1-9]'
}
