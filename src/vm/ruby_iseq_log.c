/*
 * Code that came into being. See ruby_iseq_log.h.
 *
 * A row is reused for the address's next birth when the chain of an address is full: so memory is
 * bounded by the number of addresses at which a program has code, however much it evaluates.
 */
#include "vm/ruby_iseq_log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bisect.h"
#include "base/err.h"
#include "vm/ruby_value.h"

#define WORD 8u
#define LATE_MAX 65536u
#define CODE_PAGE 12u
#define CODE_MAX_WORDS (1u << 20)

/* Do all words that the probe gets lie in what it reads, and may they be read as such? */
static bool is_within(const struct scry_iseq_event_layout *l)
{
	const uint32_t body[] = {l->body_encoded, l->body_path, l->body_label, l->entries,
				 l->positions,	  l->body_size, l->count,      l->body_first_line};
	const uint32_t object[] = {l->string_ptr, l->string_len, l->array_embed_ptr, l->array_ptr};

	for (size_t i = 0; i < sizeof(body) / sizeof(body[0]); i++)
		if (body[i] > SCRY_ISEQ_EVENT_BODY - WORD || body[i] % (i < 5 ? WORD : 4))
			return false;
	for (size_t i = 0; i < sizeof(object) / sizeof(object[0]); i++)
		if (object[i] > SCRY_ISEQ_EVENT_OBJECT - WORD || object[i] % WORD)
			return false;
	return true;
}

static int refuse(void)
{
	return scry_fail(-ENOTSUP, "this Ruby's code is not laid out as the probe reads it; fix: "
				   "--names=read");
}

int scry_iseq_log_layout(const struct scry_ruby_layout *l, struct scry_iseq_event_layout *ret)
{
	if (l->insns_positions == SCRY_RUBY_NONE || !l->insns_entry_size ||
	    l->insns_entry_size % 4 || l->insns_entry_size > SCRY_ISEQ_EVENT_ENTRY_MAX ||
	    l->insns_entry_line + 4 > l->insns_entry_size)
		return refuse();
	*ret = (struct scry_iseq_event_layout){
		.string_noembed = l->string_noembed,
		.string_embed_len_mask = l->string_embed_len_mask,
		.array_embed = l->array_embed,
		.iseq_body = l->iseq_body,
		.body_encoded = l->body_encoded,
		.body_size = l->body_size,
		.body_path = l->body_path,
		.body_label = l->body_label,
		.body_first_line = l->body_first_line,
		.entries = l->body_insns_info + l->insns_entries,
		.positions = l->body_insns_info + l->insns_positions,
		.count = l->body_insns_info + l->insns_count,
		.entry_size = l->insns_entry_size,
		.string_ptr = l->string_ptr,
		.string_len = l->string_len,
		.string_embed = l->string_embed,
		.string_embed_len_shift = l->string_embed_len_shift,
		.array_embed_ptr = l->array_embed_ptr,
		.array_ptr = l->array_ptr,
	};
	return is_within(ret) ? 0 : refuse();
}

void scry_iseq_log_init(struct scry_iseq_log *b, const struct scry_ruby_layout *layout)
{
	*b = (struct scry_iseq_log){.layout = layout};
	scry_map_init(&b->at, SCRY_ISEQ_LOG_MAX);
	scry_map_init(&b->pages, SCRY_ISEQ_LOG_MAX);
}

void scry_iseq_log_done(struct scry_iseq_log *b)
{
	for (uint32_t i = 0; i < b->count; i++)
		free(b->rows[i].memory);
	free(b->rows);
	free(b->waiting);
	free(b->nodes);
	scry_map_done(&b->at);
	scry_map_done(&b->pages);
	*b = (struct scry_iseq_log){0};
}

/* --- a record --------------------------------------------------------------------------------- */

