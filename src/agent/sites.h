/*
 * The table of sites: the places that make objects, by number (site.c).
 */
#ifndef SCRY_AGENT_SITES_H
#define SCRY_AGENT_SITES_H

#include <stdint.h>

/*
 * A slot of the site table. The key is exact and two words long, so that the four ways of a set are
 * one cache line: `code` = a set bit, pc / 8 in 44 bits, depth in 16, top in 1; 0 means empty.
 * `klass` = class / 8 in 44 bits, type in 5. What is needed only to forget a slot lies apart, in
 * `links`.
 */
struct scry_agent_key {
	uint64_t code;
	uint64_t klass;
};
struct scry_agent_link { /* doubly linked: the slots of String alone are hundreds */
	uint64_t iseq;
	uint32_t next_iseq, prev_iseq; /* slot numbers + 1, 0 ends */
	uint32_t next_klass, prev_klass;
};

#define SCRY_SITE_HEADS 4096u

/*
 * The few sites that make most objects, once more: 64 KiB, where the whole table is a
 * megabyte whose lines and translations the program keeps pushing out of the caches.
 */
#define SCRY_SITE_FRONT 2048u
struct scry_agent_front {
	struct scry_agent_key key;
	uint64_t slot;
	uint64_t reserved; /* two to a cache line */
};

struct scry_agent_place;
/* site.c: the code for `object` made at `place`, defining it in the ring where it is
 * new. 0: no room in the ring. */
uint32_t scry_site_code(const struct scry_agent_place *place, const uint64_t *object);
void scry_site_forget_iseq(uint64_t iseq);
void scry_site_forget_class(uint64_t klass);
void scry_site_forget_all(void);

#endif
