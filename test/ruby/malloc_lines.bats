#!/usr/bin/env bats
# scry malloc record of a Ruby: each block of a known size comes from the line that made it, and from no other;
# started, attached to, in threads and fibers, in code that is gone; on other Rubies too (SCRY_TEST_RUBIES). What
# cannot be had is said, and recorded as native code.

load lib

setup() {
	prepare
	IFS=: read -ra OTHERS <<<"${SCRY_TEST_RUBIES:-}"
}

# record RUBY ARGS...: a started program, its output in $T/known.out.
record() {
	"$SCRY" malloc record -q --force -o "$T/x.scry" -- "$@" >"$T/known.out"
}

# agree: what the program printed is what the recording says.
agree() {
	"$SCRY" report "$T/x.scry" --view events --json >"$T/events" &&
		"$RUBY" "$HERE/malloc/compare.rb" "$T/known.out" "$T/events"
}

report() {
	"$SCRY" report "$T/x.scry" --top 0 -o "$T/r.json" --force "$@"
}

@test "every block is its line's: strings, arrays, methods, threads, fibers, eval'ed code that is gone" {
	record "$RUBY" --disable-gems "$HERE/malloc/known.rb"
	agree
	report
	json_is "$T/r.json" 'r["notes"].none? { |n| n.include?("lines of Ruby") }'
}

