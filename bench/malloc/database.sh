#!/bin/sh
# database.sh DIR QUERIES: mariadbd with its data in DIR/data, in this process, asked by four clients; "cpu S": seconds
# of its processor time for the queries alone. The clients are not recorded, whoever records this process.
pid=$$
client="--no-defaults -u root -S $1/socket"

ticks() { awk '{ print ($14 + $15) / '"$(getconf CLK_TCK)"' }' "/proc/$pid/stat"; }

# shellcheck disable=SC2086 # words
slap() { mariadb-slap $client --auto-generate-sql --auto-generate-sql-load-type=mixed --concurrency=4 --number-of-queries="$1" >/dev/null; }

(
	unset LD_PRELOAD
	until mariadb $client -e 'SELECT 1' >/dev/null 2>&1; do sleep 0.1; done
	slap 1000
	before=$(ticks)
	slap "$2"
	echo "cpu $(awk "BEGIN { print $(ticks) - $before }") calls 0"
	mariadb-admin $client shutdown
) &
exec mariadbd --no-defaults --datadir="$1/data" --socket="$1/socket" --skip-networking --pid-file="$1/pid" \
	--user="$(id -un)" --innodb-flush-log-at-trx-commit=0 >/dev/null 2>&1
