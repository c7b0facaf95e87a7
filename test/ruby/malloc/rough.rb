# A hard life: GC at each allocation, compaction, code that comes and goes, threads that end at once or with the
# GC, fibers. Says what it has made.
made = 0
GC.stress = true
20.times { |i| made += eval("('r' * 2000).size", binding, "stress_#{i}.rb", i + 1) }
GC.stress = false
GC.auto_compact = true if GC.respond_to?(:auto_compact=)
keep = []
compacts = GC.respond_to?(:compact)
60.times do |i|
  threads = 8.times.map { |k| Thread.new { made += 0; eval("keep << ('q' * #{1000 + k})", binding, "t#{k}.rb", i + 1) } }
  20.times { Thread.new {} }
  threads.each(&:join)
  fibers = 5.times.map { Fiber.new { x = "z" * 900; Fiber.yield; x } }
  fibers.each(&:resume)
  keep = keep.last(50)
  (GC.compact rescue compacts = false) if compacts && i % 6 == 0
  GC.start if i % 5 == 0
  r = Process.fork { keep << "c" * 1000; exit!(0) } if i % 20 == 0
  Process.wait(r) if i % 20 == 0
end
sleep 3.5 if ARGV[0] == "late" # threads that waited for work end
puts made, keep.size
