"""Is the tree of a malloc report what its stacks add up to? malloc_tree.py REPORT.json TEXT [KEY]: of `report --stacks
--json`, and of the same as text (--top 0), sorted by KEY (default at_bytes)."""
import json
import sys

FIGURES = "at_bytes at_blocks allocated bytes temporary peak_bytes peak_blocks end_bytes end_blocks".split()
report = json.load(open(sys.argv[1]))
key = sys.argv[3] if len(sys.argv) > 3 else "at_bytes"
tree = {n["id"]: n for n in report["tree"]}
bad = []


def name(frame, symbol):
    return (frame["module"], frame[symbol] or frame["offset"] or 0)


def path(node):
    up = path(tree[node["parent"]]) if node["parent"] else ()
    return up + (name(node, "symbol"),)


def label(node):
    if node["symbol"]:
        return node["symbol"].split()[0]
    return node["module"].rsplit("/", 1)[-1] + "+" + hex(node["offset"]) if node["module"] else "[unknown]"


def figures(row):
    return [row[k] for k in FIGURES]


sums = {}
total = [0] * len(FIGURES)
for row in report["rows"]:
    frames = tuple(name(f, "name") for f in reversed(row["frames"] or []))
    total = [a + b for a, b in zip(total, figures(row))]
    for depth in range(1, len(frames) + 1):
        sums[frames[:depth]] = [a + b for a, b in zip(sums.get(frames[:depth], [0] * len(FIGURES)), figures(row))]
have = {path(n): figures(n) for n in tree.values()}
if len(have) != len(tree):
    bad.append("two nodes with one path")
for p in sums:
    if have.get(p) != sums[p]:
        bad.append(f"{p}: {have.get(p)} in the tree, {sums[p]} by stacks")
roots = [figures(n) for n in tree.values() if not n["parent"]]
if [sum(column) for column in zip(*roots)] != total:
    bad.append("the outermost functions are not all")
for k in ("allocated", "bytes", "end_bytes"):
    if total[FIGURES.index(k)] != report["totals"][k]:
        bad.append(f"{k}: {total[FIGURES.index(k)]}, not {report['totals'][k]}")
# By the innermost function: what it has beside what is below it.
own, by_function = {}, {}
for n in tree.values():
    below = [figures(c) for c in tree.values() if c["parent"] == n["id"]]
    mine = [a - sum(b) for a, *b in zip(figures(n), *below)]
    f = name(n, "symbol")
    own[f] = [a + b for a, b in zip(own.get(f, [0] * len(FIGURES)), mine)]
for row in report["rows"]:
    f = name(row["frames"][0], "name")
    by_function[f] = [a + b for a, b in zip(by_function.get(f, [0] * len(FIGURES)), figures(row))]
if {f: v for f, v in own.items() if any(v)} != by_function:
    bad.append("functions have not what they ask for themselves")
# The text has the same figures, each that is 1 % or more.
shown = set()
for line in open(sys.argv[2]).read().split("outermost first\n")[1].split("\n\n")[0].splitlines():
    words = line.split()
    if words[0][0].isdigit() and "." in words[0]:
        shown.add((words[6] if words[6] != "+" else words[7], tuple(int(w.replace(",", "")) for w in words[1:6])))
all_of = sum(r[FIGURES.index(key)] for r in roots)
in_text = {}
for n in tree.values():
    in_text.setdefault((label(n), tuple(figures(n)[:5])), []).append(n[key])
for f, values in in_text.items():
    if 100 * max(values) >= all_of > 0 and max(values) and f not in shown:
        bad.append(f"{f} is not shown")
for f in shown:
    if 100 * max(in_text.get(f, [0])) < all_of:
        bad.append(f"{f} is shown")
if not shown or len(tree) < 10:
    bad.append("no tree")
print("\n".join(bad) if bad else f"{len(tree)} functions in the tree, {len(shown)} shown")
sys.exit(bool(bad))
