/* See filter.h. */
#include "sys/filter.h"

#include <errno.h>
#include <fnmatch.h>
#include <regex.h>
#include <stdlib.h>
#include <string.h>

#include "base/demangle.h"
#include "base/err.h"

#define RULES_MAX 256
#define SIGNS "+-"

enum kind { ALL, GLOB, REGEX, PATH, MAIN };

struct pattern {
	enum kind kind;
	char *glob;
	regex_t regex;
};

struct rule {
	bool marks;
	struct pattern symbol, library;
};

struct scry_filter {
	struct rule *rules;
	size_t count;
};

struct part { /* of the text */
	const char *at;
	size_t size;
	bool is_library;
};

static void free_pattern(struct pattern *p)
{
	if (p->kind == REGEX)
		regfree(&p->regex);
	free(p->glob);
}

void scry_filter_free(struct scry_filter *f)
{
	for (size_t i = 0; f && i < f->count; i++) {
		free_pattern(&f->rules[i].symbol);
		free_pattern(&f->rules[i].library);
	}
	if (f)
		free(f->rules);
	free(f);
}

/* Has the text in [from, end) the mark of a shared object's name? */
static bool is_soname(const char *from, const char *end)
{
	const char *mark = strstr(from, ".so");

	return mark && mark < end;
}

/*
 * A dash within a library's name: no symbol begins with a digit, and none has ".so" in it; but a
 * name that had it already has ended. libglib-2.0.so.0, ld-linux-x86-64.so.2.
 */
static bool is_dash(const char *from, const char *at)
{
	const char *end = at + 1 + strcspn(at + 1, "@+");

	return *at == '-' && at > from && at[1] != '@' &&
	       ((at[1] >= '0' && at[1] <= '9') || (!is_soname(from, at) && is_soname(at, end)));
}

/* Is the sign at `at` the beginning of a rule? */
static bool is_operator(const struct part *part, const char *at, bool is_path)
{
	const char *from = part->at;

	if (!strchr(SIGNS, *at))
		return false;
	if (at[0] == at[1] || (at > from && at[-1] == at[0]))
		return false;
	if (part->is_library && is_dash(from, at))
		return false;
	return !is_path || !strchr(at, '/');
}

/* A part ends at an operator, at one of `ends`, or with the text. */
static struct part take_part(const char **text, const char *ends)
{
	struct part part = {.at = *text, .is_library = *ends == '\0'};
	bool is_path = *part.at == '/' && part.is_library;
	const char *p = part.at;

	for (bool in_brackets = false; *p; p++) {
		if (in_brackets)
			in_brackets = *p != ']';
		else if (*p == '[')
			in_brackets = strchr(p + 1, ']') != NULL;
		else if (strchr(ends, *p) || is_operator(&part, p, is_path))
			break;
	}
	part.size = (size_t)(p - part.at);
	*text = p;
	return part;
}

/* Behind the slash that closes it; NULL: none does. */
static const char *closing(const char *from)
{
	const char *p = from;

	while (*p && *p != '/')
		p += *p == '\\' && p[1] ? 2 : 1;
	return *p ? p : NULL;
}

static int set_regex(struct pattern *p, const struct part *part)
{
	char text[256], *regex = strndup(part->at, part->size);
	int r = regex ? regcomp(&p->regex, regex, REG_EXTENDED | REG_NOSUB) : REG_ESPACE;

	free(regex);
	if (r == 0) {
		p->kind = REGEX;
		return 0;
	}
	regerror(r, NULL, text, sizeof(text));
	return scry_fail(-EINVAL, "'%.*s' is not a regular expression: %s", (int)part->size,
			 part->at, text);
}

static int set_glob(struct pattern *p, enum kind kind, struct part part)
{
	if (kind == GLOB && part.size && *part.at == '^') {
		part.at++;
		part.size--;
	}
	if (kind == GLOB && part.size && part.at[part.size - 1] == '$')
		part.size--;
	if (!part.size)
		return 0;
	p->kind = kind;
	p->glob = strndup(part.at, part.size);
	return p->glob ? 0 : scry_no_memory("a filter");
}

/* What begins with a slash. *ret_library: of /x@y/. */
static int take_regex(const char **text, struct pattern *symbol, struct pattern *library)
{
	const char *from = *text + 1, *end = closing(from);
	struct part first = {.at = from}, second;
	const char *at;
	int r;

	if (!end)
		return scry_fail(-EINVAL, "'%s': the regular expression has no end; fix: /x/",
				 *text);
	at = memchr(from, '@', (size_t)(end - from));
	first.size = (size_t)((at ? at : end) - from);
	*text = end + 1;
	r = first.size ? set_regex(symbol, &first) : 0;
	if (r < 0 || !at || !library)
		return r;
	second = (struct part){.at = at + 1, .size = (size_t)(end - at - 1)};
	return second.size ? set_regex(library, &second) : 0;
}

