/* BLAKE2b with a digest of 32 bytes and no key: RFC 7693, whose names of variables these are. */
#include "base/digest.h"

#include <endian.h>
#include <stdbool.h>
#include <string.h>

static const uint64_t iv[8] = {
	0x6a09e667f3bcc908ull, 0xbb67ae8584caa73bull, 0x3c6ef372fe94f82bull, 0xa54ff53a5f1d36f1ull,
	0x510e527fade682d1ull, 0x9b05688c2b3e6c1full, 0x1f83d9abfb41bd6bull, 0x5be0cd19137e2179ull,
};
static const uint8_t sigma[12][16] = {
	{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
	{14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
	{11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4},
	{7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
	{9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13},
	{2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
	{12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11},
	{13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
	{6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5},
	{10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0},
	{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
	{14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
};

static uint64_t rotate(uint64_t x, unsigned int n)
{
	return x >> n | x << (64 - n);
}

static inline void mix(uint64_t v[16], const uint8_t at[4], uint64_t x, uint64_t y)
{
	uint64_t a = v[at[0]], b = v[at[1]], c = v[at[2]], d = v[at[3]];

	a += b + x;
	d = rotate(d ^ a, 32);
	c += d;
	b = rotate(b ^ c, 24);
	a += b + y;
	d = rotate(d ^ a, 16);
	c += d;
	b = rotate(b ^ c, 63);
	v[at[0]] = a, v[at[1]] = b, v[at[2]] = c, v[at[3]] = d;
}

static void compress(struct scry_digest *d, const uint8_t *block, bool is_last)
{
	static const uint8_t lanes[8][4] = {
		{0, 4, 8, 12},	{1, 5, 9, 13},	{2, 6, 10, 14}, {3, 7, 11, 15},
		{0, 5, 10, 15}, {1, 6, 11, 12}, {2, 7, 8, 13},	{3, 4, 9, 14},
	};
	uint64_t v[16], m[16];

	memcpy(m, block, sizeof(m));
	for (int i = 0; i < 16; i++)
		m[i] = le64toh(m[i]);
	memcpy(v, d->state, sizeof(d->state));
	memcpy(v + 8, iv, sizeof(iv));
	v[12] ^= d->total;
	v[14] = is_last ? ~v[14] : v[14];
#pragma GCC unroll 12
	for (int round = 0; round < 12; round++)
#pragma GCC unroll 8
		for (int i = 0; i < 8; i++)
			mix(v, lanes[i], m[sigma[round][2 * i]], m[sigma[round][2 * i + 1]]);
	for (int i = 0; i < 8; i++)
		d->state[i] ^= v[i] ^ v[i + 8];
}

void scry_digest_init(struct scry_digest *d)
{
	*d = (struct scry_digest){0};
	memcpy(d->state, iv, sizeof(iv));
	d->state[0] ^= 0x01010000 ^ SCRY_DIGEST_BYTES;
}

/* The last block is compressed by scry_digest_end, also when it is full. */
void scry_digest_add(struct scry_digest *d, const void *bytes, size_t size)
{
	const uint8_t *at = bytes;

	while (size) {
		size_t n = sizeof(d->block) - d->used;

		if (!n) {
			d->total += d->used;
			compress(d, d->block, false);
			d->used = 0;
			continue;
		}
		n = size < n ? size : n;
		memcpy(d->block + d->used, at, n);
		d->used += n;
		at += n;
		size -= n;
	}
}

void scry_digest_end(struct scry_digest *d, uint8_t ret[SCRY_DIGEST_BYTES])
{
	d->total += d->used;
	memset(d->block + d->used, 0, sizeof(d->block) - d->used);
	compress(d, d->block, true);
	for (size_t i = 0; i < SCRY_DIGEST_BYTES / 8; i++) {
		uint64_t word = htole64(d->state[i]);

		memcpy(ret + 8 * i, &word, sizeof(word));
	}
}
