/*
 * sys/text and sys/x86_move together, on code that nobody made for them: every function of
 * libcrypto, of libruby and of libc that can be hooked at its entry is hooked at once, in a forked
 * child, by a jump to a stub that counts and goes on with the moved instructions. A workload then
 * has to give the answers that it gave before.
 */
#include "sys/text.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <glob.h>
#include <link.h>
#include <math.h>
#include <pthread.h>
#include <regex.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <wchar.h>

#include <cmocka.h>

#include "base/err.h"
#include "sys/maps.h"
#include "sys/short_jump.h"

#define JUMP_BYTES 5
#define JUMP_FAR_BYTES 14
#define STUB_BYTES 192
#define TRANSCRIPT_MAX 65536

struct change {
	uint8_t *at;
	uint8_t jump[JUMP_FAR_BYTES];
	uint8_t size;
	uint8_t *pad; /* of a short-jump trampoline, or NULL */
	uint8_t pad_jump[SCRY_SHORT_JUMP_PAD_BYTES];
};

struct hooked {
	struct change *changes;
	size_t count;
	size_t need; /* bytes of the jump */
	uint8_t *stubs;
	uint32_t *counters; /* one a function */
	uint8_t *text, *text_end;
	struct scry_short_jump_taken *taken;
	size_t taken_count, short_jumps;
};

/* What a workload says; the same before and after. */
struct transcript {
	char text[TRANSCRIPT_MAX];
	size_t used;
	uint32_t ran; /* hooked functions that were called */
	uint32_t hooked;
	uint32_t short_jumps, short_jumps_ran; /* of these, by a short-jump trampoline */
};

static struct transcript *said; /* shared with the child */

/* Not by libc: while text is being changed nothing of it may run. */
static void store(volatile uint8_t *to, const uint8_t *from, size_t size)
{
	for (size_t i = 0; i < size; i++)
		to[i] = from[i];
}

/* Counts with every register and flag kept; the red zone may be in use where a jump leads to the
 * entry. Returns its size. */
static size_t put_stub(uint8_t *to, const uint32_t *counter)
{
	static const uint8_t head[] = {0x48, 0x8d, 0x64, 0x24, 0x80, 0x9c, 0xf0, 0xff, 0x05};
	static const uint8_t tail[] = {0x9d, 0x48, 0x8d, 0xa4, 0x24, 0x80, 0, 0, 0};
	int32_t distance =
		(int32_t)((intptr_t)counter - (intptr_t)(to + sizeof(head) + sizeof(distance)));

	memcpy(to, head, sizeof(head));
	memcpy(to + sizeof(head), &distance, sizeof(distance));
	memcpy(to + sizeof(head) + sizeof(distance), tail, sizeof(tail));
	return sizeof(head) + sizeof(distance) + sizeof(tail);
}

/* Writes the stub of the next hook: the head, and the moved window. Its address, or NULL. */
static uint8_t *write_stub(struct hooked *h, const struct scry_x86_code *code,
			   const struct scry_x86_window *w)
{
	uint8_t *stub = h->stubs + h->count * STUB_BYTES;
	size_t size = put_stub(stub, &h->counters[h->count]);
	struct scry_x86_place place = {.address = (uintptr_t)stub + size, .back = true};
	struct scry_x86_moved m;

	if (scry_x86_move(code, w, &place, &m))
		return NULL;
	assert_true(size + m.bytes <= STUB_BYTES);
	memcpy(stub + size, m.code, m.bytes);
	return stub;
}

/* By a jump in the window. False: that cannot be. */
static bool plan_jump(struct hooked *h, struct scry_text *text, struct scry_x86_code *code,
		      uint64_t bias)
{
	struct change *change = &h->changes[h->count];
	uint64_t start = code->address;
	struct scry_x86_window w;
	uint8_t *stub;

	if (scry_x86_window(code, h->need, SCRY_X86_JUMP_OK, &w))
		return false;
	start += w.endbr;
	if (scry_text_enters(text, start, start + w.bytes, NULL))
		return false;
	if (w.has & SCRY_X86_FILLER)
		h->taken[h->taken_count++] =
			(struct scry_short_jump_taken){start + w.code, start + w.bytes};
	code->address += bias;
	stub = write_stub(h, code, &w);
	if (!stub)
		return false;
	change->at = (uint8_t *)(uintptr_t)(start + bias); /* NOLINT */
	change->size =
		(uint8_t)(h->need == JUMP_BYTES
				  ? scry_x86_jump(start + bias, (uintptr_t)stub, change->jump)
				  : scry_x86_jump_far((uintptr_t)stub, change->jump));
	assert_int_equal(change->size, h->need);
	h->count++;
	return true;
}

