/*
 * PT_DYNAMIC of a file and its tables.
 *
 * Addresses in the file's PT_DYNAMIC are link-time addresses (in memory glibc has added the base to
 * some of them, musl to none, so memory is not asked). The trick: only the hash tables say how many
 * symbols there are; the GNU one is walked to its last chain.
 */
#include "sys/dynamic.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

#define ENTRIES_MAX 4096u
#define NEEDED_MAX 1024u
#define VERSIONS_MAX 0x8000u
#define SYMBOLS_MAX (16u << 20)
#define VERSION_HIDDEN 0x8000u

/* Wants of tags what is behind them. */
struct tags {
	uint64_t value[DT_RELRENT + 1];
	uint64_t gnu_hash, versym, verdef, verneed, verdefs, verneeds, flags_1;
};

static uint32_t u32_at(const uint8_t *at)
{
	uint32_t value;

	memcpy(&value, at, sizeof(value));
	return value;
}

/* `size` bytes, or as many as the file has, at link-time address `addr`. */
static size_t view(struct scry_elf *elf, uint64_t addr, uint64_t size, const uint8_t **ret)
{
	size_t there = addr ? scry_elf_view(elf, addr, ret) : 0;

	return there < size ? there : size;
}

static void note_tag(struct tags *t, const Elf64_Dyn *e)
{
	if ((uint64_t)e->d_tag <= DT_RELRENT)
		t->value[e->d_tag] = e->d_un.d_val;
	else if (e->d_tag == DT_GNU_HASH)
		t->gnu_hash = e->d_un.d_val;
	else if (e->d_tag == DT_VERSYM)
		t->versym = e->d_un.d_val;
	else if (e->d_tag == DT_VERDEF)
		t->verdef = e->d_un.d_val;
	else if (e->d_tag == DT_VERDEFNUM)
		t->verdefs = e->d_un.d_val;
	else if (e->d_tag == DT_VERNEED)
		t->verneed = e->d_un.d_val;
	else if (e->d_tag == DT_VERNEEDNUM)
		t->verneeds = e->d_un.d_val;
	else if (e->d_tag == DT_FLAGS_1)
		t->flags_1 = e->d_un.d_val;
}

static int read_tags(struct scry_dynamic *d, uint64_t addr, uint64_t size, struct tags *t)
{
	const uint8_t *bytes = NULL;
	size_t count = view(d->elf, addr, size, &bytes) / sizeof(Elf64_Dyn);

	d->needed = calloc(NEEDED_MAX, sizeof(*d->needed));
	if (!d->needed)
		return scry_no_memory("reading a dynamic segment");
	for (size_t i = 0; i < count && i < ENTRIES_MAX; i++) {
		Elf64_Dyn e;

		memcpy(&e, bytes + i * sizeof(e), sizeof(e));
		if (e.d_tag == DT_NULL)
			break;
		if (e.d_tag == DT_NEEDED && d->needed_count < NEEDED_MAX)
			d->needed[d->needed_count++] = (uint32_t)e.d_un.d_val;
		note_tag(t, &e);
	}
	return 0;
}

/* Words of the GNU hash table: nbuckets, symoffset, bloom words (of 8 bytes), bloom shift, bloom,
 * buckets, chains. */
struct gnu_hash {
	uint32_t buckets, first, bloom;
	const uint8_t *bucket, *chain;
	size_t chains; /* words that the file has */
};

static bool gnu_hash(const struct scry_dynamic *d, struct gnu_hash *ret)
{
	size_t head;

	if (!d->hash || d->hash_size < 16)
		return false;
	ret->buckets = u32_at(d->hash);
	ret->first = u32_at(d->hash + 4);
	ret->bloom = u32_at(d->hash + 8);
	head = 16 + (size_t)ret->bloom * 8 + (size_t)ret->buckets * 4;
	if (!ret->buckets || head > d->hash_size)
		return false;
	ret->bucket = d->hash + 16 + (size_t)ret->bloom * 8;
	ret->chain = d->hash + head;
	ret->chains = (d->hash_size - head) / 4;
	return true;
}

static size_t gnu_symbol_count(const struct scry_dynamic *d)
{
	struct gnu_hash h;
	uint64_t last = 0;

	if (!gnu_hash(d, &h))
		return 0;
	for (uint32_t i = 0; i < h.buckets; i++)
		if (u32_at(h.bucket + 4ul * i) > last)
			last = u32_at(h.bucket + 4ul * i);
	if (last < h.first)
		return h.first; /* imports only */
	while (last - h.first < h.chains && !(u32_at(h.chain + 4 * (last - h.first)) & 1))
		last++;
	return last + 1;
}

/* Version names by index, from what the file defines and what it needs. */
static void note_version(struct scry_dynamic *d, uint32_t index, uint32_t string)
{
	index &= VERSIONS_MAX - 1;
	if (index >= d->version_names_count)
		d->version_names_count = index + 1;
	d->version_names[index] = scry_dynamic_string(d, string);
}

