#!/usr/bin/env bats
# Ractors: where a VM shows the objects of one ractor, the report says in line one, in a note and in JSON that others
# are missing, in each run, however short they lived; GCs are as many as the VM counts.

load lib

@test "ractors: that others are not seen is said, and nothing else is an error" {
	local run
	cat >"$T/r.rb" <<-'EOF'
		rs = 3.times.map { |i| Ractor.new(i) { |k| (20000 * (k + 1)).times { "x" }; k } }
		30000.times { "m" }
		rs.each { |r| r.respond_to?(:value) ? r.value : r.take }
		File.write(ARGV[0], "#{GC.count} #{GC.stat(:major_gc_count)}\n")
	EOF
	for run in $(seq "$(share 3 20)"); do
		"$SCRY" objects --force --top 0 -o "$T/o.json" -- "$RUBY" -W0 "$T/r.rb" "$T/gcs" >"$T/out" 2>&1 || { cat "$T/out"; false; }
		read -r all full <"$T/gcs"
		# A VM that may crash when a ractor starts is left before that, and what comes then is missing.
		if json_is "$T/o.json" "r['notes'].to_a.any? { |n| n.include?('the watch ended when the program made a ractor') }" >"$T/json"; then
			json_is "$T/o.json" "r['data_quality']['errors'] == 0 && !r['data_quality']['is_complete'] && r['data_quality']['lost_by_cause'].any?"
			continue
		fi
		json_is "$T/o.json" "h = r['data_quality']
		  one = !r['notes'].to_a.any? { |n| n.include?('ractors') }
		  main = rows.select { |x| x['file'].to_s.end_with?('/r.rb') && x['line'] == 2 && x['class'] == 'String' }.sum { |x| x['allocated'] }
		  h['errors'] == 0 && h['gcs'] >= h['full_gcs'] && h['gcs'] <= $all + 1 && h['full_gcs'] <= $full + 1 && main == 30000 &&
		    (one || !h['is_complete'])"
		# the VM is one that shows one ractor's objects, or it has shown all of them
		json_is "$T/o.json" "r['notes'].to_a.any? { |n| n.include?('ractors') } ||
		  rows.select { |x| x['file'].to_s.end_with?('/r.rb') && x['line'] == 1 && x['class'] == 'String' }.sum { |x| x['allocated'] } >= 120000"
	done
}

@test "ractors: sampled too" {
	"$SCRY" objects --top 0 --sample 100 -o "$T/o.json" -- "$RUBY" -W0 -e \
		'rs = 3.times.map { |i| Ractor.new(i) { |k| 40.times { 500.times { "x" }; sleep 0.02 }; k } }
		 40.times { 700.times { "m" }; sleep 0.02 }; rs.each { |r| r.respond_to?(:value) ? r.value : r.take }' >"$T/out" 2>&1
	json_is "$T/o.json" "r['data_quality']['errors'] == 0 && (r['data_quality']['is_complete'] ||
	  r['data_quality']['lost_by_cause'].any?) && (r['notes'].to_a.any? { |n| n.include?('ractors') } ||
	  rows.sum { |x| x['allocated'] } > 80000)"
}

@test "GCs are those of GC.stat, full ones too" {
	for source in event hooks; do
		"$SCRY" objects --force --top 0 --source "$source" -o "$T/o.json" -- "$RUBY" -e \
			'GC.start; a = [GC.count, GC.stat(:major_gc_count)]; 5.times { GC.start }; 200_000.times { "x" * 50 }
			 File.write(ARGV[0], "#{GC.count} #{GC.stat(:major_gc_count)} #{a.join(" ")}\n")' "$T/gcs" >"$T/out" 2>&1 || {
			grep -q "cannot be watched by hooks" "$T/out" && continue
			cat "$T/out"
			false
		}
		read -r all full first first_full <"$T/gcs"
		# a watch begins when the VM is up: it may have collected before
		json_is "$T/o.json" "h = r['data_quality']; h['gcs'] <= $all + 1 && h['gcs'] > $all - $first && h['full_gcs'] <= $full + 1 &&
		  h['full_gcs'] > $full - $first_full"
	done
}
