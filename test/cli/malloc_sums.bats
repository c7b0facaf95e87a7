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
