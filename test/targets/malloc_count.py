#!/usr/bin/python3
"""What target_malloc_known says of itself, but out of a recording: malloc_count.py FILE.json MODULE
reads `scry report --view events --json` and prints the calls that MODULE made; --symbols: those of its
functions that call themselves so; --order N: before that, N of them one after the other, from the entry
points on."""
import collections
import json
import sys

NAMES = {1: "malloc", 2: "calloc", 3: "posix_memalign", 4: "aligned", 5: "aligned", 6: "valloc", 7: "pvalloc",
         8: "new", 9: "new_array", 10: "realloc", 11: "reallocarray", 12: "free", 13: "delete", 14: "delete_array",
         15: "usable_size"}
ORDER = ["malloc", "calloc", "realloc", "reallocarray", "free", "posix_memalign", "aligned", "valloc", "pvalloc",
         "usable_size", "new", "new_array", "delete", "delete_array"]
FAILED, NULL, UNKNOWN, ENDED = 1, 2, 4, 8
NO_BLOCK = 0xffffffff

callers, calls, size = {}, collections.Counter(), collections.Counter()
order, living, bad, touched = [], {}, [], 0


def follow(number, call):
    """A block begins once and ends once."""
    name, flags, block = NAMES[call["function"]], call["flags"], call["block"]
    if name == "usable_size":
        return
    if flags & UNKNOWN:
        if name in ("realloc", "reallocarray") and not flags & (FAILED | ENDED):
            living[block] = number
        return
    if name in ("free", "delete", "delete_array"):
        if not flags & NULL and living.pop(block, None) is None:
            bad.append(f"call {number}: {name} of block {block}, which does not live")
    elif name in ("realloc", "reallocarray") and not flags & NULL:
        if block not in living:
            bad.append(f"call {number}: {name} of block {block}, which does not live")
        if flags & ENDED:
            living.pop(block, None)
    elif not flags & FAILED:
        if block in living:
            bad.append(f"call {number}: block {block} begins and lives")
        living[block] = number


for number, line in enumerate(open(sys.argv[1], encoding="utf-8")):
    event = json.loads(line)
    if event.get("event") == "caller":
        callers[event["caller"]] = event
    if event.get("event") == "malloc" and event["function"] == 17:
        touched += 1
    if event.get("event") == "malloc" and event["function"] == 16:  # older than the recording
        living[event["block"]] = number
    if event.get("event") != "malloc" or event["function"] not in NAMES:
        continue
    follow(number, event)
    caller = callers.get(event["caller"], {})
    if not (caller.get("module") or "").endswith(sys.argv[2]):
        continue
    if "--symbols" in sys.argv and not (caller.get("symbol") or "").startswith(("k_", "entry_points", "fill")):
        continue
    name, failed = NAMES[event["function"]], event["flags"] & (FAILED | ENDED)
    calls[name] += 1
    if not failed and name not in ("free", "usable_size"):
        size[name] += event["size"]
    order.append((name, event["size"], event["align"], failed))
    if not failed and name not in ("free", "usable_size") and event["usable"] and event["usable"] < event["size"]:
        bad.append(f"call {number}: usable {event['usable']} of {event['size']} bytes")

if "--order" in sys.argv:
    begin = next(i for i, call in enumerate(order) if call[:2] == ("malloc", 1001))
    for name, bytes_, align, failed in order[begin:begin + int(sys.argv[sys.argv.index("--order") + 1])]:
        shown = 0 if name in ("free", "usable_size") else bytes_
        print("order", name, shown, align, "failed" if failed else "ok")
if "--cxx" in sys.argv:
    print("known new", calls["new"] + calls["new_array"])
    print("known delete", calls["delete"] + calls["delete_array"] + calls["free"])
else:
    for name in ORDER:
        if calls[name] or name in ORDER[:10]:
            print("known", name, calls[name], size[name])
print("\n".join(bad[:20]), end="\n" if bad else "", file=sys.stderr)
print(f"touched {touched}, living {len(living)}", file=sys.stderr)
sys.exit(1 if bad else 0)
