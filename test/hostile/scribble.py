#!/usr/bin/env python3
"""scribble.py PID SEED SHARE: puts words of a sleeping process's memory into other places of it: pointers that lead to what
is not there, rings, lengths that are addresses, in that share of its
pages. Its stacks stay, so that it goes on sleeping."""
import random
import re
import struct
import sys

PAGE = 4096
pid, chance = sys.argv[1], random.Random(int(sys.argv[2]))
share = float(sys.argv[3])
parts = []
for line in open(f"/proc/{pid}/maps"):
    m = re.match(r"(\w+)-(\w+) rw.. \w+ \w+:\w+ \d+\s*(.*)", line)
    if m and not m[3].startswith("[stack") and "libc.so" not in m[3] and "ld-linux" not in m[3]:
        parts.append((int(m[1], 16), int(m[2], 16)))
with open(f"/proc/{pid}/mem", "r+b", buffering=0) as mem:
    words, pages = [], []
    for start, end in parts:
        for at in range(start, min(end, start + 2048 * PAGE), PAGE):
            try:
                mem.seek(at)
                page = mem.read(PAGE)
            except OSError:  # it is no longer there
                break
            if len(page) == PAGE and page.count(0) < PAGE:
                pages.append((at, page))
                words += chance.sample(struct.unpack("<512Q", page), 4)
    for at, page in pages:
        if chance.random() > share:
            continue
        page = bytearray(page)
        for _ in range(chance.choice((1, 8, 64))):
            struct.pack_into("<Q", page, 8 * chance.randrange(512), chance.choice(words + [at, at + 8]))
        try:
            mem.seek(at)
            mem.write(page)
        except OSError:
            pass
