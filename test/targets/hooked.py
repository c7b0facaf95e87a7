# Threads that compute through Python and libcrypto and compare each answer with the first.
# hooked.py, until SIGTERM: "round N" lines; the last line is "rounds N wrong N".
import hashlib, json, re, signal, sys, threading, time, zlib

stop = False
rounds = wrong = 0


def on_term(sig, frame):
    global stop
    stop = True


def raised(n):
    try:
        if n == 0:
            return int("zz")
        return raised(n - 1)
    except ValueError as e:
        if n == 3:
            return str(e)
        raise
    finally:
        str(n)


def everything():
    data = b"a" * 5000  # hashlib lets other threads run while it digests that much
    words = sorted(str(i * 7919 % 1009) for i in range(200))
    return repr([hashlib.sha256(data).hexdigest(), hashlib.sha3_256(data).hexdigest(), hashlib.md5(data).hexdigest(),
                 hashlib.pbkdf2_hmac("sha1", b"x", b"y", 50).hex(), zlib.crc32(zlib.compress(data)), json.dumps({"a": [1, 2.5, None]}),
                 re.sub(r"(\d+)x", r"<\1>", "12x 7x"), raised(3), words, pow(3, 10**6 + 7, 2**127 - 1), "%08.3f" % 3.14159,
                 list(x * x for x in range(20)), {i: str(i) for i in range(30)}])


def compute():
    global rounds, wrong
    while not stop:
        if everything() != WANT:
            wrong += 1
        rounds += 1


signal.signal(signal.SIGTERM, on_term)
WANT = everything()
assert hashlib.sha256(b"abc").hexdigest() == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
threads = [threading.Thread(target=compute) for _ in range(4)]
print("pid", flush=True)
for t in threads:
    t.start()
last = 0
while not stop:
    time.sleep(0.1)
    if rounds != last:
        last = rounds
        print("round", last, flush=True)
for t in threads:
    t.join()
print("rounds", rounds, "wrong", wrong)
sys.exit(wrong != 0)
