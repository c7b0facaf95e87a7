#!/usr/bin/env python3
"""odd_elf.py KIND FROM TO: a copy of a shared library that loads and works, and lies in what the loader does not read.

odd_elf.py --kinds: their names, one a line."""
import random
import struct
import sys

SH = struct.Struct("<IIQQQQIIQQ")
NAME, TYPE, FLAGS, ADDR, OFFSET, SIZE, LINK, INFO, ALIGN, ENTSIZE = range(10)
HUGE = 1 << 60


class Elf:
    def __init__(self, data):
        self.data = bytearray(data)
        self.shoff = struct.unpack_from("<Q", data, 40)[0]
        self.shnum, self.shstrndx = struct.unpack_from("<HH", data, 60)
        strings = self.header(self.shstrndx)[OFFSET]
        self.names = {}
        for i in range(self.shnum):
            at = strings + self.header(i)[NAME]
            self.names[bytes(data[at : data.index(b"\0", at)]).decode()] = i

    def header(self, i):
        return list(SH.unpack_from(self.data, self.shoff + i * SH.size))

    def set(self, name, field, value):
        i = self.names[name]
        h = self.header(i)
        h[field] = value
        SH.pack_into(self.data, self.shoff + i * SH.size, *h)

    def span(self, name):
        h = self.header(self.names[name])
        return h[OFFSET], h[SIZE]

    def fill(self, name, make):
        at, size = self.span(name)
        self.data[at : at + size] = make(size)

    def append(self, name, content):
        self.set(name, OFFSET, len(self.data))
        self.set(name, SIZE, len(content))
        self.data += content

    def put(self, fmt, at, value):
        struct.pack_into(fmt, self.data, at, value)


def noise(size):
    return random.Random(size).randbytes(size)


def symbols(e, change):
    at, size = e.span(".symtab")
    for i in range(24, size, 24):
        change(at + i)


def compressed(e, claims):
    e.set(".debug_info", FLAGS, 0x800)
    e.append(".debug_info", struct.pack("<IIQQ", 1, 0, claims, 1) + b"\x78\x9c" + noise(4000))


def zeros_compressed(e):
    import zlib

    e.set(".debug_info", FLAGS, 0x800)
    e.append(".debug_info", struct.pack("<IIQQ", 1, 0, 1 << 30, 1) + zlib.compress(bytes(1 << 30), 9))


def link_to(e, path):
    e.set(".comment", FLAGS, 0)
    at, _ = e.span(".shstrtab")
    e.append(".comment", path + b"\0" * (8 - len(path) % 4) + b"\1\2\3\4")
    e.append(".shstrtab", bytes(e.data[at : at + e.span(".shstrtab")[1]]) + b".gnu_debuglink\0")
    e.set(".comment", NAME, e.span(".shstrtab")[1] - 15)


def long_name(e):
    at, size = e.span(".strtab")
    e.append(".strtab", bytes(e.data[at : at + size]) + b"\x1b]0;owned\x07\n\xc2\x9b" * 100000 + b"\0")
    symbols(e, lambda s: e.put("<I", s, size))


KINDS = {
    "headers-beyond-the-end": lambda e: e.put("<Q", 40, HUGE),
    "more-headers-than-file": lambda e: e.put("<H", 60, 0xFFFE),
    "headers-by-extension": lambda e: (e.put("<H", 60, 0), e.put("<Q", e.shoff + 32, HUGE)),
    "no-names-of-sections": lambda e: e.put("<H", 62, 0xFFF0),
    "symbols-without-end": lambda e: e.set(".symtab", SIZE, HUGE),
    "symbols-of-no-size": lambda e: e.set(".symtab", ENTSIZE, 0),
    "symbols-of-odd-size": lambda e: e.set(".symtab", ENTSIZE, 1),
    "strings-are-symbols": lambda e: e.set(".symtab", LINK, e.names[".symtab"]),
    "strings-of-nobody": lambda e: e.set(".symtab", LINK, 0xFFFFFFF0),
    "strings-never-end": lambda e: e.fill(".strtab", lambda n: b"A" * n),
    "symbols-everywhere": lambda e: symbols(e, lambda s: e.put("<Q", s + 8, (1 << 64) - 8)),
    "symbols-of-all": lambda e: symbols(e, lambda s: (e.put("<Q", s + 8, 0), e.put("<Q", s + 16, (1 << 64) - 1))),
    "names-outside": lambda e: symbols(e, lambda s: e.put("<I", s, 0xFFFFFFFF)),
    "names-of-a-megabyte": long_name,
    "build-id-of-four-gib": lambda e: e.put("<I", e.span(".note.gnu.build-id")[0] + 4, 0xFFFFFFFF),
    "build-id-of-nobody": lambda e: e.put("<I", e.span(".note.gnu.build-id")[0], 0xFFFFFFF0),
    "debug-is-noise": lambda e: (e.fill(".debug_info", noise), e.fill(".debug_abbrev", noise)),
    "lines-are-noise": lambda e: e.fill(".debug_line", noise),
    "debug-claims-an-exbibyte": lambda e: compressed(e, HUGE),
    "debug-is-no-zlib": lambda e: compressed(e, 100000),
    "debug-is-a-gib-of-zeros": zeros_compressed,
    "frames-are-noise": lambda e: e.fill(".eh_frame", noise),
    "frames-without-end": lambda e: e.put("<I", e.span(".eh_frame_hdr")[0] + 8, 0xFFFFFFFF),
    "frame-of-no-length": lambda e: e.put("<I", e.span(".eh_frame")[0], 0xFFFFFFF0),
    "link-to-a-secret": lambda e: link_to(e, b"../../../../../../../etc/shadow"),
    "link-to-a-fifo": lambda e: link_to(e, b"fifo"),
}

if __name__ == "__main__":
    if sys.argv[1:] == ["--kinds"]:
        print("\n".join(KINDS))
        sys.exit()
    elf = Elf(open(sys.argv[2], "rb").read())
    KINDS[sys.argv[1]](elf)
    open(sys.argv[3], "wb").write(elf.data)
