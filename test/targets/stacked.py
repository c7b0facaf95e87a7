"""Compares the stacks of a recording with what target_stacked says of itself: stacked.py EVENTS KNOWN DEPTH."""
import json
import sys

UNKNOWN = 4


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
                callers[event["pid"], event["call"]] = event
            elif kind == "call":
                sizes.setdefault(int(str(event["arg1"]), 0), (event["pid"], event["call"]))
    depth, bad, count = int(sys.argv[3]), 0, 0
    with open(sys.argv[2]) as file:
        known = [line.split() for line in file if line[0].isdigit()]
    for size, text in known:
        want = text.split(",")[: depth - 1]
        stack, chain = callers.get(sizes.get(int(size)), {}).get("stack"), []
        while stack:
            chain.append(frames[stack])
            stack = frames[stack]["parent"]
        have = chain[1:]  # the place in ask() itself
        if len(have) == len(want) + 1 and have[-1]["flags"] & UNKNOWN:
            have.pop()  # backtrace() does not say that it knows no more
        fits = [int(str(frame["address"]), 0) for frame in have] == [int(address, 16) for address in want]
        count += 1
        bad += not fits
        if not fits and bad < 4:
            print(f"size {size}: {text}")
            print("  recorded:", ", ".join(f"{f.get('method')}+{f['offset']:#x}" for f in have))
    print(f"{count} stacks compared, {bad} differ")
    sys.exit(bad != 0 or not count)


main()
