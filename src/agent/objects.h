/*
 * Objects: what the handlers of events (ruby_objects.c) and those of hooks (ruby_hooks.c) share.
 */
#ifndef SCRY_AGENT_OBJECTS_H
#define SCRY_AGENT_OBJECTS_H

#include "agent/agent.h"

/* ruby_objects.c: the two handlers of events, and what they share with the hooks' (ruby_hooks.c) */
void scry_agent_event(uint64_t data, const uint8_t *trace_arg);
void scry_agent_sampled(uint64_t data, const uint8_t *trace_arg);
/* 1: this process is watched, by us alone until scry_end. 0: nothing is to be recorded. */
int scry_begin(struct scry_gate *g);
void scry_end(struct scry_gate *g);
/* The newest Ruby frame of `ec`, whose newest frame is `cfp`. */
void scry_find_place(const struct scry_agent_frames *f, const uint8_t *ec, const uint8_t *cfp,
		     struct scry_agent_place *place);
/* 0: it could not be recorded, and is counted as lost. */
int scry_record_birth(struct scry_gate *g, const struct scry_agent_place *place, uint64_t object);
/* `object` is about to be freed and still whole. Code and classes: what is known by their address
 * is forgotten. */
void scry_forget(uint64_t object, uint64_t flags);
/* Bytes that `object` has outside its slot; it is whole, or its flags are 0. */
int64_t scry_extra(uint64_t object, uint64_t flags);
#define SCRY_EXTRA_UNKNOWN (-1ll)
/* `object` has ended, with `extra` bytes outside its slot. 0: there is no room in the ring. */
int scry_record_end(struct scry_gate *g, uint64_t object, int64_t extra, enum scry_ring_class is);
enum scry_ring_class scry_class_of(uint64_t object, uint64_t flags);
uint64_t scry_gc_count(void); /* the VM's own; 0: not known */
void scry_record_gc(struct scry_gate *g, uint32_t event);
/* Bytes of the slot that `object` lies in, as its heap page says; 0: not known, or all are alike.
 */
uint32_t scry_slot_size(uint64_t object);
/* How much of the gap to the next sample an object takes. */
int64_t scry_sample_step(const struct scry_gate *g, uint64_t object);

/* moved.c: a hidden object that the VM asks for its size, and when it compacts the heap; off: no
 * more. Without a way to make one, none is there. */
void scry_data_object(struct scry_data_object *d, uint64_t (*size)(const void *),
		      void (*compact)(void *));
void scry_data_object_off(struct scry_data_object *d);
/* last.c: before the first code is described in a VM that scry has started; waits. 0: refused, and
 * nothing is read along the layout any more */
int scry_is_judged(void);
/* last.c: what the VM asks such an object for its size; while it boots: look when it ends */
uint64_t scry_asked_for_size(const void *data);
void scry_last_look_on(void);

/* ruby_hooks.c: when a watch is taken up, the VM being up */
void scry_hooks_take_up(struct scry_gate *g);
/* Collects by `start`, and records what no hook shows. */
void scry_hooks_collect(struct scry_gate *g, void (*start)(void));

#endif
