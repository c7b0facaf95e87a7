#!/usr/bin/env bats
# What make lint says of documents, manual pages, help, messages and tags (tools/check-words, check-man, check-format,
# check-rules, check-tags): the tree passes, and a copy of it with one thing wrong does not.

source "$BATS_TEST_DIRNAME/lib.bash"

setup_file() {
	export COPY="$BATS_FILE_TMPDIR/tree"
	mkdir "$COPY"
	cp -r "$ROOT"/{bench,doc,man,tools} "$ROOT"/*.md "$COPY"
	mkdir "$COPY/src"
	cp -r "$ROOT"/src/{cmd,rec,wire} "$COPY/src"
	ln -s "$ROOT/test" "$COPY/test"
}

# wrong FILE SED TOOL TEXT: with FILE edited by SED the tool fails, and says TEXT.
wrong() {
	cp "$COPY/$1" "$T/kept"
	sed -i "$2" "$COPY/$1"
	no cmp -s "$COPY/$1" "$T/kept" || return 1
	run "$COPY/tools/$3" "${@:5}"
	cp "$T/kept" "$COPY/$1"
	echo "$output"
	[ "$status" -eq 1 ] && [[ "$output" == *"$4"* ]]
}

@test "the tree passes" {
	"$ROOT/tools/check-words"
	"$ROOT/tools/check-man" "$BUILD"
}

@test "a word to avoid: in a document, a message, help, a manual page; not in code" {
	wrong doc/TOUR.md '$a The keeper is\nno thread.' check-words "'is no' (in: "
	wrong doc/design/gvl.md '$a All strays end.' check-words "doc/design/gvl.md:"
	wrong src/cmd/undo.c 's/"process %d has ended, and/"process %d is "\n"told that/' check-words "src/cmd/undo.c:"
	wrong src/cmd/gvl.c 's/"watch child processes too"/"watch the malloc family too"/' check-words "'malloc family'"
	wrong man/scry-gvl.1 '$a .PP\nThe holder\n.B is\nno thread.' check-words "man/scry-gvl.1:"
	wrong README.md '$a A lane.' check-words "README.md:"
	wrong bench/web.md '$a A lane.' check-words "bench/web.md:"
	wrong src/rec/writer.h '$a /* All of its\n * strays. */' check-words "src/rec/writer.h:"
	printf '\nThe name `kin` is of the code: there is no other, and it is no longer used.\n' >>"$COPY/doc/TOUR.md"
	"$COPY/tools/check-words"
	wrong doc/GLOSSARY.md '/ everywhere\(, comments\)\? |$/d; / messages |$/d; / comments |$/d' check-words "no words to avoid"
}

@test "a struct tag that is defined twice" {
	"$COPY/tools/check-tags"
	wrong src/rec/reader.h '$a struct scry_control {\n\tint none;\n};' check-tags "'scry_control' is defined in src/rec/reader.h:"
	wrong src/rec/reader.h '$a /* struct scry_reader { */ union scry_reader {\n\tint none;\n};' check-tags "'scry_reader' is defined in src/rec/reader.c:"
}

@test "a line of doc/ or bench/ beyond 120 characters" {
	wrong doc/design/gvl.md "\$a $(printf 'x%.0s' {1..121})" check-words "121 characters"
	printf '%s\n' "$(printf 'x%.0s' {1..120})" >>"$COPY/doc/design/gvl.md"
	"$COPY/tools/check-words"
	wrong bench/web.md "\$a $(printf 'x%.0s' {1..121})" check-words "bench/web.md:"
	printf '| %s |\n' "$(printf 'x%.0s' {1..120})" >>"$COPY/bench/web.md"
	"$COPY/tools/check-words"
}

@test "a rule of doc/AGENT.md without its reason or its test, or with a test that is not there" {
	"$COPY/tools/check-rules"
	wrong doc/AGENT.md '/^21\./,/^22\./s/\*Why:\*//' check-rules "rule 21 has no *Why:*"
	wrong doc/AGENT.md '/^21\./,/^22\./s/\*Test:\*//' check-rules "rule 21 has no *Test:*"
	wrong doc/AGENT.md 's|`cli/strange.bats`|`cli/stranger.bats`|' check-rules "no test/cli/stranger.bats"
	wrong doc/AGENT.md 's/"across pages"/"across two pages"/' check-rules "in test/unit/sys_edit.c"
	wrong doc/AGENT.md 's/"many cycles on a ruby/"few cycles on a ruby/' check-rules "no \"few cycles"
	wrong doc/AGENT.md 's/^22\. /23. /' check-rules "rule 23 follows rule 21"
	wrong doc/AGENT.md 's/\*Test:\* as rule 53\./*Test:* as above./' check-rules "names no test after *Test:*, nor \"none\""
	# The last one too, behind which there is no heading.
	wrong doc/AGENT.md '$a 999. **A rule.** - *Why:* it is.' check-rules "rule 999 has no *Test:*"
}

@test "a manual page that is not what --help says: options, their words, their order, whose they are" {
	wrong man/scry-malloc.1 '/^\\fB\\-\\-preload/,/^\.TP/d' check-man "scry malloc record: missing: (None, 'preload', None)" "$BUILD"
	wrong man/scry-malloc.1 's/^record child processes too/record its children too/' check-man "scry malloc record: --follow" "$BUILD"
	wrong man/scry-patch.1 's/^record the first N argument/keep the first N argument/' check-man "scry patch log: --args" "$BUILD"
	wrong man/scry-patch.1 's/^\.RB ( log )$//' check-man "scry patch count: not in --help" "$BUILD"
	wrong man/scry-patch.1 's/^\.SS scry patch undo/.SS scry patch undoes/' check-man "scry patch undo: no page" "$BUILD"
	wrong man/scry-patch-apply.1 's/\\-no\\-ipa\\-ra/\\-no\\-ipa/' check-man "FILE.so: missing" "$BUILD"
	wrong man/scry-malloc-replay.1 's/^\.RI ( compare )$//' check-man "scry malloc replay: not in --help" "$BUILD"
	wrong man/scry-fibers.1 's/^what greenlets copy/how much greenlets copy/' check-man "scry fibers --count: --count" "$BUILD"
	wrong man/scry-info.1 '/^\\fB\\-\\-json/,/^\.TP/d; s/^this help/&\n.TP\n\\fB\\-\\-json\\fR\nprint JSON instead of text/' check-man "scry info: another order" "$BUILD"
}

@test "FORMAT.md without an event or a field, or with an old size" {
	command -v "${CC:-cc}" >/dev/null || skip "no C compiler"
	"$COPY/tools/check-format"
	wrong doc/FORMAT.md '/^| 51 /d' check-format "no row | 51 | gvl_wait_line"
	wrong doc/FORMAT.md 's/^| 5 | objects | 120 |/| 5 | objects | 104 |/' check-format "no row | 5 | objects | 120 |"
	wrong doc/FORMAT.md 's/`absent_ticks`/ticks/' check-format "syscall: \`absent_ticks\` is missing"
}
