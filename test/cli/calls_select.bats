#!/usr/bin/env bats
# scry calls: which calls are meant. Filter expressions as in ltrace, by function (-x), by who calls (-e), by
# library (-l).

load lib

# sums WANT ARGS...: 10 rounds of target_caller_lazy (work_fold 10 times, each of which calls work_mix twice; strlen
# 10 times) under scry calls ARGS: the calls of each function of these are WANT, a Ruby hash.
sums() {
	local want=$1
	shift
	echo "call 10" >"$T/in"
	"$SCRY" calls "$@" --force -o "$T/x.scry" -- "$TARGETS/target_caller_${CALLER:-lazy}" <"$T/in" >"$T/scry.out" 2>"$T/scry.err" 3>&- || {
		cat "$T/scry.err"
		return 1
	}
	grep -q "right$" "$T/scry.out"
	"$SCRY" report --view calls-sums --json "$T/x.scry" >"$T/o.json"
	json_is "$T/o.json" "rows.select { |r| r['function'] =~ /^work_|^strlen|^fgets|^puts/ }.to_h { |r| [r['function'], r['calls']] } == $want" || {
		"$RUBY" --disable=gems -rjson -e 'puts JSON.parse(File.read(ARGV[0]))["rows"].map { |r| r.values_at("function", "calls").inspect }' "$T/o.json"
		return 1
	}
}

@test "functions: a chain of rules, globs and regular expressions" {
	sums '{"work_fold" => 10, "work_mix" => 20}' -x 'work_*@libwork*-*_body'
	sums '{"work_fold" => 10}' -x 'work_*-work_mix-*_body'
	sums '{"work_mix" => 20}' -x '/^work_(mix|none)$/@/work/'
	sums '{"work_mix" => 20, "work_fold" => 10}' -x work_mix -x '/fold$@libwork/'
	sums '{"work_fold" => 10}' -x "work_fold@$(realpath "$TARGETS/libwork.so")" -L
	sums '{"work_mix" => 20, "work_fold" => 10}' -l 'libwork*'
}

@test "calls of the program, of a library, of all, and of nobody else" {
	sums '{"work_fold" => 10, "strlen" => 10}' -e 'work_*@MAIN+strlen@MAIN'
	sums '{"work_fold" => 10}' -e 'work_*@target_caller_lazy'
	sums '{"work_mix" => 20}' -e 'work_*@libwork.so'
	sums '{"work_mix" => 20, "work_fold" => 10}' -e 'work_*'
	sums '{"work_mix" => 20}' -e 'work_*-@MAIN'
	sums '{"work_mix" => 20, "work_fold" => 10}' -e 'work_fold@MAIN' -x work_mix
	sums '{"work_fold" => 10, "strlen" => 10, "fgets" => 2}' -g -e @MAIN
}

@test "calls of the program, however it was linked" {
	for CALLER in now noplt ibt nopie; do
		sums '{"work_fold" => 10, "strlen" => 10}' -e 'work_*@MAIN+strlen@MAIN' || {
			echo "of target_caller_$CALLER"
			return 1
		}
	done
}

@test "a pointer that the caller takes stays as it is, and that is said" {
	scry_ends 0 calls -c -e 'abs+labs@MAIN' -- "$TARGETS/target_taken" 50
	grep -q "labs same" "$T/scry.out"
	grep -qE ' 50 .*\babs$' "$T/scry.out"
	grep -q "labs in .* is not traced: its callers take its address too" "$T/scry.out"
	scry_ends 0 calls -c -x labs -- "$TARGETS/target_taken" 50
	grep -q "labs same" "$T/scry.out"
	grep -qE ' 50 .*labs' "$T/scry.out"
}

