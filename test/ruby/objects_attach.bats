#!/usr/bin/env bats
# `scry objects -p PID` on programs that run already: what it says of them, and that they do not
# notice. The programs know their own answers (programs/, puma/).

load lib

# counted: starts programs/counted.rb, its pid in $PID, and waits until it runs.
counted() {
	start counted "$RUBY" "$HERE/programs/counted.rb"
	wait_for 10 in_file "^pid" "$T/counted.out"
}

# row FILE LINE CLASS: the ruby expression for the allocated count of a row of the report.
row() {
	echo "rows.select { |x| x[\"file\"].to_s.end_with?(\"$1\") && x[\"line\"] == $2 && x[\"class\"] == \"$3\" }.sum { |x| x[\"allocated\"] }"
}

# A server with its port in $PORT and its pid in $PUMA, under load by $LOAD.
serve() {
	need_gem rack
	command -v puma >/dev/null || skip "no puma: run make deps"
	PORT=$(free_port)
	start puma puma --quiet -e production -t 4:4 -w "${1:-0}" -b "tcp://127.0.0.1:$PORT" "$HERE/puma/config.ru"
	PUMA=$PID
	wait_for 20 bash -c "echo >/dev/tcp/127.0.0.1/$PORT"
	start load "$RUBY" "$HERE/puma/load.rb" "$PORT" 6
	LOAD=$PID
	wait_for 20 in_file "asked [1-9][0-9]" "$T/load.out"
}

@test "the rows of a running program stand in the ratio of its rounds" {
	counted
	"$SCRY" objects -p "$PID" -d 2s --top 0 -o "$T/o.json"
	kill -TERM "$PID"
	finish "$PID"
	rounds="$(sed -n 's/^rounds //p' "$T/counted.out")"
	point="$(json "$T/o.json" "$(row counted.rb 11 Point)")"
	[ "$point" -gt 1000 ]
	# Not more than the program made in its whole life; and each line as often as the round says.
	# The first and the last round may be cut in two; what a busy machine loses of millions a second is counted.
	[ "$point" -le "$rounds" ]
	lost="$(json "$T/o.json" 'r["data_quality"]["lost"]')"
	json_is "$T/o.json" "(($(row counted.rb 12 Point)) - $point).abs <= 2 + $lost"
	json_is "$T/o.json" "(($(row counted.rb 13 Array)) - $point).abs <= 2 + $lost"
	json_is "$T/o.json" "(($(row counted.rb 14 Hash)) - $point).abs <= 2 + $lost"
	json_is "$T/o.json" "(($(row counted.rb 15 String)) - 3 * $point).abs <= 4 + 3 * $lost"
	json_is "$T/o.json" "(($(row counted.rb 16 Array)) - 2 * $point).abs <= 4 + 2 * $lost"
	json_is "$T/o.json" 'r["data_quality"]["errors"] == 0'
	json_is "$T/o.json" 'rows.all? { |x| x["pid"] == '"$PID"' }'
}

@test "the report of a live program is text on stdout, the talk is on stderr" {
	counted
	"$SCRY" objects -p "$PID" -d 1s >"$T/report" 2>"$T/talk"
	grep -q "counted.rb:11" "$T/report"
	grep -q "Point" "$T/report"
	no grep -q "Point" "$T/talk"
	kill -TERM "$PID"
	finish "$PID"
}

@test "after the detach the text is as before and at most one mapping is left" {
	counted
	text_of "$PID" >"$T/before"
	[ "$(mappings "$PID")" -eq 0 ]
	for i in 1 2 3 4 5; do
		"$SCRY" objects -p "$PID" -d 200ms -o "$T/o$i.json"
		[ "$(mappings "$PID")" -le 1 ]
	done
	text_of "$PID" >"$T/after"
	# scry's own mapping, if it stays, is not part of the program.
	grep -vi scry "$T/after" | diff "$T/before" -
	[ "$(mappings "$PID")" -le 1 ]
	kill -TERM "$PID"
	finish "$PID"
}

@test "an interrupt ends the watch with a report, the target goes on" {
	counted
	target=$PID
	start scry "$SCRY" objects -p "$target" --top 0 -o "$T/o.json"
	scry=$PID
	wait_for 20 in_file "watching process" "$T/scry.err"
	works_on "$target"
	kill -INT "$scry"
	finish "$scry"
	json_is "$T/o.json" "($(row counted.rb 11 Point)) > 0"
	[ "$(mappings "$target")" -le 1 ]
	kill -TERM "$target"
	finish "$target"
}