static void read_verdefs(struct scry_dynamic *d, const struct tags *t)
{
	const uint8_t *bytes = NULL;
	size_t size = view(d->elf, t->verdef, UINT64_MAX, &bytes), at = 0;

	for (uint64_t i = 0; i < t->verdefs && i < VERSIONS_MAX; i++) {
		Elf64_Verdef def;
		Elf64_Verdaux aux;

		if (at + sizeof(def) > size)
			return;
		memcpy(&def, bytes + at, sizeof(def));
		if (at + def.vd_aux + sizeof(aux) > size)
			return;
		memcpy(&aux, bytes + at + def.vd_aux, sizeof(aux));
		if (!(def.vd_flags & VER_FLG_BASE))
			note_version(d, def.vd_ndx, aux.vda_name);
		if (!def.vd_next)
			return;
		at += def.vd_next;
	}
}

static void read_verneeds(struct scry_dynamic *d, const struct tags *t)
{
	const uint8_t *bytes = NULL;
	size_t size = view(d->elf, t->verneed, UINT64_MAX, &bytes), at = 0, seen = 0;

	for (uint64_t i = 0; i < t->verneeds && seen < VERSIONS_MAX; i++) {
		Elf64_Verneed need;
		size_t aux_at;

		if (at + sizeof(need) > size)
			return;
		memcpy(&need, bytes + at, sizeof(need));
		aux_at = at + need.vn_aux;
		for (uint32_t j = 0; j < need.vn_cnt && seen++ < VERSIONS_MAX; j++) {
			Elf64_Vernaux aux;

			if (aux_at + sizeof(aux) > size)
				return;
			memcpy(&aux, bytes + aux_at, sizeof(aux));
			note_version(d, aux.vna_other, aux.vna_name);
			aux_at += aux.vna_next;
		}
		if (!need.vn_next)
			return;
		at += need.vn_next;
	}
}

static int read_versions(struct scry_dynamic *d, const struct tags *t)
{
	if (!d->versions)
		return 0;
	d->version_names = calloc(VERSIONS_MAX, sizeof(*d->version_names));
	if (!d->version_names)
		return scry_no_memory("reading symbol versions");
	read_verdefs(d, t);
	read_verneeds(d, t);
	return 0;
}

static void add_rela(struct scry_dynamic *d, const uint8_t *at, size_t size)
{
	if (!size || d->rela_count == SCRY_DYNAMIC_TABLES)
		return;
	d->rela[d->rela_count].at = at;
	d->rela[d->rela_count++].count = size / sizeof(Elf64_Rela);
}

static void read_symbols(struct scry_dynamic *d, const struct tags *t)
{
	const uint8_t *bytes = NULL;
	size_t size;

	d->hash_size = view(d->elf, t->gnu_hash, UINT64_MAX, &d->hash);
	if (!d->hash_size)
		d->hash = NULL;
	size = view(d->elf, t->value[DT_HASH], UINT64_MAX, &bytes);
	d->symbol_count = size >= 8 ? u32_at(bytes + 4) : gnu_symbol_count(d);
	size = view(d->elf, t->value[DT_SYMTAB], UINT64_MAX, &d->symbols) / sizeof(Elf64_Sym);
	if (d->symbol_count > size)
		d->symbol_count = size;
	if (d->symbol_count > SYMBOLS_MAX)
		d->symbol_count = SYMBOLS_MAX;
	d->version_count = view(d->elf, t->versym, UINT64_MAX, &d->versions) / 2;
	if (!d->version_count)
		d->versions = NULL;
	d->strings_size = view(d->elf, t->value[DT_STRTAB], t->value[DT_STRSZ], &d->strings);
}

static void read_relocations(struct scry_dynamic *d, const struct tags *t)
{
	const uint64_t *v = t->value;
	const uint8_t *bytes = NULL;

	size_t size = view(d->elf, v[DT_RELA], v[DT_RELASZ], &bytes);

	add_rela(d, bytes, size);
	/* DT_RELASZ of some linkers counts DT_JMPREL in. */
	if (v[DT_JMPREL] && v[DT_PLTREL] == DT_RELA &&
	    !(v[DT_JMPREL] >= v[DT_RELA] && v[DT_JMPREL] < v[DT_RELA] + v[DT_RELASZ])) {
		size = view(d->elf, v[DT_JMPREL], v[DT_PLTRELSZ], &bytes);
		add_rela(d, bytes, size);
	}
	d->relr_size = view(d->elf, v[DT_RELR], v[DT_RELRSZ], &d->relr);
}

int scry_dynamic_open(struct scry_elf *elf, struct scry_dynamic *ret)
{
	struct scry_dynamic d = {.elf = elf};
	struct tags t = {0};
	uint64_t addr, size;
	const uint8_t *bytes;
	size_t cursor = 0, n;
	int r;

	if (!scry_elf_dynamic(elf, &addr, &size)) {
		while (scry_elf_rela_next(elf, &cursor, &bytes, &n))
			add_rela(&d, bytes, n);
		*ret = d;
		return 0;
	}
	r = read_tags(&d, addr, size, &t);
	if (r == 0) {
		read_symbols(&d, &t);
		read_relocations(&d, &t);
		r = read_versions(&d, &t);
	}
	if (r < 0) {
		scry_dynamic_done(&d);
		return r;
	}
	if (t.value[DT_SONAME])
		d.soname = scry_dynamic_string(&d, t.value[DT_SONAME]);
	d.binds_now =
		t.value[DT_BIND_NOW] || (t.value[DT_FLAGS] & DF_BIND_NOW) || (t.flags_1 & DF_1_NOW);
	d.is_symbolic = t.value[DT_FLAGS] & DF_SYMBOLIC;
	*ret = d;
	return 0;
}

