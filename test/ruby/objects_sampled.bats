#!/usr/bin/env bats
# `scry objects --sample`: the figures and their intervals against programs whose counts are known by
# construction. Programs are in sampled/; judge.rb says what chance may do.

load lib

# judged RUNS SAMPLE: classes.rb, so many times
judged() {
	local i
	for i in $(seq "$1"); do
		"$SCRY" objects --sample "$2" --by class -o "$T/o$i.json" -- "$RUBY" "$HERE/sampled/classes.rb"
	done
	"$RUBY" "$HERE/sampled/judge.rb" 4000 2000 "$T"/o*.json
}

@test "sampled: one in a hundred of a strict rhythm: counts, the living, their intervals" {
	judged "$([ -n "${SCRY_SOAK:-}" ] && echo 40 || echo 2)" 100
}

@test "sampled: one in 4 KiB" {
	judged "$([ -n "${SCRY_SOAK:-}" ] && echo 20 || echo 1)" 4KiB
}

@test "sampled: one in three" {
	cat >"$T/few.rb" <<'RUBY'
class A; end
class B; end
class C; end
30_000.times { A.new; B.new; C.new }
RUBY
	"$SCRY" objects --sample 3 --by class -o "$T/o.json" -- "$RUBY" "$T/few.rb"
	# Twice the 95 % interval: beyond is chance once in ten thousand.
	json_is "$T/o.json" '%w[A B C].all? { |c| x = rows.find { |y| y["class"] == c }; (x["allocated"] - 30_000).abs <= 2 * x["allocated_error"] && x["allocated_error"] < 1000 }'
	json_is "$T/o.json" 'r["data_quality"]["sample_every"] == 3 && r["data_quality"]["errors"] == 0'
}

@test "sampled: lines, stacks and threads" {
	cat >"$T/sites.rb" <<'RUBY'
class A; end
def first(n) = n.times { A.new }
def second(n)
  n.times do
    A.new
    A.new
  end
end
def via(n) = first(n)
8.times.map { |i| Thread.new { 10.times { via(1000); Thread.pass; second(500); first(500) } } }.each(&:join)
RUBY
	"$SCRY" objects --sample 20 --stacks -o "$T/o.json" -- "$RUBY" "$T/sites.rb"
	json_is "$T/o.json" 'r["data_quality"]["lost"] == 0 && r["data_quality"]["errors"] == 0'
	json_is "$T/o.json" 'a = rows.select { |x| x["class"] == "A" }
		near = ->(list, n) { got = list.sum { |x| x["allocated"] }; (got - n).abs <= 4 * Math.sqrt(n * 19) }
		via, others = a.partition { |x| x["frames"].any? { |f| f["method"] == "via" } }
		near[via, 80_000] && near[others.select { |x| x["line"] == 2 }, 40_000] &&
		near[a.select { |x| x["line"] == 5 }, 40_000] && near[a.select { |x| x["line"] == 6 }, 40_000] &&
		a.all? { |x| [2, 5, 6].include?(x["line"]) }'
}

@test "sampled: more living samples than the agent can follow: said, and counted as made" {
	cat >"$T/many.rb" <<'RUBY'
class A; end
KEPT = Array.new(200_000) { A.new }
GC.start
RUBY
	"$SCRY" objects --sample 2 --by class -o "$T/o.json" -- "$RUBY" "$T/many.rb"
	json_is "$T/o.json" '(r["notes"] || []).any? { |n| n =~ /samples beyond the agent/ }'
	json_is "$T/o.json" 'a = rows.find { |x| x["class"] == "A" }; (a["allocated"] - 200_000).abs <= 2 * a["allocated_error"]'
	# at least so many live: with no interval that says more
	json_is "$T/o.json" 'a = rows.find { |x| x["class"] == "A" }; a["live"] <= 200_000 && a["live_error"].nil? && r["totals"]["unfollowed"] > 0'
}

@test "sampled: a program that forks all the time" {
	start forking "$RUBY" "$HERE/programs/forking.rb"
	local pid=$PID
	wait_for 10 in_file "^ok 2" "$T/forking.out"
	"$SCRY" objects -p "$pid" -d 2s --sample 10 --stacks --top 0 -o "$T/o.json"
	at="$(wc -l <"$T/forking.out")"
	wait_for 20 bash -c "[ \$(wc -l <'$T/forking.out') -gt $((at + 3)) ]"
	kill -TERM "$pid"
	finish "$pid" || { cat "$T/forking.out" "$T/forking.err"; false; }
	no grep wrong "$T/forking.out"
	json_is "$T/o.json" 'r["data_quality"]["errors"] == 0 && rows.any? { |x| x["file"].to_s.end_with?("forking.rb") }'
}

@test "sampled: bytes, of the living and the dead, are scaled as counts are" {
	cat >"$T/bytes.rb" <<'RUBY'
class Text < String; end
KEPT = []
40_000.times { |i| t = Text.new('x' * 1000); KEPT << t if i % 4 == 0 }
t = nil
2.times { GC.start }
RUBY
	"$SCRY" objects --sample 10 --by class -o "$T/o.json" -- "$RUBY" "$T/bytes.rb"
	size="$("$RUBY" -robjspace -e 'class Text < String; end; puts ObjectSpace.memsize_of(Text.new("x" * 1000))')"
	json_is "$T/o.json" "t = rows.find { |x| x['class'] == 'Text' }; t['bytes'] - t['live_bytes'] == (t['allocated'] - t['live']) * $size || ((t['bytes'] - t['live_bytes']).fdiv((t['allocated'] - t['live']) * $size) - 1).abs < 0.001"
	json_is "$T/o.json" "t = rows.find { |x| x['class'] == 'Text' }; (t['live'] - 10_000).abs <= 2 * t['live_error']"
}
