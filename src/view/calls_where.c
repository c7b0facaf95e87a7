/*
 * See calls_where.h. The text becomes steps in postfix order: comparisons push an answer, and, or
 * and not take theirs from the top. Answers are ordered NO < UNKNOWN < YES, so "and" is the least,
 * "or" the greatest, and "not" turns them round.
 */
#include "view/calls_where.h"

#include <ctype.h>
#include <errno.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/opt.h"

#define STEPS_MAX 64
#define NESTED_MAX 16
#define TEXT_MAX 256

enum kind { COMPARE, AND, OR, NOT };
enum subject { ARGUMENT, RESULT, DURATION };
enum relation { EQUAL, DIFFERENT, LESS, LESS_EQUAL, GREATER, GREATER_EQUAL, LIKE, UNLIKE };

struct step {
	enum kind kind;
	enum subject subject;
	enum relation relation;
	uint32_t argument; /* from 0 */
	bool is_text, is_negative;
	uint64_t number; /* its absolute value */
	char *text;
};

struct scry_call_where {
	struct step steps[STEPS_MAX];
	uint32_t count;
};

struct parser {
	const char *all, *at;
	struct scry_call_where *where;
	uint32_t depth;
};

static int refuse(const struct parser *p, const char *wanted)
{
	return scry_fail(-EINVAL,
			 "--where: %s is missing at '%.40s' of '%s'; fix: like 'arg2 > 4096 && ret "
			 "< 0', 'duration >= 5ms', 'arg1 ~ \"*.conf\"'",
			 wanted, p->at, p->all);
}

static bool skip(struct parser *p, const char *word)
{
	while (isspace((unsigned char)*p->at))
		p->at++;
	if (strncmp(p->at, word, strlen(word)) != 0)
		return false;
	p->at += strlen(word);
	return true;
}

static int add(struct parser *p, const struct step *step)
{
	if (p->where->count == STEPS_MAX) {
		free(step->text);
		return scry_fail(-EINVAL, "--where: more than %d comparisons", STEPS_MAX / 2);
	}
	p->where->steps[p->where->count++] = *step;
	return 0;
}

static int read_subject(struct parser *p, struct step *s)
{
	if (skip(p, "arg") && isdigit((unsigned char)*p->at)) {
		char *end;
		unsigned long n = strtoul(p->at, &end, 10);

		if (!n || n > 64)
			return refuse(p, "the number of an argument, from 1,");
		p->at = end;
		s->argument = (uint32_t)n - 1;
		return 0;
	}
	s->subject = RESULT;
	if (skip(p, "retval") || skip(p, "result") || skip(p, "ret"))
		return 0;
	s->subject = DURATION;
	return skip(p, "duration") || skip(p, "time") ? 0 : refuse(p, "argN, ret or duration");
}

static int read_relation(struct parser *p, struct step *s)
{
	static const struct {
		const char *text;
		enum relation relation;
	} all[] = {{"==", EQUAL},	  {"!=", DIFFERENT}, {"<=", LESS_EQUAL},
		   {">=", GREATER_EQUAL}, {"!~", UNLIKE},    {"=", EQUAL},
		   {"<", LESS},		  {">", GREATER},    {"~", LIKE}};

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		if (skip(p, all[i].text)) {
			s->relation = all[i].relation;
			return 0;
		}
	return refuse(p, "==, !=, <, <=, >, >=, ~ or !~");
}

static int read_text(struct parser *p, struct step *s)
{
	const char *end = strchr(p->at, '"');

	if (!end || end - p->at > TEXT_MAX)
		return refuse(p, "the closing \"");
	s->is_text = true;
	s->text = strndup(p->at, (size_t)(end - p->at));
	p->at = end + 1;
	return s->text ? 0 : scry_no_memory("--where");
}

