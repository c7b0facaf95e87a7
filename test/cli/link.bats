#!/usr/bin/env bats
# What is loaded and through which slots functions are reached, in programs as they are found: a Ruby with
# many libraries, another mount namespace. The truth is what readelf says of the files.

load lib

setup() {
	need_targets
	prepare
	PROBE="$BUILD/test/link_probe"
	[ -x "$PROBE" ] || skip "no $PROBE: run make first"
}

# slots_of FILE LIB: offsets of FILE's relocations against functions that LIB defines, as readelf has them.
slots_of() {
	readelf --dyn-syms -W "$2" | awk '($4 == "FUNC" || $4 == "IFUNC") && $7 != "UND" { sub(/@.*/, "", $8); print $8 }' |
		sort -u >"$T/functions"
	readelf -rW "$1" | awk '$3 ~ /JUMP_SLOT|GLOB_DAT|R_X86_64_64/ { sub(/@.*/, "", $5); print $5, $1 }' | sort |
		join - "$T/functions" | awk '{ sub(/^0+/, "", $2); print "0x" $2 }' | sort -u
}

@test "a Ruby with OpenSSL: all slots of three libraries that lead to libcrypto, and no others" {
	need_gem openssl
	start ruby "$RUBY" -ropenssl -e '$stdout.sync = true; puts "ok"; sleep'
	wait_for 20 in_file "^ok" "$T/ruby.out"
	"$PROBE" "$PID" '*@libcrypto.so.3' >"$T/slots" || skip "this Ruby has no libcrypto.so.3"
	grep -q " 0 unread, 0 unopened;" "$T/slots"
	crypto=$(awk '$1 == "object" && /libcrypto/ { print $NF }' "$T/slots")
	for part in openssl.so libssl.so.3 libcrypto.so.3; do
		file=$(awk -v p="/$part" '$1 == "object" && substr($NF, length($NF) - length(p) + 1) == p { print $NF }' "$T/slots")
		slots_of "$file" "$crypto" >"$T/want"
		# Pointers that the linker settled itself (RELATIVE) carry no name in the file.
		grep -E " $part ->" "$T/slots" | awk '{ print $2 }' | sort -u >"$T/have"
		[ -s "$T/want" ] || { echo "$part: nothing to compare"; false; }
		comm -23 "$T/want" "$T/have" >"$T/missing"
		[ ! -s "$T/missing" ] || { echo "$part: not found:"; head "$T/missing"; false; }
		comm -13 "$T/want" "$T/have" | sed "s/.*/^slot & /" >"$T/more"
		grep -f "$T/more" "$T/slots" | grep " $part -> " | grep -v " pointer " >"$T/wrong" || true
		[ ! -s "$T/more" ] || [ ! -s "$T/wrong" ] || { echo "$part: no such slots:"; head "$T/wrong"; false; }
		echo "# $part: $(wc -l <"$T/want") slots"
	done
}

@test "a program in a mount namespace of its own, from files that are not there for us" {
	need_root "making a mount namespace"
	unshare -m true 2>/dev/null || skip "no mount namespaces here"
	mkdir "$T/own"
	# shellcheck disable=SC2016
	mkfifo "$T/in"
	start other unshare -m sh -c 'mount -t tmpfs own "$1" && cp "$2/target_caller_lazy" "$2/libwork.so" "$1/" &&
		LD_LIBRARY_PATH="$1" exec "$1/target_caller_lazy" <"$3"' sh "$T/own" "$TARGETS" "$T/in"
	exec 7<>"$T/in" # waits for no reader, should there be none
	wait_for 10 grep -q "^pid" "$T/other.out"
	[ ! -e "$T/own/libwork.so" ]
	pid=$(awk '$1 == "pid" { print $2 }' "$T/other.out")
	"$PROBE" "$pid" work_fold@libwork.so >"$T/slots"
	exec 7>&-
	grep -q "object 0 .* $T/own/libwork.so$" "$T/slots"
	grep -qE "^slot 0x[0-9a-f]+ jump slot target_caller_lazy -> 0x[0-9a-f]+ work_fold lazy$" "$T/slots"
	grep -q " 0 unread, 0 unopened;" "$T/slots"
}
