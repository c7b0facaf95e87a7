#!/usr/bin/env bats
# scry malloc record beside other tools, on a program that knows what it calls and on Python: calls of each function (ltrace),
# blocks, peak and what lives at the end (heaptrack), bytes in use (malloc_info). Equal means equal; where the others see
# something else by design, test/targets/malloc_sums.py says why and computes it from the recording.

load lib

SUMS="$ROOT/test/targets/malloc_sums.py"
HEAPTRACK=/usr/lib/heaptrack
PYTHON="/usr/bin/python3 -S -c print(sum(range(9)))"

setup() {
	need_targets
	$PYTHON >/dev/null 2>&1 || skip "no python3, with which sums are made"
	prepare
	KNOWN="$TARGETS/target_malloc_sums"
	cd "$T"
}

need_known_libc() {
	[ "$(getconf GNU_LIBC_VERSION)" = "glibc 2.36" ] || skip "what its functions call of each other is known of glibc 2.36"
}

sums() {
	/usr/bin/python3 "$SUMS" "$@"
}

# alike PROGRAM...: run so, it does the same in each run.
alike() {
	env -i PATH=/usr/bin:/bin PYTHONDONTWRITEBYTECODE=1 PYTHONHASHSEED=0 PYTHONMALLOC=malloc \
		GLIBC_TUNABLES=glibc.malloc.tcache_count=0 setarch -R "$@"
}

# recorded SCRY'S PRELOAD AND THE LIKE -- PROGRAM...: what all are to see, in $T/sums.
recorded() {
	local env=()
	while [ "$1" != -- ]; do
		env+=("$1")
		shift
	done
	alike env "${env[@]}" "$SCRY" malloc record -q --force -o x.scry "$@" >out 3>&-
	"$SCRY" report x.scry --json >report
	"$SCRY" report x.scry --view events --json >events
	sums scry report events >sums
}

# saw WHO: the recording's lines for it are its own.
saw() {
	diff <(grep "^$1" sums) "$1"
}

@test "sums: what the program knows" {
	recorded -- "$KNOWN"
	sums known out >known
	grep -q "calls malloc [0-9]" known
	saw known
}

@test "sums: ltrace -c" {
	need_known_libc
	command -v ltrace >/dev/null || skip "no ltrace (Debian: ltrace)"
	local program
	for program in "$KNOWN" "$PYTHON"; do
		# shellcheck disable=SC2086
		recorded -- $program
		# shellcheck disable=SC2086
		alike ltrace -o counts -e none -c \
			-x 'malloc+calloc+realloc+free+memalign+posix_memalign+reallocarray@libc.so.6' $program >/dev/null 3>&-
		sums ltrace counts >ltrace
		grep -q "calls malloc [0-9]" ltrace
		saw ltrace
	done
}

@test "sums: heaptrack" {
	need_known_libc
	[ -e $HEAPTRACK/libheaptrack_preload.so ] || skip "no heaptrack (Debian: heaptrack)"
	local program want is
	for program in "$KNOWN" "$PYTHON"; do
		# shellcheck disable=SC2086
		recorded -- $program
		rm -f raw # else the end of a longer one stays
		# shellcheck disable=SC2086
		alike env LD_PRELOAD=$HEAPTRACK/libheaptrack_preload.so DUMP_HEAPTRACK_OUTPUT=raw $program >/dev/null 3>&-
		$HEAPTRACK/libexec/heaptrack_interpret <raw >data 2>/dev/null
		sums heaptrack data >heaptrack
		if [ "$program" = "$PYTHON" ]; then # it goes through some tables by addresses, which are others
			want=$(awk '/^heaptrack peak/ { print $3 }' sums) is=$(awk '/peak/ { print $3 }' heaptrack)
			[ $((is * 100)) -gt $((want * 99)) ]
			[ $((is * 100)) -lt $((want * 101)) ]
			sed -i /peak/d sums heaptrack
		fi
		grep -q "begun [0-9]" heaptrack
		saw heaptrack
	done
}

@test "sums: malloc_info" {
	need_known_libc
	local program name
	for program in "$KNOWN" "$PYTHON"; do
		name=${program%% *}
		# shellcheck disable=SC2086
		recorded LD_PRELOAD="$TARGETS/libmalloc_told.so" MALLOC_TOLD_OF="${name##*/}" MALLOC_TOLD=xml -- $program
		sums info xml >info
		grep -q "heap [0-9]" info
		saw info
	done
}