/* "4096", "-1", "0x1f", and of a time "5ms": as everywhere, in seconds where there is no unit. */
static int read_value(struct parser *p, struct step *s)
{
	char word[64];
	size_t n;
	char *end;

	if (skip(p, "\""))
		return read_text(p, s);
	s->is_negative = skip(p, "-");
	n = strspn(p->at, "0123456789abcdefxABCDEFXmnusihMIN.");
	if (!n || n >= sizeof(word))
		return refuse(p, "a number or a \"text\"");
	memcpy(word, p->at, n);
	word[n] = '\0';
	if (s->subject == DURATION) {
		int r = scry_opt_read_duration(word, &s->number);

		p->at += n;
		return r;
	}
	errno = 0;
	s->number = strtoull(word, &end, 0);
	if (errno || end == word || *end)
		return refuse(p, "a number or a \"text\"");
	p->at += n;
	return 0;
}

static int read_comparison(struct parser *p)
{
	struct step s = {.kind = COMPARE};
	int r = read_subject(p, &s);

	if (r == 0)
		r = read_relation(p, &s);
	if (r == 0)
		r = read_value(p, &s);
	if (r == 0 && (s.relation == LIKE || s.relation == UNLIKE) && !s.is_text)
		r = refuse(p, "a \"pattern\"");
	if (r == 0 && s.is_text && s.relation >= LESS && s.relation <= GREATER_EQUAL)
		r = refuse(p, "==, !=, ~ or !~ before a text");
	if (r < 0) {
		free(s.text);
		return r;
	}
	return add(p, &s);
}

static int read_any(struct parser *p);

static int read_one(struct parser *p)
{
	int r;

	if (p->depth == NESTED_MAX)
		return scry_fail(-EINVAL, "--where: more than %d brackets in each other",
				 NESTED_MAX);
	p->depth++;
	if (skip(p, "!")) {
		r = read_one(p);
		if (r == 0)
			r = add(p, &(struct step){.kind = NOT});
	} else if (skip(p, "(")) {
		r = read_any(p);
		if (r == 0 && !skip(p, ")"))
			r = refuse(p, ")");
	} else {
		r = read_comparison(p);
	}
	p->depth--;
	return r;
}

static int read_all(struct parser *p)
{
	int r = read_one(p);

	while (r == 0 && skip(p, "&&")) {
		r = read_one(p);
		if (r == 0)
			r = add(p, &(struct step){.kind = AND});
	}
	return r;
}

static int read_any(struct parser *p)
{
	int r = read_all(p);

	while (r == 0 && skip(p, "||")) {
		r = read_all(p);
		if (r == 0)
			r = add(p, &(struct step){.kind = OR});
	}
	return r;
}

int scry_call_where_parse(const char *text, struct scry_call_where **ret)
{
	struct parser p = {.all = text, .at = text};
	int r;

	*ret = NULL;
	if (!text)
		return 0;
	p.where = calloc(1, sizeof(*p.where));
	if (!p.where)
		return scry_no_memory("--where");
	r = read_any(&p);
	skip(&p, "");
	if (r == 0 && *p.at)
		r = refuse(&p, "&& or ||");
	if (r < 0) {
		scry_call_where_free(p.where);
		return r;
	}
	*ret = p.where;
	return 0;
}

void scry_call_where_free(struct scry_call_where *w)
{
	for (uint32_t i = 0; w && i < w->count; i++)
		free(w->steps[i].text);
	free(w);
}

static bool is_true(enum relation relation, int order)
{
	static const struct {
		bool less, equal, greater;
	} table[] = {
		[EQUAL] = {.equal = true},     [DIFFERENT] = {.less = true, .greater = true},
		[LESS] = {.less = true},       [LESS_EQUAL] = {.less = true, .equal = true},
		[GREATER] = {.greater = true}, [GREATER_EQUAL] = {.equal = true, .greater = true},
	};

	return order < 0 ? table[relation].less
	       : order	 ? table[relation].greater
			 : table[relation].equal;
}

static enum scry_call_where_answer answer(bool yes)
{
	return yes ? SCRY_WHERE_YES : SCRY_WHERE_NO;
}

/* Both as they are: a 64-bit number without a sign may be greater than any with one. */
static int order_of(const struct scry_doc_value *v, const struct step *s)
{
	bool is_negative = v->kind == SCRY_VALUE_SIGNED && (int64_t)v->number < 0;
	uint64_t size = is_negative ? -v->number : v->number;

	if (is_negative != (s->is_negative && s->number))
		return is_negative ? -1 : 1;
	if (size == s->number)
		return 0;
	return (size < s->number) != is_negative ? -1 : 1;
}