void scry_dynamic_done(struct scry_dynamic *d)
{
	free(d->needed);
	free(d->version_names);
	*d = (struct scry_dynamic){0};
}

const char *scry_dynamic_string(const struct scry_dynamic *d, uint64_t offset)
{
	size_t left;
	const char *s;

	if (offset >= d->strings_size)
		return NULL;
	s = (const char *)d->strings + offset;
	left = d->strings_size - offset;
	return memchr(s, 0, left < SCRY_SYMBOL_LENGTH_MAX ? left : SCRY_SYMBOL_LENGTH_MAX) ? s
											   : NULL;
}

static uint32_t version_index(const struct scry_dynamic *d, size_t i)
{
	uint16_t index;

	if (i >= d->version_count)
		return VER_NDX_GLOBAL;
	memcpy(&index, d->versions + 2 * i, 2);
	return index;
}

bool scry_dynamic_symbol(const struct scry_dynamic *d, size_t i, struct scry_dynsym *ret)
{
	uint32_t version = version_index(d, i), number = version & (VERSIONS_MAX - 1);
	Elf64_Sym sym;
	const char *name;

	if (i >= d->symbol_count)
		return false;
	memcpy(&sym, d->symbols + i * sizeof(sym), sizeof(sym));
	name = scry_dynamic_string(d, sym.st_name);
	if (!name)
		return false;
	*ret = (struct scry_dynsym){
		.value = sym.st_value,
		.size = sym.st_size,
		.name = name,
		.version = number < d->version_names_count && d->version_names[number]
				   ? d->version_names[number]
				   : "",
		.type = ELF64_ST_TYPE(sym.st_info),
		.bind = ELF64_ST_BIND(sym.st_info),
		.is_defined = sym.st_shndx != SHN_UNDEF,
		.is_hidden = version & VERSION_HIDDEN,
	};
	return true;
}

Elf64_Rela scry_dynamic_rela(const struct scry_dynamic *d, size_t table, size_t i)
{
	Elf64_Rela rela;

	memcpy(&rela, d->rela[table].at + i * sizeof(rela), sizeof(rela));
	return rela;
}

/* May a reference with `version` be bound to this symbol? */
static bool matches(const struct scry_dynamic *d, const struct scry_dynsym *sym,
		    const char *version)
{
	if (!sym->is_defined || sym->bind == STB_LOCAL || sym->type == STT_TLS)
		return false;
	if (!d->versions)
		return true;
	if (!*version) /* takes the default one; the oldest is taken where there are several */
		return !sym->is_hidden;
	return strcmp(sym->version, version) == 0 || (!*sym->version && !sym->is_hidden);
}

static uint32_t gnu_hash_of(const char *name)
{
	uint32_t hash = 5381;

	for (const char *c = name; *c; c++)
		hash = hash * 33 + (uint8_t)*c;
	return hash;
}

/* The next symbol of that hash behind `i` in its chain, or from the chain's beginning (0). 0: none.
 * Goes up, whatever the file says. */
static size_t next_in_chain(const struct gnu_hash *h, uint32_t hash, size_t i)
{
	for (;;) {
		if (i && (u32_at(h->chain + 4 * (i - h->first)) & 1))
			return 0;
		i = i ? i + 1 : u32_at(h->bucket + 4ul * (hash % h->buckets));
		if (!i || i < h->first || i - h->first >= h->chains)
			return 0;
		if ((u32_at(h->chain + 4 * (i - h->first)) | 1) == (hash | 1))
			return i;
	}
}

bool scry_dynamic_named(const struct scry_dynamic *d, const char *name, size_t *cursor,
			struct scry_dynsym *ret)
{
	struct gnu_hash h;
	struct scry_dynsym sym;
	const bool is_hashed = gnu_hash(d, &h);
	const uint32_t hash = gnu_hash_of(name);
	size_t i = *cursor;

	while ((i = is_hashed ? next_in_chain(&h, hash, i) : i + 1) && i < d->symbol_count) {
		if (!scry_dynamic_symbol(d, i, &sym) || !sym.is_defined ||
		    strcmp(sym.name, name) != 0)
			continue;
		*cursor = i;
		*ret = sym;
		return true;
	}
	return false;
}

int scry_dynamic_find(const struct scry_dynamic *d, const char *name, const char *version,
		      struct scry_dynsym *ret)
{
	struct scry_dynsym sym;
	size_t cursor = 0;

	while (scry_dynamic_named(d, name, &cursor, &sym))
		if (matches(d, &sym, version)) {
			*ret = sym;
			return 0;
		}
	return -ENOENT;
}