static void plan_short_jump(struct hooked *h, struct scry_text *text,
			    const struct scry_text_range *range, uint64_t bias)
{
	struct scry_short_jump_request request = {
		.text = text, .range = range, .taken = h->taken, .count = h->taken_count};
	struct change *change = &h->changes[h->count];
	struct scry_short_jump short_jump;
	struct scry_x86_code code;
	uint8_t *stub;

	if (scry_short_jump_plan(&request, &short_jump))
		return;
	scry_text_bytes(text, range, &code);
	code.address += bias;
	stub = write_stub(h, &code, &short_jump.window);
	assert_non_null(stub);
	h->taken[h->taken_count++] = (struct scry_short_jump_taken){
		short_jump.pad, short_jump.pad + SCRY_SHORT_JUMP_PAD_BYTES};
	h->taken[h->taken_count++] = (struct scry_short_jump_taken){
		short_jump.entry, short_jump.entry + short_jump.window.bytes};
	change->at = (uint8_t *)(uintptr_t)(short_jump.entry + bias); /* NOLINT */
	change->size = SCRY_SHORT_JUMP_BYTES;
	memcpy(change->jump, short_jump.jump, SCRY_SHORT_JUMP_BYTES);
	change->pad = (uint8_t *)(uintptr_t)(short_jump.pad + bias); /* NOLINT */
	assert_int_equal(scry_x86_jump(short_jump.pad + bias, (uintptr_t)stub, change->pad_jump),
			 SCRY_SHORT_JUMP_PAD_BYTES);
	h->count++;
	h->short_jumps++;
}

