/* See ractors.h. */
#include "instrument/objects/ractors.h"

#include "base/err.h"
#include "vm/ruby.h"

#define EVERY_NS 100000000ull

void scry_objects_ractors_look(struct scry_objects_ractors *r, const struct scry_ruby *ruby)
{
	uint64_t now = scry_now_ns();
	int n;

	if (now < r->next_ns)
		return;
	r->next_ns = now + EVERY_NS;
	n = scry_ruby_ractors(ruby);
	if (n > r->seen)
		r->seen = n;
	if (n < 0)
		scry_error_clear();
}

bool scry_objects_ractors_unseen(const struct scry_objects_ractors *r, const struct scry_ruby *ruby,
				 const struct scry_objects_totals *t)
{
	return ruby && !ruby->layout.hooks_of_all_ractors && (r->seen > 1 || t->ractors);
}

void scry_objects_ractors_say(const struct scry_objects_ractors *r, struct scry_watch *w,
			      const struct scry_objects_totals *t)
{
	uint64_t made = t->ractors + 1, seen = r->seen > 0 ? (uint64_t)r->seen : 0;

	scry_watch_lost_some(w, "objects of other ractors than the one that is watched");
	scry_watch_note(
		w,
		"%llu ractors: this Ruby shows the objects of one only; the objects of the others "
		"are missing. A ractor may free what another one made: objects of others that the "
		"watched one freed are in \"made before the watch\", and %llu of its own that "
		"others freed count as live until their slots were used again",
		(unsigned long long)(made > seen ? made : seen), (unsigned long long)t->replaced);
}
