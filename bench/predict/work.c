/*
 * Programs that ask malloc for memory as programs do, for the table of predictions in
 * bench/malloc-replay.md: work WORKLOAD [THREADS]. They also do something with what they get, so
 * that an allocator's placing shows in their time.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define THREADS_MAX 16
#define TIMES 6

static uint64_t draw(uint64_t *state, uint64_t below)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return (*state >> 11) % below;
}

/* Lists of words, split, changed and joined. */
static uint64_t strings(uint64_t seed)
{
	uint64_t sum = 0;
	char *words[2000] = {0};

	for (int round = 0; round < 300; round++) {
		for (int i = 0; i < 2000; i++) {
			size_t len = draw(&seed, draw(&seed, 10) ? 40 : 400) + 8;
			char *w = malloc(len);

			memset(w, 'a' + i % 26, len - 1);
			w[len - 1] = 0;
			free(words[i]);
			words[i] = strdup(w);
			sum += strlen(words[i]);
			free(w);
		}
	}
	for (int i = 0; i < 2000; i++)
		free(words[i]);
	return sum;
}

struct node {
	struct node *left, *right;
	uint64_t key;
	char *value;
};

/* A tree that grows, is searched, and loses parts. */
static void drop(struct node *n)
{
	while (n) {
		struct node *right = n->right;

		drop(n->left);
		free(n->value);
		free(n);
		n = right;
	}
}

static uint64_t tree(uint64_t seed)
{
	uint64_t sum = 0;

	for (int round = 0; round < 8; round++) {
		struct node *root = NULL;

		for (int i = 0; i < 40000; i++) {
			uint64_t key = draw(&seed, UINT32_MAX);
			struct node **at = &root;

			while (*at)
				at = key < (*at)->key ? &(*at)->left : &(*at)->right;
			*at = calloc(1, sizeof(**at));
			(*at)->key = key;
			(*at)->value = malloc(draw(&seed, 90) + 10);
			sprintf((*at)->value, "%d", i);
			sum += (uint64_t)(*at)->value[0];
		}
		drop(root);
	}
	return sum;
}

/* Arrays that grow by doubling, many at once. */
static uint64_t vectors(uint64_t seed)
{
	enum { COUNT = 200 };
	uint64_t *v[COUNT] = {0}, sum = 0;
	size_t len[COUNT] = {0}, cap[COUNT] = {0};

	for (int i = 0; i < 6000000; i++) {
		size_t at = draw(&seed, COUNT);

		if (len[at] == cap[at]) {
			cap[at] = cap[at] ? cap[at] * 2 : 8;
			v[at] = realloc(v[at], cap[at] * sizeof(*v[at]));
		}
		v[at][len[at]++] = seed;
		if (len[at] > 50000) {
			sum += v[at][len[at] / 2];
			free(v[at]);
			v[at] = NULL;
			len[at] = cap[at] = 0;
		}
	}
	for (size_t i = 0; i < COUNT; i++)
		free(v[i]);
	return sum;
}

/* Buffers of many sizes, some big, short lived. */
static uint64_t buffers(uint64_t seed)
{
	char *held[64] = {0};
	uint64_t sum = 0;

	for (int i = 0; i < 60000; i++) {
		size_t at = draw(&seed, 64), len = 1024u << draw(&seed, 9);

		free(held[at]);
		held[at] = malloc(len);
		for (size_t k = 0; k < len; k += 512)
			held[at][k] = (char)k;
		sum += (uint64_t)held[at][len / 1024 * 512];
	}
	for (size_t i = 0; i < 64; i++)
		free(held[i]);
	return sum;
}

/* Long-lived small blocks with holes between them: fragmentation. */
static uint64_t holes(uint64_t seed)
{
	enum { COUNT = 200000 };
	char **all = calloc(COUNT, sizeof(*all));
	uint64_t sum = 0;

	for (int phase = 0; phase < 12; phase++) {
		size_t size = 24u + (size_t)phase * 40;

		for (int i = 0; i < COUNT; i++)
			if (!all[i] || draw(&seed, 8) != 0) {
				free(all[i]);
				all[i] = i % 3 ? malloc(draw(&seed, size) + 1) : NULL;
				if (all[i])
					all[i][0] = (char)i;
			}
		sum += (uint64_t)all[1][0];
	}
	for (int i = 0; i < COUNT; i++)
		free(all[i]);
	free(all);
	return sum;
}

