"""Compares the stacks of a recording with what target_stacked says of itself: stacked.py EVENTS KNOWN DEPTH."""
import json
import subprocess
import sys

UNKNOWN = 4


def symbols(path, cache={}):
    if path not in cache:
        table = cache[path] = {}
        for how in (["-D"], []):
            text = subprocess.run(["nm", *how, "--defined-only", path], capture_output=True, text=True).stdout
            for line in text.splitlines():
                parts = line.split()
                if len(parts) == 3:
                    table.setdefault(parts[2].split("@")[0], set()).add(int(parts[0], 16))
    return cache[path]


def places(frame):
    """Link-time addresses that a frame may mean."""
    if frame.get("method") is None:
        return {frame["offset"]}
    return {value + frame["offset"] for value in symbols(frame["file"]).get(frame["method"], ())}


def main():
    frames, callers, sizes = {}, {}, {}
    with open(sys.argv[1]) as file:
        for event in map(json.loads, file):
            kind = event.get("event")
            if kind == "stack":
                frames[event["id"]] = event
            elif kind == "caller":
                callers[event["caller"]] = event
            elif kind == "malloc" and event.get("function") == 1:
                sizes.setdefault(event["size"], event["caller"])
            elif kind == "called":
                callers[event["call"]] = event
            elif kind == "call":
                sizes.setdefault(int(str(event["arg1"]), 0), event["call"])
    depth, bad, count = int(sys.argv[3]), 0, 0
    with open(sys.argv[2]) as file:
        known = [line.split() for line in file if line[0].isdigit()]
    for size, text in known:
        want = [part.rsplit("+", 1) for part in text.split(",")][: depth - 1]
        stack, chain = callers.get(sizes.get(int(size)), {}).get("stack"), []
        while stack:
            chain.append(frames[stack])
            stack = frames[stack]["parent"]
        have = chain[1:]  # the place in ask() itself
        if len(have) == len(want) + 1 and have[-1]["flags"] & UNKNOWN:
            have.pop()  # backtrace() does not say that it knows no more
        fits = len(have) == len(want) and all(
            int(address, 16) in places(frame) for frame, (_, address) in zip(have, want)
        )
        count += 1
        bad += not fits
        if not fits and bad < 4:
            print(f"size {size}: {text}")
            print("  recorded:", ", ".join(f"{f.get('method')}+{f['offset']:#x}" for f in have))
    print(f"{count} stacks compared, {bad} differ")
    sys.exit(bad != 0 or not count)


main()
