/* See beside.h. */
#include "sys/beside.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"

int scry_beside(const char *name, const char *folder, char *path, size_t size)
{
	const char *const places[][2] = {
		{"", ""}, {"../libexec/scry/", ""}, {"../", folder}, {"../src/", folder}};
	char self[PATH_MAX];
	ssize_t len = readlink("/proc/self/exe", self, sizeof(self) - 1);
	char *slash;

	self[len > 0 ? len : 0] = 0;
	slash = strrchr(self, '/');
	if (slash)
		*slash = 0;
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		int n = snprintf(path, size, "%s/%s%s%s%s", self, places[i][0], places[i][1],
				 *places[i][1] ? "/" : "", name);

		if (n > 0 && (size_t)n < size && !access(path, R_OK))
			return 0;
	}
	return scry_fail(-ENOENT, "no %s beside '%s/scry'; fix: make, make install", name, self);
}