/* A text that was cut begins with what is known of it: more than that is not known. */
static enum scry_call_where_answer compare_text(const struct scry_doc_value *v,
						const struct step *s, bool is_cut)
{
	const size_t want = strlen(s->text);
	char *text;
	bool is_like, is_same;

	if (is_cut && (s->relation == LIKE || s->relation == UNLIKE ||
		       (want >= v->number && !memcmp(s->text, v->bytes, v->number))))
		return SCRY_WHERE_UNKNOWN;
	text = strndup(v->bytes, v->number);
	if (!text)
		return SCRY_WHERE_UNKNOWN;
	is_like = fnmatch(s->text, text, 0) == 0;
	is_same = want == v->number && !memcmp(s->text, v->bytes, v->number);
	free(text);
	if (s->relation == LIKE || s->relation == UNLIKE)
		return answer(is_like == (s->relation == LIKE));
	return answer(is_same == (s->relation == EQUAL));
}

static enum scry_call_where_answer compare(const struct scry_doc_value *v, const struct step *s,
					   bool is_cut)
{
	if (s->is_text != (v->kind == SCRY_VALUE_TEXT))
		return SCRY_WHERE_UNKNOWN;
	if (s->is_text)
		return compare_text(v, s, is_cut);
	return v->kind == SCRY_VALUE_SIGNED || v->kind == SCRY_VALUE_UNSIGNED ||
			       v->kind == SCRY_VALUE_HEX || v->kind == SCRY_VALUE_BOOL
		       ? answer(is_true(s->relation, order_of(v, s)))
		       : SCRY_WHERE_UNKNOWN;
}

static enum scry_call_where_answer look(const struct step *s, const struct scry_call_image *image,
					const struct scry_call_function *f)
{
	const struct scry_proto *proto = f ? f->proto : &scry_proto_unknown;
	const struct scry_ev_return *ret = image->ret ? (const void *)(image->ret + 1) : NULL;
	const struct scry_ev_call *call = (const void *)(image->call + 1);
	struct scry_call_values values = {0};
	const struct scry_call_out out = {.values = &values};
	enum scry_call_where_answer a = SCRY_WHERE_UNKNOWN;
	bool need_comma = false, has_returned = ret && ret->how == SCRY_RETURN_DONE;

	if (s->subject == DURATION)
		return has_returned ? compare(&(struct scry_doc_value){.kind = SCRY_VALUE_UNSIGNED,
								       .number = ret->duration_ns},
					      s, false)
				    : SCRY_WHERE_UNKNOWN;
	if (s->subject == ARGUMENT && s->argument < scry_call_args_shown(proto, image->call) &&
	    !(call->flags & SCRY_CALL_HAS_NO_ARGS))
		scry_call_show_args(image, proto, s->argument, s->argument + 1, &need_comma, &out);
	if (s->subject == RESULT && has_returned)
		scry_call_show_result(image, proto, &out);
	if (!values.failed && values.count)
		a = compare(values.is_enum && !s->is_text ? &values.enumerated : &values.values[0],
			    s, values.is_cut);
	scry_call_values_done(&values);
	return a;
}

enum scry_call_where_answer scry_call_where_takes(const struct scry_call_where *w,
						  const struct scry_call_image *image,
						  const struct scry_call_function *f)
{
	enum scry_call_where_answer stack[STEPS_MAX], b;
	uint32_t depth = 0;

	if (!w)
		return SCRY_WHERE_YES;
	for (uint32_t i = 0; i < w->count; i++) {
		if (w->steps[i].kind == COMPARE) {
			stack[depth++] = look(&w->steps[i], image, f);
			continue;
		}
		if (w->steps[i].kind == NOT) {
			stack[depth - 1] = SCRY_WHERE_YES - stack[depth - 1];
			continue;
		}
		b = stack[--depth];
		if ((w->steps[i].kind == AND) == (b < stack[depth - 1]))
			stack[depth - 1] = b;
	}
	return stack[0];
}
