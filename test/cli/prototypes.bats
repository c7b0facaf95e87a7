#!/usr/bin/env bats
# scry calls and prototypes in the syntax of ltrace.conf: what is fetched, how it is shown, whom it harms.

load lib

CONF="$BATS_TEST_DIRNAME/prototypes.conf"
ALL='p_*@libprototypes.so'

# shown ARGS...: what scry calls says of target_prototypes (with $HOW), in $T/lines. The target looks for itself
# whether its results and errno are right, and then ends with 3.
shown() {
	local got=0
	"$SCRY" calls -F "$CONF" "$@" -- "$TARGETS/target_prototypes" ${HOW:-} >"$T/lines" 2>"$T/err" 3>&- || got=$?
	[ "$got" -eq 3 ] && grep -q "^wrong 0$" "$T/err" && return 0
	echo "ended with $got"
	cat "$T/err"
	return 1
}

# has LINE: among the lines, whole.
has() {
	grep -qxF -e "$1" "$T/lines" && return 0
	echo "not there: $1"
	cat "$T/lines"
	return 1
}

@test "the text is that of Debian's ltrace, line by line" {
	command -v ltrace >/dev/null || skip "no ltrace"
	# what ltrace reads without looking whether it is there, and what it does not see, comes below; Debian 13's ltrace
	# has no spaces within brackets
	local plain='s/^[a-z_.]+->//; s/^(p_(bad|tail|outer|address)\(|<\.\.\.).*//; s/\) += /) = /; s/([[{]) /\1/g; s/ ([]}])/\1/g; /^$/d'
	ltrace -F "$CONF" -e 'p_*' -o "$T/ltrace" "$TARGETS/target_prototypes" 2>"$T/ltrace.err" || [ $? -eq 3 ] || {
		cat "$T/ltrace.err"
		skip "ltrace cannot trace here"
	}
	shown -x "$ALL" -s 32
	sed -E "$plain" "$T/ltrace" >"$T/want"
	sed -E "$plain" "$T/lines" >"$T/got"
	[ "$(wc -l <"$T/want")" -ge 40 ]
	diff "$T/want" "$T/got"
}

@test "bad pointers, the last bytes before unreadable memory, calls within calls" {
	shown -x "$ALL"
	has 'p_bad("eeeeee"...) = 1'
	has 'p_bad("eeeee") = 1'
	has 'p_bad(0x10) = 1'
	has 'p_bad(0x123456789000) = 1'
	has 'p_bad(0xfffffffffffff000) = 1'
	has 'p_length("", 9) = 9'
	has 'p_strings(nil, "") = ""'
	has 'p_list({ 1, { 2, recurse^ } }) = <void>'
	has 'p_list({ 0, { 1, { 2, { 3, ... } } } }) = <void>'
	[ "$(tail -1 "$T/lines")" = "+++ exited (status 3) +++" ]
	has 'p_outer( <unfinished ...>'
	has 'p_address(0x5) = 0x5'
	has '<... p_outer resumed> 5, 5) = 5'
	grep -q "54 calls, 0 lost, 0 errors" "$T/err"
}

@test "a recording carries the prototypes; JSON has values; digests have no text" {
	shown -x "$ALL" -o "$T/full.scry" --args=full
	rm "$T/lines"
	"$SCRY" report "$T/full.scry" >"$T/lines" 2>"$T/err"
	has 'p_named({ 3, [ 1, 2, 3 ], "three" }) = 3'
	has 'p_out(42, "result", "in") = 105'
	has 'p_enum_short(NONE) = -1'
	"$SCRY" report --json "$T/full.scry" >"$T/json"
	of() {
		jq -c "select(.function==\"$1\") | [.args, .result]" "$T/json" | head -1
	}
	[ "$(of p_named)" = '[[[3,[1,2,3],"three"]],3]' ]
	[ "$(of p_floats)" = '[[1.5,-2.25,7],6.25]' ]
	[ "$(of p_structs)" = '[[3,["abc\u0000\u0000\u0000",2.5],4.5],[10,120,97]]' ]
	[ "$(of p_enum)" = '[["RED"],0]' ]
	[ "$(of p_out)" = '[[42,"result","in"],105]' ]
	[ "$(of p_array)" = '[[[1,2,3],3],null]' ]
	grep -qF '"args": [8, 255, true, 258, 18446744073709551614], "result": 123457311' "$T/json"
	shown -x "$ALL" -o "$T/digest.scry"
	"$SCRY" report "$T/digest.scry" >"$T/lines" 2>"$T/err"
	has 'p_strings("?", "?") = "?"'
	has 'p_array([ 1, 2, 3 ], 3) = <void>'
	no grep -aqE "hello|three|result" "$T/digest.scry"
}

