/*
 * Search in what is sorted.
 *
 * scry_bisect(count, i, is_before) is how many of `count` rows come first for which `is_before`, an
 * expression of the index `i`, is true: it must be true of the first rows and of none behind them.
 * So it is the index of the first for which it is false, or `count`.
 *
 *	at = scry_bisect(maps->count, i, maps->entries[i].end <= addr);
 *
 * `i` is evaluated some log2(count) times; `low_` and `high_` are this macro's.
 */
#ifndef SCRY_BASE_BISECT_H
#define SCRY_BASE_BISECT_H

#include <stddef.h>

#define scry_bisect(count, i, is_before)                            \
	({                                                          \
		size_t low_ = 0, high_ = (count);                   \
		while (low_ < high_) {                              \
			const size_t i = low_ + (high_ - low_) / 2; \
			if (is_before)                              \
				low_ = i + 1;                       \
			else                                        \
				high_ = i;                          \
		}                                                   \
		low_;                                               \
	})

#endif