/* Memory for stubs and counters within reach of the object. */
static void map_stubs(struct hooked *h, uint64_t near, size_t functions)
{
	size_t size = (functions * (STUB_BYTES + sizeof(uint32_t)) + 8191) & ~4095ul;
	struct scry_maps maps;
	uint64_t at;
	void *p;

	assert_int_equal(scry_maps_read(getpid(), &maps), 0);
	at = scry_maps_gap(&maps, near, size, 1u << 30);
	scry_maps_done(&maps);
	assert_true(at != 0);
	p = mmap((void *)(uintptr_t)at, size, PROT_READ | PROT_WRITE | PROT_EXEC,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	assert_true(p != MAP_FAILED);
	h->counters = p;
	h->stubs = (uint8_t *)p + ((functions * sizeof(uint32_t) + 4095) & ~4095ul);
	h->changes = calloc(functions, sizeof(*h->changes));
	h->taken = calloc(2 * functions, sizeof(*h->taken));
	assert_true(h->changes && h->taken);
}

/* Plans hooks on all functions of a loaded object. */
static void plan(struct hooked *h, const struct link_map *map)
{
	const struct scry_text_range *range, **refused;
	size_t refused_count = 0;
	struct scry_text *text;
	struct scry_elf *elf;

	if (scry_elf_open_path(map->l_name, &elf) < 0 || scry_text_read(elf, &text) < 0)
		fail_msg("%s", scry_error());
	map_stubs(h, map->l_addr, scry_text_range_count(text));
	/* Trampolines last: all windows that need filler have it by then. */
	refused = calloc(scry_text_range_count(text), sizeof(*refused));
	assert_non_null(refused);
	for (size_t i = 0; (range = scry_text_range(text, i)); i++) {
		struct scry_x86_code code;

		scry_text_bytes(text, range, &code);
		if (range->kind == SCRY_TEXT_FUNCTION && !plan_jump(h, text, &code, map->l_addr))
			refused[refused_count++] = range;
	}
	for (size_t i = 0; i < refused_count; i++)
		plan_short_jump(h, text, refused[i], map->l_addr);
	free(refused);
	h->text = h->text_end = h->changes[0].at;
	for (size_t i = 0; i < h->count; i++) {
		const struct change *c = &h->changes[i];

		h->text = c->at < h->text ? c->at : h->text;
		h->text = c->pad && c->pad < h->text ? c->pad : h->text;
		h->text_end = c->at > h->text_end ? c->at : h->text_end;
		h->text_end = c->pad > h->text_end ? c->pad : h->text_end;
	}
	h->text -= (uintptr_t)h->text & 4095;
	h->text_end += JUMP_FAR_BYTES;
	scry_text_free(text);
	scry_elf_close(elf);
}

static void apply(const struct hooked *h)
{
	assert_int_equal(mprotect(h->text, (size_t)(h->text_end - h->text),
				  PROT_READ | PROT_WRITE | PROT_EXEC),
			 0);
	for (size_t i = 0; i < h->count; i++) {
		if (h->changes[i].pad)
			store(h->changes[i].pad, h->changes[i].pad_jump, SCRY_SHORT_JUMP_PAD_BYTES);
		store(h->changes[i].at, h->changes[i].jump, h->changes[i].size);
	}
}

static void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void say(const char *format, ...)
{
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(said->text + said->used, TRANSCRIPT_MAX - said->used, format, args);
	va_end(args);
	if (n > 0 && said->used + (size_t)n < TRANSCRIPT_MAX)
		said->used += (size_t)n;
}

static void say_bytes(const char *what, const uint8_t *bytes, size_t size)
{
	say("%s", what);
	for (size_t i = 0; i < size; i++)
		say(" %02x", bytes[i]);
	say("\n");
}

/* Runs `work` in a child, with `map` hooked by jumps of `need` bytes when it is not NULL. */
static void run_child(void (*work)(void), const struct link_map *map, size_t need)
{
	int status = 0;
	pid_t pid;

	memset(said, 0, sizeof(*said));
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		struct hooked h = {.need = need};

		alarm(60);
		if (map) {
			plan(&h, map);
			apply(&h);
		}
		work();
		for (size_t i = 0; i < h.count; i++) {
			said->ran += h.counters[i] != 0;
			said->short_jumps_ran += h.counters[i] && h.changes[i].pad;
		}
		said->short_jumps = (uint32_t)h.short_jumps;
		said->hooked = (uint32_t)h.count;
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (status)
		print_message("# child ended with %#x after:\n%s", (unsigned int)status,
			      said->used > 300 ? said->text + said->used - 300 : said->text);
	assert_int_equal(status, 0);
}

static void compare(void (*work)(void), const char *library, uint32_t least)
{
	static char before[TRANSCRIPT_MAX];
	struct link_map *map = dlopen(library, RTLD_NOW | RTLD_GLOBAL);

	if (!map) {
		print_message("skipped: no %s here\n", library);
		skip();
	}
	said = mmap(NULL, sizeof(*said), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(said != MAP_FAILED);
	run_child(work, NULL, 0);
	assert_true(said->used > 100);
	memcpy(before, said->text, sizeof(before));
	for (size_t need = JUMP_BYTES; need; need = need == JUMP_BYTES ? JUMP_FAR_BYTES : 0) {
		run_child(work, map, need);
		print_message("# %s: %u functions hooked by %zu bytes, %u of them ran; of these "
			      "%u by trampolines, %u ran\n",
			      library, said->hooked, need, said->ran, said->short_jumps,
			      said->short_jumps_ran);
		assert_string_equal(before, said->text);
		assert_true(said->ran >= least);
	}
	munmap(said, sizeof(*said));
	dlclose(map);
}

/* Functions by name: no headers need be installed. */
#define IMPORT(result, name, ...) \
	result (*name)(__VA_ARGS__) = (result(*)(__VA_ARGS__))dlsym(RTLD_DEFAULT, #name)

static void work_digests(const uint8_t *data, size_t size)
{
	static const char *const names[] = {"MD5",	  "SHA1",	"SHA224",     "SHA256",
					    "SHA384",	  "SHA512",	"SHA512-256", "SHA3-256",
					    "BLAKE2b512", "BLAKE2s256", "SM3",	      "RIPEMD160"};
	IMPORT(int, EVP_Q_digest, void *, const char *, const char *, const void *, size_t,
	       uint8_t *, size_t *);
	IMPORT(uint8_t *, EVP_Q_mac, void *, const char *, const char *, const char *, const void *,
	       const void *, size_t, const uint8_t *, size_t, uint8_t *, size_t, size_t *);
	IMPORT(int, PKCS5_PBKDF2_HMAC, const char *, int, const uint8_t *, int, int, const void *,
	       int, uint8_t *);
	IMPORT(const void *, EVP_sha256, void);
	uint8_t out[64];
	size_t n;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (EVP_Q_digest(NULL, names[i], NULL, data, size, out, &n) == 1)
			say_bytes(names[i], out, n);
	if (EVP_Q_mac(NULL, "HMAC", NULL, "SHA384", NULL, data, 37, data, size, out, sizeof(out),
		      &n))
		say_bytes("HMAC", out, n);
	if (PKCS5_PBKDF2_HMAC("secret", 6, data, 16, 100, EVP_sha256(), 40, out) == 1)
		say_bytes("PBKDF2", out, 40);
}

static void work_ciphers(const uint8_t *data, int size)
{
	static const char *const names[] = {"AES-128-CBC",  "AES-256-CTR", "AES-256-GCM",
					    "AES-192-OFB",  "ChaCha20",	   "CAMELLIA-128-CBC",
					    "DES-EDE3-CBC", "ARIA-128-CTR"};
	IMPORT(void *, EVP_CIPHER_fetch, void *, const char *, const char *);
	IMPORT(void *, EVP_CIPHER_CTX_new, void);
	IMPORT(void, EVP_CIPHER_CTX_free, void *);
	IMPORT(void, EVP_CIPHER_free, void *);
	IMPORT(int, EVP_CipherInit_ex2, void *, const void *, const uint8_t *, const uint8_t *, int,
	       const void *);
	IMPORT(int, EVP_CipherUpdate, void *, uint8_t *, int *, const uint8_t *, int);
	static uint8_t out[8192];

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		void *cipher = EVP_CIPHER_fetch(NULL, names[i], NULL), *ctx = EVP_CIPHER_CTX_new();
		int n = 0;

		if (cipher && EVP_CipherInit_ex2(ctx, cipher, data, data + 32, 1, NULL) == 1 &&
		    EVP_CipherUpdate(ctx, out, &n, data, size) == 1)
			say_bytes(names[i], out, (size_t)n < 200 ? (size_t)n : 200);
		EVP_CIPHER_CTX_free(ctx);
		EVP_CIPHER_free(cipher);
	}
}

/* Keys are random; that a signature holds, and a changed text's does not, is not. */
static void work_keys(const uint8_t *data, size_t size)
{
	IMPORT(void *, EVP_PKEY_Q_keygen, void *, const char *, const char *, ...);
	IMPORT(void *, EVP_MD_CTX_new, void);
	IMPORT(void, EVP_MD_CTX_free, void *);
	IMPORT(int, EVP_DigestSignInit_ex, void *, void **, const char *, void *, const char *,
	       void *, const void *);
	IMPORT(int, EVP_DigestVerifyInit_ex, void *, void **, const char *, void *, const char *,
	       void *, const void *);
	IMPORT(int, EVP_DigestSign, void *, uint8_t *, size_t *, const uint8_t *, size_t);
	IMPORT(int, EVP_DigestVerify, void *, const uint8_t *, size_t, const uint8_t *, size_t);
	IMPORT(int, i2d_PrivateKey, const void *, uint8_t **);
	IMPORT(void *, d2i_AutoPrivateKey, void **, const uint8_t **, long);
	IMPORT(int, EVP_PKEY_eq, const void *, const void *);
	IMPORT(void, EVP_PKEY_free, void *);
	static uint8_t signature[1024];

	for (int kind = 0; kind < 3; kind++) {
		void *key = kind == 0	? EVP_PKEY_Q_keygen(NULL, NULL, "RSA", (size_t)1024)
			    : kind == 1 ? EVP_PKEY_Q_keygen(NULL, NULL, "EC", "P-256")
					: EVP_PKEY_Q_keygen(NULL, NULL, "ED25519");
		const char *digest = kind == 2 ? NULL : "SHA256";
		void *ctx = EVP_MD_CTX_new(), *copy = NULL;
		uint8_t *der = NULL;
		const uint8_t *at;
		size_t n = sizeof(signature);
		int length;

		say("key %d: %d", kind, key != NULL);
		say(" %d", EVP_DigestSignInit_ex(ctx, NULL, digest, NULL, NULL, key, NULL));
		say(" %d", EVP_DigestSign(ctx, signature, &n, data, size));
		EVP_MD_CTX_free(ctx);
		ctx = EVP_MD_CTX_new();
		say(" %d", EVP_DigestVerifyInit_ex(ctx, NULL, digest, NULL, NULL, key, NULL));
		say(" %d", EVP_DigestVerify(ctx, signature, n, data, size));
		EVP_MD_CTX_free(ctx);
		ctx = EVP_MD_CTX_new();
		say(" %d", EVP_DigestVerifyInit_ex(ctx, NULL, digest, NULL, NULL, key, NULL));
		say(" %d", EVP_DigestVerify(ctx, signature, n, data, size - 1));
		EVP_MD_CTX_free(ctx);
		length = i2d_PrivateKey(key, &der);
		at = der;
		copy = d2i_AutoPrivateKey(NULL, &at, length);
		say(" %d\n", copy ? EVP_PKEY_eq(key, copy) : -9);
		EVP_PKEY_free(copy);
		EVP_PKEY_free(key);
	}
}

static void work_numbers(void)
{
	IMPORT(void *, BN_new, void);
	IMPORT(void *, BN_CTX_new, void);
	IMPORT(int, BN_dec2bn, void **, const char *);
	IMPORT(int, BN_mod_exp, void *, const void *, const void *, const void *, void *);
	IMPORT(void *, BN_mod_inverse, void *, const void *, const void *, void *);
	IMPORT(int, BN_check_prime, const void *, void *, void *);
	IMPORT(char *, BN_bn2dec, const void *);
	IMPORT(int, EVP_EncodeBlock, uint8_t *, const uint8_t *, int);
	IMPORT(char *, ERR_error_string, unsigned long, char *);
	void *ctx = BN_CTX_new(), *a = NULL, *m = NULL, *r = BN_new();
	uint8_t out[200];

	BN_dec2bn(&a, "123456789012345678901234567890123456789012345678901234567890123");
	BN_dec2bn(&m, "170141183460469231731687303715884105727");
	say("power %d", BN_mod_exp(r, a, a, m, ctx));
	say(" %s", BN_bn2dec(r));
	say(" %d", BN_mod_inverse(r, a, m, ctx) != NULL);
	say(" %s %d\n", BN_bn2dec(r), BN_check_prime(m, ctx, NULL));
	EVP_EncodeBlock(out, (const uint8_t *)"some bytes to encode", 20);
	say("%s %s\n", (char *)out, ERR_error_string(0x1e000065, NULL));
}

static void work_crypto(void)
{
	static uint8_t data[4096];

	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)(i * 7 + (i >> 5));
	work_digests(data, sizeof(data));
	work_ciphers(data, sizeof(data));
	work_numbers();
	work_keys(data, sizeof(data));
}

static void test_libcrypto(void **state)
{
	compare(work_crypto, "libcrypto.so.3", 1000);
}

static int by_value(const void *a, const void *b)
{
	return *(const int *)a - *(const int *)b;
}

static volatile sig_atomic_t signals;

static void on_signal(int signal)
{
	signals += signal;
}

static void *thread_work(void *arg)
{
	char *text = malloc(1000);

	snprintf(text, 1000, "%s-%ld", (char *)arg, strlen(arg));
	return text;
}

static void work_strings(void)
{
	static char a[5000], b[5000];
	wchar_t wide[50];
	int written;

	for (size_t n = 1; n < 4500; n += n / 3 + 1) {
		memset(a, (int)('a' + n % 26), n);
		memcpy(b, a, n);
		memmove(b + 1, b, n);
		a[n] = b[n] = '\0';
		say("%zu %zu %d %d %td %td\n", n, strlen(a), strcmp(a, b) < 0, memcmp(a, b, n) > 0,
		    strchr(a, 'x') ? strchr(a, 'x') - a : -1,
		    (char *)memrchr(a, 'c', n) ? (char *)memrchr(a, 'c', n) - a : -1);
	}
	say("%s %s %zu\n", strstr("needle in a haystack", "hay"), strpbrk("abcdef", "fe"),
	    strspn("aabbccd", "abc"));
	written = swprintf(wide, 50, L"%d wide %s", 42, "text");
	say("%d %zu %ls\n", written, wcslen(wide), wide);
}

static void work_numbers_libc(void)
{
	time_t when = 1700000000;
	struct tm tm;
	char text[200];
	regex_t re;
	regmatch_t match[2];
	int numbers[300];
	div_t d = div(17, 5);

	say("%.17g %a %ld %lld %g\n", strtod("3.14159265358979", NULL), 1.0 / 3,
	    strtol("-0x7f", NULL, 0), atoll("123456789012"), pow(1.5, 7));
	for (int i = 0; i < 300; i++)
		numbers[i] = (i * 7919) % 1009;
	qsort(numbers, 300, sizeof(int), by_value);
	say("%d %d %d %d %d\n", numbers[0], numbers[150], numbers[299], d.quot, d.rem);
	setenv("TZ", "UTC", 1);
	gmtime_r(&when, &tm);
	strftime(text, sizeof(text), "%A %F %T %j", &tm);
	say("%s %ld\n", text, (long)mktime(&tm));
	say("%d", regcomp(&re, "([a-z]+)@[a-z]+[.]org", REG_EXTENDED));
	say(" %d", regexec(&re, "mail someone@example.org now", 2, match, 0));
	say(" %d %d\n", (int)match[1].rm_so, (int)match[1].rm_eo);
	regfree(&re);
}

static void work_system(void)
{
	struct timespec pause = {0, 1000};
	jmp_buf jump;
	pthread_t threads[4];
	void *result;
	FILE *f = tmpfile();
	char line[100];
	volatile int n = 0; /* lives across longjmp */
	int status;

	signal(SIGUSR1, on_signal);
	for (int i = 0; i < 10; i++)
		raise(SIGUSR1);
	say("signals %d\n", (int)signals);
	if (setjmp(jump) < 3) {
		n++;
		longjmp(jump, n);
	}
	say("jumps %d\n", n);
	for (int i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, thread_work, (void *)(uintptr_t) "thread");
	for (int i = 0; i < 4; i++) {
		pthread_join(threads[i], &result);
		say("%s\n", (char *)result);
		free(result);
	}
	for (int i = 0; i < 100; i++)
		fprintf(f, "%d %5.2f %s\n", i, i / 7.0, "text");
	rewind(f);
	while (fgets(line, sizeof(line), f))
		n += (int)strlen(line);
	fclose(f);
	nanosleep(&pause, NULL);
	status = system("exit 7");
	say("%d lines' bytes, system %d\n", n, WEXITSTATUS(status));
	if (fork() == 0)
		_exit(9);
	wait(&status);
	say("child %d\n", WEXITSTATUS(status));
}

static void work_libc(void)
{
	work_strings();
	work_numbers_libc();
	work_system();
}

static void test_libc(void **state)
{
	compare(work_libc, "libc.so.6", 200);
}

/* Exceptions, fibers, threads, GC, big numbers, patterns, text: what a program does. */
static const char ruby_program[] =
	"$stdout.sync = true\n"
	"def deep(n) = n.zero? ? raise(ArgumentError, 'bottom') : deep(n - 1)\n"
	"begin; deep(50); rescue => e; puts e.message, e.backtrace.size; end\n"
	"puts catch(:done) { 10.times { |i| throw :done, i if i == 7 } }\n"
	"f = Fiber.new { |x| loop { x = Fiber.yield(x * 2) } }\n"
	"puts 20.times.map { |i| f.resume(i) }.sum\n"
	"puts 4.times.map { |i| Thread.new { (1..500).inject { |a, b| (a * b + i) % 1009 } } }"
	".map(&:value).inspect\n"
	"h = Hash.new { |x, k| x[k] = k.to_s * 3 }; 2000.times { |i| h[i] }; puts "
	"h.values.join.size\n"
	"GC.stress = true; a = 30.times.map { |i| [i, \"s#{i}\".to_sym, { i => Object.new }] }\n"
	"GC.stress = false; GC.compact rescue nil; GC.start; puts a.map(&:first).sum\n"
	"puts (2**521 - 1).to_s(36), 100.downto(1).inject(:*) / 97.0\n"
	"puts 'the quick brown fox'.gsub(/(\\w)(\\w*)/) { $2 + $1 }.encode('UTF-16LE').bytes.sum\n"
	"puts Struct.new(:a, :b).new(1, [2]).to_a.inspect, (1..Float::INFINITY).lazy"
	".select(&:even?).first(5).inspect\n"
	"puts format('%08.3f %x %-5s|', 3.14159, 48879, 'ab'), Time.at(0).utc.strftime('%F')\n"
	"puts [3, 1, 2].sort_by { |x| -x }.pack('C*').unpack1('H*'), Marshal.load(Marshal.dump([1, "
	"'x'])).inspect\n"
	"case [1, [2, 3]]; in [Integer => q, [_, w]]; puts q + w; end\n"
	"eval('puts 1.then { _1 + 1 }'); puts ObjectSpace.each_object(Class).first.class\n";

static void work_ruby(void)
{
	IMPORT(int, ruby_setup, void);
	IMPORT(void *, ruby_process_options, int, char **);
	IMPORT(int, ruby_exec_node, void *);
	IMPORT(void, ruby_init_stack, void *);
	char *argv[] = {(char *)(uintptr_t) "ruby", (char *)(uintptr_t) "--disable-gems",
			(char *)(uintptr_t) "-e", (char *)(uintptr_t)ruby_program, NULL};
	int fd = memfd_create("said", MFD_CLOEXEC), out = dup(1);
	char text[8192];
	ssize_t n;

	dup2(fd, 1);
	ruby_init_stack(&n);
	say("setup %d", ruby_setup());
	say(" run %d\n", ruby_exec_node(ruby_process_options(4, argv)));
	/* Ruby writes what it buffers when it is asked to, not by stdio. */
	dup2(out, 1);
	n = pread(fd, text, sizeof(text) - 1, 0);
	text[n > 0 ? n : 0] = '\0';
	say("%s", text);
}

/* The one of this Debian: its name has the version in it. */
static void test_libruby(void **state)
{
	static const char pattern[] = "/usr/lib/x86_64-linux-gnu/libruby-*.so.[0-9].[0-9]";
	glob_t found;

	(void)state;
	if (glob(pattern, 0, NULL, &found) != 0) {
		print_message("skipped: no %s here\n", pattern);
		skip();
	}
	compare(work_ruby, found.gl_pathv[0], 1500);
	globfree(&found);
}

static void work_throwing(void)
{
	IMPORT(long, throwing_storm, char *, unsigned long);
	static char text[4096];

	for (int i = 0; i < 3; i++) {
		long sum = throwing_storm(text, sizeof(text));

		say("%ld %s\n", sum, text);
	}
}

/* Exceptions through hooked frames, hooked run-time library, hooked unwinder. */
static void test_exceptions(void **state)
{
	void *storm = dlopen(SCRY_TARGET_DIR "/libthrowing.so", RTLD_NOW | RTLD_GLOBAL);

	if (!storm) {
		print_message("skipped: no C++ compiler when this was built; fix: apt-get install "
			      "g++\n");
		skip();
	}
	compare(work_throwing, SCRY_TARGET_DIR "/libthrowing.so", 8);
	compare(work_throwing, "libstdc++.so.6", 50);
	compare(work_throwing, "libgcc_s.so.1", 10);
	compare(work_throwing, "libc.so.6", 10);
	dlclose(storm);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_libcrypto),
		cmocka_unit_test(test_libruby),
		cmocka_unit_test(test_exceptions),
		cmocka_unit_test(test_libc),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