/* Messages from one thread to the others, which end what the first began. */
#define QUEUE 64
static struct queue {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	char **message[QUEUE];
	unsigned int put, taken;
} queues[THREADS_MAX];

static void put(struct queue *q, char **message)
{
	pthread_mutex_lock(&q->lock);
	while (q->put - q->taken == QUEUE)
		pthread_cond_wait(&q->changed, &q->lock);
	q->message[q->put++ % QUEUE] = message;
	pthread_cond_signal(&q->changed);
	pthread_mutex_unlock(&q->lock);
}

static char **take(struct queue *q)
{
	char **message;

	pthread_mutex_lock(&q->lock);
	while (q->put == q->taken)
		pthread_cond_wait(&q->changed, &q->lock);
	message = q->message[q->taken++ % QUEUE];
	pthread_cond_signal(&q->changed);
	pthread_mutex_unlock(&q->lock);
	return message;
}

static void *consume(void *arg)
{
	struct queue *q = arg;
	uint64_t sum = 0, seed = 5;
	char **m, *kept[256] = {0};

	while ((m = take(q))) {
		for (size_t i = 0; m[i]; i++) {
			size_t at = draw(&seed, 256);

			sum += strlen(m[i]);
			free(kept[at]);
			kept[at] = malloc(strlen(m[i]) / 2 + 1);
			kept[at][0] = (char)sum;
			free(m[i]);
		}
		free(m);
	}
	for (size_t i = 0; i < 256; i++)
		free(kept[i]);
	return (void *)(uintptr_t)sum;
}

static uint64_t pipeline(uint64_t seed, int threads)
{
	pthread_t id[THREADS_MAX];

	for (int i = 0; i < threads; i++) {
		pthread_mutex_init(&queues[i].lock, NULL);
		pthread_cond_init(&queues[i].changed, NULL);
		pthread_create(&id[i], NULL, consume, &queues[i]);
	}
	for (int k = 0; k < 15000; k++) {
		size_t count = draw(&seed, 48) + 1;
		char **m = calloc(count + 1, sizeof(*m));

		for (size_t i = 0; i < count; i++) {
			size_t len = draw(&seed, draw(&seed, 8) ? 100 : 1500) + 2;

			m[i] = malloc(len);
			memset(m[i], 'x', len - 1);
			m[i][len - 1] = 0;
		}
		put(&queues[k % threads], m);
	}
	for (int i = 0; i < threads; i++)
		put(&queues[i], NULL);
	for (int i = 0; i < threads; i++)
		pthread_join(id[i], NULL);
	return seed;
}

/* Each thread for itself. */
static void *alone(void *arg)
{
	uint64_t seed = (uintptr_t)arg * 7919 + 1;

	return (void *)(uintptr_t)(seed % 2 ? strings(seed) : tree(seed));
}

static uint64_t apart(uint64_t seed, int threads)
{
	pthread_t id[THREADS_MAX];

	for (int i = 0; i < threads; i++)
		pthread_create(&id[i], NULL, alone, (void *)(uintptr_t)i);
	for (int i = 0; i < threads; i++)
		pthread_join(id[i], NULL);
	return seed;
}

/* A server: threads that come, share a table of blocks, and go. */
static char *table[4096];
static pthread_mutex_t locks[64];

static void *request(void *arg)
{
	uint64_t seed = (uintptr_t)arg * 104729 + 7;

	for (int i = 0; i < 4000; i++) {
		size_t at = draw(&seed, 4096), len = draw(&seed, 600) + 16;
		char *mine = malloc(len), *old;

		memset(mine, i, len);
		pthread_mutex_lock(&locks[at % 64]);
		old = table[at];
		table[at] = mine;
		pthread_mutex_unlock(&locks[at % 64]);
		free(old);
	}
	return NULL;
}

static uint64_t server(uint64_t seed, int threads)
{
	pthread_t id[THREADS_MAX];

	for (size_t i = 0; i < 64; i++)
		pthread_mutex_init(&locks[i], NULL);
	for (int round = 0; round < 80; round++) {
		for (int i = 0; i < threads; i++)
			pthread_create(&id[i], NULL, request,
				       (void *)(uintptr_t)(round * threads + i));
		for (int i = 0; i < threads; i++)
			pthread_join(id[i], NULL);
	}
	for (size_t i = 0; i < 4096; i++) {
		free(table[i]);
		table[i] = NULL;
	}
	return seed;
}

