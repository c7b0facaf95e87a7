// Exceptions that are being handled are each fiber's own. Prints TAP, as cmocka is C's.
#include "fiber/scry_fiber.h"

#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>

static bool is_right[4];

// Two of these stand in their handlers at the same time, and leave them in the other order than they came.
static void *handles(void *arg)
{
	const std::string name = static_cast<const char *>(arg);

	for (int i = 0; i < 3; i++) {
		try {
			throw std::runtime_error(name);
		} catch (const std::exception &) {
			for (int turn = 0; turn < (name == "first" ? 3 : 1); turn++)
				scry_fiber_yield();
			try {
				throw; // the one that is being handled here
			} catch (const std::exception &again) {
				is_right[name == "first"] = again.what() == name && std::uncaught_exceptions() == 0;
				if (!is_right[name == "first"])
					return nullptr;
			}
		}
	}
	is_right[2 + (name == "first")] = std::current_exception() == nullptr;
	return nullptr;
}

static bool run(unsigned flags)
{
	struct scry_fiber_sched_attr attr = {};
	struct scry_fiber *first, *second;

	attr.flags = flags;
	for (bool &right : is_right)
		right = false;
	if (scry_fiber_open(&attr, nullptr) != 0 ||
	    scry_fiber_spawn(nullptr, handles, const_cast<char *>("first"), &first) != 0 ||
	    scry_fiber_spawn(nullptr, handles, const_cast<char *>("second"), &second) != 0)
		return false;
	scry_fiber_join(first, nullptr);
	scry_fiber_join(second, nullptr);
	return scry_fiber_close() == 0 && is_right[0] && is_right[1] && is_right[2] && is_right[3];
}

static struct scry_fiber *one, *other;
static std::string seen;

// By transfer, which has a way of its own.
static void *transfers(void *arg)
{
	struct scry_fiber *to = arg != nullptr ? other : one;

	try {
		throw arg != nullptr;
	} catch (bool) {
		scry_fiber_transfer(to);
		try {
			throw;
		} catch (bool mine) {
			seen += mine == (arg != nullptr) ? 'r' : 'w';
		}
	}
	if (arg == nullptr)
		return nullptr; // the other stays where it is until main starts it
	scry_fiber_transfer(other);
	return nullptr;
}

static bool run_transfers(unsigned flags)
{
	struct scry_fiber_sched_attr attr = {};

	attr.flags = flags;
	seen.clear();
	if (scry_fiber_open(&attr, nullptr) != 0 || scry_fiber_new(nullptr, transfers, &attr, &one) != 0 ||
	    scry_fiber_new(nullptr, transfers, nullptr, &other) != 0)
		return false;
	scry_fiber_start(one);
	scry_fiber_join(other, nullptr);
	scry_fiber_start(one);
	scry_fiber_join(one, nullptr);
	return scry_fiber_close() == 0 && seen == "rr";
}

int main()
{
	int bad = 0, number = 0;
	const auto tell = [&](bool is_ok, const char *name) {
		std::printf("%s %d - %s\n", is_ok ? "ok" : "not ok", ++number, name);
		bad += !is_ok;
	};

	std::puts("1..4");
	tell(run(0), "handled exceptions are each fiber's own");
	tell(run(SCRY_FIBER_NO_FP), "so they are without control words");
	tell(run_transfers(0), "so they are by transfer");
	tell(run_transfers(SCRY_FIBER_NO_FP), "and by transfer without control words");
	return bad != 0;
}
