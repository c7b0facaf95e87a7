/* A library with a defect: the last valid index is ENTRIES - 1, and table_get takes ENTRIES, too.
 */
#define ENTRIES 4

static int table[ENTRIES + 1] = {10, 11, 12, 13, 999};

int table_get(unsigned index, int *ret);
int table_get(unsigned index, int *ret)
{
	if (index > ENTRIES)
		return -1;
	*ret = table[index];
	return 0;
}
