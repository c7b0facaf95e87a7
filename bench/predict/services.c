/*
 * More programs for the table of predictions (see work.c): those that take requests, documents,
 * frames or lines in and give them away again. services WORKLOAD [THREADS].
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define THREADS_MAX 8
#define QUEUE 128

static uint64_t draw(uint64_t *state, uint64_t below)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return (*state >> 11) % below;
}

/* A document: text that is parsed into values, changed, and written to text again. */
struct value {
	char *text; /* NULL: a list */
	struct value **items;
	size_t count, room;
};

struct reader {
	const char *at;
};

static struct value *parse(struct reader *r, int depth)
{
	struct value *v = calloc(1, sizeof(*v));
	const char *from = r->at;

	if (*r->at != '[' || depth > 40) {
		r->at += strcspn(r->at, ",]");
		v->text = strndup(from, (size_t)(r->at - from));
		return v;
	}
	r->at++;
	while (*r->at && *r->at != ']') {
		if (v->count == v->room) {
			v->room = v->room ? v->room * 2 : 4;
			v->items = realloc(v->items, v->room * sizeof(v->items[0]));
		}
		v->items[v->count++] = parse(r, depth + 1);
		r->at += *r->at == ',';
	}
	r->at += *r->at == ']';
	return v;
}

struct text {
	char *data;
	size_t len, room;
};

static void add(struct text *t, const char *data, size_t len)
{
	if (t->len + len + 1 > t->room) {
		t->room = (t->room + len + 16) * 3 / 2;
		t->data = realloc(t->data, t->room);
	}
	memcpy(t->data + t->len, data, len);
	t->data[t->len += len] = 0;
}

static void print(const struct value *v, struct text *t)
{
	if (v->text) {
		add(t, v->text, strlen(v->text));
		return;
	}
	add(t, "[", 1);
	for (size_t i = 0; i < v->count; i++) {
		if (i)
			add(t, ",", 1);
		print(v->items[i], t);
	}
	add(t, "]", 1);
}

static void drop(struct value *v)
{
	for (size_t i = 0; i < v->count; i++)
		drop(v->items[i]);
	free(v->items);
	free(v->text);
	free(v);
}

static void make_text(struct text *t, uint64_t *seed, int depth)
{
	size_t count = draw(seed, 12) + 2;

	add(t, "[", 1);
	for (size_t i = 0; i < count; i++) {
		char word[64];

		if (i)
			add(t, ",", 1);
		if (depth && draw(seed, 3) == 0)
			make_text(t, seed, depth - 1);
		else
			add(t, word,
			    (size_t)snprintf(word, sizeof(word), "%0*llu", (int)draw(seed, 50) + 1,
					     (unsigned long long)draw(seed, 10)));
	}
	add(t, "]", 1);
}

static uint64_t documents(uint64_t seed, int threads)
{
	uint64_t sum = 0;

	(void)threads;
	for (int i = 0; i < 250; i++) {
		struct text in = {0}, out = {0};
		struct value *v;

		add(&in, "[", 1);
		for (int k = 0; k < 20; k++) {
			if (k)
				add(&in, ",", 1);
			make_text(&in, &seed, 5);
		}
		add(&in, "]", 1);
		v = parse(&(struct reader){in.data}, 0);
		print(v, &out);
		sum += out.len;
		drop(v);
		free(in.data);
		free(out.data);
	}
	return sum;
}

/* A cache: what was used last stays, the rest goes; values of a hundred bytes to some KiB. */
struct entry {
	struct entry *newer, *older, *next;
	uint64_t key;
	size_t len;
	char *value;
};

