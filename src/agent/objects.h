/*
 * Objects: the part's data, and what the handlers of events (ruby_objects.c) and those of hooks
 * (ruby_hooks.c) share.
 */
#ifndef SCRY_AGENT_OBJECTS_H
#define SCRY_AGENT_OBJECTS_H

#include "agent/pages.h"
#include "agent/ractor.h"
#include "agent/sample.h"
#include "agent/sites.h"
#include "agent/stack.h"
#include "agent/vm.h"

struct scry_data_object {      /* a hidden object of the VM's heap: see scry_data_object() */
	uint64_t object, data; /* it; what it owns, 0: none */
};

struct scry_agent_objects {
	uint32_t evict;			      /* round robin */
	uint32_t generation;		      /* part of every key: a new one forgets all */
	struct scry_data_object anchor, last; /* compaction.c, last.c */
	uint64_t asked_last;		      /* whose size was asked last: what it owns */
	uint64_t judged_at; /* the pc at which the keeper was asked to judge last */
	uint64_t judge_asks;
	uint64_t major_gc_count; /* the Symbol; 0: this VM cannot say which GCs are full */
	uint64_t compact_count;	 /* another: compactions; 0: they are followed */
	uint64_t compactions;	 /* when the hook was put on */
	uint64_t made_count;	 /* another: objects made, where no word is known (ruby_hooks.c) */
	struct scry_agent_sampling sampling;
};
extern struct scry_agent_objects scry_agent_objects SCRY_SHARED;

struct scry_agent_tables { /* wiped */
	struct scry_agent_sampled sampled;
	struct scry_agent_stacks stacks;
	struct scry_agent_pages pages;
	uint32_t iseq_heads[SCRY_SITE_HEADS];
	uint32_t klass_heads[SCRY_SITE_HEADS];
	struct scry_agent_link links[SCRY_SITE_SLOTS];
	struct scry_agent_front front[SCRY_SITE_FRONT] __attribute__((aligned(64)));
	struct scry_agent_key keys[SCRY_SITE_SLOTS] __attribute__((aligned(64)));
} SCRY_OWN_PAGES;
extern struct scry_agent_tables scry_agent_tables SCRY_SHARED;

/* ring.c: room for `words`, or 0 and counted as lost. Publishing is one store. */
int scry_ring_reserve(struct scry_state_page *g, uint64_t words);
static inline void scry_ring_put(struct scry_state_page *g, uint64_t word)
{
	((uint64_t *)g->ring)[g->at++] = word;
	g->head++;
}
static inline void scry_ring_publish(const struct scry_state_page *g)
{
	__atomic_store_n(&scry_agent.control->head, g->head, __ATOMIC_RELEASE);
}

/* define.c: what a DEF record says of a piece of code, read with plain loads while its iseq is
 * alive; the same of a node of the stack tree. 0: no room in the ring. */
int scry_define(uint32_t slot, const struct scry_agent_place *place, uint64_t klass,
		uint64_t flags);
int scry_define_node(uint32_t node, uint32_t parent, uint64_t pc, uint64_t iseq);

/* ruby_events.c: a new watch is taken up; the hook takes itself off the VM's list; a fork child
 * has its child buffer. */
void scry_take_up(struct scry_state_page *g);
void scry_hook_off(const struct scry_state_page *g);
void scry_objects_compacted(struct scry_state_page *g);

/* compaction.c: at a safepoint; anywhere the hook may be taken off. */
void scry_compaction_on(void);
void scry_compaction_off(void);

/* ruby_events.c: the VM runs it in its own time, with the GVL, at a safepoint. */
SCRY_EXPORT void scry_agent_reconcile(void *unused);

/* class_name.c: the watch ends where a ractor begins that breaks the VM, see ractor.h */
void scry_end_before_ractor(struct scry_state_page *g, uint64_t flags, uint64_t klass);
/* Writes the class's name; returns its bytes, 0 when it is not known. */
uint32_t scry_class_name(uint64_t klass, uint8_t *to, uint32_t room);

/* ruby_objects.c: the two handlers of events, and what they share with the hooks' (ruby_hooks.c) */
void scry_agent_event(uint64_t data, const uint8_t *trace_arg);
void scry_agent_sampled(uint64_t data, const uint8_t *trace_arg);
/* 1: this process is watched, by us alone until scry_end. 0: nothing is to be recorded. */
int scry_begin(struct scry_state_page *g);
void scry_end(struct scry_state_page *g);
/* The newest Ruby frame of `ec`, whose newest frame is `cfp`. */
void scry_find_place(const struct scry_agent_frames *f, const uint8_t *ec, const uint8_t *cfp,
		     struct scry_agent_place *place);
/* 0: it could not be recorded, and is counted as lost. */
int scry_record_birth(struct scry_state_page *g, const struct scry_agent_place *place,
		      uint64_t object);
/* `object` is about to be freed and still whole. Code and classes: what is known by their address
 * is forgotten. */
void scry_forget(uint64_t object, uint64_t flags);
/* Bytes that `object` has outside its slot; it is whole, or its flags are 0. */
int64_t scry_extra(uint64_t object, uint64_t flags);
#define SCRY_EXTRA_UNKNOWN (-1ll)
/* `object` has ended, with `extra` bytes outside its slot. 0: there is no room in the ring. */
int scry_record_end(struct scry_state_page *g, uint64_t object, int64_t extra,
		    enum scry_ring_class is);
enum scry_ring_class scry_class_of(uint64_t object, uint64_t flags);
uint64_t scry_gc_count(void); /* the VM's own; 0: not known */
void scry_record_gc(struct scry_state_page *g, uint32_t event);
/* Bytes of the slot that `object` lies in, as its heap page says; 0: not known, or all are alike.
 */
uint32_t scry_slot_size(uint64_t object);
/* How much of the gap to the next sample an object takes. */
int64_t scry_sample_step(const struct scry_state_page *g, uint64_t object);

/* compaction.c: a hidden object that the VM asks for its size, and when it compacts the heap; off:
 * no more. Without a way to make one, none is there. */
void scry_data_object(struct scry_data_object *d, uint64_t (*size)(const void *),
		      void (*compact)(void *));
void scry_data_object_off(struct scry_data_object *d);
/* last.c: before code at `pc` is described in a VM that scry has started; waits. 0: refused, and
 * nothing is read along the layout any more */
int scry_is_judged(uint64_t pc);
/* last.c: what the VM asks such an object for its size; while it boots: look when it ends */
uint64_t scry_asked_for_size(const void *data);
void scry_last_look_on(void);

/* ruby_hooks.c: when a watch is taken up, the VM being up */
void scry_hooks_take_up(struct scry_state_page *g);
/* Collects by `start`, and records what no hook shows. */
void scry_hooks_collect(struct scry_state_page *g, void (*start)(void));

#endif