@test "puma under load: no wrong answer, the rows name the lines of the app" {
	serve
	"$SCRY" objects -p "$PUMA" -d 5s --top 0 -o "$T/o.json"
	kill -TERM "$LOAD"
	finish "$LOAD" || { cat "$T/load.out" "$T/load.err"; false; }
	tail -1 "$T/load.out" | grep -q "wrong 0$"
	item="$(grep -n 'item #' "$HERE/puma/config.ru" | cut -d: -f1)"
	json_is "$T/o.json" "($(row config.ru "$item" String)) > 1000"
	json_is "$T/o.json" "($(row config.ru "$item" Array)) > 50"
	json_is "$T/o.json" 'rows.any? { |x| x["file"].to_s.include?("/puma/") }'
	json_is "$T/o.json" 'r["data_quality"]["errors"] == 0'
	kill -0 "$PUMA"
	[ "$(mappings "$PUMA")" -le 1 ]
}

@test "puma under load: twenty short watches, no wrong answer" {
	serve
	for i in $(seq 20); do
		"$SCRY" objects -p "$PUMA" -d 100ms -o "$T/o$i.json"
	done
	kill -TERM "$LOAD"
	finish "$LOAD" || { cat "$T/load.out" "$T/load.err"; false; }
	tail -1 "$T/load.out" | grep -q "wrong 0$"
	[ "$(mappings "$PUMA")" -le 1 ]
}

@test "a worker of a clustered puma, and its master" {
	serve 2
	worker="$(pgrep -P "$PUMA" | head -1)"
	"$SCRY" objects -p "$worker" -d 2s --top 0 -o "$T/o.json"
	json_is "$T/o.json" 'rows.any? { |x| x["file"].to_s.end_with?("config.ru") }'
	"$SCRY" objects -p "$PUMA" -d 1s --top 0 -o "$T/m.json"
	kill -TERM "$LOAD"
	finish "$LOAD" || { cat "$T/load.out" "$T/load.err"; false; }
}

@test "an idle target: the empty report says why" {
	start idle "$RUBY" -e '$stdout.sync = true; puts "pid #{$$}"; sleep 600; puts "late"'
	idle=$PID
	wait_for 10 in_file "^pid" "$T/idle.out"
	run "$SCRY" objects -p "$idle" -d 1s
	echo "$output"
	[ "$status" -eq 0 ]
	echo "$output" | grep -qiE "wake|asleep|idle"
	kill -0 "$idle"
	no grep -q late "$T/idle.out"
}

@test "an idle target is armed when it wakes" {
	cat >"$T/wakes.rb" <<'RUBY'
$stdout.sync = true
puts "pid #{$$}"
sleep 2.5
loop { Array.new(10) { |i| "awake #{i}" }; sleep 0.01 }
RUBY
	start wakes "$RUBY" "$T/wakes.rb"
	wait_for 10 in_file "^pid" "$T/wakes.out"
	"$SCRY" objects -p "$PID" -d 5s --top 0 -o "$T/o.json"
	json_is "$T/o.json" "($(row wakes.rb 4 String)) > 100"
}

@test "a thread that runs and sleeps by turns is watched from the start" {
	start turns "$RUBY" -e '$stdout.sync = true
	  Thread.new { loop { 1000.times { Object.new }; sleep 0.001 } }
	  puts "up"; trap("TERM") { exit 0 }; sleep'
	wait_for 10 in_file up "$T/turns.out"
	for i in 1 2 3 4 5; do
		"$SCRY" objects -p "$PID" -d 0.6 -o "$T/o$i.json"
		json_is "$T/o$i.json" 'r["data_quality"]["events"] > 1000'
	done
	kill -TERM "$PID"
	finish "$PID"
}

@test "a watched target that forks: the children run right" {
	start forking "$RUBY" "$HERE/programs/forking.rb"
	forking=$PID
	wait_for 10 in_file "^ok 2" "$T/forking.out"
	"$SCRY" objects -p "$forking" -d 3s --top 0 -o "$T/o.json"
	at="$(wc -l <"$T/forking.out")"
	wait_for 10 bash -c "[ \$(wc -l <'$T/forking.out') -gt $((at + 3)) ]"
	kill -TERM "$forking"
	finish "$forking" || { cat "$T/forking.out" "$T/forking.err"; false; }
	no grep -q wrong "$T/forking.out"
	json_is "$T/o.json" "($(row forking.rb 21 String)) > 0"
	# Without -f the children are not watched.
	json_is "$T/o.json" "rows.all? { |x| x['pid'] == $forking }"
}

