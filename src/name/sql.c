/* See sql.h. */
#include "name/sql.h"

#include <string.h>

struct text {
	const char *at, *end;
	bool is_mysql;
};

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static bool is_name(char c)
{
	return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
	       c == '$' || (unsigned char)c >= 128;
}

static bool begins(const struct text *t, const char *with)
{
	size_t n = strlen(with);

	return (size_t)(t->end - t->at) >= n && !memcmp(t->at, with, n);
}

/* Behind the quote that closes the one at `at`: doubled ones do not, nor, where a backslash takes
 * away their meaning, those behind one. */
static const char *behind_quote(const struct text *t, const char *at, bool has_backslash)
{
	const char quote = *at++;

	for (; at < t->end; at++) {
		if (*at == '\\' && has_backslash)
			at++;
		else if (*at == quote && (at + 1 == t->end || at[1] != quote))
			return at + 1;
		else if (*at == quote)
			at++;
	}
	return t->end;
}

static const char *behind(const struct text *t, const char *at, const char *what, size_t length)
{
	const char *found = memmem(at, (size_t)(t->end - at), what, length);

	return found ? found + length : t->end;
}

/* $$x$$, $tag$x$tag$; NULL: it is none. */
static const char *behind_dollars(const struct text *t)
{
	const char *tag = t->at + 1;

	while (tag < t->end && *tag != '$' && is_name(*tag))
		tag++;
	if (tag == t->end || *tag != '$' || (tag > t->at + 1 && is_digit(t->at[1])))
		return NULL;
	tag++;
	return behind(t, tag, t->at, (size_t)(tag - t->at));
}

static const char *behind_comment(const struct text *t)
{
	if (begins(t, "/*"))
		return behind(t, t->at + 2, "*/", 2);
	if (begins(t, "--") || (t->is_mysql && *t->at == '#'))
		return behind(t, t->at, "\n", 1);
	return NULL;
}

static const char *behind_number(const struct text *t)
{
	const char *at = t->at;

	while (at < t->end &&
	       (is_name(*at) || *at == '.' ||
		((*at == '+' || *at == '-') && (at[-1] == 'e' || at[-1] == 'E') &&
		 !(t->at[0] == '0' && t->at + 1 < t->end && (t->at[1] | 32) == 'x'))))
		at++;
	return at;
}

static const char *behind_name(const struct text *t)
{
	const char *at = t->at;

	while (at < t->end && is_name(*at))
		at++;
	return at;
}

/* A literal or comment, or NULL. *ret_show: what is put in its place. */
static const char *behind_literal(const struct text *t, const char **ret_show)
{
	const char *name_end = behind_name(t), *behind_it = behind_comment(t);
	size_t prefix = (size_t)(name_end - t->at);

	*ret_show = behind_it ? " " : "?";
	if (behind_it)
		return behind_it;
	if (*t->at == '\'' || (t->is_mysql && *t->at == '"'))
		return behind_quote(t, t->at, t->is_mysql);
	if (!t->is_mysql && *t->at == '$' && (behind_it = behind_dollars(t)))
		return behind_it;
	if (is_digit(*t->at) || (*t->at == '.' && t->at + 1 < t->end && is_digit(t->at[1])))
		return behind_number(t);
	/* E'x', x'0f', b'01', N'x', _utf8'x' */
	if (prefix && name_end < t->end && *name_end == '\'')
		return behind_quote(t, name_end,
				    t->is_mysql || (prefix == 1 && (*t->at | 32) == 'e'));
	return NULL;
}

void scry_sql_digest(const char *sql, size_t length, bool is_mysql, struct scry_buf *ret)
{
	struct text t = {sql, sql + length, is_mysql};

	while (t.at < t.end) {
		const char *show, *next = behind_literal(&t, &show);

		if (next) {
			scry_buf_append(ret, show, 1);
		} else {
			if (*t.at == '"' || *t.at == '`')
				next = behind_quote(&t, t.at, false);
			else
				next = behind_name(&t);
			if (next == t.at)
				next++;
			scry_buf_append(ret, t.at, (size_t)(next - t.at));
		}
		t.at = next;
	}
}
