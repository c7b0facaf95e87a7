#!/usr/bin/env bats
# scry calls shows the SQL of Ruby, Python, Perl and PHP, against a MariaDB server that this file starts for itself.
# Each program counts its own queries.

load lib

SLEEP=0.3

setup_file() {
	export DB="$BATS_FILE_TMPDIR/db"
	mkdir -p "$DB"
	command -v mariadbd >/dev/null || return 0
	chmod 755 "$BATS_FILE_TMPDIR"
	mariadb-install-db --no-defaults --datadir="$DB/data" --auth-root-authentication-method=normal \
		--user="$(id -un)" --skip-test-db >"$DB/install.log" 2>&1 || return 0
	mariadbd --no-defaults --datadir="$DB/data" --user="$(id -un)" --socket="$DB/s" --skip-networking \
		--pid-file="$DB/pid" --innodb-buffer-pool-size=16M >"$DB/log" 2>&1 3>&- &
	echo $! >"$DB/server"
	local left=600
	until mariadb --no-defaults -u root -S "$DB/s" -e 'SELECT 1' >/dev/null 2>&1; do
		left=$((left - 1))
		[ $left -gt 0 ] || return 0
		sleep 0.05
	done
	touch "$DB/ready"
}

teardown_file() {
	if [ -f "$DB/server" ]; then kill -KILL "$(cat "$DB/server")" || true; fi
}

setup() {
	need_targets
	[ -f "$DB/ready" ] || skip "no MariaDB server could be started: make deps installs mariadb-server"
	prepare
}

