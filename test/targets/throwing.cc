/*
 * A storm of C++ exceptions for the hook tests: through frames with and without clean-ups, rethrown,
 * nested, across qsort's C frames, with strings, streams, maps and sorting in between. The answer is
 * known: it is the same each time.
 */
#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

struct Counted {
	explicit Counted(long &n) : count(n)
	{
		++count;
	}
	~Counted()
	{
		--count;
	}
	long &count;
};

__attribute__((noinline)) long thrower(long n, long &alive)
{
	Counted here(alive);

	if (n == 0)
		throw std::runtime_error("bottom");
	if (n % 7 == 3)
		throw n;
	return thrower(n - 1, alive) + 1;
}

__attribute__((noinline)) long middle(long n, long &alive)
{
	Counted here(alive);

	try {
		return thrower(n, alive);
	} catch (long value) {
		if (value % 2)
			throw std::out_of_range(std::to_string(value));
		return value;
	}
}

int compare(const void *a, const void *b)
{
	if (*static_cast<const int *>(a) == 13 || *static_cast<const int *>(b) == 13)
		throw std::logic_error("thirteen");
	return *static_cast<const int *>(a) - *static_cast<const int *>(b);
}

long sorted(int with)
{
	int numbers[] = {5, 9, with, 2, 8, 1};

	try {
		std::qsort(numbers, 6, sizeof(int), compare);
	} catch (const std::logic_error &e) {
		return static_cast<long>(std::string(e.what()).size());
	}
	return numbers[0];
}

} // namespace

extern "C" long throwing_storm(char *text, unsigned long room)
{
	std::map<std::string, std::vector<long>> seen;
	std::ostringstream out;
	long alive = 0, sum = 0;

	for (long i = 0; i < 2000; i++) {
		try {
			sum += middle(i % 40, alive);
			seen["value"].push_back(sum);
		} catch (const std::out_of_range &e) {
			seen[e.what()].push_back(i);
		} catch (const std::exception &e) {
			seen[e.what()].push_back(-i);
		}
		sum += sorted(i % 2 ? 13 : 3);
	}
	for (auto &entry : seen) {
		std::sort(entry.second.rbegin(), entry.second.rend());
		out << entry.first << ' ' << entry.second.size() << ' ' << entry.second.front() << ' ';
	}
	out << std::make_unique<std::string>(3, 'x')->append("y") << ' ' << 1.5 << ' ' << alive;
	out.str().copy(text, room - 1);
	text[std::min<unsigned long>(out.str().size(), room - 1)] = '\0';
	return sum;
}

static unsigned long thrown()
{
	throw std::logic_error("thirteen");
}

/* An exception through whatever `through` calls in between. */
extern "C" unsigned long throwing_through(unsigned long (*through)(unsigned long (*)()))
{
	try {
		return through(thrown);
	} catch (const std::logic_error &e) {
		return std::string(e.what()).size();
	}
}
