/* Calls functions of libwork, and an IFUNC of the C library, on command; built in every way in
 * which a program can be made to reach them (meson.build).
 *
 *   caller           "pid N", then for each line on stdin one on stdout:
 *     call N         N rounds through work_fold and strlen: "sum X right" or "wrong"
 *     where NAME     what the dynamic linker says: "at 0xADDRESS" (0: it does not know)
 *     objects        "object 0xBASE NAME" for each loaded object, then "end"
 *   Ends at the end of stdin. */
#include <dlfcn.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libwork.h"

/* What work_fold computes, by nobody's leave. */
static inline __attribute__((always_inline)) uint64_t plain_mix(uint64_t sum, uint64_t value)
{
	sum ^= value + 0x9e3779b97f4a7c15ull + (sum << 6) + (sum >> 2);
	return sum * 0xff51afd7ed558ccdull;
}

static void call(unsigned long rounds)
{
	static char text[64];
	uint64_t values[2], sum = 1, plain = 1;

	for (unsigned long i = 0; i < rounds; i++) {
		memset(text, 'a', i % 60);
		text[i % 60] = '\0';
		__asm__ volatile("" ::: "memory"); /* strlen is called, not computed here */
		values[0] = sum;
		values[1] = strlen(text);
		sum = work_fold(values, 2);
		plain = plain_mix(plain_mix(0, plain), i % 60);
	}
	printf("sum %016llx %s\n", (unsigned long long)sum, sum == plain ? "right" : "wrong");
}

static int print_object(struct dl_phdr_info *info, size_t size, void *data)
{
	printf("object 0x%llx %s\n", (unsigned long long)info->dlpi_addr, info->dlpi_name);
	return 0;
}

int main(void)
{
	char line[256], name[200];
	unsigned long n;

	setvbuf(stdout, NULL, _IOLBF, 0);
	printf("pid %d\n", (int)getpid());
	while (fgets(line, sizeof(line), stdin)) {
		if (sscanf(line, "call %lu", &n) == 1) {
			call(n);
		} else if (sscanf(line, "where %199s", name) == 1) {
			printf("at 0x%llx\n", (unsigned long long)(uintptr_t)
#ifdef CALLER_IS_STATIC
						      NULL
#else
						      dlsym(RTLD_DEFAULT, name)
#endif
			);
		} else if (strcmp(line, "objects\n") == 0) {
			dl_iterate_phdr(print_object, NULL);
			puts("end");
		} else {
			puts("what");
		}
	}
	return 0;
}
