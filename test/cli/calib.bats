#!/usr/bin/env bats
# Where a layout comes from when the calibration child has a hard time: the program's file is gone,
# its libraries lie in another mount namespace, its file may not be executed, it is another user's.
# Either it is learned, or it comes from the cache, or the refusal says why.

load lib

setup() {
	need_scry
	prepare
	own_cache
}

need_namespaces() {
	unshare -m true 2>/dev/null || skip "no right to make a mount namespace"
}

# A program that allocates and says that it runs; its pid in $PID, as the host sees it.
loop='$stdout.sync = true; puts "runs"; loop { Array.new(10) { Object.new }; sleep 0.001 }'
running() {
	start "$@"
	wait_for 10 in_file runs "$T/$1.out"
}

# records PID: its objects, without an error.
records() {
	"$SCRY" objects -p "$1" -d 0.5s --top 0 -o "$T/o.json" --force
	json_is "$T/o.json" 'r["totals"]["allocated"] > 0 && r["data_quality"]["errors"] == 0'
}

layout_of() {
	"$SCRY" doctor -p "$1" | sed -n 's/^ok *layout *//p'
}

@test "a deleted program is learned from the file that runs" {
	mkdir "$T/bin"
	cp "$RUBY_FILE" "$T/bin/ruby"
	running gone "$T/bin/ruby" -e "$loop"
	rm -r "$T/bin"
	[[ "$(readlink "/proc/$PID/exe")" == *"(deleted)" ]]
	records "$PID"
	[[ "$(SCRY_NO_CACHE=1 layout_of "$PID")" == "learned now "* ]]
}

@test "a target in another mount namespace is learned with what is mounted there" {
	need_namespaces
	mkdir "$T/there"
	# The program exists in that namespace only.
	running other unshare -m sh -c '
		mount -t tmpfs none "$1" && cp "$2" "$1/ruby" && exec "$1/ruby" -e "$3"' - "$T/there" "$RUBY_FILE" "$loop"
	[ ! -e "$T/there/ruby" ]
	records "$PID"
	[[ "$(layout_of "$PID")" == "learned now "* ]]
	# What a foreign namespace taught is not kept for others.
	[ ! -e "$XDG_CACHE_HOME/scry" ]
}

@test "without the standard library the layout is learned, but not kept" {
	need_namespaces
	lib="$("$RUBY" -e 'puts RbConfig::CONFIG["rubyarchdir"]')"
	running bare unshare -m sh -c '
		mount -t tmpfs none "$1" && exec "$2" --disable=gems -e "$3"' - "$lib" "$RUBY_FILE" "$loop"
	run "$SCRY" doctor -p "$PID"
	[[ "$output" == *"could not load 'objspace'"* ]]
	[[ "$output" == *"layout "*"learned now"* ]]
	[ ! -e "$XDG_CACHE_HOME/scry" ]
	# Another ruby of the same build knows more; then it serves this one too.
	running whole "$RUBY_FILE" -e "$loop"
	[[ "$(layout_of "$PID")" == "learned now "* ]]
	for pid in $STARTED; do
		[[ "$(layout_of "$pid")" == "from the cache "*"validated now"* ]]
	done
}

@test "a file that may not be executed any more: refused with the reason; the cache carries" {
	need_namespaces
	mkdir "$T/there"
	running noexec unshare -m sh -c '
		mount -t tmpfs none "$1" && cp "$2" "$1/ruby" && { "$1/ruby" -e "$3" & } &&
		until grep -q runs "$4"; do sleep 0.05; done && mount -o remount,noexec "$1"; echo remounted; wait' \
		- "$T/there" "$RUBY_FILE" "$loop" "$T/noexec.out"
	wait_for 10 in_file remounted "$T/noexec.out"
	target="$(pgrep -P "$PID" ruby)"
	STARTED="$target $STARTED"
	run "$SCRY" objects -p "$target" -d 0.2s
	[ "$status" -eq 4 ]
	[[ "$output" == *"cannot execute the binary: Permission denied"* ]]
	[[ "$output" == *"fix: "* ]]

	running whole "$RUBY_FILE" -e "$loop"
	[[ "$(layout_of "$PID")" == "learned now "* ]]
	[[ "$(layout_of "$target")" == "from the cache "* ]]
	records "$target"
}

