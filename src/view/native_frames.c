/* See native_frames.h. The reader has checked that each frame's parent came before it. */
#include "view/native_frames.h"

#include "base/demangle.h"
#include "base/err.h"
#include "base/text.h"
#include "view/gem.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define HUB 16		      /* places: what is called from so many allocates for others */
#define PLACES_MAX (1u << 20) /* beyond, none is counted */

static uint64_t place_of(const struct scry_ev_stack *f)
{
	return (uint64_t)f->file_str << 40 ^ (uint64_t)f->method_str << 20 ^ f->offset;
}

static struct scry_ev_stack *frame_at(const struct scry_native_frames *s, uint32_t id)
{
	uint64_t place;

	return id && scry_map_get(&s->places, id, &place) ? &s->frames[place] : NULL;
}

static void count_caller(struct scry_native_frames *s, const struct scry_ev_stack *f)
{
	const struct scry_ev_stack *parent = frame_at(s, f->parent);
	uint64_t place = place_of(f), pair = place * 0x9e3779b97f4a7c15ull, known, *count;

	if (parent)
		pair ^= place_of(parent) * 0xff51afd7ed558ccdull;
	if (!s->pairs.limit) {
		scry_map_init(&s->pairs, PLACES_MAX);
		scry_map_init(&s->hubs, PLACES_MAX);
	}
	if (scry_map_get(&s->pairs, pair, &known) || scry_map_put(&s->pairs, pair, 1) < 0)
		return;
	count = scry_map_ref(&s->hubs, place);
	if (count)
		++*count;
}

static bool is_hub(const struct scry_native_frames *s, const struct scry_ev_stack *f)
{
	uint64_t count;

	return scry_map_get(&s->hubs, place_of(f), &count) && count >= HUB;
}

/* Ids are the recording's, and may be of any greatness. */
static int add_frame(struct scry_native_frames *s, const struct scry_ev_stack *stack)
{
	uint32_t cap = s->cap ? s->cap * 2 : 256;
	struct scry_ev_stack *more = s->frames;

	if (!s->places.limit)
		scry_map_init(&s->places, UINT32_MAX);
	if (s->count == s->cap) {
		more = realloc(s->frames, cap * sizeof(*more));
		if (more) {
			s->frames = more;
			s->cap = cap;
		}
	}
	if (!more || scry_map_put(&s->places, stack->id, s->count) < 0)
		return scry_no_memory("the stacks");
	s->frames[s->count++] = *stack;
	return 0;
}

int scry_native_frames_event(struct scry_native_frames *s, const struct scry_ev_stack *stack)
{
	struct scry_ev_stack *known = frame_at(s, stack->id);
	int err = 0;

	if (known)
		*known = *stack;
	else if (stack->id)
		err = add_frame(s, stack);
	if (err)
		return err;
	if (stack->file_str && !stack->method_str)
		count_caller(s, stack);
	return 0;
}

void scry_native_frames_done(struct scry_native_frames *s)
{
	free(s->frames);
	scry_map_done(&s->places);
	scry_map_done(&s->pairs);
	scry_map_done(&s->hubs);
	*s = (struct scry_native_frames){0};
}

/*
 * Parts of names, upper case as lower: malloc, ruby_xmalloc2, PyMem_Malloc, my_strdup, g_memdup2.
 * (Rust: RawVec, which grows vectors and strings.) Then beginnings: operator new and the standard
 * allocator, mangled.
 */
static const char *const parts[] = {"malloc",	"calloc",	"realloc", "memalign",
				    "strdup",	"strndup",	"memdup",  "zalloc",
				    "7raw_vec", "__rust_alloc", NULL};
static const char *const begins[] = {"_Znw",
				     "_Zna",
				     "aligned_alloc",
				     "_ZN9__gnu_cxx13new_allocator",
				     "_ZNSt15__new_allocator",
				     "_ZNSt16allocator_traits",
				     "_ZNSaI",
				     "alloc_root",
				     NULL};

bool scry_native_is_wrapper(const char *symbol)
{
	for (size_t i = 0; parts[i]; i++)
		if (strcasestr(symbol, parts[i]))
			return true;
	for (size_t i = 0; begins[i]; i++)
		if (!strncmp(symbol, begins[i], strlen(begins[i])))
			return true;
	return false;
}

const struct scry_ev_stack *scry_native_frames_caller(const struct scry_native_frames *s,
						      const struct scry_reader *reader, uint32_t id)
{
	const struct scry_ev_stack *f, *nameless = NULL;

	for (f = frame_at(s, id); f && !(f->flags & SCRY_STACK_UNKNOWN);
	     f = frame_at(s, f->parent)) {
		const char *symbol = scry_reader_string(reader, f->method_str, NULL);

		if (!symbol && (nameless || !is_hub(s, f)))
			nameless = nameless ? nameless : f;
		else if (!symbol)
			continue;
		else if (!scry_native_is_wrapper(symbol))
			return nameless ? nameless : f;
		else /* what it calls without a name is a part of it */
			nameless = NULL;
	}
	return nameless ? nameless : frame_at(s, id);
}

static bool is_of_program(const struct scry_ev_stack *f, const struct scry_reader *reader)
{
	const char *file = scry_reader_string(reader, f->file_str, NULL);
	size_t length;
	const char *gem = file ? scry_gem_name(file, &length) : NULL;

	return gem && *gem == '(' && strncmp(gem, "(ruby)", length) != 0;
}

