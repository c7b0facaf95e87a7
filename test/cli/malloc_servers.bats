#!/usr/bin/env bats
# shellcheck disable=SC2154
# `scry malloc compare --start`: a server under each allocator, and that nothing of it is ever left behind.

load lib
load malloc

setup() {
	prepare
	need_python
	mkdir "$T/s"
	START="exec /usr/bin/python3 $ROOT/test/targets/malloc_server.py $T/s"
	READY="kill -0 \$(cat $T/s/pid)"
	LOAD="touch $T/s/work; while [ -e $T/s/work ]; do sleep 0.01; done"
}

compare() {
	"$SCRY" malloc compare --with glibc,glibc:MALLOC_ARENA_MAX=1 --runs 1 --start "$START" --ready "$READY" --load "$LOAD" "$@"
}

# none_left: no process that ever served runs. 1 is whose parents have ended.
none_left() {
	[ -s "$T/s/all" ] || return 1
	local pid
	for pid in $(grep -v "^1$" "$T/s/all" | sort -u); do
		[ "$pid" = "$$" ] || ! grep -q malloc_server "/proc/$pid/cmdline" 2>/dev/null || return 1
	done
}

# rows: allocator, runs and whether what was measured can be.
rows() {
	/usr/bin/python3 - "$T/x.json" <<'END'
import json, sys
d = json.load(open(sys.argv[1]))
for r in d["rows"]:
    # a tenth of a second of work, and 24 MiB that the server keeps
    print(r["allocator"], r["runs"], r["cpu_ns"] >= 100_000_000, r["cpu_unit_ns"] == r["cpu_ns"] // 10,
          r["rss_peak_bytes"] >= 24 << 20, r["rss_peak_bytes"] < 240 << 20, r["load_ns"] > 0)
END
}

