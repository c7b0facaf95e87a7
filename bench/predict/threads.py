# Threads that make objects into text and back, with malloc for all of it: PYTHONMALLOC=malloc.
import json
import threading


def work(seed):
    data = [{"a": i * seed, "b": [str(j) for j in range(8)]} for i in range(2000)]
    for _ in range(4):
        data = json.loads(json.dumps(data))


for turn in range(2):
    threads = [threading.Thread(target=work, args=(i + 1,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
