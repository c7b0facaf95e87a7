#!/usr/bin/env bats
# At the prompt: beginnings of commands, what a misspelt word was meant to be, examples, completion.

load lib

# complains PATTERN WORDS...: scry ends with 2, prints nothing, and says so on stderr in one line.
complains() {
	local pattern=$1 got=0
	shift
	"$SCRY" "$@" >"$T/out" 2>"$T/err" || got=$?
	cat "$T/err"
	[ "$got" -eq 2 ] && [ ! -s "$T/out" ] && [ "$(wc -l <"$T/err")" -eq 1 ] && grep -q -- "$pattern" "$T/err"
}

@test "the beginning of a command is enough, if no other begins so" {
	for words in "obj:objects" "mal rep:malloc replay" "patch cou:patch count" "sta:stacks" "sy:syscalls"; do
		# shellcheck disable=SC2086
		diff <("$SCRY" ${words%:*} --help) <("$SCRY" ${words#*:} --help)
	done
	complains "'d' may be dump or diff" d
	complains "'re' may be record or report" re
	complains "'re' may be record or replay" malloc re
}

@test "a misspelt command or option: what was meant" {
	complains "no command 'objcets'; did you mean 'objects'?" objcets
	complains "no command 'recrod'; did you mean 'record'?" malloc recrod
	complains "no command 'nonsense'; scry --help lists them" nonsense
	complains "unknown option '--jsn'; did you mean '--json'?" dump --jsn
	complains "did you mean '--force-gc'?" objects --forec-gc -p 1
}

@test "a misspelt function: the nearest name of the objects concerned" {
	start sleeper sleep 100
	scry_ends 4 patch count mallox -p "$PID" -d 0.1s
	says "no loaded object of process $PID defines a function 'mallox'; did you mean 'malloc'?"
	"$SCRY" calls -x mallox -p "$PID" -d 0.1s >"$T/out" 2>"$T/err" || true
	grep -q "waiting; did you mean 'malloc'?" "$T/err"
	"$SCRY" patch count strlenn@libc -p "$PID" -d 0.1s >"$T/out" 2>"$T/err" || true
	grep -q "did you mean 'strlen'?" "$T/err"
	"$SCRY" patch count xyzzyplugh -p "$PID" -d 0.1s >"$T/out" 2>"$T/err" || true
	no grep -q "did you mean" "$T/err"
}

# Each command, groups taken apart.
commands() {
	"$SCRY" --help | sed -n 's/^  \([a-z]*\)  .*/\1/p' | grep -vx 'malloc\|patch'
	for group in malloc patch; do "$SCRY" $group --help | sed -n "s/^  scry \($group [a-z]*\) .*/\1/p"; done
}

@test "a misspelt function of a started program, also with a version: never with the version in the name" {
	"$SCRY" calls -x strrchx -- ls / >"$T/scry.out" 2>"$T/scry.err" && return 1
	says "defines 'strrchx[^']*'; did you mean 'strrchr'\?"
	scry_ends 0 calls -x realpth@GLIBC_2.3 -x exit -- ls /
	says "realpth@GLIBC_2.3: no object that defines it was ever loaded; did you mean 'realpath'\?"
}

@test "each help ends with an example of that command" {
	[ "$(commands | wc -l)" -ge 28 ]
	while read -r command; do
		# shellcheck disable=SC2086
		"$SCRY" $command --help >"$T/help"
		tail -n 3 "$T/help" >"$T/end"
		echo "$command:" "$(cat "$T/end")"
		sed -n 2p "$T/end" | grep -qx "example:"
		sed -n 3p "$T/end" | grep -q "scry $command"
	done < <(commands)
}

# completed WORDS...: what bash offers for the last of them.
completed() {
	bash -c 'source "$1"; shift
		COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
		_scry; printf "%s\n" "${COMPREPLY[@]}"' _ "$T/bash" "$@" | sort | paste -sd " "
}

@test "bash completes commands, options, their words and pids" {
	"$SCRY" completion bash >"$T/bash"
	[ "$(completed scry d)" = "diff doctor dump" ]
	[ "$(completed scry malloc re)" = "record replay" ]
	[ "$(completed scry objects --by = l)" = "line" ]
	# beginnings of commands do, as they do when run
	[ "$(completed scry obj --by = l)" = "line" ]
	[ "$(completed scry obj --)" = "$(completed scry objects --)" ]
	[ "$(completed scry mal rep --)" = "$(completed scry malloc replay --)" ]
	[ "$(completed scry mal re)" = "record replay" ]
	[ -z "$(completed scry d --)" ]
	[ "$(completed scry help mal)" = "malloc" ]
	[ "$(completed scry completion "")" = "bash fish zsh" ]
	[ "$(completed scry help malloc re)" = "record replay" ]
	[ "$(completed scry help mal re)" = "record replay" ]
	[ "$(completed scry report --view calls-)" = "calls-hist calls-sums calls-tree" ]
	[ "$(completed scry report --at "")" = "end peak" ]
	[ "$(completed scry record -e mal)" = "malloc" ]
	[ "$(completed scry record -e objects,m)" = "objects,malloc" ]
	[ "$(completed scry report --section gv)" = "gvl" ]
	[ "$(completed scry report --sort lost)" = "lost_error_ns lost_ns" ]
	[ "$(completed scry report --sort total_)" = "total_ns" ]
	[ "$(completed scry report --sort peak_)" = "peak_blocks peak_bytes" ]
	[ "$(completed scry objects --by "")" = "$(completed scry objects --by =)" ]
	[ "$(completed scry patch undo --max)" = "--max-pause" ]
	[ "$(completed scry undo --max)" = "--max-pause" ]
	[ "$(completed scry malloc compare --with je)" = "jemalloc" ]
	[ "$(completed scry malloc replay --with glibc,m)" = "glibc,mimalloc" ]
	grep -qw root <<<"$(completed scry calls -u ro)"
	[ "$(completed scry patch apply uc)" = "ucontext" ]
	[ -z "$(completed scry patch count uc)" ]
	printf '{"patches": "slow_query, ucontext", "x": 1},\n{"patches": null}\n' >"$T/ps"
	printf '#!/bin/sh\n[ "$1" = ps ] && cat "%s"\n' "$T/ps" >"$T/scry"
	chmod +x "$T/scry"
	[ "$(PATH=$T:$PATH completed scry patch undo "")" = "slow_query ucontext" ]
	[ "$(PATH=$T:$PATH completed scry pat rea s)" = "slow_query" ]
	grep -qw "$$" <<<"$(completed scry stacks -p "")"
	grep -qw true <<<"$(completed scry objects -- tru)"
	# Each option that a help shows, no others.
	while read -r command; do
		# shellcheck disable=SC2086
		diff <("$SCRY" $command --help | sed -n 's/^  .[a-z]\?.\{0,4\}\(--[a-z-]*\).*/\1/p' | sort -u) \
			<(completed scry $command -- | tr " " "\n" | sed 's/=.*//' | sort -u)
	done < <(commands)
}

@test "fish completes the same" {
	command -v fish >/dev/null || skip "no fish: run make deps"
	"$SCRY" completion fish >"$T/fish"
	offered() { HOME=$T fish -N -c "source '$T/fish'; complete -C '$1'" | cut -f1 | sort | xargs; }
	[ "$(offered "scry d")" = "diff doctor dump" ]
	[ "$(offered "scry malloc re")" = "record replay" ]
	[ "$(offered "scry objects --by ")" = "class file gem line method" ]
	[ "$(offered "scry patch undo --max")" = "--max-pause" ]
	[ "$(offered "scry record --ti")" = "" ]
	[ "$(offered "scry obj --by ")" = "class file gem line method" ]
	[ "$(offered "scry help malloc re")" = "record replay" ]
	[ "$(offered "scry help mal re")" = "record replay" ]
	[ "$(offered "scry completion ")" = "bash fish zsh" ]
	[ "$(offered "scry report --view calls-")" = "calls-hist calls-sums calls-tree" ]
	[ "$(offered "scry record -e objects,m")" = "objects,malloc" ]
	[ "$(offered "scry malloc compare --with je")" = "jemalloc" ]
	[ "$(offered "scry patch apply uc")" = "ucontext" ]
	grep -qw true <<<"$(offered "scry objects -- tru")"
	[ "$(offered "scry objects -- scry malloc re")" = "record replay" ]
}

@test "zsh completes the same" {
	command -v zsh >/dev/null || skip "no zsh: run make deps"
	"$SCRY" completion zsh >"$T/zsh"
	zsh -n "$T/zsh"
	HOME=$T zsh -fc 'autoload -U compinit; compinit -D -u; source "$1"
		for each in objects malloc patch malloc_replay patch_undo record help help_malloc completion rest patches; do (( $+functions[_scry_$each] )) || print "no $each"; done' _ "$T/zsh" >"$T/out" 2>&1
	cat "$T/out"
	[ ! -s "$T/out" ]
	[ "$(HOME=$T zsh -fc 'autoload -U compinit; compinit -D -u; source "$1"
		for w in obj objects d mal; do print -r -- "$(_scry_full $w objects dump diff malloc)"; done' _ "$T/zsh" | xargs)" = "objects objects d malloc" ]
}

@test "installed, the scripts lie where the shells look" {
	DESTDIR="$T/root" meson install -C "$BUILD" --no-rebuild --quiet >/dev/null 2>"$T/err" || { cat "$T/err"; false; }
	for shell in bash zsh fish; do
		file=$(find "$T/root" -path "*$shell*" -type f \( -name scry.bash -o -name _scry -o -name scry.fish \))
		[ -n "$file" ]
		diff <("$SCRY" completion $shell) "$file"
	done
}

@test "help CMD is CMD --help, also of a group and of a command of one" {
	while read -r command; do
		# shellcheck disable=SC2086
		diff <("$SCRY" help $command) <("$SCRY" $command --help)
	done < <(commands)
	diff <("$SCRY" help malloc) <("$SCRY" malloc --help)
	diff <("$SCRY" help mal rep) <("$SCRY" malloc replay --help)
	[ "$("$SCRY" help objcts 2>"$T/err"; echo $?)" = 2 ]
	grep -q "did you mean 'objects'?" "$T/err"
	[ "$("$SCRY" help objects gvl 2>"$T/err"; echo $?)" = 2 ]
	grep -q "help is of one command" "$T/err"
}