@test "no prototypes but of ltrace's own files: all are read, unchanged" {
	local files=()
	for file in /etc/ltrace.conf /usr/share/ltrace/*.conf; do
		[ -f "$file" ] && files+=(-F "$file")
	done
	[ "${#files[@]}" -gt 0 ] || skip "no files of ltrace"
	"$SCRY" calls "${files[@]}" -x setlocale@libc.so.6 -- /bin/ls "$T" >"$T/lines" 2>"$T/err"
	grep -qE '^setlocale\(LC_ALL, "'  "$T/lines"
}

@test "without prototypes debug information says what arguments are" {
	local got=0
	"$SCRY" calls -x "$ALL" -- "$TARGETS/target_prototypes" >"$T/lines" 2>"$T/err" 3>&- || got=$?
	[ "$got" -eq 3 ]
	grep -qx "wrong 0" "$T/err"
	has 'p_integers(-1, 4000000000, -3, 4, -5, 65535, '"'c'"', 7) = -294901660'
	has 'p_floats(1.500000, -2.250000, 7) = 6.250000'
	has 'p_structs(3, { "abc\0\0\0", 2.500000 }, 4.500000) = { 10.000000, '"'x', 'a' }"
	has 'p_big({ 1, 2, 3 }, 9) = { 10, 2, 3 }'
	has 'p_color(BLUE) = 3'
	has 'p_strings(nil, "") = ""'
	has 'p_bad("eeeeee"...) = 1'
	has 'p_bad(0x10) = 1'
	has 'p_stack(1, 2, 3, 4, 5, 6, 7, 8, 9, "ten") = 161'
	"$SCRY" calls --dry-run -p $$ -x getpid@libc.so.6 >"$T/dry" 2>&1 || true
	grep -q prctl "$T/dry" # the way into seccomp is guarded, and what is changed is said
}

# Runs with an entry as it is: the calls must be those of debug information.
calls_again() {
	"$SCRY" calls -x "$ALL" -- "$TARGETS/target_prototypes" >"$T/lines" 2>"$T/err" 3>&- || [ $? -eq 3 ]
	sed 's/0x[0-9a-f]*/ADDRESS/g' "$T/lines" | cmp - "$T/want"
}

@test "prototypes that were read are kept; a file that is torn, forged or open to others is not believed" {
	local entries=() entry
	export XDG_CACHE_HOME="$T/cache"
	mkdir "$XDG_CACHE_HOME"
	SCRY_NO_CACHE=1 "$SCRY" calls -x "$ALL" -- "$TARGETS/target_prototypes" >"$T/lines" 2>"$T/err" 3>&- || [ $? -eq 3 ]
	sed 's/0x[0-9a-f]*/ADDRESS/g' "$T/lines" >"$T/want"
	grep -q 'p_color(BLUE) = 3' "$T/want"
	[ ! -e "$XDG_CACHE_HOME/scry" ]
	calls_again
	entries=("$XDG_CACHE_HOME"/scry/prototypes-*)
	[ "${#entries[@]}" -eq 1 ]
	entry=${entries[0]}
	[ "$(stat -c %a "$entry")" = 600 ]
	cp "$entry" "$T/entry"
	calls_again
	cmp "$entry" "$T/entry" # nothing new
	head -c 500 "$T/entry" >"$entry" # torn
	calls_again
	cmp "$entry" "$T/entry" # it was written anew
	sed 's/BLUE/GREY/' "$T/entry" >"$entry" # forged
	no cmp -s "$entry" "$T/entry"
	calls_again
	cmp "$entry" "$T/entry"
	sed 's/BLUE/GREY/' "$T/entry" >"$entry"
	"$TARGETS/../proto_reseal" "$entry" # with a checksum that holds it would be believed
	"$SCRY" calls -x "$ALL" -- "$TARGETS/target_prototypes" >"$T/lines" 2>"$T/err" 3>&- || [ $? -eq 3 ]
	grep -q 'p_color(GREY) = 3' "$T/lines"
	chmod 644 "$entry" # but not where others may read or write
	calls_again
	chmod 600 "$entry"
	ln "$entry" "$T/else"
	ln -sf "$T/else" "$entry"
	calls_again
}

