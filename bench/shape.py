#!/usr/bin/env python3
"""The shape of src at commits: python3 bench/shape.py COMMIT...; "-": the commit that is checked out.
Lines are those that are left without comments and empty ones; a cycle is a set of files, or of folders, each of which
includes, by others perhaps, all of them. `--touched COMMIT`: the source files that it edited and added."""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)
SOURCE = (".c", ".h", ".S", ".def", ".cc")


def git(*words):
    return subprocess.run(["git", "-C", ROOT, *words], check=True, capture_output=True, text=True, errors="replace").stdout


def files_at(commit):
    paths = [p for p in git("ls-tree", "-r", "--name-only", commit, "src").split("\n") if p.endswith(SOURCE)]
    return {p.removeprefix("src/"): git("show", f"{commit}:{p}") for p in paths}


def lines(text):
    bare = TOKEN.sub(lambda m: m.group() if m.group()[0] in "\"'" else re.sub(r"[^\n]", "", m.group()), text)
    return sum(1 for line in bare.split("\n") if line.strip())


def cycles(graph):
    """Sets of nodes that reach each other."""
    reach = {}
    for node in graph:
        seen, todo = set(), [node]
        while todo:
            for there in graph.get(todo.pop(), ()):
                if there not in seen:
                    seen.add(there)
                    todo.append(there)
        reach[node] = seen
    return {frozenset(m for m in reach[n] if n in reach.get(m, ())) for n in graph if n in reach[n]}


def show(commit):
    files = files_at("HEAD" if commit == "-" else commit)
    includes = {p: {i for i in INCLUDE.findall(t) if i in files and i != p} for p, t in files.items()}
    folder = lambda p: p.rpartition("/")[0].split("/")[0]
    between = {}
    for p, there in includes.items():
        between.setdefault(folder(p), set()).update({folder(i) for i in there} - {folder(p)})
    count = lambda keep: sum(lines(t) for p, t in files.items() if keep(p))
    print(f"{commit}: {len(files)} files, {count(lambda p: True)} lines of src, {count(lambda p: folder(p) == 'cmd')} of cmd")
    print(f"  cycles of files: {len(cycles(includes))}; of folders: {[sorted(c) for c in cycles(between)] or 0}")
    print("  lines of folders: " + ", ".join(f"{f} {count(lambda p: folder(p) == f)}" for f in sorted(between)))


def touched(commit):
    rows = [r.split("\t") for r in git("show", "--format=", "--name-status", commit).split("\n") if r]
    rows = [r for r in rows if r[-1].startswith("src/") and r[-1].endswith(SOURCE)]
    print(f"{commit}: {len(rows)} source files: {sum(r[0] != 'A' for r in rows)} edited, {sum(r[0] == 'A' for r in rows)} new")


if sys.argv[1:2] == ["--touched"]:
    touched(sys.argv[2])
else:
    for each in sys.argv[1:] or ["-"]:
        show(each)