@test "a library that was replaced on disk is not taken for the one that runs" {
	[ "$(id -u)" = 0 ] || skip "not root: a deleted library cannot be opened"
	library="$(ldd "$RUBY_FILE" | sed -n 's/.*libruby[^ ]* => \([^ ]*\) .*/\1/p')"
	[ -n "$library" ] || skip "this ruby has no libruby"
	mkdir "$T/lib"
	name="$(basename "$library")"
	cp -L "$library" "$T/lib/$name"
	running old env LD_LIBRARY_PATH="$T/lib" "$RUBY_FILE" -e "$loop"
	# The same library, but of another build.
	id="$(readelf -n "$library" | sed -n 's/.*Build ID: //p')"
	"$RUBY" -e 'b = File.binread(ARGV[0]); id = [ARGV[2]].pack("H*"); b[b.index(id), 4] = "\1\2\3\4"; File.binwrite(ARGV[1], b)' \
		"$library" "$T/lib/new" "$id"
	mv "$T/lib/new" "$T/lib/$name"
	run "$SCRY" objects -p "$PID" -d 0.2s
	[ "$status" -eq 4 ]
	[[ "$output" == *"is not the library that process $PID runs"*"fix: "* ]]
	# Put back, it is the same build again, though another file.
	cp -L "$library" "$T/lib/$name"
	records "$PID"
}

@test "another root directory: the child runs there" {
	need_namespaces
	mkdir -p "$T/root"
	running jail unshare -m sh -c '
		mkdir -p "$1/etc" "$1/dev" && for d in usr lib lib64 proc; do
			mkdir -p "$1/$d" && mount --rbind "/$d" "$1/$d"; done &&
		mv_to="$1/only-here" && mkdir "$mv_to" && cp "$2" "$mv_to/ruby" &&
		exec chroot "$1" /only-here/ruby -e "$3"' - "$T/root" "$RUBY_FILE" "$loop"
	[[ "$(readlink "/proc/$PID/root")" != / ]]
	[[ "$(layout_of "$PID")" == "learned now "* ]]
}

@test "scry in a chroot, where the child's libraries have other paths: it is learned from and counted in" {
	need_namespaces
	mkdir "$T/root"
	for source in event hooks; do
		# shellcheck disable=SC2016
		unshare -m sh -c 'mount --rbind / "$0" && exec chroot "$0" "$@"' "$T/root" \
			"$SCRY" objects --source $source --top 0 --force -o "$T/o.json" -- "$RUBY_FILE" -e '1000.times { Object.new }'
		json_is "$T/o.json" 'r["totals"]["allocated"] >= 1000 && r["data_quality"]["errors"] == 0'
	done
}

@test "root with another user's home: nothing is made there, and no link of theirs followed" {
	need_root "another user"
	local home=$T/home
	mkdir "$home" "$T/roots"
	chown 65534 "$home"
	running ruby "$RUBY_FILE" -e "$loop"
	XDG_CACHE_HOME='' HOME=$home scry_ends 0 objects -p "$PID" -d 0.1s
	[ ! -e "$home/.cache" ]
	ln -s "$T/roots" "$home/.cache"
	XDG_CACHE_HOME='' HOME=$home scry_ends 0 objects -p "$PID" -d 0.1s
	[ -z "$(ls -A "$T/roots")" ]
	chown 0 "$home"
	XDG_CACHE_HOME='' HOME=$home scry_ends 0 objects -p "$PID" -d 0.1s
	[ -e "$T/roots/scry" ]
}

@test "the cache is used and judged at each attach; SCRY_NO_CACHE goes without" {
	running plain "$RUBY_FILE" -e "$loop"
	[[ "$(layout_of "$PID")" == "learned now "* ]]
	[[ "$(layout_of "$PID")" == "from the cache "*"validated now"* ]]
	records "$PID"
	[[ "$(SCRY_NO_CACHE=1 layout_of "$PID")" == "learned now "* ]]
	file="$(echo "$XDG_CACHE_HOME"/scry/layout-*)"
	[ "$(stat -c %a "$file")" = 600 ]
	[ "$(stat -c %a "$XDG_CACHE_HOME/scry")" = 700 ]
	truncate -s 1000 "$file"
	[[ "$(layout_of "$PID")" == "learned now "* ]]
	[[ "$(layout_of "$PID")" == "from the cache "* ]]
}

# A layout that is learned is written anew, to another file.
@test "a started Ruby is not learned again where its layout is kept and was rehearsed" {
	count='20_000.times { Object.new }; exit 3'
	run "$SCRY" objects -o "$T/first.json" -- "$RUBY_FILE" --disable=gems -e "$count"
	[ "$status" -eq 3 ]
	before="$(stat -c '%i %y' "$XDG_CACHE_HOME"/scry/layout-*)"
	run "$SCRY" objects --top 0 -o "$T/o.json" -- "$RUBY_FILE" --disable=gems -e "$count"
	[ "$status" -eq 3 ]
	[ "$(stat -c '%i %y' "$XDG_CACHE_HOME"/scry/layout-*)" = "$before" ]
	json_is "$T/o.json" 'r["data_quality"]["errors"] == 0 && r["rows"].any? { |x| x["class"] == "Object" && x["allocated"] == 20_000 }'
}

