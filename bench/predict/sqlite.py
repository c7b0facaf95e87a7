# A database in memory: SQLite asks malloc for its pages, statements and sorts.
import sqlite3
import sys
import threading


def work(seed):
    db = sqlite3.connect(":memory:", check_same_thread=False)
    db.execute("create table items (id integer primary key, name text, amount integer)")
    for turn in range(6):
        db.executemany("insert into items (name, amount) values (?, ?)", (("name%d" % (i * seed % 977), i * 7919 % 1000) for i in range(12000)))
        db.execute("select name, sum(amount), group_concat(id) from items group by name order by 2").fetchall()
        db.execute("update items set name = name || '.' || amount where id % 7 = ?", (turn,))
        db.execute("delete from items where id % 5 = ?", (turn % 5,))
    db.close()


count = int(sys.argv[1]) if len(sys.argv) > 1 else 0
threads = [threading.Thread(target=work, args=(i + 1,)) for i in range(count)]
for t in threads:
    t.start()
for t in threads:
    t.join()
if not count:
    work(1)
