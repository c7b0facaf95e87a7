/*
 * The table of the objects view: rows of a list as cells for people and programs.
 */
#ifndef SCRY_VIEW_OBJECT_TABLE_H
#define SCRY_VIEW_OBJECT_TABLE_H

#include "view/object_list.h"
#include "view/object_tree.h"

struct scry_object_table {
	const struct scry_object_list *list;
	struct scry_doc *doc;
	bool has_ages, has_full; /* GCs were seen, full ones */
	bool has_stars;		 /* only some sizes are of slots only */
	struct scry_frame_row frames;
};

/* A table of this list, which has been settled. End with scry_object_table_done. */
struct scry_object_table scry_object_table_of(const struct scry_object_list *list,
					      struct scry_doc *doc);
void scry_object_table_done(struct scry_object_table *table);

/* Pushes the columns and the first `count` rows; returns how many objects these made. */
uint64_t scry_object_table_push(struct scry_object_table *table, size_t count);

#endif
