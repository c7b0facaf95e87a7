/*
 * Fuzzer of base/demangle: names that any program may bring. With -fsanitize=fuzzer
 * -DSCRY_LIBFUZZER: LLVMFuzzerTestOneInput. Else a main: names of pieces of both languages, put
 * together from a fixed seed.
 *
 * Whatever a name is: it ends, within the bytes that are promised.
 */
#include "fuzz.h"

#include "base/demangle.h"

#include <stdio.h>
#include <string.h>

static unsigned int understood;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct scry_buf buf = {0};

	if (scry_demangle((const char *)data, size, &buf)) {
		must(buf.len && buf.len < SCRY_DEMANGLE_MAX, "a name of another length");
		understood++;
	} else {
		must(!buf.len, "bytes of a name that was not understood");
	}
	scry_buf_clear(&buf);
	scry_demangle_show_bare((const char *)data, size, &buf);
	scry_buf_done(&buf);
	return 0;
}

#ifndef SCRY_LIBFUZZER

#define ROUNDS 200000
#define PIECES_MAX 200u

int main(void)
{
	static const char *const pieces[] = {
		"_Z",
		"_R",
		"_ZN",
		"N",
		"E",
		"I",
		"St4pair",
		"S_",
		"S0_",
		"S1_",
		"SZ_",
		"St",
		"Sa",
		"Ss",
		"1f",
		"3foo",
		"17h0123456789abcdef",
		"i",
		"v",
		"P",
		"R",
		"O",
		"K",
		"F",
		"A10_",
		"M",
		"T_",
		"T0_",
		"Tn",
		"Dp",
		"DpT_",
		"Dt",
		"cl",
		"fp_",
		"L",
		"Li0E",
		"X",
		"J",
		"C1",
		"D2",
		"nw",
		"cv",
		"Ul",
		"vE_",
		"Ut_",
		"W",
		"Z",
		"d_",
		"C",
		"Nv",
		"Nt",
		"B_",
		"B0_",
		"u8",
		"p",
		"s_",
		"D",
		"G_",
		"Q",
		"S",
		"T",
		"x",
		"y",
		".cold",
	};
	static const char *const begins[] = {"_Z3foo", "_ZN3foo3foo", "_RNvC3foo", "_R", "_Z"};
	char name[(PIECES_MAX + 1) * 20];

	for (int i = 0; i < ROUNDS; i++) {
		size_t length = (size_t)sprintf(name, "%s", begins[next_random(5)]);

		for (uint32_t n = next_random(i % 100 ? 24 : PIECES_MAX); n; n--)
			length += (size_t)sprintf(
				name + length, "%s",
				pieces[next_random(sizeof(pieces) / sizeof(pieces[0]))]);
		LLVMFuzzerTestOneInput((const uint8_t *)name, length);
	}
	must(understood > ROUNDS / 100, "hardly a name is understood: nothing is tested");
	printf("1..1\nok 1 - demangle: %d names, %u of them understood\n", ROUNDS, understood);
	return 0;
}

#endif