@test "compare: a server is measured under each allocator, by units of work, and stopped" {
	compare --work 10 -o "$T/x.json" 3>&-
	[ "$(rows)" = "glibc 1 True True True True True
glibc:MALLOC_ARENA_MAX=1 1 True True True True True" ]
	none_left
	# as people read it; stopped by a command
	compare --stop "kill \$(cat $T/s/pid)" >"$T/x" 3>&-
	grep -qE "^glibc +[0-9,]+ " "$T/x"
	[ -z "$(grep killed "$T/x")" ]
	none_left
}

@test "compare: a server that becomes a daemon, with a worker, is measured whole and ended" {
	START+=" daemon"
	compare --work 10 -o "$T/x.json" 3>&-
	[ "$(rows | head -1)" = "glibc 1 True True True True True" ]
	none_left
}

@test "compare: what is answered by another server, fails or never gets ready is refused, and nothing is left" {
	fails() {
		local what=$1
		shift
		[ "$("$@" 2>"$T/err" 3>&-; echo $?)" = 1 ]
		grep -q "$what" "$T/err"
		[ ! -e "$T/s/all" ] || none_left
	}
	READY=true fails "succeeds before the server is started: another one answers" compare
	START=false fails "'false' ended with status 1 before it was ready" compare
	READY=false fails "'false' did not succeed within 1 s" compare --ready-within 1s
	READY="sleep 1000" fails "'sleep 1000' did not succeed within 0.5 s" timeout 10 "$SCRY" malloc compare --with glibc --runs 1 --start "$START" --ready "sleep 1000" --load "$LOAD" --ready-within 500ms
	LOAD="exit 3" fails "the load 'exit 3' ended with status 3" compare
	LOAD="kill -9 \$(cat $T/s/pid); sleep 0.2" fails "ended while the load ran" compare
	[ "$("$SCRY" malloc compare --start x --load y 2>"$T/err"; echo $?)" = 2 ]
	grep -q -- "--ready is missing" "$T/err"
	[ "$("$SCRY" malloc compare --start x --ready y --load z -- true 2>"$T/err"; echo $?)" = 2 ]
}

@test "compare: what a load leaves behind is ended with it, and is not the server's; a --stop that fails is reported" {
	# the child of a subshell that has ended, and one of the load's own
	LOAD+="; (exec 3>&-; sh -c 'while :; do :; done' & echo \$! >$T/s/left) ; sleep 0.3; sh -c 'while :; do :; done' & echo \$! >>$T/s/left"
	compare --work 10 -o "$T/x.json" --stop "for p in \$(cat $T/s/left); do kill -0 \$p && touch $T/s/shared; done; kill \$(cat $T/s/pid); exit 3" 3>&-
	[ ! -e "$T/s/shared" ]
	# a tenth of a second is the server's, three and more the load's
	/usr/bin/python3 -c "
import json, sys
d = json.load(open('$T/x.json'))
assert all(1e8 <= r['cpu_ns'] < 2.8e8 for r in d['rows']), d['rows']
assert [n for n in d['notes'] if n == 'under glibc --stop failed, though the server ended; -v shows what it prints'], d['notes']
assert not [n for n in d['notes'] if 'killed' in n], d['notes']"
	none_left
	START+=" stubborn"
	compare --with glibc --stop "exit 3" >"$T/x" 3>&-
	grep -q "under glibc the server did not end within 10 s of --stop, which failed, and was killed" "$T/x"
	none_left
}

@test "compare: as nohup starts it, a hang-up does not end it" {
	LOAD="touch $T/s/loaded; while [ ! -e $T/s/go ]; do sleep 0.01; done"
	(trap "" HUP && exec "$SCRY" malloc compare --with glibc --runs 1 --start "$START" --ready "$READY" --load "$LOAD") >"$T/x" 3>&- &
	wait_for 20 test -e "$T/s/loaded"
	kill -HUP "$!"
	touch "$T/s/go"
	wait "$!"
	grep -q "^glibc " "$T/x"
	none_left
}

# ends_by SIGNAL: while the load runs, which never ends.
ends_by() {
	rm -f "$T/s/pid" "$T/s/all"
	LOAD="touch $T/s/loaded; sleep 1000"
	rm -f "$T/s/loaded"
	start scry "$SCRY" malloc compare --with glibc --start "$START" --ready "$READY" --load "$LOAD"
	wait_for 20 test -e "$T/s/loaded"
	kill "-$1" "$PID"
	ended "$PID"
}

@test "compare: interrupted or killed, no server is left, a daemon or not" {
	local how
	for how in "" " daemon" " stubborn"; do
		START="exec /usr/bin/python3 $ROOT/test/targets/malloc_server.py $T/s$how"
		ends_by INT
		none_left # at once: scry has waited for it
		ends_by TERM
		none_left
		ends_by KILL
		wait_for 20 none_left
	done
}

# kills WHO...: of front, keeper and guardian, while the load runs, at once.
kills() {
	local front guardian keeper who pids=
	rm -f "$T/s/pid" "$T/s/all" "$T/s/loaded"
	LOAD="touch $T/s/loaded; sleep 1000"
	start scry "$SCRY" malloc compare --with glibc --start "$START" --ready "$READY" --load "$LOAD"
	front=$PID
	wait_for 20 test -e "$T/s/loaded"
	guardian=$(pgrep -P "$front" -x scry-guardian)
	keeper=$(pgrep -P "$guardian")
	for who in "$@"; do
		pids+=" ${!who}"
	done
	# shellcheck disable=SC2086
	kill -KILL $pids
	ended "$front"
	wait_for 20 none_left
}

@test "compare: whoever of scry's processes is killed, alone or with another, a daemon does not stay" {
	START+=" daemon"
	kills keeper
	[ "$status" -ne 0 ]
	grep -q "the process that ends the server was itself killed: the server was killed, too" "$T/scry.err"
	kills front keeper
	kills guardian
	[ "$status" -ne 0 ]
	grep -q "the process that guards the server was itself killed" "$T/scry.err"
	kills front guardian
}

# on_terminal ARGS...: what scry says on one, a line for each that it shows.
on_terminal() {
	/usr/bin/python3 - "$@" <<'END'
import os, pty, sys
pid, fd = pty.fork()
if not pid:
    os.dup2(os.open("/dev/null", os.O_WRONLY), 1)
    os.execv(sys.argv[1], sys.argv[1:])
shown = b""
try:
    while part := os.read(fd, 4096):
        shown += part
except OSError:
    pass
os.waitpid(pid, 0)
print(shown.replace(b"\r", b"\n").replace(b"\x1b[K", b"").decode())
# the last of it wipes the line
print("wiped" if shown.endswith(b"\r\x1b[K") else "not wiped")
END
}

@test "compare and replay say on a terminal how far they are, and nothing elsewhere" {
	on_terminal "$SCRY" malloc compare --with glibc,glibc:MALLOC_ARENA_MAX=1 --runs 2 --start "$START" --ready "$READY" --load "$LOAD" >"$T/shown"
	grep -qx "run 1 of 4, glibc" "$T/shown"
	grep -qxE "run 3 of 4, glibc:MALLOC_ARENA_MAX=1, about [0-9]+ s left" "$T/shown"
	grep -qxE "run 4 of 4, glibc, about [0-9]+ s left" "$T/shown"
	grep -qx wiped "$T/shown"
	"$SCRY" malloc record -q -o "$T/x.scry" -- /bin/ls / >/dev/null 3>&-
	on_terminal "$SCRY" malloc replay "$T/x.scry" --with glibc --runs 3 --verify >"$T/shown"
	# three of glibc and of none, one sampled, one counted, one verified
	grep -qx "run 1 of 9, glibc" "$T/shown"
	grep -qxE "run 9 of 9, glibc, about [0-9]+ s left" "$T/shown"
	grep -qx wiped "$T/shown"
	"$SCRY" malloc replay "$T/x.scry" --with glibc --runs 3 >"$T/out" 2>"$T/err"
	[ ! -s "$T/err" ]
	[ -z "$(grep "run 1 of" "$T/out")" ]
}

@test "compare: what a server's comparison has not is refused by name, before anything is started" {
	local words
	for words in "--touch recorded" "--verify" "--keep $T/k.scry" "--pace think" "--threads recorded" "--rss-every 1ms" "--pid 1" "--memory 1G"; do
		# shellcheck disable=SC2086
		[ "$(compare $words 2>"$T/err" 3>&-; echo $?)" = 2 ]
		grep -q -- "nothing replayed: it has no ${words%% *}; fix" "$T/err"
	done
	[ "$(compare extra 2>"$T/err" 3>&-; echo $?)" = 2 ]
	grep -q "'extra' is not an option" "$T/err"
	for words in svg html; do
		[ "$(compare -o "$T/x.$words" 2>"$T/err" 3>&-; echo $?)" = 2 ]
		grep -q "'.$words'; fix: one of x.txt, x.json" "$T/err"
		[ ! -e "$T/x.$words" ]
	done
	[ ! -e "$T/s/all" ]
}