struct parts { /* of a record whose sizes were checked */
	struct scry_iseq_event head;
	const uint8_t *label, *path, *positions, *entries;
	uint32_t label_size, path_size, lines; /* as far as they were reported */
	bool has_label, has_path;
};

static bool split(const void *record, size_t size, struct parts *ret)
{
	struct parts p = {.label = (const uint8_t *)record + sizeof(p.head)};

	if (size < sizeof(p.head))
		return false;
	memcpy(&p.head, record, sizeof(p.head));
	if (size <
	    SCRY_ISEQ_EVENT_SIZE(p.head.label_room, p.head.path_room, (size_t)p.head.line_room))
		return false;
	p.path = p.label + p.head.label_room;
	p.positions = p.path + p.head.path_room;
	p.entries = p.positions + 4 * (size_t)p.head.line_room;
	/* What was cut, or by memory's readers would be, is not its name. */
	p.has_label = p.head.label_size < p.head.label_room;
	p.has_path = p.head.path_size < p.head.path_room;
	p.label_size = p.has_label ? p.head.label_size : 0;
	p.path_size = p.has_path ? p.head.path_size : 0;
	p.lines = p.head.line_count;
	if (p.lines > p.head.line_room)
		p.lines = p.head.line_room;
	*ret = p;
	return p.head.iseq && p.head.iseq % WORD == 0 && p.head.encoded % WORD == 0 &&
	       p.head.size && p.head.size <= CODE_MAX_WORDS &&
	       p.head.encoded < UINT64_MAX - WORD * CODE_MAX_WORDS;
}

static uint32_t u32_at(const uint8_t *at)
{
	uint32_t word;

	memcpy(&word, at, sizeof(word));
	return word;
}

static const char *put_text(char **to, const uint8_t *from, uint32_t size)
{
	char *text = *to;

	memcpy(text, from, size);
	text[size] = '\0';
	scry_ruby_make_printable(text, size);
	*to += size + 1;
	return text;
}

/* Positions ascend from 0 within the code; up to the first that does not. */
static void put_lines(const struct scry_iseq_log *b, const struct parts *p, uint32_t *to,
		      struct scry_born *ret)
{
	uint32_t size = b->layout->insns_entry_size, before = 0;

	ret->lines = to;
	for (uint32_t i = 0; i < p->lines; i++) {
		uint32_t pos = u32_at(p->positions + 4 * (size_t)i);

		if (pos >= p->head.size || (i ? pos <= before : pos != 0))
			return;
		before = pos;
		to[2 * i] = pos;
		to[2 * i + 1] = u32_at(p->entries + (size_t)size * i + b->layout->insns_entry_line);
		ret->line_count = i + 1;
	}
	ret->is_whole = p->lines == p->head.line_count;
}

static int fill(struct scry_iseq_log *b, const struct parts *p, struct scry_born *ret)
{
	size_t lines = 8 * (size_t)p->lines;
	char *text;

	*ret = (struct scry_born){
		.code = {p->head.iseq, p->head.body, p->head.encoded, p->head.size},
		.time_ns = p->head.time_ns,
		.died_ns = UINT64_MAX,
		.number = ++b->sums.born,
		.first_line =
			b->layout->first_line_fixnum ? p->head.first_line >> 1 : p->head.first_line,
		.memory = malloc(lines + p->label_size + p->path_size + 2),
	};
	if (!ret->memory)
		return -ENOMEM;
	text = (char *)ret->memory + lines;
	if (p->has_label && p->has_path) {
		ret->label = put_text(&text, p->label, p->label_size);
		ret->path = put_text(&text, p->path, p->path_size);
	}
	put_lines(b, p, ret->memory, ret);
	return 0;
}

/* --- pages of instructions -------------------------------------------------------------------- */

static uint64_t end_of(const struct scry_ruby_iseq *code)
{
	return code->encoded + WORD * (uint64_t)code->size;
}

