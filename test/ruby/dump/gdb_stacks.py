# For gdb: "TID pc:name pc:name ..." of each thread, the newest first; physical frames only.
import gdb

gdb.execute("set backtrace past-main on")
gdb.execute("set backtrace past-entry on")
for thread in gdb.selected_inferior().threads():
    thread.switch()
    frame, frames = gdb.newest_frame(), []
    while frame is not None and frame.is_valid():
        if frame.type() not in (gdb.INLINE_FRAME, gdb.TAILCALL_FRAME):
            frames.append("%x:%s" % (frame.pc(), frame.name() or "?"))
        try:
            frame = frame.older()
        except gdb.error:
            break
    print("TID", thread.ptid[1], " ".join(frames))