static uint64_t cache(uint64_t seed, int threads)
{
	enum { BUCKETS = 16384, ROOM = 24 << 20 };
	struct entry **buckets = calloc(BUCKETS, sizeof(*buckets)),
		     ends = {.newer = &ends, .older = &ends};
	size_t bytes = 0;
	uint64_t hits = 0;

	(void)threads;
	for (int i = 0; i < 8000000; i++) {
		uint64_t key = draw(&seed, draw(&seed, 4) ? 4000 : 200000);
		struct entry **at = &buckets[key % BUCKETS], *e;

		while (*at && (*at)->key != key)
			at = &(*at)->next;
		e = *at;
		if (e) {
			hits += (uint64_t)e->value[0];
			e->newer->older = e->older;
			e->older->newer = e->newer;
		} else {
			e = *at = calloc(1, sizeof(*e));
			e->key = key;
			e->len = 100 + draw(&seed, draw(&seed, 10) ? 400 : 8000);
			e->value = memset(malloc(e->len), 1, e->len);
			bytes += e->len;
		}
		e->older = ends.older;
		e->newer = &ends;
		e->older->newer = e;
		ends.older = e;
		while (bytes > ROOM) {
			struct entry *old = ends.newer, **of = &buckets[old->key % BUCKETS];

			while (*of != old)
				of = &(*of)->next;
			*of = old->next;
			ends.newer = old->newer;
			old->newer->older = &ends;
			bytes -= old->len;
			free(old->value);
			free(old);
		}
	}
	return hits;
}

/* Frames of a film: some hundred KiB to some MiB, filtered into new ones, a few are kept. */
static uint64_t frames(uint64_t seed, int threads)
{
	enum { KEPT = 6 };
	unsigned char *kept[KEPT] = {0};
	uint64_t sum = 0;

	(void)threads;
	for (int i = 0; i < 4000; i++) {
		size_t len = (200u + draw(&seed, 1400)) << 10;
		unsigned char *in = malloc(len), *out = calloc(1, len / 2);

		memset(in, i, len);
		for (size_t k = 0; k < len / 2; k += 16)
			out[k] = (unsigned char)(in[k] + in[k * 2]);
		sum += out[len / 4];
		free(in);
		free(kept[i % KEPT]);
		kept[i % KEPT] = out;
	}
	for (int i = 0; i < KEPT; i++)
		free(kept[i]);
	return sum;
}

/* Jobs of many threads' making, in a bounded queue. */
struct queue {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	void *item[QUEUE];
	unsigned int put, taken;
};
static struct queue jobs, results;

static void queue_init(struct queue *q)
{
	pthread_mutex_init(&q->lock, NULL);
	pthread_cond_init(&q->changed, NULL);
	q->put = q->taken = 0;
}

static void put(struct queue *q, void *item)
{
	pthread_mutex_lock(&q->lock);
	while (q->put - q->taken == QUEUE)
		pthread_cond_wait(&q->changed, &q->lock);
	q->item[q->put++ % QUEUE] = item;
	pthread_cond_broadcast(&q->changed);
	pthread_mutex_unlock(&q->lock);
}

static void *take(struct queue *q)
{
	void *item;

	pthread_mutex_lock(&q->lock);
	while (q->put == q->taken)
		pthread_cond_wait(&q->changed, &q->lock);
	item = q->item[q->taken++ % QUEUE];
	pthread_cond_broadcast(&q->changed);
	pthread_mutex_unlock(&q->lock);
	return item;
}

static void begin(pthread_t *id, void *(*body)(void *), int threads)
{
	for (int i = 0; i < threads; i++)
		pthread_create(&id[i], NULL, body, (void *)(uintptr_t)i);
}

static void join(const pthread_t *id, int threads)
{
	for (int i = 0; i < threads; i++)
		pthread_join(id[i], NULL);
}

/* A pool of workers: a job is text, its result a document, which the main thread reads and ends. */
static void *worker(void *arg)
{
	char *text;

	(void)arg;
	while ((text = take(&jobs))) {
		put(&results, parse(&(struct reader){text}, 0));
		free(text);
	}
	put(&results, NULL);
	return NULL;
}

static void *feed_jobs(void *arg)
{
	int threads = (int)(uintptr_t)arg;
	uint64_t seed = 77;

	for (int i = 0; i < 8000; i++) {
		struct text t = {0};

		make_text(&t, &seed, 4);
		put(&jobs, t.data);
	}
	for (int i = 0; i < threads; i++)
		put(&jobs, NULL);
	return NULL;
}

