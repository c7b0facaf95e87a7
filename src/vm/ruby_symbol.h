/*
 * Names of control frames: method with its class, path, executing line.
 *
 * What a pointer to code means may change: code is freed, its memory is used again, objects are
 * moved. So a symbol is a pair (iseq, method entry) together with the words by which it was known
 * when it was named: body, instructions, size, path, label, first line, the entry's definition and
 * owner. They are read again at every use, or, where the collector is known, after each collection
 * of garbage (ruby_gc.h); a symbol whose words have changed is not used, but another one, with
 * names read anew.
 *
 * Where a probe reports code that comes into being (ruby_iseq_log.h), a symbol is also of one
 * birth: the code that was there at the time of the walk. What is gone by now, or has other code in
 * its place, is named by what was reported at its birth; then without its class, which was not.
 *
 * Names are as Ruby 3.4 prints them, in every Ruby: "Foo::Bar#baz", "Foo.baz", "block in Foo#baz",
 * "rescue in baz" where the class has no name. A method written in C has its caller's path and
 * line, as in Ruby's backtraces.
 */
#ifndef SCRY_VM_RUBY_SYMBOL_H
#define SCRY_VM_RUBY_SYMBOL_H

#include "base/intern.h"
#include "base/map.h"
#include "vm/ruby_iseq_log.h"
#include "vm/ruby_iseq.h"
#include "vm/ruby_walk.h"

struct scry_symbol {
	uint64_t iseq, entry; /* as in the frame */
	struct scry_ruby_iseq code;
	uint64_t words[12];	    /* by which it is known again */
	uint64_t born;		    /* number of its birth; 0: none is known */
	uint64_t epoch;		    /* of the collector, in which they were last compared; 0 */
	uint64_t made_ns;	    /* when it was named: CLOCK_MONOTONIC */
	uint32_t path, label, name; /* ids in scry_symbols.names; label: the VM's own */
	uint32_t first_line;
	bool is_c, is_internal; /* internal: a method of the VM's that is written in Ruby */
	bool is_reported;	/* named by its birth, not by memory */
};

struct scry_symbols {
	struct scry_intern names;
	struct scry_symbol *rows; /* [id - 1] */
	uint32_t count, room;
	struct scry_map ids;	 /* hash of (iseq, entry) -> id of the newest */
	struct scry_map lines;	 /* id << 32 | position -> line */
	struct scry_map entries; /* code -> the method entry with which it was seen */
	uint64_t *checked;	 /* by id: turn in which it was last found unchanged */
	uint64_t turn;
	uint64_t renamed;	      /* symbols whose words had changed */
	struct scry_iseq_log *births; /* the caller's; NULL: nothing reports code */
	uint64_t reported;	      /* frames that only their birth could name */
};

struct scry_named_frame {
	uint32_t symbol; /* id; 0: no name could be read */
	uint32_t line;
	bool is_hidden; /* the VM's own frame below the program's: dummy, or without lines */
};

int scry_symbols_init(struct scry_symbols *s);
void scry_symbols_done(struct scry_symbols *s);

/* What was checked before this call is checked again when it is used: once for each moment. */
void scry_symbols_turn(struct scry_symbols *s);

/*
 * Names the frames of a walk, the newest first, into ret[w->count]. Returns how many could not be
 * named. An `entry` in the walk that is a cell of special variables becomes the one it stands for.
 */
size_t scry_symbols_name(struct scry_symbols *s, const struct scry_ruby *ruby, struct scry_walk *w,
			 struct scry_named_frame *ret);

/*
 * Names the frame at `at` anew by what was reported at its code's birth, where what memory says may
 * be others' by now. False, and nothing changes: that is not known.
 */
bool scry_symbols_report(struct scry_symbols *s, const struct scry_ruby *ruby,
			 const struct scry_walk *w, size_t at, struct scry_named_frame *ret);

const struct scry_symbol *scry_symbols_get(const struct scry_symbols *s, uint32_t id);
/* Text of one of a symbol's names; "" for 0. */
const char *scry_symbols_text(const struct scry_symbols *s, uint32_t name);

#endif