/* A pc is behind its instruction, so it may be the end. */
static bool has_pc(const struct scry_born *born, uint64_t pc)
{
	return pc >= born->code.encoded && pc <= end_of(&born->code);
}

static void unlink_row(struct scry_iseq_log *b, uint32_t id)
{
	const struct scry_ruby_iseq *code = &b->rows[id - 1].code;

	for (uint64_t page = code->encoded >> CODE_PAGE; page <= end_of(code) >> CODE_PAGE;
	     page++) {
		uint64_t first = 0;
		uint32_t *link, node;

		if (!scry_map_get(&b->pages, page, &first))
			continue;
		node = (uint32_t)first;
		for (link = &node; *link && b->nodes[*link - 1].row != id;)
			link = &b->nodes[*link - 1].next;
		if (*link) {
			uint32_t gone = *link;

			*link = b->nodes[gone - 1].next;
			b->nodes[gone - 1].next = b->node_free;
			b->node_free = gone;
		}
		if (!node)
			scry_map_remove(&b->pages, page, NULL);
		else if (node != first)
			scry_map_put(&b->pages, page, node);
	}
}

/* Those whose instructions were where the code's are, are dead. */
static void bury(struct scry_iseq_log *b, const struct scry_born *born)
{
	const struct scry_ruby_iseq *code = &born->code;

	for (uint64_t page = code->encoded >> CODE_PAGE; page <= end_of(code) >> CODE_PAGE;
	     page++) {
		uint64_t first = 0;

		scry_map_get(&b->pages, page, &first);
		for (uint32_t at = (uint32_t)first, next; at; at = next) {
			uint32_t id = b->nodes[at - 1].row;
			struct scry_born *other = &b->rows[id - 1];

			next = b->nodes[at - 1].next;
			if (other->code.encoded >= end_of(code) ||
			    end_of(&other->code) <= code->encoded)
				continue;
			other->died_ns = born->time_ns;
			unlink_row(b, id);
		}
	}
}

/* 0: no memory, or the limit. */
static uint32_t new_node(struct scry_iseq_log *b)
{
	uint32_t id = b->node_free;

	if (id) {
		b->node_free = b->nodes[id - 1].next;
		return id;
	}
	if (b->node_count == b->node_room) {
		uint32_t room = b->node_room ? 2 * b->node_room : 1024;
		struct scry_iseq_log_node *more =
			room > 4 * SCRY_ISEQ_LOG_MAX ? NULL
						     : reallocarray(b->nodes, room, sizeof(*more));

		if (!more)
			return 0;
		b->nodes = more;
		b->node_room = room;
	}
	return ++b->node_count;
}

static bool link_row(struct scry_iseq_log *b, uint32_t id)
{
	const struct scry_ruby_iseq *code = &b->rows[id - 1].code;

	for (uint64_t page = code->encoded >> CODE_PAGE; page <= end_of(code) >> CODE_PAGE;
	     page++) {
		uint64_t first = 0;
		uint32_t node = new_node(b);

		scry_map_get(&b->pages, page, &first);
		if (!node || scry_map_put(&b->pages, page, node)) {
			unlink_row(b, id);
			return false;
		}
		b->nodes[node - 1] = (struct scry_iseq_log_node){id, (uint32_t)first};
	}
	return true;
}

/* --- the table -------------------------------------------------------------------------------- */

/* A row for the birth at an address whose newest is `newest`: a new one, or the oldest of a full
 * chain, or of one that made room long ago. 0: there is none. */