@test "all slots of a live process, the loader's among them: afterwards all are as before" {
	local pid before plug
	need_root "entering a process that is not a child of scry"
	plug=$(realpath "$TARGETS/libplug.so")
	listens loader "$TARGETS/target_loader"
	pid=$PID
	for what in "open $plug" close; do
		echo "$what" >&8
		wait_for 10 in_file "^${what%% *}" "$T/loader.out"
	done
	before=$(state_of "$pid")
	start scry "$SCRY" calls -e '*' -p "$pid" -c --force -o "$T/x.scry"
	scry=$PID
	wait_for 20 in_file "watching process $pid" "$T/scry.err"
	for i in 1 2 3; do
		echo "churn 5 $plug" >&8
		wait_for 30 bash -c "[ \$(grep -c ^churned '$T/loader.out') -eq $i ]"
	done
	kill -INT "$scry"
	finish "$scry" || {
		cat "$T/scry.err"
		return 1
	}
	"$SCRY" report --view calls-sums --json "$T/x.scry" >"$T/o.json"
	# a keeper that comes late holds calls back, which is counted
	json_is "$T/o.json" "rows.to_h { |r| [r['function'], r['calls']] }.values_at('dlclose', 'puts').then { |n|
		r['data_quality']['errors'] == 0 && (n == [15, 3] || r['data_quality']['lost'] >= 18 - n.compact.sum) }"
	as_before "$pid" "$before" "after all slots were changed"
	exec 8>&-
	finish "$pid"
}

@test "what is not a filter is refused with the reason" {
	scry_ends 2 calls -x '/a(/' -- true
	says "not a regular expression"
	scry_ends 2 calls -x 'malloc+' -- true
	says "nothing is named behind the last sign"
	scry_ends 125 calls -e no_such@MAIN -- true
	says "no object was ever loaded that calls 'no_such@MAIN'"
}

@test "an object whose second segment begins in the first page of its file, names with dashes, IFUNCs of the program's own" {
	cat >"$T/lib.c" <<-'END'
		int fn(int a, int b) { return a + b; }
	END
	cat >"$T/main.c" <<-'END'
		int fn(int, int);
		static int two(int x) { return x + 2; }
		static void *resolve(void) { return (void *)two; }
		int chosen(int x) __attribute__((ifunc("resolve")));
		int main(void)
		{
			int sum = 0;
			for (int i = 0; i < 7; i++)
				sum += fn(i, 1) + chosen(i);
			return sum != 63;
		}
	END
	gcc -shared -fPIC -O1 -nostdlib -Wl,-z,noseparate-code -Wl,-soname,libdash-2.0.so.0 -o "$T/libdash-2.0.so.0" "$T/lib.c"
	gcc -O1 -o "$T/main" "$T/main.c" "$T/libdash-2.0.so.0" -Wl,-rpath,"$T"
	[ "$(readelf -lW "$T/libdash-2.0.so.0" | awk '$1 == "LOAD" && $2 < "0x001000"' | wc -l)" -ge 2 ] || skip "this linker has no such segments"
	for what in "-x fn" "-x fn@libdash-2.0.so.0" "-x +*@libdash-2.0.so.0" "-e +fn@MAIN"; do
		# shellcheck disable=SC2086
		"$SCRY" calls $what -- "$T/main" >"$T/out" 2>"$T/err" 3>&-
		[ "$(grep -c '^fn(' "$T/out")" -eq 7 ] || { echo "$what:"; cat "$T/out" "$T/err"; false; }
	done
	for what in "-e chosen" "-x chosen" "-e +*@MAIN"; do
		# shellcheck disable=SC2086
		"$SCRY" calls $what -- "$T/main" >"$T/out" 2>"$T/err" 3>&-
		[ "$(grep -c '^chosen(' "$T/out")" -eq 7 ] || { echo "$what:"; cat "$T/out" "$T/err"; false; }
	done
}

