/*
 * Preloaded to a program that scry starts: stops scry's keeper just before main, when scry has let
 * the program run. The keeper is the other child of the parent, and is written to $KEEPER_FILE.
 */
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

typedef int entry(int, char **, char **);
typedef void hook(void);
typedef int start(entry *, int, char **, hook *, hook *, hook *, void *);

start __libc_start_main;

static void stop_keeper(const char *told)
{
	char path[64];
	int pid = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)getppid(), (int)getppid());
	f = fopen(path, "r");
	while (f && fscanf(f, "%d", &pid) == 1 && pid == getpid())
		;
	if (f)
		fclose(f);
	f = pid && pid != getpid() && kill(pid, SIGSTOP) == 0 ? fopen(told, "w") : NULL;
	if (f) {
		fprintf(f, "%d %d\n", pid, (int)getpid());
		fclose(f);
	}
}

int __libc_start_main(entry *program, int argc, char **argv, hook *init, hook *fini, hook *end,
		      void *stack)
{
	start *real = (start *)dlsym(RTLD_NEXT, "__libc_start_main");
	const char *told = getenv("KEEPER_FILE");

	if (told)
		stop_keeper(told);
	return real(program, argc, argv, init, fini, end, stack);
}