static uint32_t row_for(struct scry_iseq_log *b, uint32_t newest, uint64_t time_ns)
{
	uint32_t id = newest, deep = 0, before = 0;

	for (; id && b->rows[id - 1].older; id = b->rows[id - 1].older, deep++)
		before = id;
	if (before && (deep + 1 >= SCRY_ISEQ_LOG_DEEP || b->count == SCRY_ISEQ_LOG_MAX ||
		       b->rows[before - 1].time_ns + SCRY_ISEQ_LOG_KEPT_NS < time_ns)) {
		b->rows[before - 1].older = 0;
		unlink_row(b, id);
		free(b->rows[id - 1].memory);
		b->rows[id - 1] = (struct scry_born){0};
		return id;
	}
	if (b->count == SCRY_ISEQ_LOG_MAX)
		return 0;
	if (b->count == b->room) {
		uint32_t room = b->room ? 2 * b->room : 1024;
		struct scry_born *more = reallocarray(b->rows, room, sizeof(*more));

		if (!more)
			return 0;
		b->rows = more;
		b->room = room;
	}
	b->rows[b->count] = (struct scry_born){0};
	return ++b->count;
}

static void wait_for_name(struct scry_iseq_log *b, uint32_t id)
{
	if (b->waiting_count == b->waiting_room) {
		uint32_t room = b->waiting_room ? 2 * b->waiting_room : 256;
		uint32_t *more =
			room > LATE_MAX ? NULL : reallocarray(b->waiting, room, sizeof(*more));

		if (!more) {
			b->sums.nameless++;
			return;
		}
		b->waiting = more;
		b->waiting_room = room;
	}
	b->waiting[b->waiting_count++] = id;
}

int scry_iseq_log_add(struct scry_iseq_log *b, const void *record, size_t size)
{
	struct scry_born born;
	struct parts parts;
	uint64_t newest = 0;
	uint32_t id;

	if (!split(record, size, &parts)) {
		b->sums.bad++;
		return 0;
	}
	if (fill(b, &parts, &born))
		return -ENOMEM;
	bury(b, &born);
	scry_map_get(&b->at, born.code.iseq, &newest);
	id = row_for(b, (uint32_t)newest, born.time_ns);
	if (!id || scry_map_put(&b->at, born.code.iseq, id)) {
		free(born.memory);
		b->sums.dropped++;
		return 0;
	}
	born.older = id == newest ? 0 : (uint32_t)newest;
	b->rows[id - 1] = born;
	if (!link_row(b, id)) /* it cannot be found then */
		b->sums.dropped++;
	if (!born.label)
		wait_for_name(b, id);
	return 0;
}

/* Whose instructions are there now. */
static const struct scry_born *living(const struct scry_iseq_log *b, uint64_t pc)
{
	uint64_t first = 0;

	scry_map_get(&b->pages, pc >> CODE_PAGE, &first);
	for (uint32_t at = (uint32_t)first; at; at = b->nodes[at - 1].next)
		if (has_pc(&b->rows[b->nodes[at - 1].row - 1], pc))
			return &b->rows[b->nodes[at - 1].row - 1];
	return NULL;
}

const struct scry_born *scry_iseq_log_find(const struct scry_iseq_log *b,
					   const struct scry_iseq_event_ask *ask,
					   bool *ret_is_newest)
{
	const struct scry_born *born = living(b, ask->pc);
	uint64_t id = 0;

	*ret_is_newest = !born || born->time_ns <= ask->time_ns;
	if (born && born->time_ns <= ask->time_ns)
		return born->time_ns >= b->sure_from_ns ? born : NULL;
	scry_map_get(&b->at, ask->iseq, &id);
	for (; id; id = b->rows[id - 1].older) {
		born = &b->rows[id - 1];
		if (born->time_ns > ask->time_ns)
			*ret_is_newest = false;
		else if (has_pc(born, ask->pc) && ask->time_ns < born->died_ns)
			return born->time_ns >= b->sure_from_ns ? born : NULL;
	}
	return NULL;
}

void scry_iseq_log_doubt(struct scry_iseq_log *b, uint64_t time_ns)
{
	b->sure_from_ns = time_ns;
}

