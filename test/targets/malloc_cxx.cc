// operator new and delete of all kinds: counted, and printed as target_malloc_known does. With an
// allocator that has operators of its own they are seen as such, else as malloc and free.
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <new>

static unsigned long news, deletes, caught, wrong;
static volatile std::size_t huge = static_cast<std::size_t>(1) << 62;

struct alignas(128) wide {
	char bytes[256];
};

struct throwing {
	throwing() { throw 7; }
	char bytes[88];
};

// What the original throws passes through whoever stands in between.
__attribute__((noinline)) static void out_of_memory()
{
	try {
		::operator delete(::operator new(huge));
		wrong++;
	} catch (const std::bad_alloc &) {
		caught++;
	}
	wrong += new (std::nothrow) char[huge] != nullptr;
	news += 2;
}

int main()
{
	for (int i = 0; i < 1000; i++) {
		int *one = new int(i);
		char *many = new char[static_cast<std::size_t>(i) + 1];
		wide *aligned = new wide;
		wide *wides = new wide[2];
		long *quiet = new (std::nothrow) long(i);

		wrong += *one != i || reinterpret_cast<std::size_t>(aligned) % 128 != 0;
		wrong += *quiet != i;
		delete one;
		delete[] many;
		delete aligned;
		delete[] wides;
		delete quiet;
		try {
			new throwing;
			wrong++;
		} catch (int seven) {
			wrong += seven != 7;
			caught++;
		}
		news += 6;
		deletes += 6;
	}
	if (!std::getenv("KNOWN_NO_OOM")) // mimalloc's, being C, aborts
		out_of_memory();
	// The runtime frees exceptions by a jump: it looks like a call of ours.
	std::printf("known new %lu\nknown delete %lu\n%s\n", news, deletes + caught,
		    wrong ? "wrong" : "right");
	return wrong != 0;
}