@test "the same on other Rubies, or a note why not" {
	[ ${#OTHERS[@]} -gt 0 ] || skip "SCRY_TEST_RUBIES names no other Ruby"
	for ruby in "${OTHERS[@]}"; do
		read -ra words <<<"$ruby"
		echo "$ruby"
		record "${words[@]}" --disable-gems "$HERE/malloc/known.rb"
		report
		json_is "$T/r.json" 'r["notes"].any? { |n| n.include?("not lines of Ruby") }' >/dev/null || agree
	done
}

@test "attached to: lines from then on" {
	start known "$RUBY" --disable-gems "$HERE/malloc/known.rb" "$T/go"
	local target=$PID text
	wait_for 20 in_file ready "$T/known.err"
	text="$(text_of "$target")"
	start scry "$SCRY" malloc record -v -p "$target" -o "$T/x.scry"
	local scry=$PID
	wait_for 20 in_file "served by" "$T/scry.err"
	touch "$T/go"
	finish "$target"
	finish "$scry"
	agree
}

@test "taken out again: the text is as before, and the program goes on" {
	start known "$RUBY" --disable-gems "$HERE/malloc/known.rb" "$T/go"
	local target=$PID text
	wait_for 20 in_file ready "$T/known.err"
	text="$(text_of "$target")"
	"$SCRY" malloc record -q -p "$target" -d 300ms -o "$T/x.scry"
	[ "$(text_of "$target")" = "$text" ]
	# again: what an earlier recording knew of lines means nothing to this one
	"$SCRY" malloc record -q -p "$target" -d 300ms -o "$T/x.scry" --force
	report
	json_is "$T/r.json" 'rows.any? { |row| row["file"]&.end_with?("known.rb") && row["method"] }'
	touch "$T/go"
	finish "$target"
}

@test "GC at each allocation, compaction, threads and fibers that end, forks: the program is well" {
	local ruby
	for ruby in "$RUBY" "${OTHERS[@]}"; do
		read -ra words <<<"$ruby"
		echo "$ruby"
		"${words[@]}" "$HERE/malloc/rough.rb" >"$T/alone.out"
		record "${words[@]}" "$HERE/malloc/rough.rb" late
		cmp "$T/alone.out" "$T/known.out"
	done
}

@test "rows by line, file and method" {
	record "$RUBY" --disable-gems "$HERE/malloc/known.rb"
	report
	json_is "$T/r.json" 'x = rows.find { |row| row["file"]&.end_with?("known.rb") && row["line"] == 20 }; x["bytes"] >= 300 * 6216 && x["allocated"] >= 300 && x["method"] == "block in #{RUBY_VERSION >= "3.4" ? "Object#" : ""}arrays"'
	json_is "$T/r.json" 'k = rows.map { |row| row.values_at("file", "line", "method") }.reject { |f, *| f.nil? }; k == k.uniq'
	report --by file
	json_is "$T/r.json" 'rows.count { |row| row["file"]&.end_with?("known.rb") } == 1 && rows.count { |row| row["module"]&.include?("libc.so") } <= 1'
	report --by method
	json_is "$T/r.json" 'rows.count { |row| row["method"]&.end_with?("strings") } == 1'
	run "$SCRY" report "$T/x.scry" --by class
	[ "$status" -ne 0 ]
	[[ "$output" == *"by line, file or method"* ]]
}

@test "--no-lines, and programs that are no Ruby: native code, and no note" {
	# long enough that it is looked at, also on a busy machine
	record "$RUBY" --disable-gems -e 'a = "x" * 5000 while Process.clock_gettime(2) < 1.5'
	report
	json_is "$T/r.json" 'rows.any? { |row| row["file"] == "-e" && row["line"] == 1 }'
	"$SCRY" malloc record -q --no-lines --force -o "$T/x.scry" -- "$RUBY" --disable-gems -e 'a = "x" * 5000'
	report
	json_is "$T/r.json" 'rows.none? { |row| row["file"] } && r["notes"].none? { |n| n.include?("Ruby") }'
	"$SCRY" malloc record -q --force -o "$T/x.scry" -- /bin/ls / >/dev/null
	report
	json_is "$T/r.json" 'rows.none? { |row| row["file"] } && r["notes"].none? { |n| n.include?("Ruby") }'
}

@test "a JIT: a note, and the recording is whole" {
	local ruby=
	for ruby in "${OTHERS[@]}" ""; do
		[ -n "$ruby" ] && "$ruby" --yjit -e 'exit 0' 2>/dev/null && break
	done
	[ -n "$ruby" ] || skip "no Ruby with a JIT"
	record "$ruby" --yjit -e 'a = "x" * 5000; puts 1'
	[ "$(cat "$T/known.out")" = 1 ]
	report
	json_is "$T/r.json" 'r["notes"].any? { |n| n.include?("not lines of Ruby") && n.include?("JIT") } && rows.none? { |row| row["file"] }'
}

# children_agree COUNT: so many of them print "PID SIZE LINE BLOCKS", and the recording says so.
children_agree() {
	[ "$(wc -l <"$T/known.out")" -eq "$1" ]
	"$SCRY" report "$T/x.scry" --view events --json >"$T/events"
	"$RUBY" --disable=gems -rjson -e '
		lines, made = {}, Hash.new(0)
		File.foreach(ARGV[1]) do |text|
			next unless text.include?("\"event\": \"caller\"") || text.include?("\"event\": \"malloc\"")
			e = JSON.parse(text)
			lines[[e["pid"], e["caller"]]] = e["line"] if e["event"] == "caller"
			made[[e["pid"], e["size"], e["caller"]]] += 1 if e["event"] == "malloc" && e["size"] > 100_000
		end
		File.foreach(ARGV[0]) do |text|
			pid, size, line, count = text.split.map(&:to_i)
			got = made.select { |(p, s, _), _| p == pid && s == size + 1 }.map { |(p, _, c), n| [lines[[p, c]], n] }
			abort "process #{pid}, #{size} bytes: #{got} and not line #{line}, #{count}" unless got == [[line, count]]
		end' "$T/known.out" "$T/events"
}

@test "children, and theirs: every block is its line's" {
	"$SCRY" malloc record -q -f --force -o "$T/x.scry" -- "$RUBY" --disable-gems "$HERE/malloc/forks.rb" >"$T/known.out"
	children_agree 14
}

@test "Rubies that are started one after another are learned once, and every block is its line's" {
	export XDG_CACHE_HOME="$T/cache"
	mkdir "$XDG_CACHE_HOME"
	cat >"$T/three" <<-END
		for i in 1 2 3; do
			"$RUBY" --disable-gems "$HERE/malloc/forks.rb" >>"$T/known.out"
			stat -c '%i %y' "$XDG_CACHE_HOME"/scry/layout-* >>"$T/learned"
		done
	END
	"$SCRY" malloc record -q -f --force -o "$T/x.scry" -- sh "$T/three"
	children_agree 42
	[ "$(wc -l <"$T/learned")" -eq 3 ]
	[ "$(sort -u "$T/learned" | wc -l)" -eq 1 ]
}
