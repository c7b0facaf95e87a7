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

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		uint64_t (*one)(uint64_t seed);
		uint64_t (*many)(uint64_t seed, int threads);
	} all[] = {
		{"strings", strings, NULL}, {"tree", tree, NULL},     {"vectors", vectors, NULL},
		{"buffers", buffers, NULL}, {"holes", holes, NULL},   {"pipeline", NULL, pipeline},
		{"apart", NULL, apart},	    {"server", NULL, server},
	};
	int threads = argc > 2 ? atoi(argv[2]) : 4;

	threads = threads < 1 || threads > THREADS_MAX ? 4 : threads;
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
