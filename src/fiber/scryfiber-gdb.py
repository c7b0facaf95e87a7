"""Commands of gdb for programs that use libscryfiber, live and in cores. They need no debug information of the library.

    (gdb) source scryfiber-gdb.py
    (gdb) scry-fibers             a line for each fiber
    (gdb) scry-fiber-bt N|all     where one stands, by its number in that list

How: registry.h. A fiber that does not run is shown by an unwinder that says of the thread's innermost frame that its caller is
the fiber; nothing of the process is written.
"""
import struct

import gdb
import gdb.unwinder

MAGIC = 0x7265626966797263
STATES = {1: "idle", 2: "ready", 3: "waiting", 4: "resuming", 5: "ended"}
FIELDS = (
    "sched_main sched_tid sched_pools classes pool_slab_slots pool_slab_count pool_slabs pool_size extra fiber_bytes "
    "fiber_sp fiber_state fiber_name fiber_entry fiber_low fiber_top fiber_magic fiber_sched sched_is_lost"
).split()
MOST_SLABS = 4096


def read(address, size):
    return bytes(gdb.selected_inferior().read_memory(address, size))


def word(address, form="Q"):
    return struct.unpack("<" + form, read(address, struct.calcsize(form)))[0]


def text(address):
    """A name in the process; what cannot be read is a question mark."""
    try:
        return read(address, 64).split(b"\0")[0].decode(errors="replace") if address else ""
    except gdb.error:
        return "?"


class Registry:
    def __init__(self):
        try:
            self.at = int(gdb.parse_and_eval("(unsigned long)&scry_fiber_registry"))
        except gdb.error:
            raise gdb.GdbError("there is no libscryfiber in this program")
        magic, version, self.capacity, self.scheds, self.current_tls = struct.unpack("<QIIQq", read(self.at, 32))
        if magic != MAGIC or version != 3:
            raise gdb.GdbError("this libscryfiber has another registry than these commands know")
        for name, value in zip(FIELDS, struct.unpack(f"<{len(FIELDS)}I", read(self.at + 32, 4 * len(FIELDS)))):
            setattr(self, name, value)

    def current(self, tid):
        """The fiber that runs on a thread: 0 when that cannot be told."""
        was = gdb.selected_thread()
        try:
            for thread in gdb.selected_inferior().threads():
                if thread.ptid[1] == tid:
                    thread.switch()
                    base = int(gdb.parse_and_eval("(unsigned long)$fs_base"))
                    return word(base + self.current_tls)
        except gdb.error:
            pass
        finally:
            was.switch()
        return 0

    def fibers(self):
        for i in range(self.capacity):
            sched = word(self.scheds + 8 * i)
            if sched == 0:
                continue
            tid = word(sched + self.sched_tid, "i")
            self.is_lost = word(sched + self.sched_is_lost, "B")
            current = self.current(tid)
            main = word(sched + self.sched_main)
            if main:
                yield Fiber(self, main, tid, current)
            for c in range(self.classes):
                pool = word(sched + self.sched_pools + 8 * c)
                if pool:
                    yield from self.of_pool(pool, sched, tid, current)

    def of_pool(self, pool, sched, tid, current):
        slots = word(pool + self.pool_slab_slots, "I")
        for i in range(min(word(pool + self.pool_slab_count, "I"), MOST_SLABS)):
            slab = word(pool + self.pool_slabs + 8 * i)
            for slot in range(slots if slab else 0):
                at = slab + self.extra + slot * self.fiber_bytes
                try:
                    if word(at + self.fiber_magic) != MAGIC or word(at + self.fiber_sched) != sched:
                        continue  # of another scheduler: lost by a fork, whose child has the pools
                    fiber = Fiber(self, at, tid, current)
                except gdb.error:
                    continue  # a page that was never touched may not be in a core
                if fiber.state in STATES:
                    yield fiber