const struct scry_ev_stack *scry_native_frames_line(const struct scry_native_frames *s,
						    const struct scry_reader *reader, uint32_t id)
{
	const struct scry_ev_stack *first = frame_at(s, id), *f = first;

	if (!f || f->flags & (SCRY_STACK_NATIVE | SCRY_STACK_UNKNOWN))
		return NULL;
	while (f && !is_of_program(f, reader))
		f = frame_at(s, f->parent);
	return f ? f : first;
}

uint32_t scry_native_frames_all(const struct scry_native_frames *s,
				const struct scry_reader *reader, uint32_t id,
				struct scry_doc_frame ret_frames[SCRY_NATIVE_DEPTH])
{
	const struct scry_ev_stack *chain[SCRY_NATIVE_DEPTH], *f;
	uint32_t count = 0;

	for (f = frame_at(s, id); f && count < SCRY_NATIVE_DEPTH; f = frame_at(s, f->parent))
		chain[count++] = f;
	for (uint32_t i = 0; i < count; i++) {
		struct scry_doc_frame *to = &ret_frames[i];

		f = chain[count - 1 - i];
		*to = (struct scry_doc_frame){.offset = f->offset,
					      .line = f->line,
					      .is_native = (f->flags & SCRY_STACK_NATIVE) != 0};
		to->file = scry_reader_string(reader, f->file_str, &to->file_length);
		to->method = scry_reader_string(reader, f->method_str, &to->method_length);
	}
	return count;
}

void scry_native_frame_name(const struct scry_doc_frame *frame, struct scry_buf *buf)
{
	const char *slash = frame->file ? memrchr(frame->file, '/', frame->file_length) : NULL;
	size_t skip = slash ? (size_t)(slash + 1 - frame->file) : 0;

	if (frame->method) {
		scry_demangle_put(frame->method, frame->method_length, buf);
	} else if (frame->file) {
		scry_buf_append(buf, frame->file + skip, frame->file_length - skip);
		scry_buf_printf(buf, "+%#llx", (unsigned long long)frame->offset);
	} else {
		scry_buf_printf(buf, "[unknown]");
	}
}

void scry_native_frames_put(const struct scry_native_frames *s, const struct scry_reader *reader,
			    uint32_t id, struct scry_buf *buf)
{
	struct scry_doc_frame frames[SCRY_NATIVE_DEPTH];
	uint32_t count = scry_native_frames_all(s, reader, id, frames);

	for (uint32_t i = 0; i < count; i++) {
		if (i)
			scry_buf_printf(buf, " > ");
		scry_native_frame_name(&frames[i], buf);
	}
}

static void put_line(const struct scry_ev_stack *f, const struct scry_reader *reader,
		     struct scry_buf *buf)
{
	size_t file_length = 0, length = 0;
	const char *file = scry_reader_string(reader, f->file_str, &file_length);
	const char *method = scry_reader_string(reader, f->method_str, &length);

	if (file)
		file_length -= (size_t)(scry_gem_path(file) - file);
	scry_text_escape(buf, file ? scry_gem_path(file) : "?", file ? file_length : 1);
	if (f->line)
		scry_buf_printf(buf, ":%u", f->line);
	scry_buf_append(buf, "  ", method ? 2 : 0);
	if (method)
		scry_text_escape(buf, method, length);
	scry_buf_append(buf, "\n", 1);
}

bool scry_native_frames_are(const struct scry_native_frames *s, uint32_t id)
{
	const struct scry_ev_stack *f = frame_at(s, id);

	return f && f->flags & SCRY_STACK_NATIVE;
}

uint64_t scry_native_frames_address(const struct scry_native_frames *s, uint32_t id)
{
	const struct scry_ev_stack *f = frame_at(s, id);

	return f && f->flags & SCRY_STACK_NATIVE && !(f->flags & SCRY_STACK_UNKNOWN) ? f->address
										     : 0;
}

void scry_native_frames_lines(const struct scry_native_frames *s, const struct scry_reader *reader,
			      uint32_t id, struct scry_buf *buf)
{
	const struct scry_ev_stack *f;
	uint32_t count = 0;

	for (f = frame_at(s, id); f && count++ < SCRY_NATIVE_DEPTH; f = frame_at(s, f->parent)) {
		size_t file_length = 0, length = 0;
		const char *file = scry_reader_string(reader, f->file_str, &file_length);
		const char *symbol = scry_reader_string(reader, f->method_str, &length);
		const char *slash = file ? memrchr(file, '/', file_length) : NULL;

		scry_buf_append(buf, " > ", 3);
		if (f->flags & SCRY_STACK_UNKNOWN) {
			scry_buf_printf(buf, "(the callers are not known from here on)\n");
			continue;
		}
		if (!(f->flags & SCRY_STACK_NATIVE)) {
			put_line(f, reader, buf);
			continue;
		}
		if (slash) {
			file_length -= (size_t)(slash + 1 - file);
			file = slash + 1;
		}
		scry_text_escape(buf, file ? file : "?", file ? file_length : 1);
		scry_buf_append(buf, "(", 1);
		if (symbol)
			scry_demangle_show(symbol, length, buf);
		scry_buf_printf(buf, "+%#llx) [%llx]\n", (unsigned long long)f->offset,
				(unsigned long long)f->address);
	}
}
