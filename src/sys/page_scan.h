/*
 * PAGEMAP_SCAN, the ioctl of /proc/PID/pagemap (Linux 6.7): the ranges of pages of a kind. It
 * passes over what no page table covers, so that terabytes of reserved memory take it microseconds.
 * Documentation/admin-guide/mm/pagemap.rst; headers that programs are built with may be older.
 */
#ifndef SCRY_SYS_PAGE_SCAN_H
#define SCRY_SYS_PAGE_SCAN_H

#include <stdint.h>
#include <sys/ioctl.h>

#define SCRY_SCAN_FILE (1ull << 2) /* or shared; else it has become the process's own */
#define SCRY_SCAN_PRESENT (1ull << 3)
#define SCRY_SCAN_SWAPPED (1ull << 4)
#define SCRY_SCAN_ZERO (1ull << 5)  /* the kernel's page of zeros: it was read only */
#define SCRY_SCAN_GUARD (1ull << 8) /* MADV_GUARD_INSTALL, from 6.15 on */

struct scry_scan_region { /* struct page_region */
	uint64_t start, end, categories;
};

struct scry_scan { /* struct pm_scan_arg */
	uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages;
	uint64_t category_inverted, category_mask, category_anyof_mask, return_mask;
};
#define SCRY_SCAN _IOWR('f', 16, struct scry_scan)

_Static_assert(sizeof(struct scry_scan_region) == 24, "struct page_region");
_Static_assert(sizeof(struct scry_scan) == 96, "struct pm_scan_arg");

#endif