class Fiber:
    def __init__(self, registry, at, tid, current):
        self.at, self.tid, self.is_running = at, tid, at == current
        self.is_lost = registry.is_lost
        self.sp = word(at + registry.fiber_sp)
        self.state = word(at + registry.fiber_state, "I") & 0xFF
        self.name = text(word(at + registry.fiber_name))
        self.entry = word(at + registry.fiber_entry)
        self.low, self.top = word(at + registry.fiber_low), word(at + registry.fiber_top)

    def says(self):
        if self.is_lost:  # its thread has ended
            return "lost"
        return "running" if self.is_running else STATES.get(self.state, "?")

    def registers(self):
        r15, r14, r13, r12, rbx, rbp, rip = struct.unpack("<7Q", read(self.sp + 8, 56))
        return {"r15": r15, "r14": r14, "r13": r13, "r12": r12, "rbx": rbx, "rbp": rbp, "rip": rip, "rsp": self.sp + 64}


class FrameId:
    def __init__(self, sp, pc):
        self.sp, self.pc = sp, pc


class FiberUnwinder(gdb.unwinder.Unwinder):
    """While a fiber is to be shown, it is the caller of the thread's innermost frame."""

    def __init__(self):
        super().__init__("scryfiber")
        self.fiber = None
        self.innermost = None

    def __call__(self, frame):
        if self.fiber is None:
            return None
        sp, pc = frame.read_register("rsp"), frame.read_register("rip")
        if (int(sp), int(pc)) != self.innermost:
            return None
        long = gdb.lookup_type("unsigned long")
        # as if it lay right below the fiber's frames: a caller has to lie above who it called
        info = frame.create_unwind_info(FrameId(gdb.Value(self.fiber.sp).cast(long), pc))
        for name, value in self.fiber.registers().items():
            info.add_saved_register(name, gdb.Value(value).cast(long))
        return info

    def backtrace(self, fiber):
        frame = gdb.newest_frame()
        self.innermost = (int(frame.read_register("rsp")), int(frame.read_register("rip")))
        self.fiber = fiber
        gdb.invalidate_cached_frames()
        try:
            lines = gdb.execute("bt", to_string=True).splitlines()
        finally:
            self.fiber = None
            gdb.invalidate_cached_frames()
        # without frame 0, which is the thread's
        begin = next((i for i, line in enumerate(lines) if line.startswith("#1")), len(lines))
        return lines[begin:]


UNWINDER = FiberUnwinder()
gdb.unwinder.register_unwinder(None, UNWINDER, replace=True)


class ScryFibers(gdb.Command):
    """A line for each fiber of libscryfiber: number, thread, state, size of its stack, entry function, name."""

    def __init__(self):
        super().__init__("scry-fibers", gdb.COMMAND_STACK)

    def invoke(self, argument, from_tty):
        print(f"{'#':>4}  {'thread':>7}  {'state':8}  {'stack':>10}  entry")
        for number, fiber in enumerate(Registry().fibers()):
            entry = gdb.execute(f"info symbol {fiber.entry}", to_string=True).split(" in section")[0].strip() if fiber.entry else "-"
            size = f"{(fiber.top - fiber.low) >> 10} KiB" if fiber.entry else "-"
            print(f"{number:>4}  {fiber.tid:>7}  {fiber.says():8}  {size:>10}  {entry}  {fiber.name}".rstrip())


class ScryFiberBt(gdb.Command):
    """The backtrace of a fiber, by its number in scry-fibers; 'all': of each."""

    def __init__(self):
        super().__init__("scry-fiber-bt", gdb.COMMAND_STACK)

    def invoke(self, argument, from_tty):
        fibers = list(Registry().fibers())
        if argument != "all" and not (argument.isdigit() and int(argument) < len(fibers)):
            raise gdb.GdbError(f"which fiber? 0 to {len(fibers) - 1}, or all")
        for number, fiber in enumerate(fibers):
            if argument not in ("all", str(number)):
                continue
            print(f"fiber {number}, {fiber.says()}: {fiber.name}".rstrip(": "))
            if fiber.is_running:
                print(f"it is where thread {fiber.tid} is: bt shows it")
            elif fiber.state == 5:
                print("it has ended, and was not joined")
            else:
                print("\n".join(UNWINDER.backtrace(fiber)))


ScryFibers()
ScryFiberBt()
