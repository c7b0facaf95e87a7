#!/usr/bin/python3
"""What a recorder of malloc has seen, in lines that can be compared: malloc_sums.py WHAT FILE...

known OUTPUT             what target_malloc_sums says of itself
scry REPORT EVENTS       `scry report --json`, and its --view events; it also says what each of the others is to see
ltrace OUTPUT            of ltrace -c -x
heaptrack DATA           as heaptrack_interpret writes it
info XML                 of malloc_info

Lines of each: WHO calls FUNCTION N, WHO begun N, WHO peak BYTES, WHO end BYTES BLOCKS, asked for; info heap BYTES,
info mapped BYTES, in use. Why the others do not see what the program calls, with glibc 2.36:

ltrace     stands at the entries of functions: realloc(NULL, n) goes on into malloc, realloc(p, 0) into free, reallocarray
           into realloc
heaptrack  (1.4) does not hook memalign, frees of such blocks are unknown to it; what realloc(p, 0) ends lives on; the
           C++ library that it brings allocates a block of its own
info       counts heads of blocks, blocks in threads' caches (there are none in the test) and the table of those
"""
import collections
import json
import re
import sys

NAMES = {1: "malloc", 2: "calloc", 3: "posix_memalign", 4: "memalign", 5: "memalign", 10: "realloc", 11: "reallocarray",
         12: "free"}
FAILED, NULL, UNKNOWN, ENDED = 1, 2, 4, 8
HEAD, MAPPED_HEAD, PAGE = 8, 16, 4096
THREAD_CACHE = 656  # tcache_perthread_struct, one thread's
CXX_POOL = 72704  # for exceptions, when there is no memory


class Blocks:
    def __init__(self):
        self.sizes, self.live, self.peak, self.begun, self.stayed = {}, 0, 0, 0, 0

    def has(self, block, size):
        self.begun += 1
        self.live += size - self.sizes.get(block, 0)
        self.peak = max(self.peak, self.live)
        self.sizes[block] = size

    def ends(self, block):
        self.live -= self.sizes.pop(block, 0)

    def stays(self, block):
        """It has ended, and its number will be another's, but here it lives on."""
        if block in self.sizes:
            self.stayed += 1
            self.sizes["stays", self.stayed] = self.sizes.pop(block)

    def show(self, who):
        print(who, "begun", self.begun)
        print(who, "peak", self.peak)
        print(who, "end", self.live, len(self.sizes))


def show_calls(who, calls):
    for name in sorted(calls):
        if calls[name]:
            print(who, "calls", name, calls[name])


def known(file):
    lines = [line.split() for line in open(file, encoding="utf-8")]
    calls = collections.Counter({line[1]: int(line[2]) for line in lines if line[0] == "calls"})
    zero = calls["realloc_zero"]
    del calls["realloc_null"], calls["realloc_zero"]
    show_calls("known", calls)
    print("known begun", sum(calls.values()) - calls["free"] - zero)
    for line in lines:
        if line[0] != "calls":
            print("known", *line)


def in_use(size, usable):
    """With a block's head. Much slack is not recorded: that has one that is mapped by itself, a multiple of pages."""
    if usable and (usable + MAPPED_HEAD) % PAGE:
        return usable + HEAD
    return (size + MAPPED_HEAD + HEAD + PAGE - 1) // PAGE * PAGE


def scry(report, events):
    calls, null, zero, usable = collections.Counter(), 0, 0, {}
    heaptracks = Blocks()
    heaptracks.has("pool", CXX_POOL)
    for line in open(events, encoding="utf-8"):
        e = json.loads(line)
        if e.get("event") != "malloc" or e["function"] not in NAMES:
            continue
        name, flags, block = NAMES[e["function"]], e["flags"], e["block"]
        calls[name] += 1
        if flags & (FAILED | UNKNOWN):
            sys.exit(f"not for this program: {line}")
        if name.startswith("realloc"):
            null += bool(flags & NULL)
            zero += bool(flags & ENDED)
        if name == "free" or flags & ENDED:
            usable.pop(block, None)
        else:
            usable[block] = in_use(e["size"], e["usable"])
        if name == "free":
            heaptracks.ends(block)
        elif flags & ENDED:
            heaptracks.stays(block)
        elif name != "memalign":
            heaptracks.has(block, e["size"])
    with open(report, encoding="utf-8") as file:
        doc = json.load(file)
    said, totals = {f["function"]: f["calls"] for f in doc["functions"]}, doc["totals"]
    if said != calls or doc["data_quality"]["lost"]:
        sys.exit(f"the report says {said}, lost {doc['data_quality']['lost']}, the events are {calls}")
    show_calls("known", calls)
    print("known begun", totals["allocated"])
    print("known peak", totals["peak_bytes"])
    print("known end", totals["end_bytes"], totals["end_blocks"])
    calls["malloc"] += null
    calls["free"] += zero
    calls["realloc"] += calls["reallocarray"]
    show_calls("ltrace", calls)
    heaptracks.ends("pool")
    heaptracks.show("heaptrack")
    mapped = [n for n in usable.values() if n % PAGE == 0]
    heap = [n for n in usable.values() if n % PAGE]
    print("info heap", sum(heap) + THREAD_CACHE)
    print("info mapped", sum(mapped))


def ltrace(file):
    lines = re.findall(r"^ *[0-9.]+ +[0-9.]+ +[0-9]+ +([0-9]+) +(\w+)$", open(file, encoding="utf-8").read(), re.M)
    show_calls("ltrace", {name: int(n) for n, name in lines if name != "total"})


def heaptrack(file):
    """Lines: `a SIZE TRACE` what an allocation is, + and - one of those begins, ends."""
    sizes, blocks, live = [], Blocks(), collections.Counter()
    for line in open(file, encoding="utf-8"):
        word = line.split()
        if word[:1] == ["a"]:
            sizes.append(int(word[1], 16))
        elif word[:1] == ["+"]:
            live[word[1]] += 1
            blocks.has((word[1], live[word[1]]), sizes[int(word[1], 16)])
        elif word[:1] == ["-"]:
            blocks.ends((word[1], live[word[1]]))
            live[word[1]] -= 1
    blocks.show("heaptrack")


def info(file):
    """The sums over all arenas stand behind the last </heap>. `rest`: free blocks, with the flag in their lowest bit, and
    the top of each heap, without."""
    heaps, _, text = open(file, encoding="utf-8").read().rpartition("</heap>")
    sums = {kind: int(size) for kind, size in re.findall(r'type="(\w+)"[^/]*?size="(\d+)"', text)}
    rest = int(re.search(r'type="rest" count="(\d+)"', text).group(1)) - heaps.count("<heap ")
    print("info heap", sums["current"] - sums["fast"] - (sums["rest"] - rest))
    print("info mapped", sums["mmap"])


{"known": known, "scry": scry, "ltrace": ltrace, "heaptrack": heaptrack, "info": info}[sys.argv[1]](*sys.argv[2:])
