/* See calls_named.h. */
#include "cmd/calls_named.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "instrument/calls/protos.h"
#include "sys/filter.h"

enum means { FUNCTION, LIBRARY, CALLER };

/* Whether it is loaded yet does not matter. The text is owned by the list. */
static int add(struct scry_calls_cli *cli, char *text, enum means means)
{
	if (!text)
		return scry_no_memory("the functions to trace");
	if (cli->request_count == SCRY_CALLS_REQUESTS_MAX) {
		free(text);
		return scry_fail(-EINVAL, "more than %d functions are named", cli->request_count);
	}
	cli->requests[cli->request_count++] = (struct scry_calls_request){
		.text = text, .of_slots = means == CALLER, .is_exported = means == LIBRARY};
	return 0;
}

static char *join(const char *a, const char *b, const char *c)
{
	char *text;

	return asprintf(&text, "%s%s%s", a, b, c) < 0 ? NULL : text;
}

/* ltrace's filter expression. */
static int add_filter(struct scry_calls_cli *cli, const char *before, const char *spec,
		      enum means means)
{
	struct scry_filter *filter;
	char *text = join(strchr("+-", *spec) && *spec && !*before ? "" : "+", before, spec);
	int r = text ? scry_filter_parse(text, &filter) : 0;

	if (r < 0) {
		free(text);
		return r;
	}
	if (text)
		scry_filter_free(filter);
	return add(cli, text, means);
}

/* "SYMBOL[@LIB]": one name, glob or address, or else an expression. "@LIB": all of its functions.
 */
static int add_function(struct scry_calls_cli *cli, const char *spec)
{
	const char *at = strchr(spec, '@');

	if (!*spec || strpbrk(spec, "+-/^$") || (at && !strcmp(at, "@MAIN")))
		return add_filter(cli, "", spec, FUNCTION);
	if (at && !at[1])
		return scry_fail(-EINVAL, "'%s': the library behind the @ is missing", spec);
	return add(cli, join(at == spec ? "*" : "", spec, at ? "" : "@*"), FUNCTION);
}

/* All that it exports, by soname or glob; as ltrace says an expression too. */
static int add_library(struct scry_calls_cli *cli, const char *spec)
{
	return strpbrk(spec, "+-/^$") ? add_filter(cli, "@", spec, LIBRARY)
				      : add(cli, join("*@", spec, ""), LIBRARY);
}

int scry_calls_named_add(struct scry_calls_cli *cli, const struct scry_calls_named *named)
{
	const struct scry_proto *known;
	size_t next = 0;
	int r = 0;

	for (size_t i = 0; i < named->functions.count && r == 0; i++)
		r = add_function(cli, named->functions.values[i]);
	for (size_t i = 0; i < named->libraries.count && r == 0; i++)
		r = add_library(cli, named->libraries.values[i]);
	for (size_t i = 0; i < named->callers.count && r == 0; i++)
		r = add_filter(cli, "", named->callers.values[i], CALLER);
	if (named->clients && r == 0) {
		cli->is_default = !cli->request_count;
		while (r == 0 && (known = scry_calls_protos_default(cli->protos, &next)))
			r = add(cli, join(known->name, "@", known->library), FUNCTION);
	}
	if (r < 0 || cli->request_count)
		return r;
	if (named->no_default) /* signals, and the end; -S */
		return 0;
	return add_filter(cli, "", "@MAIN", CALLER);
}

enum scry_calls_args scry_calls_args_of(int choice, const char *output)
{
	static const enum scry_calls_args choices[] = {SCRY_CALLS_FULL, SCRY_CALLS_FULL,
						       SCRY_CALLS_DIGEST, SCRY_CALLS_NONE};

	return !choice && output ? SCRY_CALLS_DIGEST : choices[choice];
}
