/*
 * Columns of the syscalls view's rows (struct scry_syscall_row).
 */
#ifndef SCRY_VIEW_SYSCALL_COLUMNS_H
#define SCRY_VIEW_SYSCALL_COLUMNS_H

#include "view/doc.h"

struct scry_syscall_view;
struct scry_view_opts;

/* Those of the form that --by asks for, of this recording; also what --grep looks at. How many. */
size_t scry_syscall_columns(const struct scry_syscall_view *v,
			    struct scry_column ret_columns[SCRY_DOC_COLUMNS_MAX]);

/* Ask it before a watch: 0, or -EINVAL with a sentence: --filter names a column that rows of this
 * --by have not. */
int scry_syscall_check_filter(const struct scry_view_opts *opts);

#endif
