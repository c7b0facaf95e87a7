/* Opens and closes plug-ins on command.
 *
 *   loader           "pid N", then for each line on stdin one on stdout:
 *     open PATH      dlopen: "opened 0xBASE 0xDYNAMIC", or "refused WHY"
 *     dlmopen PATH   the same into a namespace of its own
 *     close          dlclose of what was opened last: "closed"
 *     call N         plug_run of what was opened last, N rounds: "sum X right" or "wrong"
 *     churn N PATH   dlopen and dlclose, N times: "churned"
 *     objects        "object 0xBASE NAME" for each object of the first namespace, then "end"
 *   A plug-in that is opened calls work_mix once; call N calls it N + 1 times. Ends at the end of
 * stdin. */
#include <dlfcn.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HANDLES_MAX 64

static void *handles[HANDLES_MAX];
static int opened;

/* What libwork's work_mix computes. */
static uint64_t plain_mix(uint64_t sum, uint64_t value)
{
	sum ^= value + 0x9e3779b97f4a7c15ull + (sum << 6) + (sum >> 2);
	return sum * 0xff51afd7ed558ccdull;
}

static void open_plug(const char *path, int in_namespace)
{
	struct link_map *map;
	void *handle = NULL;

	if (opened == HANDLES_MAX) {
		puts("refused too many");
		return;
	}
	if (!in_namespace)
		handle = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
#ifdef LM_ID_NEWLM
	else
		handle = dlmopen(LM_ID_NEWLM, path, RTLD_LAZY);
#endif
	if (!handle || dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0) {
		printf("refused %s\n", dlerror());
		return;
	}
	handles[opened++] = handle;
	printf("opened 0x%llx 0x%llx\n", (unsigned long long)map->l_addr,
	       (unsigned long long)(uintptr_t)map->l_ld);
}

static void call(unsigned long rounds)
{
	uint64_t (*run)(uint64_t, unsigned long) = NULL;
	uint64_t sum, plain = plain_mix(7, plain_mix(0, 42));

	if (opened)
		*(void **)&run = dlsym(handles[opened - 1], "plug_run");
	if (!run) {
		puts("nothing is open");
		return;
	}
	sum = run(7, rounds);
	for (unsigned long i = 0; i < rounds; i++)
		plain = plain_mix(plain, i);
	printf("sum %016llx %s\n", (unsigned long long)sum, sum == plain ? "right" : "wrong");
}

static int print_object(struct dl_phdr_info *info, size_t size, void *data)
{
	printf("object 0x%llx %s\n", (unsigned long long)info->dlpi_addr, info->dlpi_name);
	return 0;
}

int main(void)
{
	char line[4200], path[4096];
	unsigned long n;

	setvbuf(stdout, NULL, _IOLBF, 0);
	printf("pid %d\n", (int)getpid());
	while (fgets(line, sizeof(line), stdin)) {
		if (sscanf(line, "open %4095[^\n]", path) == 1) {
			open_plug(path, 0);
		} else if (sscanf(line, "dlmopen %4095[^\n]", path) == 1) {
			open_plug(path, 1);
		} else if (strcmp(line, "close\n") == 0 && opened) {
			dlclose(handles[--opened]);
			puts("closed");
		} else if (sscanf(line, "call %lu", &n) == 1) {
			call(n);
		} else if (sscanf(line, "churn %lu %4095[^\n]", &n, path) == 2) {
			for (void *handle; n && (handle = dlopen(path, RTLD_NOW)); n--)
				dlclose(handle);
			puts(n ? "refused" : "churned");
		} else if (strcmp(line, "objects\n") == 0) {
			dl_iterate_phdr(print_object, NULL);
			puts("end");
		} else {
			puts("what");
		}
	}
	return 0;
}
