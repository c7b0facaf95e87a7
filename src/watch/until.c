/*
 * `--until EXPR`. See until.h.
 */
#include "watch/until.h"

#include "base/err.h"
#include "base/opt.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const struct {
	const char *name;
	bool is_size;
} quantities[] = {
	[SCRY_UNTIL_NEVER] = {"", false},    [SCRY_UNTIL_RSS] = {"rss", true},
	[SCRY_UNTIL_LIVE] = {"live", false}, [SCRY_UNTIL_ALLOCATED] = {"allocated", false},
	[SCRY_UNTIL_GCS] = {"gcs", false},
};
#define QUANTITIES (sizeof(quantities) / sizeof(quantities[0]))

int scry_until_parse(const char *text, struct scry_until *ret_until)
{
	struct scry_until until = {.quantity = SCRY_UNTIL_NEVER};
	const char *limit;
	char why[256];
	size_t len, i;
	int err;

	if (!text) {
		*ret_until = until;
		return 0;
	}
	len = strcspn(text, ">");
	for (i = SCRY_UNTIL_RSS; i < QUANTITIES; i++)
		if (len == strlen(quantities[i].name) && !memcmp(text, quantities[i].name, len))
			break;
	if (i < QUANTITIES && !text[len]) /* the shell has taken the rest for a redirection */
		return scry_fail(-EINVAL, "'%s' lacks its limit; fix: in quotes, like '%s>%s'",
				 text, text, quantities[i].is_size ? "2G" : "1000");
	if (i == QUANTITIES || !text[len])
		return scry_fail(-EINVAL,
				 "'%s' is not a condition; fix: one of 'rss>2G', 'live>1000000', "
				 "'allocated>1000000', 'gcs>50'",
				 text);
	limit = text + len + 1;
	until.quantity = (enum scry_until_quantity)i;
	until.or_equal = *limit == '=';
	limit += until.or_equal;
	err = quantities[i].is_size ? scry_opt_read_size(limit, &until.limit)
				    : scry_opt_read_u64(limit, &until.limit);
	if (err) {
		snprintf(why, sizeof(why), "%s", scry_error());
		return scry_fail(-EINVAL, "'%s': %s", text, why);
	}
	*ret_until = until;
	return 0;
}

bool scry_until_holds(const struct scry_until *until, const struct scry_until_now *now)
{
	const uint64_t values[] = {
		[SCRY_UNTIL_RSS] = now->rss_bytes,
		[SCRY_UNTIL_LIVE] = now->live,
		[SCRY_UNTIL_ALLOCATED] = now->allocated,
		[SCRY_UNTIL_GCS] = now->gcs,
	};
	uint64_t value = values[until->quantity];

	if (until->quantity == SCRY_UNTIL_NEVER)
		return false;
	return value > until->limit || (until->or_equal && value == until->limit);
}