# Programs: N queries "SELECT <i> AS n", then one that sleeps. With WAIT, after a line of their input.
ruby_mysql2() {
	"$RUBY" -e 'require "mysql2"' 2>/dev/null || skip "ruby has no mysql2: run make deps"
	PROGRAM=("$RUBY" -e '
require "mysql2"
c = Mysql2::Client.new(socket: ARGV[0], username: "root")
puts "ready"; $stdout.flush
$stdin.gets if ARGV[3]
ARGV[1].to_i.times { |i| raise "wrong" unless c.query("SELECT #{i} AS n").first["n"] == i }
3.times { GC.start }
c.query("SELECT sleep(#{ARGV[2]})").to_a
puts "queries #{ARGV[1].to_i + 1}"')
}

ruby_sequel() {
	"$RUBY" -e 'require "sequel"; require "mysql2"' 2>/dev/null || skip "ruby has no sequel: run make deps"
	PROGRAM=("$RUBY" -e '
require "sequel"
db = Sequel.connect(adapter: "mysql2", socket: ARGV[0], user: "root", test: false)
ARGV[1].to_i.times { |i| raise "wrong" unless db["SELECT #{i} AS n"].first[:n] == i }
db["SELECT sleep(#{ARGV[2]})"].all
puts "queries #{ARGV[1].to_i + 1}"')
}

python() {
	/usr/bin/python3 -c 'import MySQLdb' 2>/dev/null || skip "python3 has no MySQLdb: run make deps"
	PROGRAM=(/usr/bin/python3 -c '
import sys, MySQLdb
c = MySQLdb.connect(unix_socket=sys.argv[1], user="root").cursor()
print("ready", flush=True)
if len(sys.argv) > 4: sys.stdin.readline()
for i in range(int(sys.argv[2])):
    c.execute("SELECT %d AS n" % i)
    assert c.fetchall() == ((i,),)
c.execute("SELECT sleep(%s)" % sys.argv[3])
print("queries", int(sys.argv[2]) + 1)')
}

perl() {
	command perl -e 'use DBD::mysql' 2>/dev/null || skip "perl has no DBD::mysql: run make deps"
	PROGRAM=(perl -e '
use DBI;
my $d = DBI->connect("DBI:mysql:mysql_socket=$ARGV[0]", "root", "", {RaiseError => 1});
for my $i (0 .. $ARGV[1] - 1) { die "wrong" unless $d->selectrow_array("SELECT $i AS n") == $i }
$d->selectrow_array("SELECT sleep($ARGV[2])");
print "queries ", $ARGV[1] + 1, "\n"')
}

php() {
	command php -r 'exit(class_exists("mysqli") ? 0 : 1);' 2>/dev/null || skip "php has no mysqli: run make deps"
	PROGRAM=(php -r '
$c = new mysqli("localhost", "root", "", "", 0, $argv[1]);
for ($i = 0; $i < $argv[2]; $i++) if ($c->query("SELECT $i AS n")->fetch_row()[0] != $i) exit(1);
$c->query("SELECT sleep($argv[3])");
echo "queries ", $argv[2] + 1, "\n";' --)
}

# asked N FUNCTION: $T/scry.out shows each of the N queries and the one that sleeps once, by FUNCTION.
asked() {
	local n=$1 function=$2 got
	in_file "^queries $((n + 1))$" "$T/program"
	got=$(grep -cE "$function\(0x[0-9a-f]+, \".*SELECT [0-9]+ AS n\"" "$T/scry.out")
	[ "$got" -eq "$n" ] || {
		echo "$got of $n queries:"
		head -5 "$T/scry.out" "$T/scry.err"
		return 1
	}
	for i in 0 1 $((n - 1)); do
		[ "$(grep -cF "SELECT $i AS n\"" "$T/scry.out")" -eq 1 ]
	done
	[ "$(grep -cE "$function\(0x[0-9a-f]+, \".*SELECT sleep\($SLEEP\)\"" "$T/scry.out")" -eq 1 ]
	in_file "calls, 0 lost, 0 errors" "$T/scry.err"
}

# slept FUNCTION: the query that sleeps took so long, in that call.
slept() {
	grep -E "$1\(.*SELECT sleep" "$T/scry.out" | awk -F'[<>]' -v least=$SLEEP '$(NF - 1) + 0 < least { exit 1 }' || {
		grep "SELECT sleep" "$T/scry.out"
		return 1
	}
}

# spawned N ARGS...: the program under scry.
spawned() {
	local n=$1
	shift
	scry_ends 0 calls --clients --objects never -tt -T "$@" -- "${PROGRAM[@]}" "$DB/s" "$n" $SLEEP
	grep -oE 'queries [0-9]+' "$T/scry.out" >"$T/program" # it may come in the midst of a line
	sed -z -i -E 's/queries [0-9]+\n//' "$T/scry.out"
}

# attached N ARGS...: it waits until it is entered.
attached() {
	local n=$1 program
	shift
	need_root "entering a process that is not a child of scry"
	mkfifo "$T/in"
	exec 8<>"$T/in"
	start program bash -c 'exec "$@" <"$0" 8>&-' "$T/in" "${PROGRAM[@]}" "$DB/s" "$n" $SLEEP wait
	program=$PID
	wait_for 20 in_file "^ready" "$T/program.out"
	before=$(text "$program")
	start scry "$SCRY" calls --clients --objects never -tt -T "$@" -p "$program"
	wait_for 20 in_file "watching process" "$T/scry.err"
	echo >&8
	wait_for 60 in_file "^queries" "$T/program.out"
	finish "$program"
	finish "$PID"
	cp "$T/program.out" "$T/program"
}

@test "Ruby, mysql2: queries, and a function of its GC" {
	ruby_mysql2
	spawned 200 -x mysql_send_query -x mysql_read_query_result -x 'gc_start@libruby*' -x rb_gc_start
	asked 200 mysql_send_query
	# mysql2 waits for the answer by itself, so the time lies between two calls
	"$RUBY" -e '
	  lines = File.readlines(ARGV[0]).grep(/mysql_/)
	  time = ->(l) { h, m, s = l[/\d+:\d+:\d+\.\d+/].split(":").map(&:to_f); h * 3600 + m * 60 + s }
	  at = lines.index { |l| l.include?("sleep") }
	  exit((time[lines[at + 1]] - time[lines[at]]) % 86_400 >= ARGV[1].to_f)' "$T/scry.out" $SLEEP
}

@test "Ruby, a function that it calls: rb_gc_start" {
	scry_ends 0 calls -x rb_gc_start -x rb_gc_enable -- "$RUBY" -rfiddle -e '
	  f = Fiddle::Function.new(Fiddle::Handle::DEFAULT["rb_gc_start"], [], Fiddle::TYPE_LONG)
	  5.times { f.call }'
	[ "$(grep -c '^rb_gc_start(' "$T/scry.out")" -eq 5 ]
}

@test "Ruby, sequel: queries" {
	ruby_sequel
	spawned 100 -x mysql_send_query
	asked 100 mysql_send_query
}

@test "Python, MySQLdb: queries, and PyEval_SaveThread around them" {
	python
	spawned 200 -x mysql_real_query -x PyEval_SaveThread
	asked 200 mysql_real_query
	slept mysql_real_query
	[ "$(grep -c "PyEval_SaveThread() = 0x" "$T/scry.out")" -ge 201 ]
}

@test "Perl, DBD::mysql: queries, and Perl_push_scope" {
	perl
	spawned 200 -x mysql_real_query -x Perl_push_scope
	asked 200 mysql_real_query
	slept mysql_real_query
	grep -q "Perl_push_scope(0x[0-9a-f]*) = <void>" "$T/scry.out"
}

@test "PHP, mysqlnd, which has no exported query function: queries by _php_stream_write, and zend_hash_find" {
	php
	spawned 200 -x _php_stream_write -x zend_hash_find
	asked 200 _php_stream_write
	grep -q "zend_hash_find(0x[0-9a-f]*, 0x[0-9a-f]*) = " "$T/scry.out"
}

@test "PHP: the function that a query really is, by its address" {
	local zif module
	php
	module=$(command php -r 'echo ini_get("extension_dir"), "/mysqli.so";')
	command -v readelf >/dev/null || skip "no readelf: run make deps"
	# zend_function_entry: name, handler; two words that the loader relocates
	zif=$("$RUBY" -e '
	  file = ARGV[0]
	  bytes = File.binread(file)
	  name = bytes.index("\0mysqli_query\0") + 1
	  relocations = `readelf -rW #{file}`.scan(/^(\h+) +\h+ R_X86_64_RELATIVE +(\h+)/).to_h { |at, to| [at.hex, to.hex] }
	  entry = relocations.find { |at, to| to == name && relocations[at + 8] } or exit 1
	  printf "0x%x", relocations[entry[0] + 8]' "$module") || skip "no function table in $module"
	PROGRAM=(php -r '
$c = mysqli_connect("localhost", "root", "", "", 0, $argv[1]);
for ($i = 0; $i < $argv[2]; $i++) mysqli_query($c, "SELECT $i AS n");
mysqli_query($c, "SELECT sleep($argv[3])");
echo "queries ", $argv[2] + 1, "\n";' --)
	spawned 50 -x "$zif@mysqli.so" -x _php_stream_write
	asked 50 _php_stream_write
	[ "$(grep -cE "$zif\(|0x[0-9a-f]+\(0x" "$T/scry.out")" -eq 51 ]
	grep -E "resumed> \) = .*<0\.[3-9][0-9]*>$" "$T/scry.out"
}

@test "attached: Ruby, which runs already" {
	ruby_mysql2
	attached 200 -x mysql_send_query
	asked 200 mysql_send_query
}

@test "attached: Python, the client library's functions by themselves" {
	python
	attached 100
	asked 100 mysql_real_query
	slept mysql_real_query
}

@test "a recording holds no values of queries, and is shown as it was live" {
	python
	scry_ends 0 calls -x mysql_real_query -o "$T/x.scry" -- "${PROGRAM[@]}" "$DB/s" 20 $SLEEP
	"$SCRY" report "$T/x.scry" >"$T/lines"
	[ "$(grep -cF '"SELECT ? AS n"' "$T/lines")" -eq 20 ]
	no grep -qE 'SELECT [0-9]' "$T/x.scry"
	"$SCRY" report --view calls-sums "$T/x.scry" | grep -q mysql_real_query
}

@test "ruby: which line waits for the slow query, and how long all of them wait (-k, -c)" {
	ruby_mysql2
	cat >"$T/app.rb" <<-'E'
		require "mysql2"
		DB = Mysql2::Client.new(socket: ARGV[0], username: "root")
		def fast = DB.query("SELECT 1").first
		def slow
		  DB.query("SELECT sleep(0.3)").to_a
		end
		5.times { fast }
		slow
	E
	"$SCRY" calls -k -x mysql_send_query -x rb_wait_for_single_fd -q --args=full --force -o "$T/x.scry" -- "$RUBY" "$T/app.rb" "$DB/s"
	"$SCRY" report --objects never "$T/x.scry" --slow 300ms | grep -v "^ > mysql2/" >"$T/lines"
	diff <(sed -E 's/\(.*//; s/Object#//' "$T/lines") - <<-E
		rb_wait_for_single_fd
		 > $T/app.rb:5  slow
		 > $T/app.rb:8  <main>
	E
	"$SCRY" report "$T/x.scry" --view calls-sums --json >"$T/r.json"
	json_is "$T/r.json" 'rows.map { |row| row.values_at("function", "line", "calls") }.sort == [["mysql_send_query", 3, 5], ["mysql_send_query", 5, 1], ["rb_wait_for_single_fd", 3, 5], ["rb_wait_for_single_fd", 5, 1]] && rows[0]["line"] == 5 && rows[0]["total_ns"] > 300_000_000'
}
