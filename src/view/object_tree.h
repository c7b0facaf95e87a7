/*
 * The tree of --stacks: from the outermost frame down to the place and the class, as text rows.
 */
#ifndef SCRY_VIEW_OBJECT_TREE_H
#define SCRY_VIEW_OBJECT_TREE_H

#include "view/object_list.h"

/*
 * Pushes the table and its rows. Percentages and the pruning of branches below 1 % are of the
 * column `sort` (enum scry_view_sort); `top` limits the rows, 0: none. 0 or -ENOMEM with a
 * sentence.
 */
int scry_object_tree_push(const struct scry_object_list *list, int sort, uint64_t top,
			  struct scry_doc *doc);

/* "app.rb:3  run", "Integer#times (C)": a frame as people read it. */
void scry_object_frame_text(const struct scry_object_tables *tables, uint32_t id,
			    struct scry_buf *buf);

#endif