@test "C++ functions: chosen by the names that are read or by the mangled ones, shown demangled" {
	[ -x "$TARGETS/target_throws" ] || skip "no C++ compiler (Debian: g++)"
	for what in first "first(int, int&)" _ZL5firstiRi; do
		"$SCRY" calls -c -x "$what" --force -o "$T/x.scry" -- "$TARGETS/target_throws" 1 5 >"$T/out" 2>"$T/err" 3>&-
		"$SCRY" report --json "$T/x.scry" --view calls-sums >"$T/o.json"
		json_is "$T/o.json" 'rows.map { |r| r.values_at("function", "demangled", "calls") } == [["_ZL5firstiRi", "first(int, int&)", 240]]'
	done
	"$SCRY" report "$T/x.scry" --view calls-sums >"$T/out"
	in_file "  first(int, int&)$" "$T/out"
	for grep in 'first(int' _ZL5first _ZL5firstiRi; do
		"$SCRY" report "$T/x.scry" --view calls-sums --grep "$grep" | grep -q "first(int, int&)$"
	done
	[ "$("$SCRY" report "$T/x.scry" --view calls-sums --grep second | grep -c "first(")" -eq 0 ]
	"$SCRY" report "$T/x.scry" --view calls >"$T/out"
	[ "$(grep -c '\(^\|\] \)first([0-9a-fx]*, 0x' "$T/out")" -eq 240 ] || { head -n 3 "$T/out"; false; }
	"$SCRY" patch count 'own_error::~own_error' -o "$T/y.scry" -- "$TARGETS/target_throws" 1 5 >"$T/out" 2>"$T/err" 3>&-
	"$SCRY" report "$T/y.scry" >"$T/out"
	in_file "own_error::~own_error()" "$T/out"
}

@test "a function with several names is shown by its public one, with the prototype of that" {
	printf '#include <unistd.h>\nint main(void) { close(99); getpid(); return write(99, "x", 1) > 0; }\n' >"$T/names.c"
	cc -O0 -o "$T/names" "$T/names.c"
	for filter in '*close@libc.so*' '/^(__)?(close|write|getpid)$/@/libc.so/'; do
		"$SCRY" calls -q -x "$filter" --objects=never -- "$T/names" >"$T/lines" 3>&-
		grep -qxF 'close(99) = -1 EBADF (Bad file descriptor)' "$T/lines"
		no grep -qE '^__(close|write|getpid)\(' "$T/lines"
	done
	grep -qE '^write\(99, ' "$T/lines"
	grep -qE '^getpid\(' "$T/lines"
	"$SCRY" calls -q -x __close --objects=never -- "$T/names" >"$T/lines" 3>&- # asked for
	grep -qE '^__close\(99' "$T/lines"
}

@test "-l libc: of several public names the one that programs use" {
	cat >"$T/named.c" <<-'EOF_C'
		#include <signal.h>
		#include <stdio.h>
		#include <string.h>
		int main(int argc, char **argv)
		{
			FILE *f;
			signal(SIGUSR1, SIG_IGN);
			raise(SIGUSR1);
			f = fopen("/dev/null", "r");
			return !f || !strrchr(argv[0], '/') || fclose(f);
		}
	EOF_C
	cc -O0 -fno-builtin -o "$T/named" "$T/named.c"
	scry_ends 0 calls -l libc.so.6 -- "$T/named"
	for name in signal raise fopen strrchr fclose; do
		grep -qE "^$name\(" "$T/scry.out" || {
			echo "no $name"
			return 1
		}
	done
	no grep -E "^(ssignal|gsignal|fopen64|rindex)\(" "$T/scry.out"
}

@test "-c --where: a table of those calls alone, live and of a recording; what cannot be judged is said" {
	scry_ends 0 calls -q -x 'traced_*' -o "$T/x.scry" -- "$TARGETS/target_traced" 1 10 1
	for expr in 'arg2 < 3' 'arg2 >= 3 && arg2 < 8' 'arg2 == 77'; do
		"$SCRY" report --json --where "$expr" "$T/x.scry" | grep '"function"' >"$T/lines" || true
		"$SCRY" report --view calls-sums --json --where "$expr" "$T/x.scry" >"$T/o.json"
		want=$("$RUBY" --disable=gems -rjson -e 'puts STDIN.map { |l| JSON.parse(l) }.group_by { |c| c["function"] }.map { |f, c| [f, c.size, c.sum { |x| x["duration_ns"] }] }.sort.inspect' <"$T/lines")
		json_is "$T/o.json" "rows.map { |r| r.values_at('function', 'calls', 'total_ns') }.sort == $want"
	done
	"$SCRY" report --json --where 'arg2 < 3' "$T/x.scry" | grep -c '"function"' | grep -qvx 0
	"$SCRY" calls -q -c --where 'arg2 < 3' -x traced_sum -- "$TARGETS/target_traced" 1 10 1 >"$T/sums" 3>&-
	grep -qE ' 3 .*traced_sum$' "$T/sums"
	"$SCRY" report --view calls-sums --where 'arg2 ~ "x"' "$T/x.scry" 2>&1 | grep -qE '[0-9]+ calls were not shown: what --where compares'
	scry_ends 2 calls -c --slow 1s -x traced_sum -- true
}

# names_at_one OPT...: $T/main: of a library's function of three names, it calls `one` thrice, `two` twice, and `three` from a plug-in, once in each of two loads; of an IFUNC of two names `picked` twice, `chosen` once. Linked with OPT.
names_at_one() {
	cat >"$T/lib.c" <<-'EOF_C'
		int one(int n) { return n + 1; }
		int two(int n) __attribute__((alias("one")));
		int three(int n) __attribute__((alias("one")));
		static int real(int n) { return n + 2; }
		static int (*choose(void))(int) { return real; }
		int picked(int n) __attribute__((ifunc("choose")));
		int chosen(int n) __attribute__((ifunc("choose")));
	EOF_C
	printf 'int three(int);\nint plug(int n) { return three(n); }\n' >"$T/plug.c"
	cat >"$T/main.c" <<-'EOF_C'
		#include <dlfcn.h>
		int one(int), two(int), picked(int), chosen(int);
		int main(int argc, char **argv)
		{
			int n = one(1) + one(2) + one(3) + two(4) + two(5) + picked(6) + picked(7) + chosen(8);

			for (int i = 0; i < 2; i++) {
				void *plug = dlopen(argv[1], RTLD_NOW);

				n += ((int (*)(int))dlsym(plug, "plug"))(i);
				dlclose(plug);
			}
			return argc > 5 ? n : 0;
		}
	EOF_C
	cc -shared -fPIC -O1 -falign-functions=16 -o "$T/libnames.so" "$T/lib.c"
	cc -shared -fPIC -O1 -o "$T/plug.so" "$T/plug.c" "$T/libnames.so"
	cc -O1 "$@" -o "$T/main" "$T/main.c" "$T/libnames.so" -Wl,-rpath,"$T" -ldl
}

# one_counts FILTER...: "1 three, 3 one" and so on: what scry calls -c FILTER... counts of $T/main.
one_counts() {
	"$SCRY" calls -q -c --json "$@" -- "$T/main" "$T/plug.so" >"$T/o.json" 2>"$T/err" 3>&- || { cat "$T/err"; return 1; }
	"$RUBY" --disable=gems -rjson -e 'puts JSON.parse(File.read(ARGV[0]))["rows"].select { |r| r["library"] =~ /libnames/ }.map { |r| "#{r["calls"]} #{r["function"]}" }.sort.join(", ")' "$T/o.json"
}

@test "-e: functions of several names at one address are counted by the name that is called" {
	for how in -Wl,-z,lazy -Wl,-z,now -fno-plt; do
		names_at_one $how
		[ "$(one_counts -e one)" = "3 one" ]
		[ "$(one_counts -e two)" = "2 two" ]
		[ "$(one_counts -e two -e one)" = "2 two, 3 one" ]
		[ "$(one_counts -e 'one+two-@plug*')" = "2 two, 3 one" ]
		[ "$(one_counts -e three)" = "2 three" ] # its caller comes, goes and comes back
		[ $how = -Wl,-z,lazy ] && continue # what an IFUNC chose is not known yet
		[ "$(one_counts)" = "1 chosen, 2 picked, 2 two, 3 one" ]
		[ "$(one_counts -e picked)" = "2 picked" ]
		[ "$(one_counts -e '@*')" = "1 chosen, 2 picked, 2 three, 2 two, 3 one" ]
	done
	"$SCRY" calls -q -e '@*' -- "$T/main" "$T/plug.so" 3>&- | grep -oE '^([a-z.]*->)?(one|two|three)\([0-9]' >"$T/lines"
	[ "$(tr '\n' ' ' <"$T/lines")" = "main->one(1 main->one(2 main->one(3 main->two(4 main->two(5 plug.so->three(0 plug.so->three(1 " ]
}

@test "-x, patch: a function of several names is one function, and that is said" {
	names_at_one -Wl,-z,now
	for names in one 'one -x two' 'one -x three -e two'; do
		[ "$(one_counts -x $names)" = "7 one" ]
		json_is "$T/o.json" "rows.find { |r| r['function'] == 'one' }['aliases'].sort == %w(three two)"
		json_is "$T/o.json" "r['notes'].any? { |n| n =~ /^one has other names \\((two, three|three, two)\\): calls by all of them are counted together; fix: / }"
	done
	for via in got entry; do
		"$SCRY" patch count --via=$via two -- "$T/main" "$T/plug.so" >"$T/out" 2>&1 3>&-
		grep -qE '^ +7  two ' "$T/out"
		sed -n 2p "$T/out" | grep -qE '^note: two has other names \((one, three|three, one)\): calls by all of them are counted together; fix: scry calls -e,'
	done
	"$SCRY" patch time --via=got picked -- "$T/main" "$T/plug.so" 2>&1 3>&- | grep -q "picked has other names (chosen)"
	"$SCRY" calls -q -c -x one -- "$T/main" "$T/plug.so" 2>/dev/null 3>&- | grep -qE ' 7 .*  one  +(two, three|three, two)$'
	"$SCRY" calls -q -c -x 'close@libc.so*' -- "$T/main" "$T/plug.so" >"$T/out" 2>&1 3>&-
	no grep -q "other names" "$T/out" # __close is a spelling
}

# two_versions MAIN: $T/main of this code, with a library that has two versions of answer; of old, too, at one address.
two_versions() {
	cat >"$T/lib.c" <<-'EOF_C'
		__asm__(".symver answer_1,answer@V1");
		__asm__(".symver answer_2,answer@@V2");
		__asm__(".symver same_1,same@V1");
		__asm__(".symver same_2,same@@V2");
		int answer_1(int n) { return n + 1; }
		int answer_2(int n) { return 2 * n + 2; }
		int same_1(int n) { return 3 * n; }
		int same_2(int n) __attribute__((alias("same_1")));
	EOF_C
	printf 'V1 { global: answer; same; local: *; };\nV2 { global: answer; same; } V1;\n' >"$T/lib.map"
	printf '__asm__(".symver old,answer@V1");\n__asm__(".symver older,same@V1");\n%s\n' \
		"int old(int), answer(int), older(int), same(int); int main(void) { $1 return 0; }" >"$T/main.c"
	cc -shared -fPIC -O1 -falign-functions=16 -Wl,--version-script,"$T/lib.map" -o "$T/libtwo.so" "$T/lib.c"
	cc -O1 -o "$T/main" "$T/main.c" "$T/libtwo.so" -Wl,-rpath,"$T"
}

# two ARGS...: "1 answer@V1, 2 answer@V2": what scry calls -c ARGS... counts of $T/main.
two() {
	"$SCRY" calls -q -c --json "$@" -- "$T/main" >"$T/o.json" 2>"$T/err" 3>&- || { cat "$T/err"; return 1; }
	"$RUBY" --disable=gems -rjson -e 'puts JSON.parse(File.read(ARGV[0]))["rows"].select { |r| r["library"] =~ /libtwo/ }.map { |r| "#{r["calls"]} #{r["function"]}" }.sort.join(", ")' "$T/o.json"
}

@test "versions of one name are kept apart where two are traced, and each can be named" {
	two_versions "old(1); answer(2); answer(3); older(4); same(5);"
	[ "$(two)" = "1 answer@V1, 2 answer@V2, 2 same" ]
	[ "$(two -e answer)" = "1 answer@V1, 2 answer@V2" ]
	[ "$(two -x answer -x same)" = "1 answer@V1, 2 answer@V2, 2 same" ]
	[ "$(two -x 'answer@V1')" = "1 answer" ]
	[ "$(two -x 'answer@@V2')" = "2 answer" ]
	[ "$(two -x 'ans*@V2')" = "2 answer" ]
	[ "$(two -x 'answer@V1' -x 'answer@V2')" = "1 answer@V1, 2 answer@V2" ]
	[ "$(two --engine=breakpoint -x answer)" = "1 answer@V1, 2 answer@V2" ]
	"$SCRY" calls -q -x answer -- "$T/main" 3>&- | grep -oE '^answer[^,)]*' >"$T/lines"
	[ "$(tr '\n' ' ' <"$T/lines")" = "answer@V1(1 answer@V2(2 answer@V2(3 " ]
	two_versions "answer(2); same(3);"
	[ "$(two)" = "1 answer, 1 same" ]
	run "$SCRY" patch count answer@V3 -- "$T/main" 3>&-
	[[ "$output" == *"never loaded an object that defines 'answer@V3'"* ]]
}
