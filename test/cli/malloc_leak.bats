#!/usr/bin/env bats
# scry malloc record, then report: a leak is said where there is one, with its caller and how fast it is; none where there is none.

load lib

source "$BATS_TEST_DIRNAME/malloc.bash"

setup() {
	need_targets
	prepare
}

# judged SECONDS FROM: the report of target_malloc_leak in $T/report.
judged() {
	"${RECORD[@]}" -q --force -o "$T/x.scry" -- "$TARGETS/target_malloc_leak" "$@" >"$T/known.out" 3>&-
	"$SCRY" report "$T/x.scry" --json >"$T/report"
	jq -c '.data_quality, .totals, .notes' "$T/report" # shown when it is not as known
}

# leaks: the report says so, and of whom; as fast as the program knows, within a fifth; its row is the first.
leaks() {
	jq -e '.totals.verdict == "grows"' "$T/report"
	jq -e '.notes | any(test("^1 caller grew: leaks"))' "$T/report"
	no jq -e '.notes | any(test("no leak"))' "$T/report"
	jq -e '[.rows[] | select(.is_growing).symbol] == ["leaks"]' "$T/report"
	jq -e --argjson known "$(sed -n 's/^leaked //p' "$T/known.out")" '.rows[0] |
		.symbol == "leaks" and .never_freed_pct == 100 and
		.growth_bytes_per_s > $known * 0.8 and .growth_bytes_per_s < $known * 1.2' "$T/report"
}

@test "a leak beside what comes and goes" {
	judged 3 0
	leaks
}

@test "a leak that begins late" {
	judged 3 1.8
	leaks
}

@test "a leak that is freed when the program ends: at its exit, or as the last thing that main does" {
	for by in exit main; do
		judged 3 0 "$by"
		jq -e '.totals.verdict == "grows" and .totals.live_bytes < 100000' "$T/report"
		jq -e '.notes[0] | test("^live bytes grew to the end.* freed .* of what lived in its last .*: a leak while it runs")' "$T/report"
		no jq -e '.notes | any(test("no leak"))' "$T/report"
		jq -e '.notes | any(test("^1 caller grew: leaks.* 100 % of its blocks were not freed before the end"))' "$T/report"
		jq -e '[.rows[] | select(.is_growing).symbol] == ["leaks"] and .rows[0].symbol == "leaks"' "$T/report"
	done
}

# Whether its memory was looked at once more between that and its end is a matter of luck: "retains" then.
@test "what comes and goes, and is freed at the end, is no leak" {
	judged 3 9 main
	jq -e '.totals.verdict | . == "steady" or . == "retains"' "$T/report"
	jq -e '.notes[0] | test("^no leak seen")' "$T/report"
	jq -e '[.rows[] | select(.is_growing)] == []' "$T/report"
}

@test "what comes and goes alone is no leak" {
	judged 3 9
	jq -e '.totals.verdict == "steady"' "$T/report"
	jq -e '[.rows[] | select(.is_growing)] == []' "$T/report"
	jq -e '.notes[0] | test("^no leak seen")' "$T/report"
	no jq -e '.notes | any(test("grew:"))' "$T/report"
}
