"""A server that never ends by itself: malloc_server.py DIR [daemon|stubborn]. DIR/pid says who serves; work is done when
DIR/work is there, which goes when it is done. `daemon`: leaves its parent and its session, and a worker serves;
`stubborn`: SIGTERM does not end it."""
import os
import signal
import sys
import time

folder, how = sys.argv[1], sys.argv[2:]
if "daemon" in how:
    if os.fork():
        os._exit(0)
    os.setsid()
    if os.fork():
        signal.signal(signal.SIGTERM, lambda *_: None)
        os.wait()
        os._exit(0)
if "stubborn" in how:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
kept = bytearray(24 << 20)
with open(folder + "/pid.new", "w") as f:
    f.write(str(os.getpid()))
with open(folder + "/all", "a") as f:
    f.write(f"{os.getpid()}\n{os.getppid()}\n")
os.rename(folder + "/pid.new", folder + "/pid")
while True:
    if os.path.exists(folder + "/work"):
        begun = time.process_time()
        while time.process_time() - begun < 0.1:
            [str(n) for n in range(1000)]
        os.unlink(folder + "/work")
    time.sleep(0.005)
