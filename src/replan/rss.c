/* See rss.h. */
#include "replan/rss.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PAGE 4096u

static int open_of(pid_t pid, const char *name)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/%s", pid, name);
	return open(path, O_RDONLY | O_CLOEXEC);
}

void scry_malloc_rss_open(struct scry_malloc_rss *rss, pid_t pid)
{
	rss->statm = open_of(pid, "statm");
	rss->status = open_of(pid, "status");
}

void scry_malloc_rss_close(struct scry_malloc_rss *rss)
{
	if (rss->statm >= 0)
		close(rss->statm);
	if (rss->status >= 0)
		close(rss->status);
	rss->statm = rss->status = -1;
}

uint64_t scry_malloc_rss_now(const struct scry_malloc_rss *rss)
{
	unsigned long long resident, shared;
	char text[128];
	ssize_t len = rss->statm < 0 ? -1 : pread(rss->statm, text, sizeof(text) - 1, 0);

	text[len > 0 ? len : 0] = '\0';
	if (sscanf(text, "%*u %llu %llu", &resident, &shared) != 2 || resident < shared)
		return 0;
	return (resident - shared) * PAGE;
}

static uint64_t kib_of(const char *text, const char *name)
{
	const char *at = strstr(text, name);
	unsigned long long kib = 0;

	return at && sscanf(at + strlen(name), "%llu", &kib) == 1 ? kib : 0;
}

uint64_t scry_malloc_rss_kept(const struct scry_malloc_rss *rss)
{
	char text[4096];
	ssize_t len = rss->status < 0 ? -1 : pread(rss->status, text, sizeof(text) - 1, 0);
	uint64_t high, other;

	text[len > 0 ? len : 0] = '\0';
	high = kib_of(text, "\nVmHWM:");
	other = kib_of(text, "\nRssFile:") + kib_of(text, "\nRssShmem:");
	return high > other ? (high - other) << 10 : 0;
}

uint64_t scry_malloc_rss_available(void)
{
	unsigned long long kib = 0;
	char line[128];
	FILE *f = fopen("/proc/meminfo", "re");

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "MemAvailable: %llu", &kib) == 1)
			break;
	if (f)
		fclose(f);
	return kib ? (uint64_t)kib << 10 : UINT64_C(1) << 30;
}