@test "many threads: none is missed" {
	cat >"$T/threads.rb" <<'RUBY'
$stdout.sync = true
counts = Array.new(8, 0)
8.times do |t|
  Thread.new { loop { Object.new; counts[t] += 1; Thread.pass if counts[t] % 100 == 0 } }
end
puts "pid #{$$}"
sleep
RUBY
	start threads "$RUBY" "$T/threads.rb"
	wait_for 10 in_file "^pid" "$T/threads.out"
	"$SCRY" objects -p "$PID" -d 2s --top 0 -o "$T/o.json"
	json_is "$T/o.json" "($(row threads.rb 4 Object)) > 1000"
	json_is "$T/o.json" 'r["data_quality"]["errors"] == 0 || r["data_quality"]["lost"] > 0' # what is lost cannot be told of later
}

@test "a program that makes a ractor while it is watched lives on" {
	"$RUBY" -e 'exit defined?(Ractor) ? 0 : 1' || skip "this ruby has no ractors"
	cat >"$T/ractor.rb" <<'RUBY'
$stdout.sync = true
puts "pid #{$$}"
go = ARGV.empty?; trap(:USR1) { go = true } # a word: it waits until it is told
20.times { Array.new(10) { Object.new } }; Array.new(10) { Object.new } until go
r = Ractor.new { (1..3).map { |i| Object.new; i.to_s } }
puts "ractor #{(r.respond_to?(:take) ? r.take : r.value).join}"
RUBY
	"$SCRY" objects --top 0 -o "$T/o.json" -- "$RUBY" -W0 "$T/ractor.rb" >"$T/out"
	grep -q "ractor 123" "$T/out"
	json_is "$T/o.json" "($(row ractor.rb 4 Object)) > 100"
	start ractor "$RUBY" -W0 "$T/ractor.rb" wait
	ractor=$PID
	wait_for 10 in_file "^pid" "$T/ractor.out"
	start scry "$SCRY" objects -p "$ractor" --top 0 -o "$T/p.json"
	wait_for 20 in_file "watching process" "$T/scry.err"
	works_on "$ractor"
	kill -USR1 "$ractor"
	finish "$ractor"
	finish "$PID"
	grep -q "ractor 123" "$T/ractor.out"
	json_is "$T/p.json" "($(row ractor.rb 4 Object)) > 100"
	# Where the VM would have crashed, the report says why the watch ended.
	"$SCRY" objects -- "$RUBY" -W0 -e 'Ractor.new { 1 }; sleep 0.1' >"$T/report" 2>"$T/talk"
	start idle "$RUBY" -e 'sleep 60'
	wait_for 10 bash -c "'$SCRY' doctor -p $PID >'$T/doctor' 2>&1 || grep -q 'event hooks' '$T/doctor'"
	if grep -q "crashes when a ractor starts" "$T/doctor"; then
		grep -q "the watch ended when the program made a ractor" "$T/report" "$T/talk"
	fi
}

@test "ps lists the ruby processes" {
	counted
	"$SCRY" ps >"$T/ps"
	grep -w "$PID" "$T/ps"
	grep -w "$PID" "$T/ps" | grep -q "/.*ruby"
}

@test "a dry run touches nothing" {
	counted
	text_of "$PID" >"$T/before"
	"$SCRY" objects -p "$PID" -d 1s --dry-run >"$T/dry"
	text_of "$PID" | diff "$T/before" -
	[ "$(mappings "$PID")" -eq 0 ]
	[ -s "$T/dry" ]
}

@test "a target that ends while it is watched" {
	start brief "$RUBY" -e '$stdout.sync = true; trap(:USR1) { exit 3 }; puts "pid"; loop { "x".dup }'
	brief=$PID
	wait_for 10 in_file "^pid" "$T/brief.out"
	start scry "$SCRY" objects -p "$brief" --top 0 -o "$T/o.json"
	wait_for 20 in_file "watching process" "$T/scry.err"
	works_on "$brief"
	kill -USR1 "$brief"
	status=0
	finish "$brief" || status=$?
	[ "$status" -eq 3 ]
	status=0
	finish "$PID" || status=$?
	[ "$status" -eq 0 ] || [ "$status" -eq 5 ]
	json_is "$T/o.json" "rows.any? { |x| x['class'] == 'String' && x['allocated'] > 1000 }"
}

@test "a process that is not there, or not a ruby" {
	run "$SCRY" objects -p 4194304 -d 1s
	[ "$status" -eq 5 ]
	start sleeper sleep 600
	run "$SCRY" objects -p "$PID" -d 1s
	[ "$status" -eq 4 ]
	kill -0 "$PID"
}

@test "a second editor of one target is refused by name" {
	counted
	target=$PID
	start first "$SCRY" objects -p "$target" -o "$T/o.json"
	first=$PID
	wait_for 10 bash -c "'$SCRY' ps | grep -w $target | grep -qi objects"
	run "$SCRY" objects -p "$target" -d 1s
	echo "$output"
	[ "$status" -ne 0 ]
	echo "$output" | grep -qE "$first|already"
	kill -INT "$first"
	finish "$first"
}