/* A compiler: many small nodes that live until the end, and texts that grow meanwhile. */
static uint64_t compiler(uint64_t seed)
{
	enum { NODES = 150000 };
	struct node *last = NULL;
	size_t cap = 16, len = 0;
	char *text = malloc(cap);
	uint64_t sum = 0;

	for (int i = 0; i < NODES; i++) {
		struct node *n = malloc(sizeof(*n) + draw(&seed, 5) * 16);
		char name[32];

		n->left = last;
		n->value = strdup((sprintf(name, "name%d", (int)draw(&seed, 5000)), name));
		n->key = strlen(n->value);
		last = n;
		if (len + n->key + 1 > cap)
			text = realloc(text, cap += cap / 4 + sizeof(name));
		memcpy(text + len, n->value, n->key);
		len += n->key;
		sum += n->key;
	}
	while (last) {
		struct node *left = last->left;

		free(last->value);
		free(last);
		last = left;
	}
	free(text);
	return sum;
}

/* Blocks go round: each thread ends what its neighbours made (as larson does). */
static char **rounds[THREADS_MAX];
static pthread_barrier_t barrier;
static int round_threads;

static void *exchange_one(void *arg)
{
	enum { COUNT = 1000, ROUNDS = 150 };
	uint64_t seed = (uintptr_t)arg * 31337 + 11;

	rounds[(uintptr_t)arg] = calloc(COUNT, sizeof(char *));
	for (int r = 0; r < ROUNDS; r++) {
		char **mine;

		pthread_barrier_wait(&barrier);
		mine = rounds[((uintptr_t)arg + (size_t)r) % (size_t)round_threads];
		for (int i = 0; i < COUNT * 2; i++) {
			size_t at = draw(&seed, COUNT), len = draw(&seed, 500) + 8;

			free(mine[at]);
			mine[at] = malloc(len);
			memset(mine[at], r, len);
		}
	}
	pthread_barrier_wait(&barrier);
	for (int i = 0; i < COUNT; i++)
		free(rounds[(uintptr_t)arg][i]);
	free(rounds[(uintptr_t)arg]);
	return NULL;
}

static void begin_and_join(void *(*body)(void *), int threads)
{
	pthread_t id[THREADS_MAX];

	for (int i = 0; i < threads; i++)
		pthread_create(&id[i], NULL, body, (void *)(uintptr_t)i);
	for (int i = 0; i < threads; i++)
		pthread_join(id[i], NULL);
}

static uint64_t exchange(uint64_t seed, int threads)
{
	round_threads = threads;
	pthread_barrier_init(&barrier, NULL, (unsigned int)threads);
	begin_and_join(exchange_one, threads);
	pthread_barrier_destroy(&barrier);
	return seed;
}

/* A database: each statement takes memory in blocks that grow, rows and sorts in big buffers, and
 * gives all of it back at its end; what it caches stays. */
static void *session(void *arg)
{
	uint64_t seed = (uintptr_t)arg * 65537 + 3;
	char *cached[64] = {0};

	for (int statement = 0; statement < 1500; statement++) {
		char *root[32];
		size_t count = draw(&seed, 12) + 2, size = 1024, sort = 4096u << draw(&seed, 7);
		char *buffer = malloc(sort);

		memset(buffer, statement, sort);
		for (size_t i = 0; i < count; i++) {
			root[i] = malloc(size + 16);
			memset(root[i], statement, size);
			size += size / 2;
		}
		for (int row = 0; row < 60; row++) {
			size_t len = draw(&seed, 200) + 20;
			char *text = malloc(len);

			memset(text, row, len);
			if (draw(&seed, 20) == 0) {
				size_t at = draw(&seed, 64);

				free(cached[at]);
				cached[at] = text;
			} else {
				free(text);
			}
		}
		free(buffer);
		while (count)
			free(root[--count]);
	}
	for (size_t i = 0; i < 64; i++)
		free(cached[i]);
	return NULL;
}

static uint64_t sessions(uint64_t seed, int threads)
{
	begin_and_join(session, threads);
	return seed;
}

/* Threads by the hundred, each with little to do and something to leave behind. */
static char *left_behind[1024];

