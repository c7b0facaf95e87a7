#!/usr/bin/env bats
# scry calls: flags, modes and names of constants, errno, wide strings, strings of system calls, one thread of several.

load lib

# compiled NAME <source: $T/NAME.
compiled() {
	cat >"$T/$1.c"
	cc -O0 -fno-builtin -o "$T/$1" "$T/$1.c" -lpthread
}

fails() {
	compiled fails <<'EOC'
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>
#include <wchar.h>
#include <wctype.h>
int main(int argc, char **argv) {
	open("/nothing-here", O_RDONLY | O_CLOEXEC);
	close(open(argv[1], O_WRONLY | O_CREAT | O_TRUNC, 0640));
	fopen("/nothing-here", "r");
	errno = 0;
	mmap(NULL, (size_t)-1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (errno != ENOMEM) return 1;
	lseek(0x77, 3, SEEK_END);
	errno = EPERM; /* of somebody else */
	volatile long used = atoi("x");
	read(-1, argv, 5);
	kill(getpid(), 0);
	close(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
	used += (long)wcslen(L"d\xe9j\xe0 vu\t\x4f60");
	used += (long)towupper(L'x');
	char made[99];
	static wchar_t wide[600];
	for (int i = 0; i < 599; i++) wide[i] = L'w';
	snprintf(made, 9, "%d %ls%lc%s %.3ls %S %.*ls", 1, L"d\xe9j\xe0", L'\x4f60', "after", L"abcdef", L"", 2, L"xyz");
	snprintf(made, 9, "%ls|%s", wide, "x");
	return wcscmp(L"", L"x") >= 0;
}
EOC
	cat >"$T/want" <<EOL
open("/nothing-here", O_RDONLY|O_CLOEXEC) = -1 ENOENT (No such file or directory)
open("$T/made", O_WRONLY|O_CREAT|O_TRUNC, 0640) = 3
close(3) = 0
fopen("/nothing-here", "r") = nil ENOENT (No such file or directory)
mmap(nil, 18446744073709551615, PROT_READ|PROT_WRITE, MAP_PRIVATE|MAP_ANONYMOUS, -1, 0) = -1 ENOMEM (Cannot allocate memory)
lseek(119, 3, SEEK_END) = -1 EBADF (Bad file descriptor)
atoi("x") = 0
read(-1, "", 5) = -1 EBADF (Bad file descriptor)
kill(PID, 0) = 0
socket(AF_INET, SOCK_STREAM|SOCK_CLOEXEC, 0) = 3
close(3) = 0
wcslen("déjà vu\t你") = 9
towupper('x') = 'X'
snprintf(made, 9, "%d %ls%lc%s %.3ls %S %.*ls", 1, "déjà", '你', "after", "abc", "", 2, "xy") = N
snprintf(made, 9, "%ls|%s", "$(printf '%256s' "" | tr ' ' w)"..., "x") = N
wcscmp("", "x") = -1
EOL
}

@test "flags, modes, constants, errno of what failed, wide strings: by both engines, and of a recording" {
	fails
	local shown='/^__errno_location\|^getpid\|^+++/d; s/^kill([0-9]*,/kill(PID,/; s/^\(read(-1, \)[^,]*,/\1"",/; s/^snprintf([^,]*,\(.*\) = .*/snprintf(made,\1 = N/'
	"$SCRY" calls -q -- "$T/fails" "$T/made" 3>&- | sed "$shown" | diff "$T/want" -
	"$SCRY" calls -q --engine=breakpoint -x 'open+close+fopen+mmap+lseek+atoi+read+kill+socket+wcslen+towupper+wcscmp@libc.so*' --objects=never -- "$T/fails" "$T/made" >"$T/lines" 3>&-
	for line in 'open("/nothing-here", O_RDONLY|' 'lseek(' 'wcslen('; do
		diff <(grep -F "$line" "$T/want") <(grep -F "$line" "$T/lines")
	done
	"$SCRY" calls -q --args=full -o "$T/x.scry" -- "$T/fails" "$T/made" 3>&-
	"$SCRY" report "$T/x.scry" | sed "$shown" | diff "$T/want" -
	"$SCRY" report --json "$T/x.scry" >"$T/json"
	[ "$(jq -c 'select(.function=="open") | [.args, .result, .error]' "$T/json" | head -1)" = '[["/nothing-here","O_RDONLY|O_CLOEXEC"],-1,"ENOENT"]' ]
	[ "$(jq -c 'select(.function=="wcslen") | .args' "$T/json")" = '["déjà vu\t你"]' ]
	# flags are compared by their names or as a number
	[ "$("$SCRY" report "$T/x.scry" --where 'arg2 == 577' | grep -c '^open(')" -eq 1 ]
	# wide strings are text: a recording without strings has none
	"$SCRY" calls -q -o "$T/digest.scry" -- "$T/fails" "$T/made" 3>&-
	no grep -qaP 'd\0\0\0\xe9\0\0\0j\0\0\0' "$T/digest.scry"
	"$SCRY" report "$T/digest.scry" | grep -qF 'wcslen("?") = 9'
}

@test "errno is not shown of a function that does not set it, nor with --args=none" {
	fails
	echo "long lseek(int, long, int);" >"$T/own.conf"
	"$SCRY" calls -q -F "$T/own.conf" -e lseek -- "$T/fails" "$T/made" 3>&- | grep -qx 'lseek(119, 3, 2) = -1'
	"$SCRY" calls -q --args=none -e lseek -- "$T/fails" "$T/made" 3>&- | grep -qE '^lseek\(\.\.\.\) = -1$'
}

@test "musl's errno" {
	command -v musl-gcc >/dev/null || skip "no musl-gcc: run make deps"
	printf '#include <fcntl.h>\nint main(void) { return open("/nothing-here", O_RDWR) != -1; }\n' >"$T/m.c"
	musl-gcc -O0 -o "$T/m" "$T/m.c"
	echo "errno(int) open(string, flags(O_RDWR=2:3));" >"$T/m.conf"
	"$SCRY" calls -q -F "$T/m.conf" -e open -- "$T/m" 3>&- | grep -qx 'open("/nothing-here", O_RDWR) = -1 ENOENT (No such file or directory)'
}

@test "-S: strings as they were when the call began, flags, errors" {
	need_root "tracepoints and eBPF"
	need_bpf
	compiled asks <<'EOC'
#include <fcntl.h>
#include <string.h>
#include <unistd.h>
int main(int argc, char **argv) {
	char path[300] = "", text[] = "a\nb";
	for (int i = 0; i < 200; i++) {
		path[0] = '/'; path[1] = (char)('a' + i % 26); path[2] = (char)('a' + i / 26); path[3] = 0;
		access(path, R_OK | X_OK);
		memset(path, 'x', 8); /* who reads later reads this */
	}
	strcpy(path, argv[1]);
	close(open(path, O_WRONLY | O_CREAT, 0600));
	memset(path, 'y', 299);
	open(path, O_RDONLY);
	write(1, text, 3);
}
EOC
	"$SCRY" calls -S -L -q -- "$T/asks" "$T/made" >"$T/lines" 2>"$T/err" 3>&- || true
	grep -q "cannot be traced" "$T/err" "$T/lines" && skip "no tracepoints here"
	"$SCRY" calls -S -L -o "$T/x.scry" --args=full -- "$T/asks" "$T/made" >"$T/out" 2>"$T/err" 3>&-
	cat "$T/err"
	no grep -q "are shown as addresses" "$T/err"
	"$SCRY" report "$T/x.scry" >"$T/lines"
	[ "$(grep -c '^SYS_access("/[a-z][a-z]", R_OK|X_OK) = -2 ENOENT (No such file or directory)$' "$T/lines")" -eq 200 ]
	[ "$(grep -o '^SYS_access("/[a-z][a-z]"' "$T/lines" | sort -u | wc -l)" -eq 200 ]
	no grep -q 'SYS_access("x' "$T/lines"
	grep -qF "SYS_openat(AT_FDCWD, \"$T/made\", O_WRONLY|O_CREAT, 0600) = 3" "$T/lines"
	grep -qE '^SYS_openat\(AT_FDCWD, "y{256}"\.\.\., O_RDONLY\) = -36 ENAMETOOLONG' "$T/lines"
	grep -qF 'SYS_write(1, "a\nb", 3) = 3' "$T/lines"
	"$SCRY" calls -S -L -s 3 -q -- "$T/asks" "$T/made" 3>&- | grep -qE '^SYS_openat\(AT_FDCWD, "yyy"\.\.\., O_RDONLY\)'
	"$SCRY" calls -S -L -o "$T/digest.scry" -- "$T/asks" "$T/made" >"$T/out" 2>"$T/err" 3>&-
	no grep -qa "yyyyy" "$T/digest.scry"
}

@test "-S -p: of calls with equal arguments in a row each has its own string" {
	need_root "tracepoints and eBPF"
	need_bpf
	compiled walks <<'EOC'
#include <stdio.h>
#include <unistd.h>
int main(void) {
	char path[16];
	for (int i = 10000; i < 100000; i++) {
		snprintf(path, sizeof(path), "/%d", i);
		access(path, F_OK);
		if (i % 50 == 0) usleep(3000);
	}
}
EOC
	start walks "$T/walks"
	"$SCRY" calls -S -L -d 1s -p "$PID" >"$T/lines" 2>"$T/err" 3>&-
	cat "$T/err"
	no grep -q "are shown as addresses" "$T/err"
	# in order, none twice; and the one before a sleep is the fiftieth
	sed -nE 's|^SYS_access\("/([0-9]+)".*|\1|p; s/^SYS_clock_nanosleep.*/sleep/p' "$T/lines" >"$T/walk"
	awk '/sleep/ { if (last && last % 50) exit 1; next } last && $1 != last + 1 { exit 1 } { last = $1; n++ } END { if (n < 100) exit 1 }' "$T/walk"
}

@test "-p of a thread: its calls alone; -L alone: signals and the end" {
	compiled threads <<'EOC'
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>
static void *run(void *arg) {
	printf("%ld %ld\n", (long)arg, syscall(SYS_gettid));
	fflush(stdout);
	for (;; usleep(1000)) free(malloc((size_t)arg));
}
int main(void) {
	pthread_t t;
	for (long i = 1001; i < 1004; i++) pthread_create(&t, NULL, run, (void *)i);
	for (;; usleep(1000)) free(malloc(1000));
}
EOC
	start threads "$T/threads"
	wait_for 20 in_file "^1003 " "$T/threads.out"
	tid=$(sed -n 's/^1002 //p' "$T/threads.out")
	"$SCRY" calls -q -p "$tid" -d 0.5s -e malloc >"$T/lines" 2>"$T/err" || { cat "$T/err"; false; }
	grep -qF 'malloc(1002)' "$T/lines"
	no grep -qE 'malloc\((1000|1001|1003)\)' "$T/lines"
	"$SCRY" calls -q -p "$tid" -p "$(sed -n 's/^1003 //p' "$T/threads.out")" -d 0.5s -c -e malloc --json >"$T/json"
	scry_ends 2 calls -p "$tid" -p $$ -d 0.1s
	says "threads of one process"
	need_root "the tracepoint signal_deliver"
	"$SCRY" calls -L -q -- sh -c 'kill -TERM $$' >"$T/lines" 2>"$T/err" 3>&- || [ $? -eq 143 ]
	diff <(printf -- '--- SIGTERM (Terminated) ---\n+++ killed by SIGTERM +++\n') "$T/lines"
}

@test "a report of calls has -c, --hist and --tree; what is refused was given" {
	fails
	"$SCRY" calls -q -o "$T/x.scry" -- "$T/fails" "$T/made" 3>&-
	for way in "-c calls-sums" "--hist calls-hist" "--tree calls-tree"; do
		diff <("$SCRY" report "$T/x.scry" "${way% *}") <("$SCRY" report "$T/x.scry" --view "${way#* }")
	done
	scry_ends 2 report "$T/x.scry" -c --tree
	scry_ends 1 report "$T/x.scry" -c -T
	says "the calls-sums view has no -T; fix"
	scry_ends 2 calls -c -t -i -- true
	says "the calls-sums view has no -t, -i; fix"
}

@test "a fork child's end has its line, and a child of vfork is said to be shown with its parent's number" {
	compiled ends <<'EOC'
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
int main(void) {
	pid_t pid = fork();
	if (!pid) { getenv("A"); pause(); }
	usleep(100000);
	kill(pid, SIGKILL);
	wait(NULL);
	if (!vfork()) _exit(atoi("3"));
	wait(NULL);
	return 0;
}
EOC
	"$SCRY" calls -f -e 'getenv+vfork+atoi@MAIN' -- "$T/ends" >"$T/lines" 2>"$T/err" 3>&-
	cat "$T/lines" "$T/err"
	grep -qE 'atoi\("3"\) = 3$' "$T/lines"
	grep -q "what a child of vfork calls .* is shown with its parent's number" "$T/err"
	printf '6.15\n%s\n' "$(uname -r)" | sort -CV || skip "the end of a child that its parent waits for is known from Linux 6.15 on"
	grep -qE '^\[pid [0-9]+\] \+\+\+ killed by SIGKILL \+\+\+$' "$T/lines"
}

# What fills.c does, in lines of -S; addresses and random bytes are A.
fills() {
	compiled fills <<'EOC'
#define _GNU_SOURCE
#include <fcntl.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
int main(int argc, char **argv) {
	char buf[600] = "", word[8];
	int fds[2], pair[2];
	pipe(fds);
	socketpair(AF_UNIX, SOCK_DGRAM, 0, pair);
	for (int i = 0; i < 200; i++) {
		word[0] = (char)('a' + i % 26); word[1] = (char)('a' + i / 26); word[2] = 0; word[3] = '\n';
		syscall(SYS_write, fds[1], word, 4);
		syscall(SYS_read, fds[0], buf, sizeof(buf));
		memset(buf, 'x', 8); /* who reads later reads this */
	}
	syscall(SYS_read, -7, buf, 5);
	syscall(SYS_readlink, argv[1], buf, sizeof(buf));
	syscall(SYS_sendto, pair[0], "a datagram", 10, 0, NULL, 0);
	syscall(SYS_recvfrom, pair[1], buf, 4, MSG_TRUNC, NULL, NULL);
	int fd = open(argv[2], O_RDONLY);
	syscall(SYS_pread64, fd, buf, 300, 1L);
	chdir("/usr");
	syscall(SYS_getcwd, buf, sizeof(buf));
	syscall(SYS_getrandom, buf, 2, 0);
	syscall(SYS_read, fd, buf, 0);
}
EOC
	ln -sfn "to-here" "$T/link"
	printf '%300s' "" | tr ' ' z >"$T/z"
}

@test "-S: what a call has written, as it was when the call returned" {
	need_root "tracepoints and eBPF"
	need_bpf
	fills
	"$SCRY" calls -S -L -o "$T/x.scry" --args=full -- "$T/fills" "$T/link" "$T/z" >"$T/out" 2>"$T/err" 3>&-
	cat "$T/err"
	no grep -q "are shown as addresses" "$T/err"
	"$SCRY" report "$T/x.scry" >"$T/lines"
	[ "$(grep -cE '^SYS_read\([0-9]+, "[a-z]{2}\\0\\n", 600\) = 4$' "$T/lines")" -eq 200 ]
	[ "$(grep -oE '^SYS_read\([0-9]+, "[a-z]{2}\\0' "$T/lines" | sort -u | wc -l)" -eq 200 ]
	grep -qE '^SYS_read\(-7, 0x[0-9a-f]+, 5\) = -9 EBADF \(' "$T/lines"
	grep -qF "SYS_readlink(\"$T/link\", \"to-here\", 600) = 7" "$T/lines"
	grep -qE '^SYS_recvfrom\([0-9]+, "a da"\.\.\., 4, MSG_TRUNC, nil, nil\) = 10$' "$T/lines"
	grep -qE '^SYS_pread64\([0-9]+, "z{256}"\.\.\., 300, 1\) = 299$' "$T/lines"
	grep -qF 'SYS_getcwd("/usr", 600) = 5' "$T/lines"
	grep -qaE '^SYS_getrandom\(".+", 2, 0\) = 2$' "$T/lines"
	grep -qE '^SYS_read\([0-9]+, "", 0\) = 0$' "$T/lines"
	[ "$("$SCRY" report --json "$T/x.scry" | jq -r 'select(.function=="SYS_readlink") | .args[1]')" = to-here ]
	"$SCRY" calls -S -L -s 3 -q -- "$T/fills" "$T/link" "$T/z" 3>&- | grep -qE '^SYS_pread64\([0-9]+, "zzz"\.\.\., 300, 1\) = 299$'
	"$SCRY" calls -S -L -o "$T/digest.scry" -- "$T/fills" "$T/link" "$T/z" >"$T/out" 2>"$T/err" 3>&-
	no grep -qaE "zzzzz|to-here" "$T/digest.scry"
}

@test "-S: calls of 32 bits do not end the strings of their thread" {
	need_root "tracepoints and eBPF"
	need_bpf
	compiled mixed <<'EOC'
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
int main(void) {
	char path[16];
	long r;
	for (int i = 0; i < 20; i++) {
		snprintf(path, sizeof(path), "/n-%02d", i);
		access(path, F_OK);
		/* write(-1, 0, 0): in 64 bits 4 is stat, and 3, read(-1, 0, 0), is close */
		__asm__ volatile("int $0x80" : "=a"(r) : "a"(4), "b"(-1L), "c"(0L), "d"(0L) : "memory");
		if (r == -38) return 38;
		/* chdir is 12; 89, readdir(-1, 0, 0), is readlink */
		__asm__ volatile("int $0x80" : "=a"(r) : "a"(89), "b"(-1L), "c"(0L), "d"(0L) : "memory");
	}
	return 0;
}
EOC
	status=0
	"$T/mixed" || status=$?
	[ "$status" -ne 0 ] && skip "no calls of 32 bits here: status $status"
	"$SCRY" calls -S -L -- "$T/mixed" >"$T/lines" 2>"$T/err" 3>&-
	cat "$T/err"
	no grep -q "are shown as addresses" "$T/err"
	[ "$(grep -c '^SYS_access("/n-[0-9][0-9]", F_OK) = -2 ENOENT' "$T/lines")" -eq 20 ]
}

# reads_strings CALLS-ARGS...: does the program call process_vm_readv while it is traced so? Each string is read by one.
reads_strings() {
	local scry
	"$SCRY" calls "$@" -x getenv -p "$PID" -d 60s >"$T/traced" 2>&1 3>&- &
	scry=$!
	wait_for 20 hooked "$PID"
	"$SCRY" syscalls -p "$PID" -d 0.5s --json >"$T/syscalls.json"
	kill -INT "$scry"
	wait "$scry"
	grep -q '"process_vm_readv"' "$T/syscalls.json"
}

@test "reports that show no arguments do not read them: -c, --hist, --tree" {
	need_root "eBPF"
	need_bpf
	start getenv "$RUBY" -e 'puts "pid #{$$}"; $stdout.flush; loop { ENV["HOME"] }'
	wait_for 10 in_file "^pid" "$T/getenv.out"
	reads_strings --args=full
	no reads_strings -c
	no reads_strings --hist
	no reads_strings --tree
	reads_strings -c --where 'duration > 1us'
}

@test "text of a known length is shown whole, and what a failed read has left is not" {
	cat >"$T/whole.c" <<-'EOF_C'
		#include <stdio.h>
		#include <unistd.h>
		#include <wchar.h>
		int main(void)
		{
			char text[8] = "secret";
			int ends[2];
			if (pipe(ends))
				return 2;
			write(ends[1], "q\0r\n", 4);
			read(ends[0], text, 8);
			read(-1, text, 8);
			fwprintf(stderr, L"wide %d\n", 5);
			return 0;
		}
	EOF_C
	cc -O0 -fno-builtin -o "$T/whole" "$T/whole.c"
	for engine in hooks breakpoint; do
		scry_ends 0 calls --engine=$engine --objects=never -x write+read+fwprintf -- "$T/whole"
		grep -qE '^write\([0-9]+, "q\\0r\\n", 4\) = 4$' "$T/scry.out"
		grep -qE '^read\([0-9]+, "q\\0r\\n", 8\) = 4$' "$T/scry.out"
		grep -qE '^read\(-1, 0x[0-9a-f]+, 8\) = -1 EBADF' "$T/scry.out"
		grep -qF 'fwprintf(' "$T/scry.out"
		grep -qF '"wide %d\n"' "$T/scry.out"
	done
	scry_ends 0 calls --json -- "$T/whole"
	grep -q '"function": "write".*"q\\u0000r\\n"' "$T/scry.out"
}
