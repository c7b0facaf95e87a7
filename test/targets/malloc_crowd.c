/*
 * malloc_crowd CHILDREN: forks them before it has called malloc itself; each makes 100 calls while
 * all live, and 50 more when all others have made theirs.
 */
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void calls(long n)
{
	for (long i = 0; i < n; i++) {
		char *volatile p = malloc((size_t)i + 1);

		if (!p)
			_exit(1);
	}
}

int main(int argc, char **argv)
{
	const long children = argc > 1 ? atol(argv[1]) : 1;
	int made[2], go[2], status, wrong = 0;
	char word;

	if (pipe(made) || pipe(go))
		return 1;
	for (long i = 0; i < children; i++)
		if (!fork()) {
			close(go[1]);
			calls(100);
			if (write(made[1], "1", 1) != 1 || read(go[0], &word, 1) < 0)
				_exit(1);
			calls(50);
			_exit(0);
		}
	for (long i = 0; i < children; i++)
		wrong += read(made[0], &word, 1) != 1;
	close(go[1]);
	while (wait(&status) > 0)
		wrong += status != 0;
	return wrong != 0;
}
