// Threads that throw and catch all the time, and compute by libstdc++: strings, maps, sorting,
// streams, exceptions through three frames with destructors on the way.
//
//   throws [THREADS [ROUNDS]]     ROUNDS 0 (the default): until SIGTERM
//
// "round N" lines; the last line is "rounds N wrong N". Exit 0: each round gave the known answer.
#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iomanip>
#include <iostream>
#include <map>
#include <memory>
#include <regex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <unistd.h>
#include <unordered_map>
#include <vector>

static std::atomic<unsigned long> rounds_done, wrong;
static volatile sig_atomic_t stop;

struct counted {
	int &live;
	explicit counted(int &n) : live(n) { live++; }
	~counted() { live--; }
};

struct own_error : std::runtime_error {
	int code;
	own_error(const std::string &what, int n) : std::runtime_error(what), code(n) {}
};

__attribute__((noinline)) static int third(int n, int &live)
{
	counted c(live);
	if (n % 4 == 0)
		throw own_error("own " + std::to_string(n), n);
	if (n % 4 == 1)
		throw std::out_of_range("range");
	if (n % 4 == 2)
		return std::stoi("x"); // thrown within libstdc++
	return n;
}

__attribute__((noinline)) static int second(int n, int &live)
{
	counted c(live);
	std::string text(static_cast<size_t>(n % 50), 'x');
	return third(n, live) + static_cast<int>(text.size());
}

__attribute__((noinline)) static int first(int n, int &live)
{
	counted c(live);
	try {
		return second(n, live);
	} catch (const std::out_of_range &) {
		throw; // once more
	}
}

static long exceptions()
{
	long sum = 0;
	int live = 0;
	for (int n = 0; n < 40; n++) {
		try {
			sum += first(n, live);
		} catch (const own_error &e) {
			sum += e.code + static_cast<long>(std::string(e.what()).size());
		} catch (const std::logic_error &e) { // out_of_range, invalid_argument
			sum += static_cast<long>(std::string(e.what()).size()) * 1000;
		}
	}
	try {
		try {
			throw 7;
		} catch (int) {
			std::throw_with_nested(std::runtime_error("outer"));
		}
	} catch (const std::exception &e) {
		try {
			std::rethrow_if_nested(e);
		} catch (int n) {
			sum += n;
		}
	}
	return live ? -1 : sum;
}

static long containers()
{
	std::map<std::string, int> ordered;
	std::unordered_map<int, std::string> hashed;
	std::vector<std::string> words;
	long sum = 0;
	for (int i = 0; i < 200; i++) {
		std::string word = std::to_string(i * 7919 % 1009) + "-a-longer-string-than-fits-in-place";
		ordered[word] += i;
		hashed[i] = word;
		words.push_back(word);
	}
	std::sort(words.begin(), words.end(), std::greater<>());
	std::stable_sort(words.begin(), words.end(), [](auto &a, auto &b) { return a.size() < b.size(); });
	for (auto &[word, n] : ordered)
		sum = sum * 31 + n + word[0];
	for (auto &word : words)
		sum = sum * 33 + word[1];
	for (int i = 0; i < 200; i += 3)
		hashed.erase(i);
	return sum + static_cast<long>(hashed.size());
}

static std::string streams()
{
	std::ostringstream out;
	out << std::hex << 48879 << ' ' << std::setprecision(5) << 3.14159265 << ' ' << std::boolalpha << true << ' '
	    << std::setw(8) << std::setfill('*') << "end";
	std::istringstream in("12 abc 3.5");
	int n;
	std::string word;
	double d;
	in >> n >> word >> d;
	out << n << word << d;
	static const std::regex pattern("([a-z]+)([0-9]+)");
	out << std::regex_replace(std::string("ab12 cd34"), pattern, "$2$1");
	auto shared = std::make_shared<std::vector<int>>(10, 3);
	std::function<int(int)> f = [shared](int x) { return static_cast<int>(shared->size()) * x; };
	out << f(4);
	return out.str();
}

static std::string everything()
{
	return std::to_string(exceptions()) + " " + std::to_string(containers()) + " " + streams();
}

static void compute(const std::string &want, unsigned long rounds)
{
	for (unsigned long n = 0; rounds ? n < rounds : !stop; n++) {
		if (everything() != want)
			wrong++;
		rounds_done++;
	}
}

static const char *const STREAMS = "beef 3.1416 true *****endcabc3.512ab 34cd28"; // still hexadecimal

int main(int argc, char **argv)
{
	int count = argc > 1 ? std::atoi(argv[1]) : 8;
	unsigned long rounds = argc > 2 ? std::strtoul(argv[2], nullptr, 0) : 0, last = 0;
	const std::string want = everything();
	std::vector<std::thread> threads;
	std::atomic<int> running(count);

	std::signal(SIGTERM, [](int) { stop = 1; });
	setvbuf(stdout, nullptr, _IOLBF, 0);
	if (want.find(STREAMS) == std::string::npos)
		std::printf("wrong start: %s\n", want.c_str()), wrong++;
	std::printf("pid %d\n", getpid());
	for (int i = 0; i < count; i++)
		threads.emplace_back([&] {
			compute(want, rounds);
			running--;
		});
	while (running) {
		usleep(100000);
		if (rounds_done != last)
			std::printf("round %lu\n", last = rounds_done);
	}
	for (auto &t : threads)
		t.join();
	std::printf("rounds %lu wrong %lu\n", rounds_done.load(), wrong.load());
	return wrong ? 1 : 0;
}