static uint64_t workers(uint64_t seed, int threads)
{
	pthread_t id[THREADS_MAX], feeder;
	int left = threads;

	queue_init(&jobs);
	queue_init(&results);
	begin(id, worker, threads);
	pthread_create(&feeder, NULL, feed_jobs, (void *)(uintptr_t)threads);
	while (left) {
		struct value *v = take(&results);

		if (v) {
			seed += v->count;
			drop(v);
		} else {
			left--;
		}
	}
	join(id, threads);
	pthread_join(feeder, NULL);
	return seed;
}

/* Each thread counts words in a table of its own; the main thread takes all tables over. */
struct word {
	struct word *next;
	uint64_t count;
	char text[];
};
enum { WORDS = 8192 };

static void *count_words(void *arg)
{
	struct word **own = calloc(WORDS, sizeof(*own));
	uint64_t seed = (uintptr_t)arg * 271 + 9;

	for (int i = 0; i < 300000; i++) {
		char *text = malloc(80);
		uint64_t number = draw(&seed, draw(&seed, 3) ? 2000 : 60000);
		size_t len = (size_t)snprintf(text, 80, "%0*llu", (int)(number % 40),
					      (unsigned long long)number);
		struct word **at = &own[number % WORDS];

		while (*at && strcmp((*at)->text, text))
			at = &(*at)->next;
		if (!*at) {
			*at = calloc(1, sizeof(**at) + len + 1);
			strcpy((*at)->text, text);
		}
		(*at)->count++;
		free(text);
	}
	return own;
}

static uint64_t words(uint64_t seed, int threads)
{
	pthread_t id[THREADS_MAX];

	for (int round = 0; round < 4; round++) {
		begin(id, count_words, threads);
		for (int i = 0; i < threads; i++) {
			struct word **all;

			pthread_join(id[i], (void **)&all);
			for (int k = 0; k < WORDS; k++)
				while (all[k]) {
					struct word *w = all[k];

					seed += w->count;
					all[k] = w->next;
					free(w);
				}
			free(all);
		}
	}
	return seed;
}

/* Threads that write lines to a log, which one of them all writes and ends. */
static void *log_lines(void *arg)
{
	uint64_t seed = (uintptr_t)arg * 9973 + 1;

	for (int i = 0; i < 200000; i++) {
		char *request = malloc(draw(&seed, 900) + 100), *header = malloc(48), *line;
		size_t len;

		sprintf(request, "GET /%llu", (unsigned long long)draw(&seed, 1u << 30));
		sprintf(header, "host: %d", i);
		len = strlen(request) + strlen(header) + 2 + draw(&seed, 100);
		line = malloc(len);
		memset(line, ' ', len);
		snprintf(line, len, "%s %s", request, header);
		free(header);
		free(request);
		put(&results, line);
	}
	put(&results, NULL);
	return NULL;
}

static uint64_t logs(uint64_t seed, int threads)
{
	pthread_t id[THREADS_MAX];
	int left = threads;

	queue_init(&results);
	begin(id, log_lines, threads);
	while (left) {
		char *line = take(&results);

		seed += line ? strlen(line) : 0;
		left -= !line;
		free(line);
	}
	join(id, threads);
	return seed;
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		uint64_t (*run)(uint64_t seed, int threads);
	} all[] = {
		{"documents", documents}, {"cache", cache}, {"frames", frames},
		{"workers", workers},	  {"words", words}, {"logs", logs},
	};
	int threads = argc > 2 ? atoi(argv[2]) : 4;

	threads = threads < 1 || threads > THREADS_MAX ? 4 : threads;
	for (size_t i = 0; argc > 1 && i < sizeof(all) / sizeof(all[0]); i++)
		if (!strcmp(argv[1], all[i].name)) {
			printf("%llu\n", (unsigned long long)all[i].run(42, threads));
			return 0;
		}
	return 2;
}
