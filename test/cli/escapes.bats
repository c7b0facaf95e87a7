#!/usr/bin/env bats
# Names that a target chooses reach no terminal as they are: of processes, threads, files, symbols,
# classes and methods, in tables, JSON, pictures, notes and errors.

load lib

ODD=$'\e[31m\xc2\x9b\xe2\x80\xae'

# is_plain FILE...: nothing but text: no control but the line's end, nothing that turns the writing direction.
is_plain() {
	"$RUBY" -e 'ARGV.each do |f|
		text = File.binread(f).force_encoding("UTF-8")
		abort "#{f}: no UTF-8: #{text.scrub { |b| "<#{b.unpack1("H*")}>" }.inspect}" unless text.valid_encoding?
		bad = text[/.*[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069].*/]
		abort "#{f}: #{bad.inspect}" if bad
	end' "$@"
}

# tells ARGS...: scry says something, whatever its status, and all of it is plain.
tells() {
	local got=0
	"$SCRY" "$@" >"$T/told.out" 2>"$T/told.err" 3>&- || got=$?
	echo "scry $*: $got"
	cat "$T/told.err"
	[ -s "$T/told.out" ] || [ -s "$T/told.err" ]
	[ "$got" -lt 128 ]
	is_plain "$T/told.out" "$T/told.err"
}

shows() { # PATTERN: the last one did, so that it was there to be escaped
	grep -qF -- "$1" "$T/told.out" "$T/told.err" && return 0
	head -n 20 "$T/told.out" "$T/told.err"
	return 1
}

# A copy of a program under a name that is one more of those.
odd_copy() { # PROGRAM
	mkdir -p "$T/d$ODD"
	cp "$1" "$T/d$ODD/ruby$ODD"
	COPY="$T/d$ODD/ruby$ODD"
}

@test "a program, its threads and symbols: patch, calls, undo, ps, doctor, errors" {
	need_root "entering a process that is not a child of scry"
	odd_copy "$TARGETS/target_escapes"
	start escapes "$COPY"
	wait_for 10 in_file "^round" "$T/escapes.out"
	for words in "patch list" "undo" "objects -d 0.1s" "stacks -d 0.1s" "dump" "doctor" "patch count odd* --dry-run" \
		"calls -x odd* --dry-run" "malloc record --dry-run" "patch count no_such* -d 0.1s"; do
		# shellcheck disable=SC2086
		tells $words -p "$PID"
	done
	tells patch list -p "$PID"
	shows 'e\x1b[31m'
	tells undo -p "$PID"
	shows 'e\x1b[31m'
	for words in "patch count odd* -d 0.2s" "patch time odd* -d 0.2s" "patch log odd* -d 0.05s" "calls -x odd* -d 0.05s" \
		"calls -c -x odd* -d 0.2s" "patch count odd* -d 0.2s --json" "calls -c -x odd* -d 0.2s --json"; do
		# shellcheck disable=SC2086
		tells $words -p "$PID"
		case "$words" in
		*json) shows 'odd\u001b[31m\u009b\u202e\u2028' ;;
		*) shows 'odd\x1b[31m\xc2\x9b\xe2\x80\xae' ;;
		esac
	done
	tells malloc record -p "$PID" -d 0.2s -v
	ends_right "$PID" escapes
}

@test "a Ruby: ps, objects, stacks, dump, info, report, diff, pictures" {
	need_root "entering a process that is not a child of scry"
	odd_copy "$(readlink -f "$(command -v "$RUBY")")"
	start escapes "$COPY" "$ROOT/test/ruby/programs/escapes.rb"
	wait_for 10 in_file "^pid" "$T/escapes.out"
	tells ps
	shows 'ruby\x1b[31m'
	tells ps --json
	shows 'ruby\u001b[31m\u009b'
	"$RUBY" --disable=gems -rjson -e 'JSON.parse(File.read(ARGV[0]))' "$T/told.out"
	for words in "doctor" "dump" "dump --json" "dump --native" "objects --dry-run" "objects -d 0.2s" "stacks -d 0.3s" \
		"stacks -d 0.3s --json" "stacks -d 0.3s --folded" "stacks -d 0.3s --native"; do
		# shellcheck disable=SC2086
		tells $words -p "$PID"
	done
	tells objects -d 0.3s --json -p "$PID"
	shows 'Odd\u202e\u009b'
	scry_ends 0 objects -d 0.3s -p "$PID" -o "$T/a.scry"
	scry_ends 0 objects -d 0.3s -p "$PID" -o "$T/b.scry" --raw
	scry_ends 0 stacks -d 0.5s -p "$PID" -o "$T/s$ODD.scry"
	for words in "report" "info" "report --view events" "report --view info"; do
		for file in a b s$ODD; do
			# shellcheck disable=SC2086
			tells $words "$T/$file.scry"
			# shellcheck disable=SC2086
			tells $words "$T/$file.scry" --json
		done
	done
	tells diff "$T/a.scry" "$T/b.scry"
	tells diff "$T/a.scry" "$T/b.scry" --json
	scry_ends 0 report "$T/s$ODD.scry" -o "$T/page.html"
	is_plain "$T/page.html"
	tells report "$T/no$ODD.scry"
	shows 'no\x1b[31m'
	tells "nothing$ODD"
	tells report "--x$ODD"
	kill -TERM "$PID"
	finish "$PID" || true
}
