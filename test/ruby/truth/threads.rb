# Several threads, each making a known number of objects on its own and on common lines.

def common(i)
  ["shared", i]
end

def worker(n)
  n.times do |i|
    common(i)
    { i => "x" }
    Object.new
  end
end

def parallel
  threads = 6.times.map do |t|
    Thread.new(t) do |id|
      worker(500 * (id + 1))
      "result #{id}"
    end
  end
  threads.map(&:value)
end

def queues
  jobs = Queue.new
  done = Queue.new
  threads = 3.times.map do
    Thread.new { while (job = jobs.pop) do done << [job, "done"] end }
  end
  300.times { |i| jobs << "job #{i}" }
  3.times { jobs << nil }
  threads.each(&:join)
  done.size
end

def locals
  m = Mutex.new
  sum = []
  4.times.map do |i|
    Thread.new do
      Thread.current[:name] = "thread"
      Thread.current.thread_variable_set(:v, [i])
      100.times { m.synchronize { sum << "s" } }
      Thread.pass
    end
  end.each(&:join)
end

def dying
  5.times do
    t = Thread.new { Thread.current.report_on_exception = false; raise "dead" }
    begin
      t.join
    rescue RuntimeError => e
      e.message.dup
    end
  end
end

# Threads live only for moments: the same stacks and thread blocks are used again and again.
def short
  60.times { |i| Thread.new { ["short", i] }.join }
end

def work
  parallel
  queues
  locals
  dying
  short
end

work

# Where the VM names the line of the next instruction:
# late: 19 String: ruby=0 scry=6
# late: 20 String: ruby=6 scry=0

# Where the VM changed the class word after the birth (doc/TRUTH.md):
# born: 17 Array: ruby=6 scry=12
# born: 29 Array: ruby=303 scry=306
# born: 41 Array: ruby=4 scry=8
# born: 52 Array: ruby=5 scry=10
# born: 63 Array: ruby=120 scry=180
