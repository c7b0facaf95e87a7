/*
 * Becoming another user, for good.
 */
#ifndef SCRY_SYS_BECOME_H
#define SCRY_SYS_BECOME_H

/* Is there such a user (a name, or a number), and may we become it? 0 or -errno with a sentence. */
int scry_user_check(const char *user);
/* This process becomes it, with its groups. 0, or -1 with errno: then it must run nothing. Legal
 * after fork: it allocates. */
int scry_user_become(const char *user);

#endif
