/* See become.h. */
#include "sys/become.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>

#include "base/err.h"

static const struct passwd *find(const char *user)
{
	const struct passwd *row = getpwnam(user);
	char *end;
	unsigned long number;

	if (row || !*user)
		return row;
	number = strtoul(user, &end, 10);
	return *end || number > (uid_t)-2 ? NULL : getpwuid((uid_t)number);
}

int scry_user_check(const char *user)
{
	const struct passwd *row = find(user);

	if (!row)
		return scry_fail(-ENOENT, "-u: there is no user '%s'", user);
	if (geteuid() != 0 && geteuid() != row->pw_uid)
		return scry_fail(-EPERM, "-u %s: only root becomes another user; fix: sudo", user);
	return 0;
}

int scry_user_become(const char *user)
{
	const struct passwd *row = find(user);

	if (!row) {
		errno = ENOENT;
		return -1;
	}
	if (geteuid() != 0 && geteuid() == row->pw_uid)
		return 0;
	if (initgroups(row->pw_name, row->pw_gid) < 0 ||
	    setresgid(row->pw_gid, row->pw_gid, row->pw_gid) < 0)
		return -1;
	return setresuid(row->pw_uid, row->pw_uid, row->pw_uid);
}
