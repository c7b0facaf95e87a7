#!/usr/bin/env bats
# `scry objects --stacks`: who called the line, against Kernel#caller_locations taken at the same
# place. The programs are in stacks/.

load lib

# stacks NAME [RUBY-OPTIONS...]: every stack and its count, in JSON and folded.
stacks() {
	local script="$HERE/stacks/$1.rb"
	shift
	TRUTH="$T/truth.json" "$SCRY" objects --stacks --filter class=Spot -o "$T/o.json" -- "$RUBY" "$@" "$script"
	"$RUBY" "$HERE/stacks/compare.rb" "$T/truth.json" "$T/o.json"
	TRUTH="$T/folded_truth.json" "$SCRY" objects --folded --filter class=Spot -q -- "$RUBY" "$@" "$script" >"$T/folded"
	"$RUBY" "$HERE/stacks/compare.rb" "$T/folded_truth.json" "$T/folded"
}

@test "stacks: blocks, C functions, recursion, evals, exceptions, fibers, threads" {
	stacks calls
}

@test "stacks: with yjit" {
	"$RUBY" --yjit -e 0 2>/dev/null || skip "this ruby has no yjit"
	stacks calls --yjit --yjit-call-threshold=2
}

@test "stacks: code, fibers and threads that die, their addresses used again" {
	CHURN="" stacks churn
}

@test "stacks: the same while the heap is compacted" {
	CHURN=compact stacks churn
}

@test "stacks: the same under GC.stress" {
	CHURN=stress stacks churn
}

@test "stacks: sixty-four threads with fibers" {
	stacks crowd
}

@test "stacks: five thousand levels: the outermost frames, and every object" {
	cat >"$T/deep.rb" <<'RUBY'
class Spot; end
def down(n)
  return Spot.new if n.zero?
  down(n - 1)
end
7.times { down(5000) }
3.times { down(2) }
RUBY
	"$SCRY" objects --stacks --filter class=Spot -o "$T/o.json" -- "$RUBY" "$T/deep.rb"
	json_is "$T/o.json" 'rows.sum { |x| x["allocated"] } == 10 && r["data_quality"]["errors"] == 0'
	json_is "$T/o.json" 'deep = rows.find { |x| x["allocated"] == 7 }["frames"].drop(1).reverse.reject { |f| f["file"].start_with?("<internal:") }
		deep.size.between?(1000, 1024) && deep[0]["line"] == 6 && deep[0]["method"] == "<main>" &&
		deep[1]["line"] == 6 && deep.drop(2).all? { |f| f["line"] == 4 && f["method"] == "down" }'
	json_is "$T/o.json" 'rows.find { |x| x["allocated"] == 3 }["frames"].drop(1).reverse.reject { |f| f["file"].start_with?("<internal:") }
		.map { |f| f["line"] }.last(4) == [7, 7, 4, 4]'
}
