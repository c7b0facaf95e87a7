# Objects made into text and back, with malloc for all of it: PYTHONMALLOC=malloc.
import json

data = [{"a": i, "b": [str(j) for j in range(10)], "c": {"x": i * 1.5}} for i in range(20000)]
for _ in range(3):
    text = json.dumps(data)
    data = json.loads(text)
print(len(text))