static void *little(void *arg)
{
	uint64_t seed = (uintptr_t)arg * 977 + 5;
	char *own[40];

	for (size_t i = 0; i < 40; i++) {
		size_t len = draw(&seed, i ? 2000 : 20000) + 1;

		own[i] = memset(malloc(len), 1, len);
	}
	free(left_behind[(uintptr_t)arg % 1024]); /* nobody else has its place now */
	left_behind[(uintptr_t)arg % 1024] = own[0];
	for (size_t i = 1; i < 40; i++)
		free(own[i]);
	return NULL;
}

static uint64_t churn(uint64_t seed, int threads)
{
	pthread_t id[THREADS_MAX];

	for (int i = 0; i < 2000 / threads; i++) {
		for (int k = 0; k < threads; k++)
			pthread_create(&id[k], NULL, little, (void *)(uintptr_t)(i * threads + k));
		for (int k = 0; k < threads; k++)
			pthread_join(id[k], NULL);
	}
	return seed;
}

/* Each thread with many blocks of its own, more threads than processors: arenas. */
static void *hold(void *arg)
{
	enum { COUNT = 8000 };
	uint64_t seed = (uintptr_t)arg * 4099 + 17;
	char **all = calloc(COUNT, sizeof(*all));

	for (int phase = 0; phase < 12; phase++)
		for (int i = 0; i < COUNT; i++)
			if (draw(&seed, 4)) {
				size_t len = draw(&seed, 100u + (size_t)phase * 60) + 1;

				free(all[i]);
				all[i] = malloc(len);
				all[i][0] = (char)i;
			}
	for (int i = 0; i < COUNT; i++)
		free(all[i]);
	free(all);
	return NULL;
}

static uint64_t arenas(uint64_t seed, int threads)
{
	begin_and_join(hold, threads * 2);
	return seed;
}

/* One makes trees, the others end them: all that is freed is another's. */
static void *end_trees(void *arg)
{
	struct queue *q = arg;
	char **m;

	while ((m = take(q))) {
		drop((struct node *)(void *)m[0]);
		free(m);
	}
	return NULL;
}

static uint64_t trees(uint64_t seed, int threads)
{
	pthread_t id[THREADS_MAX];

	for (int i = 0; i < threads; i++) {
		pthread_mutex_init(&queues[i].lock, NULL);
		pthread_cond_init(&queues[i].changed, NULL);
		pthread_create(&id[i], NULL, end_trees, &queues[i]);
	}
	for (int k = 0; k < 600; k++) {
		char **m = calloc(1, sizeof(*m));
		struct node *root = NULL;

		for (int i = 0; i < 300; i++) {
			uint64_t key = draw(&seed, UINT32_MAX);
			struct node **at = &root;

			while (*at)
				at = key < (*at)->key ? &(*at)->left : &(*at)->right;
			*at = calloc(1, sizeof(**at));
			(*at)->key = key;
			(*at)->value = malloc(draw(&seed, 60) + 10);
			(*at)->value[0] = 'x';
		}
		m[0] = (char *)root;
		put(&queues[k % threads], m);
	}
	for (int i = 0; i < threads; i++)
		put(&queues[i], NULL);
	for (int i = 0; i < threads; i++)
		pthread_join(id[i], NULL);
	return seed;
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		uint64_t (*one)(uint64_t seed);
		uint64_t (*many)(uint64_t seed, int threads);
	} all[] = {
		{"strings", strings, NULL},   {"tree", tree, NULL},
		{"vectors", vectors, NULL},   {"buffers", buffers, NULL},
		{"holes", holes, NULL},	      {"pipeline", NULL, pipeline},
		{"apart", NULL, apart},	      {"server", NULL, server},
		{"compiler", compiler, NULL}, {"exchange", NULL, exchange},
		{"sessions", NULL, sessions}, {"churn", NULL, churn},
		{"arenas", NULL, arenas},     {"trees", NULL, trees},
	};
	int threads = argc > 2 ? atoi(argv[2]) : 4;

	threads = threads < 1 || threads > THREADS_MAX / 2 ? 4 : threads;
	for (size_t i = 0; argc > 1 && i < sizeof(all) / sizeof(all[0]); i++)
		if (!strcmp(argv[1], all[i].name)) {
			uint64_t sum = 0;

			for (uint64_t k = 0; k < TIMES; k++)
				sum += all[i].one ? all[i].one(42 + k)
						  : all[i].many(42 + k, threads);
			printf("%llu\n", (unsigned long long)sum);
			return 0;
		}
	return 2;
}