static int take_library(const char **text, struct rule *rule)
{
	const char *end = **text == '/' ? closing(*text + 1) : NULL;
	struct part part;

	if (end && (!end[1] || strchr(SIGNS, end[1])))
		return take_regex(text, &rule->library, NULL);
	part = take_part(text, "");
	if (part.size == 4 && !memcmp(part.at, "MAIN", 4)) {
		rule->library.kind = MAIN;
		return 0;
	}
	return set_glob(&rule->library, part.size && *part.at == '/' ? PATH : GLOB, part);
}

static int take_rule(const char **text, struct rule *rule)
{
	int r;

	if (**text == '/')
		r = take_regex(text, &rule->symbol, &rule->library);
	else
		r = set_glob(&rule->symbol, GLOB, take_part(text, "@"));
	if (r < 0 || **text != '@')
		return r;
	if (rule->library.kind != ALL)
		return scry_fail(-EINVAL, "'%s': it has two libraries", *text);
	++*text;
	return take_library(text, rule);
}

static int add_rule(struct scry_filter *f, struct rule **ret)
{
	struct rule *more = reallocarray(f->rules, f->count + 1, sizeof(*more));

	if (!more || f->count == RULES_MAX)
		return scry_fail(-ENOMEM, "no room for more than %zu rules", f->count);
	f->rules = more;
	*ret = &f->rules[f->count++];
	**ret = (struct rule){.marks = true};
	return 0;
}

static int parse(struct scry_filter *f, const char *text)
{
	const char *all = text;
	struct rule *rule;
	int r = *text == '-' ? add_rule(f, &rule) : 0;

	if (!*text)
		return scry_fail(-EINVAL, "'': no function is named; fix: SYMBOL[@LIB]");
	for (bool is_first = true; *text && r == 0; is_first = false) {
		r = add_rule(f, &rule);
		if (r == 0 && strchr(SIGNS, *text))
			rule->marks = *text++ == '+';
		else if (r == 0 && !is_first)
			r = scry_fail(-EINVAL, "'%s': unexpected '%s'", all, text);
		if (r == 0 && !*text)
			r = scry_fail(-EINVAL, "'%s': nothing is named behind the last sign", all);
		if (r == 0)
			r = take_rule(&text, rule);
	}
	return r;
}

int scry_filter_parse(const char *text, struct scry_filter **ret)
{
	struct scry_filter *f = calloc(1, sizeof(*f));
	int r = f ? parse(f, text) : scry_no_memory("a filter");

	if (r < 0)
		scry_filter_free(f);
	else
		*ret = f;
	return r;
}

static bool matches(const char *text, const void *pattern)
{
	const struct pattern *p = pattern;

	if (p->kind == REGEX)
		return regexec(&p->regex, text, 0, NULL, 0) == 0;
	return fnmatch(p->glob, text, 0) == 0;
}

static bool is_library(const struct pattern *p, const struct scry_filter_object *o)
{
	const char *slash = strrchr(o->path, '/');

	if (p->kind == ALL)
		return true;
	if (p->kind == MAIN)
		return o->is_main;
	if (p->kind == PATH)
		return matches(o->path, p);
	return (o->soname && matches(o->soname, p)) || matches(slash ? slash + 1 : o->path, p);
}

bool scry_filter_takes(const struct scry_filter *f, const char *symbol,
		       const struct scry_filter_object *object)
{
	bool is_marked = false;

	for (size_t i = 0; i < f->count; i++) {
		const struct rule *rule = &f->rules[i];

		if (rule->marks != is_marked &&
		    (rule->symbol.kind == ALL ||
		     scry_demangle_any(symbol, matches, &rule->symbol)) &&
		    is_library(&rule->library, object))
			is_marked = rule->marks;
	}
	return is_marked;
}

bool scry_filter_concerns(const struct scry_filter *f, const struct scry_filter_object *object)
{
	bool any = false;

	for (size_t i = 0; i < f->count; i++) {
		const struct rule *rule = &f->rules[i];

		if (is_library(&rule->library, object) && (rule->marks || rule->symbol.kind == ALL))
			any = rule->marks;
	}
	return any;
}