# by_function FILTER: of the report.
by_function() {
	"$SCRY" report x.scry --json --by method | jq -r "$1"
}

@test "sums: temporary blocks, and the sizes that each caller asks for" {
	recorded -- "$TARGETS/target_malloc_temporary"
	grep -q "^grows 1500" out
	by_function '.rows[] | select(.symbol | . == "temporary" or . == "pairs" or . == "grows" or . == "hands_over") |
		"\(.symbol) \(.temporary)"' | sort >temporaries
	diff <(sort out) temporaries
	by_function '.rows[] | select(.symbol == "grows").sizes' | jq -ce '. == [[16,300],[32,300],[64,300],[128,300],[256,300],[512,300]]'
	# every block is in one size of one caller
	by_function '[([.rows[].sizes[] | .[1]] | add), ([.sizes[].blocks] | add)]' | jq -e '.[0] == .[1]'
	"$SCRY" report x.scry --sort temporary --top 1 --by method | grep -A1 "^bytes at peak" | grep -q "grows (target_malloc_temporary)"
	"$SCRY" report x.scry | grep -qE "^ +4,096 +700 .* 100 +pairs"
	run "$SCRY" report x.scry --view events --sort temporary
	[ "$status" -ne 0 ]
}

@test "sums: temporary blocks: heaptrack" {
	command -v heaptrack >/dev/null || skip "no heaptrack (Debian: heaptrack)"
	recorded -- "$TARGETS/target_malloc_temporary"
	heaptrack -o ht "$TARGETS/target_malloc_temporary" >/dev/null 2>&1 3>&-
	heaptrack_print ht.* -H sizes >ht.txt 2>/dev/null
	# its lines "N temporary allocations of M allocations in total (P%) from", then the function
	for function in temporary grows; do
		grep -A1 "temporary allocations of .* from$" ht.txt | grep -B1 -x "$function" |
			awk '/^[0-9]/ { n += $1 } END { print n }' >theirs
		by_function "[.rows[] | select(.symbol == \"$function\").temporary] | add" >ours
		diff theirs ours
	done
	# SIZE COUNT of each size, summed up to powers of two; the C++ library, which heaptrack brings, has a block of its own
	awk '$1 != 72704 && $1 != 73728 { # of libstdc++ 12, of 14
		up = 1; while (up < $1) up *= 2; n[up] += $2 } END { for (up in n) print up, n[up] }' sizes | sort -n >theirs
	"$SCRY" report x.scry --json | jq -r '.sizes[] | "\(.up_to_bytes) \(.blocks)"' | sort -n >ours
	grep -q "^4096 700$" ours
	diff theirs ours
}

@test "sums: stacks as a picture, in the unit of what is counted" {
	"$SCRY" malloc record -q --stack -o x.html -- "$TARGETS/target_malloc_temporary" >/dev/null 3>&-
	grep -q '^const unit="bytes";' x.html
	"$SCRY" malloc record -q --stack -o x.scry -- "$TARGETS/target_malloc_temporary" >/dev/null 3>&-
	"$SCRY" report x.scry --sort temporary -o y.html
	grep -q '^const unit="temporary";' y.html
	grep -q '^"pairs (native)' y.html
	grep -q '^\[700,\[' y.html
	"$SCRY" report x.scry --sort temporary -o y.folded
	grep -q ';main;pairs 700$' y.folded
	run "$SCRY" malloc record -o z.html -- true
	[ "$status" -eq 2 ]
}

# said: what the report of x.scry says of arenas.
said() {
	"$SCRY" report x.scry --json | jq -r '"arenas \(.totals.arenas)"'
}