@test "a line that makes no sense is named" {
	printf 'int f(int);\nint g(integer);\n' >"$T/bad.conf"
	run "$SCRY" calls -F "$T/bad.conf" -x f -- /bin/true
	[ "$status" -eq 2 ]
	[[ "$output" == *"bad.conf:2: an unknown type"* ]]
	run "$SCRY" calls -F "$T/none.conf" -x f -- /bin/true
	[ "$status" -eq 2 ]
	[[ "$output" == *"none.conf"*"No such file"* ]]
}

@test "a program that forbids itself system calls is not ended by ours" {
	for HOW in "3 seccomp" "3 syscall"; do
		shown -x "$ALL"
		[ "$(grep -c '^p_strings("hello", ' "$T/lines")" -eq 1 ]
		[ "$(grep -cE '^p_strings\(0x[0-9a-f]+, 0x[0-9a-f]+\) = 0x' "$T/lines")" -ge 2 ]
		[ "$(grep -cxF 'p_many_floats(1.000000, 2.000000, 3.000000, 4.000000, 5.000000, 6.000000, 7.000000, 8.000000, 9.500000, 10) = 55.500000' "$T/lines")" -eq 3 ] || { grep p_many_floats "$T/lines"; cat "$T/err"; false; }
		grep -q "162 calls, 0 lost, 0 errors" "$T/err"
		grep -q "under seccomp" "$T/err"
	done
}

@test "arguments on the stack, wherever it stands" {
	HOW="1 deep" shown -x p_stack
	[ "$(grep -cxF 'p_stack(1, 2, 3, 4, 5, 6, 7, 8, 9, "ten") = 161' "$T/lines")" -eq 513 ]
}

@test "8 threads: every call, with what it points to" {
	HOW="1 threads" shown -x "$ALL" --json
	[ "$(tail -1 "$T/lines" | jq -c '.data_quality | [.events, .lost, .errors]')" = "[43254,0,0]" ]
	jq -c 'select(.function) | [.function, .args, .result]' "$T/lines" | sort | uniq -c >"$T/kinds"
	for kind in '["p_strings",["0x0",""],""]' '["p_texts",[["one","two"]],"one"]' '["p_named",[[3,[1,2,3],"three"]],3]' \
		'["p_format",["%.3s|%*d|%o","abc",7,42,8],37]' '["p_out",[42,"result","in"],105]' '["p_big",[[1,2,3],9],[10,2,3]]'; do
		grep -qF "    801 $kind" "$T/kinds" || {
			echo "not 801 times: $kind"
			grep -F "${kind%%,*}" "$T/kinds"
			return 1
		}
	done
}

@test "a program that a signal ends" {
	start scry "$SCRY" calls -F "$CONF" -x p_void@libprototypes.so -- "$TARGETS/target_prototypes" 0
	local program
	wait_for 20 in_file "^p_void() = <void>" "$T/scry.out"
	program=$(pgrep -P "$PID" target_prototyp)
	kill -KILL "$program"
	ended "$PID"
	[ "$status" -eq 137 ]
	[ "$(tail -1 "$T/scry.out")" = "+++ killed by SIGKILL +++" ]
}

@test "front and keeper are killed while memory is read: the program is right" {
	need_root "entering a process that is not a child of scry"
	target prototypes 0
	local program=$PID
	start scry "$SCRY" calls -F "$CONF" -p "$PID" -x "$ALL" -c
	local scry=$PID
	wait_for 20 in_file "watching process" "$T/scry.err"
	# shellcheck disable=SC2046
	kill -9 $(keeper_of "$scry") "$scry"
	kill "$program"
	wait_for 20 in_file "^wrong" "$T/prototypes.err"
	grep -qx "wrong 0" "$T/prototypes.err"
}