# The changed byte is of a physical address that nobody reads: loaded, and no part of the build-id.
@test "what is loaded decides what a Ruby is known by, not the build-id that its file claims" {
	running plain "$RUBY_FILE" -e "$loop"
	module="$("$SCRY" doctor -p "$PID" | sed -n 's/^ok *ruby .* in //p')"
	[[ "$(layout_of "$PID")" == "from the cache "* ]]
	mkdir "$T/bin"
	cp "$RUBY_FILE" "$T/bin/ruby"
	[ "$module" = "$RUBY_FILE" ] || cp "$module" "$T/bin/$(objdump -p "$module" | sed -n 's/^ *SONAME *//p')"
	export LD_LIBRARY_PATH="$T/bin"
	running copy "$T/bin/ruby" -e "$loop"
	[[ "$(layout_of "$PID")" == "from the cache "* ]]
	cp -r "$T/bin" "$T/else" # the one that runs may not be written
	for file in "$T"/else/*; do
		printf '\001' | dd of="$file" bs=1 seek=95 conv=notrunc status=none
	done
	export LD_LIBRARY_PATH="$T/else"
	running other "$T/else/ruby" -e "$loop"
	[[ "$(layout_of "$PID")" == "learned now "* ]]
	[[ "$(layout_of "$PID")" == "from the cache "* ]]
}

# The child loads what the environment of its user names: what it says holds for his programs alone.
@test "what was learned of one user's Ruby is not believed of another's" {
	need_root "another user"
	setpriv --reuid=65534 --regid=65534 --clear-groups "$RUBY_FILE" -e 1 || skip "nobody may not run $RUBY_FILE"
	running nobody setpriv --reuid=65534 --regid=65534 --clear-groups "$RUBY_FILE" -e "$loop"
	nobody=$PID
	[[ "$(layout_of "$nobody")" == "learned now "* ]]
	[[ "$(layout_of "$nobody")" == "from the cache "* ]]
	running another setpriv --reuid=33 --regid=33 --clear-groups "$RUBY_FILE" -e "$loop"
	[[ "$(layout_of "$PID")" == "learned now "* ]]
	running root "$RUBY_FILE" -e "$loop"
	[[ "$(layout_of "$PID")" == "learned now "* ]]
	[[ "$(layout_of "$PID")" == "from the cache "* ]]
}

@test "a Ruby that is too old is named, with what is supported" {
	mkdir "$T/bin"
	cp "$TARGETS/target_old_ruby" "$T/bin/ruby"
	running old "$T/bin/ruby"
	for command in "objects -d 1s" "stacks -d 1s" "doctor" "dump"; do
		# shellcheck disable=SC2086
		run "$SCRY" $command -p "$PID"
		[ "$status" -ne 0 ]
		[[ "$output" == *"ruby 1.9.3p551 (2014-11-13"*"older than what scry can learn"*"syntax error"*"supported are CRuby 2.7 and later"* ]]
	done
	run "$SCRY" objects -- "$T/bin/ruby" -e 1
	[ "$status" -ne 0 ]
	[[ "$output" == *"older than what scry can learn"* ]]
}

# A program in a container that only calls itself ruby, looked at by the host's root. It runs as root there and is
# learned from by running it: then it kills a process of the host's, takes its shared memory, writes a file, and
# leaves others behind.
@test "a fake ruby in a container, run to learn from it, reaches nothing outside" {
	[ "$(id -u)" = 0 ] || skip "not root: it would be nobody's container"
	unshare -mp --fork true 2>/dev/null || skip "no right to make namespaces"
	mkdir "$T/fake"
	cp "$BUILD/test/targets/target_fake_ruby" "$T/fake/ruby"
	start victim sleep 1000
	victim=$PID
	running fake env LD_LIBRARY_PATH="$T/fake" unshare -mpinu --fork --kill-child --mount-proc "$T/fake/ruby"
	target="$(pgrep -P "$PID")"
	shm="$(ipcmk -M 4096 -p 0666 | sed 's/.*: //')"
	echo "$victim $shm" >"$T/fake/victim"
	run timeout 60 "$SCRY" dump -p "$target"
	taken="$(ipcs -m -i "$shm")"
	ipcrm -m "$shm"
	[ "$status" -ne 0 ] && [ "$status" -ne 124 ] && [ "$status" -lt 128 ]
	[[ "$taken" == *"att_time=Not set"* ]]
	[ ! -e "$T/fake/written" ]
	kill -0 "$victim"
	kill -0 "$target"
	# Nobody is left in the container but the target.
	[ "$(for p in /proc/[0-9]*; do readlink "$p/exe"; done 2>/dev/null | grep -c "^$T/fake/ruby")" = 1 ]
}