@test "sums: arenas are those of malloc_info, and where they explain the memory a replay with fewer is advised" {
	need_known_libc
	"$SCRY" malloc record -q -o x.scry -- "$TARGETS/target_malloc_arenas" >out 3>&-
	diff out <(said)
	[ "$(sed 's/arenas //' out)" -gt 4 ]
	"$SCRY" report x.scry --json | jq -e '.verdict | test("malloc has [0-9]+ arenas, and [0-9.]+ MiB of its memory were in arenas of threads: scry malloc replay --with glibc,glibc:MALLOC_ARENA_MAX=2 shows")'
	"$SCRY" report x.scry --json | jq -e '.totals | .arenas_held_bytes > .held_peak_bytes / 2 and .arenas_held_bytes < .held_peak_bytes'
	"$SCRY" report x.scry --json | jq '.totals.rss_peak_bytes' >many
	mv x.scry many.scry
	MALLOC_ARENA_MAX=2 "$SCRY" malloc record -q --force -o x.scry -- "$TARGETS/target_malloc_arenas" >out 3>&-
	diff out <(said)
	grep -qx "arenas 2" out
	no jq -e '.verdict | test("ARENA_MAX")' <("$SCRY" report x.scry --json)
	[ "$("$SCRY" report x.scry --json | jq '.totals.rss_peak_bytes * 2')" -lt "$(cat many)" ] # it is as was said
	"$SCRY" diff many.scry x.scry | grep -qE "^no caller has changed; resident memory at its peak -[0-9.]+ MiB; malloc had [0-9]+ arenas, then 2$"
	"$SCRY" diff many.scry x.scry --json | jq -e '.totals | .arenas_from > 4 and .arenas_to == 2'
}

@test "sums: diff: what another run has more, by caller; of another directory too" {
	mkdir other
	cp "$TARGETS/target_malloc_temporary" other
	"$SCRY" malloc record -q --stack -o a.scry -- "$TARGETS/target_malloc_temporary" >/dev/null 3>&-
	"$SCRY" malloc record -q --stack -o b.scry -- other/target_malloc_temporary 400 >/dev/null 3>&-
	"$SCRY" diff a.scry b.scry --json >diff.json
	jq -e '.schema == "scry.malloc_diff/2" and .data_quality.events == .data_quality_from.events + 801' diff.json # free(NULL) is a call too
	jq -e '.totals | .allocated_growth == 401 and .temporary_growth == 400 and .peak_bytes_growth == 409600' diff.json
	jq -e '[.rows[] | [.symbol, .allocated_growth, .temporary_growth, .peak_bytes_growth]] | sort ==
		[["main", 1, 0, 409600], ["temporary", 400, 400, 0]]' diff.json
	"$SCRY" diff a.scry b.scry >text
	grep -q "^+409,600 bytes live at the peak; main+0x[0-9a-f]* (target_malloc_temporary) grew most, by 409,600$" text
	"$SCRY" diff a.scry b.scry --sort temporary --stacks >text
	grep -q "^+400 temporary blocks; .*> main > temporary grew most, by 400$" text
	"$SCRY" diff a.scry b.scry --grep temporary+ >text
	grep -q "no caller that is shown has grown$" text
	grep -q "^1 caller is left out by --grep" text
	"$SCRY" diff a.scry b.scry --by module >text # the one of another directory is the same module
	grep -q "^+409,600 bytes live at the peak; target_malloc_temporary grew most, by 409,600$" text
	[ "$(grep -c " target_malloc_temporary$" text)" -eq 1 ]
	grep -q "  module$" text
	[ "$(grep -c "caller" text)" -eq 0 ]
	grep -q "a.scry: scry itself took" text
	grep -q "b.scry: scry itself took" text
	"$SCRY" diff a.scry a.scry | grep -q "^nothing has changed$"
	for wrong in "--by gem" "--live" "--from 1s" "--filter gem=x"; do
		# shellcheck disable=SC2086
		run "$SCRY" diff a.scry b.scry $wrong
		[ "$status" -ne 0 ]
	done
}

@test "sums: what is asked for through operator new is said, and whose it is with --stack" {
	"$SCRY" malloc record -q -o x.scry -- "$TARGETS/target_malloc_strings" >/dev/null 3>&-
	"$SCRY" report x.scry --json >report
	# as much as the rows of operator new are of all
	jq -e '(.rows | map(select((.symbol // "") | test("^_Zn[wa]")).bytes) | add) as $new |
		"\($new * 100 / .totals.bytes + 0.5 | floor) % of the bytes were asked for through operator new" as $said |
		.notes | any(startswith($said))' report
	"$SCRY" malloc record -q --stack --force -o x.scry -- "$TARGETS/target_malloc_strings" >/dev/null 3>&-
	no jq -e '.notes | any(test("allocate for others"))' <("$SCRY" report x.scry --json)
}
