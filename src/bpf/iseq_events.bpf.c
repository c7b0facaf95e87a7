/*
 * In the kernel: a Ruby's code comes into being, and its name is reported. See wire/iseq_event.h.
 *
 * Attached to the entry of rb_iseq_insns_info_encode_positions of each process, or to the next push
 * there: the argument is still in rdi. Nothing is followed but pointers of the learned layout, no
 * loop, at most ten reads of the process's memory; a page that is not present is not waited for.
 */
#include <linux/bpf.h>

#include <asm/ptrace.h>
#include <bpf/bpf_helpers.h>

#include "wire/iseq_event.h"

#define RING_BYTES (8u << 20)
#define T_STRING 5u
#define T_ARRAY 7u
#define TYPE_MASK 0x1fu

const volatile struct scry_iseq_event_layout scry_iseq_event_layout = {0};
#define layout scry_iseq_event_layout

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, RING_BYTES);
} births SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SCRY_ISEQ_EVENT_COUNTS);
	__type(key, uint32_t);
	__type(value, uint64_t);
} counts SEC(".maps");

static __always_inline void count(uint32_t which)
{
	uint64_t *place = bpf_map_lookup_elem(&counts, &which);

	if (place)
		*place += 1;
}

struct text {
	uint64_t at;
	uint32_t size;
};

/* The first words of an object; the layout's offsets are in it. */
struct object {
	uint64_t words[SCRY_ISEQ_EVENT_OBJECT / 8];
};

static __always_inline int read_object(uint64_t at, struct object *ret)
{
	return bpf_probe_read_user(ret, sizeof(*ret), (const void *)at);
}

static __always_inline uint64_t word_of(const struct object *o, uint32_t at)
{
	return *(const uint64_t *)((const char *)o + at);
}

/* Where the text of a String lies. */
static __always_inline struct text text_of(uint64_t string)
{
	struct text ret = {string + layout.string_embed, SCRY_ISEQ_EVENT_NO_TEXT};
	struct object o;
	uint64_t size;

	if (read_object(string, &o) || (o.words[0] & TYPE_MASK) != T_STRING)
		return ret;
	size = word_of(&o, layout.string_len);
	if (o.words[0] & layout.string_noembed)
		ret.at = word_of(&o, layout.string_ptr);
	else if (layout.string_embed_len_mask)
		size = (o.words[0] & layout.string_embed_len_mask) >> layout.string_embed_len_shift;
	if (size < SCRY_ISEQ_EVENT_NO_TEXT)
		ret.size = (uint32_t)size;
	return ret;
}

/* A path is a String, or an Array of [path, real path]. */
static __always_inline struct text path_of(uint64_t value)
{
	struct object o;

	if (read_object(value, &o) == 0 && (o.words[0] & TYPE_MASK) == T_ARRAY) {
		value = word_of(&o, layout.array_embed_ptr);
		if (!(o.words[0] & layout.array_embed) &&
		    bpf_probe_read_user(&value, sizeof(value),
					(const void *)word_of(&o, layout.array_ptr)))
			value = 0;
	}
	return text_of(value);
}

/* The verifier has to see the limit at the very register that is used. */
static __always_inline uint32_t below(uint32_t value, uint32_t limit)
{
	asm volatile("" : "+r"(value));
	return value < limit ? value : limit;
}

static __always_inline void copy(uint8_t *to, uint64_t from, uint32_t bytes, uint32_t room)
{
	bpf_probe_read_user(to, below(bytes, room), (const void *)from);
}

struct found {
	struct scry_iseq_event head;
	struct text label, path;
	uint64_t entries, positions;
};

/* `rooms` are constants: of a record of a size that is known when this is compiled. */
static __always_inline int emit(const struct found *f, uint32_t label, uint32_t path,
				uint32_t lines)
{
	struct scry_iseq_event *r =
		bpf_ringbuf_reserve(&births, SCRY_ISEQ_EVENT_SIZE(label, path, lines), 0);
	uint32_t rows = f->head.line_count;
	uint8_t *at;

	if (!r) {
		count(SCRY_ISEQ_EVENT_LOST);
		return 0;
	}
	at = (uint8_t *)(r + 1);
	*r = f->head;
	r->label_room = (uint16_t)label;
	r->path_room = (uint16_t)path;
	r->line_room = (uint16_t)lines;
	if (f->label.size != SCRY_ISEQ_EVENT_NO_TEXT)
		copy(at, f->label.at, f->label.size, label);
	at += label;
	if (f->path.size != SCRY_ISEQ_EVENT_NO_TEXT)
		copy(at, f->path.at, f->path.size, path);
	at += path;
	rows = below(rows, lines);
	copy(at, f->positions, 4 * rows, 4 * lines);
	at += 4 * lines;
	copy(at, f->entries, layout.entry_size * rows, SCRY_ISEQ_EVENT_ENTRY_MAX * lines);
	bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
	return 0;
}

struct body {
	uint8_t bytes[SCRY_ISEQ_EVENT_BODY];
};

static __always_inline uint64_t u64_of(const struct body *b, uint32_t at)
{
	return *(const uint64_t *)(b->bytes + at);
}

static __always_inline uint32_t u32_of(const struct body *b, uint32_t at)
{
	return *(const uint32_t *)(b->bytes + at);
}

SEC("uprobe")
int iseq_born(struct pt_regs *regs)
{
	struct found f = {.head = {.time_ns = bpf_ktime_get_ns(), .iseq = regs->rdi}};
	struct body b;

	count(SCRY_ISEQ_EVENT_SEEN);
	if (bpf_probe_read_user(&f.head.body, sizeof(f.head.body),
				(const void *)(f.head.iseq + layout.iseq_body)) ||
	    bpf_probe_read_user(&b, sizeof(b), (const void *)f.head.body)) {
		count(SCRY_ISEQ_EVENT_UNREAD);
		return 0;
	}
	f.head.process = bpf_get_attach_cookie(regs);
	f.head.encoded = u64_of(&b, layout.body_encoded);
	f.head.size = u32_of(&b, layout.body_size);
	f.head.first_line = u32_of(&b, layout.body_first_line);
	f.head.line_count = u32_of(&b, layout.count);
	f.entries = u64_of(&b, layout.entries);
	f.positions = u64_of(&b, layout.positions);
	f.label = text_of(u64_of(&b, layout.body_label));
	f.path = path_of(u64_of(&b, layout.body_path));
	f.head.label_size = f.label.size;
	f.head.path_size = f.path.size;
	if ((f.label.size < SCRY_ISEQ_EVENT_LABEL_SMALL ||
	     f.label.size == SCRY_ISEQ_EVENT_NO_TEXT) &&
	    (f.path.size < SCRY_ISEQ_EVENT_PATH_SMALL || f.path.size == SCRY_ISEQ_EVENT_NO_TEXT) &&
	    f.head.line_count <= SCRY_ISEQ_EVENT_LINES_SMALL)
		return emit(&f, SCRY_ISEQ_EVENT_LABEL_SMALL, SCRY_ISEQ_EVENT_PATH_SMALL,
			    SCRY_ISEQ_EVENT_LINES_SMALL);
	return emit(&f, SCRY_ISEQ_EVENT_LABEL_LARGE, SCRY_ISEQ_EVENT_PATH_LARGE,
		    SCRY_ISEQ_EVENT_LINES_LARGE);
}

char scry_license[] SEC("license") = "Dual MIT/GPL";