int scry_born_line(const struct scry_born *born, uint32_t pos, uint32_t *ret)
{
	/* how many begin at or before it */
	const size_t low = scry_bisect(born->line_count, i, born->lines[2 * i] <= pos);

	if (!born->line_count && born->is_whole)
		return -ENOENT;
	if (!low || (low == born->line_count && !born->is_whole))
		return -ENODATA;
	*ret = born->lines[2 * (low - 1) + 1];
	return 0;
}

/* --- against memory --------------------------------------------------------------------------- */

static bool is_there(const struct scry_ruby *ruby, const struct scry_born *born)
{
	struct scry_ruby_iseq now;

	return scry_ruby_iseq_read(ruby, born->code.iseq, &now) == 0 &&
	       now.body == born->code.body && now.encoded == born->code.encoded &&
	       now.size == born->code.size;
}

struct names {
	char path[4096], label[1024];
	uint32_t first_line;
};

/* Names of code that is there before and after they are read. */
static bool read_names(const struct scry_ruby *ruby, const struct scry_born *born,
		       struct names *ret)
{
	return is_there(ruby, born) &&
	       scry_ruby_iseq_path(ruby, &born->code, ret->path, sizeof(ret->path)) >= 0 &&
	       scry_ruby_iseq_label(ruby, &born->code, ret->label, sizeof(ret->label)) >= 0 &&
	       scry_ruby_iseq_first_line(ruby, &born->code, &ret->first_line) == 0 &&
	       is_there(ruby, born);
}

static bool name_now(struct scry_iseq_log *b, const struct scry_ruby *ruby, struct scry_born *born)
{
	size_t lines = 8 * (size_t)born->line_count, label, path;
	struct names names;
	char *memory;

	if (!read_names(ruby, born, &names))
		return false;
	label = strlen(names.label) + 1;
	path = strlen(names.path) + 1;
	memory = realloc(born->memory, lines + label + path);
	if (!memory)
		return false;
	born->memory = memory;
	born->lines = born->memory;
	born->label = memcpy(memory + lines, names.label, label);
	born->path = memcpy(memory + lines + label, names.path, path);
	b->sums.late++;
	return true;
}

void scry_iseq_log_name_late(struct scry_iseq_log *b, const struct scry_ruby *ruby)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < b->waiting_count; i++) {
		struct scry_born *born = &b->rows[b->waiting[i] - 1];
		uint64_t newest = 0;

		if (born->label || name_now(b, ruby, born))
			continue;
		/* Not named yet, unless it is gone. */
		scry_map_get(&b->at, born->code.iseq, &newest);
		if (newest == b->waiting[i] && is_there(ruby, born))
			b->waiting[kept++] = b->waiting[i];
		else
			b->sums.nameless++;
	}
	b->waiting_count = kept;
}

/* Are the names and all lines those of memory? */
static bool is_same(const struct scry_ruby *ruby, const struct scry_born *born,
		    const struct names *names)
{
	uint32_t line;

	if (!born->label || strcmp(born->label, names->label) != 0 ||
	    strcmp(born->path, names->path) != 0 || born->first_line != names->first_line)
		return false;
	for (uint32_t i = 0; i < born->line_count; i++)
		if (scry_ruby_iseq_line(ruby, &born->code, born->lines[2 * (size_t)i], &line) ||
		    line != born->lines[2 * (size_t)i + 1])
			return false;
	return true;
}

void scry_iseq_log_compare(struct scry_iseq_log *b, const struct scry_ruby *ruby, uint32_t most)
{
	size_t cursor = 0;
	struct scry_map_slot slot;

	while (most && scry_map_next(&b->at, &cursor, &slot)) {
		const struct scry_born *born = &b->rows[slot.value - 1];
		struct names names;
		bool same;

		if (!read_names(ruby, born, &names)) {
			b->sums.gone++;
			continue;
		}
		same = is_same(ruby, born, &names);
		if (!is_there(ruby, born)) {
			b->sums.gone++;
			continue;
		}
		most--;
		b->sums.agree += same;
		b->sums.differ += !same;
	}
}
