# The script of the child in which calls are counted (alloc_functions.c). A line "NAME N" makes N times what NAME is; the
# answer is what the VM itself has counted by then. Every kind of creation is here, none leaves a finalizer.
# Arguments and answers cost objects too, but each time as many.

require "objspace"
GC.start
GC.disable
$stdout.sync = true

class ScryPlain
  def some; end
end
ScryStruct = Struct.new(:a, :b)
TEXT = "the text of a match"
ADDRESS = Kernel.instance_method(:to_s)
KEPT = []
TOLD = []
THREADS = []

KINDS = {
  "nothing" => proc { |n| },
  "strings" => proc { |n| n.times { +"a string" } },
  "dups" => proc { |n| n.times { TEXT.dup } },
  "slices" => proc { |n| n.times { TEXT[4, 4] } },
  "built" => proc { |n| n.times { |i| "#{i} and #{TEXT}" } },
  "arrays" => proc { |n| n.times { [1, 2, 3] } },
  "splats" => proc { |n| n.times { [*TEXT, 1] } },
  "hashes" => proc { |n| n.times { |i| { a: i } } },
  "objects" => proc { |n| n.times { Object.new } },
  "allocated" => proc { |n| n.times { ScryPlain.allocate } },
  "plain" => proc { |n| n.times { ScryPlain.new } },
  "structs" => proc { |n| n.times { ScryStruct.new(1, 2) } },
  "procs" => proc { |n| n.times { proc {} } },
  "lambdas" => proc { |n| n.times { lambda { n } } },
  "times" => proc { |n| n.times { Time.now } },
  "ranges" => proc { |n| n.times { |i| (i..n) } },
  "floats" => proc { |n| n.times { |i| 1.0e-300 * (i + 1) } },
  "bignums" => proc { |n| n.times { |i| 2**80 + i } },
  "symbols" => proc { |n| n.times { |i| "scry #{n} #{i} #{KEPT.size}".to_sym } },
  "matches" => proc { |n| n.times { /text/.match(TEXT) } },
  "regexps" => proc { |n| n.times { |i| Regexp.new("a#{i}") } },
  "rationals" => proc { |n| n.times { |i| Rational(i + 1, 97) } },
  "complexes" => proc { |n| n.times { |i| Complex(i, 2) } },
  "classes" => proc { |n| n.times { Class.new } },
  "modules" => proc { |n| n.times { Module.new } },
  "singletons" => proc { |n| n.times { ScryPlain.new.singleton_class } },
  "methods" => proc { |n| n.times { TEXT.method(:size) } },
  "enumerators" => proc { |n| n.times { KEPT.each } },
  "mapped" => proc { |n| n.times { [3, 1, 2].sort_by(&:to_s).each_slice(2).map(&:size) } },
  "exceptions" => proc { |n|
    n.times do
      raise ArgumentError, TEXT
    rescue ArgumentError
      nil
    end
  },
  "evals" => proc { |n| n.times { |i| eval("def scry_#{i % 3}(x); [x, #{i}]; end; scry_#{i % 3}(1)") } },
  "bindings" => proc { |n| n.times { binding } },
  "fibers" => proc { |n| n.times { Fiber.new { 1 }.resume } },
  "mutexes" => proc { |n| n.times { Mutex.new } },
  "queues" => proc { |n| n.times { Queue.new << TEXT } },
  "randoms" => proc { |n| n.times { |i| Random.new(i) } },
  "stats" => proc { |n| n.times { File.stat("/") } },
  "maps" => proc { |n| n.times { ObjectSpace::WeakMap.new } },
  "formats" => proc { |n| n.times { |i| format("%05d %s", i, TEXT).split(" ").join("-") } },
  "gsubs" => proc { |n| n.times { TEXT.gsub(/t/) { |m| m.upcase } } },
  "packs" => proc { |n| n.times { |i| [i, 2].pack("L2").unpack("L2") } },
  "collect" => proc { |_| GC.start },
  "drop" => proc { |n|
    n.times { |i| [ScryPlain.new, "a string that is longer than a slot #{i}", { a: [i] }, 2**90 + i] }
    GC.start
  },
  "thread" => proc { |_| THREADS << Thread.new { sleep } },
  "minor" => proc { |_| GC.start(full_mark: false) },
  "told" => proc { |n|
    n.times do |i|
      made = [ScryPlain.new, ScryPlain.allocate, +"text", [i], { i => i }, ScryStruct.new(i), proc { i }, Time.now, Random.new(i),
              Mutex.new, File.stat("/"), (i..n), 2**80, Rational(i, 97), TEXT.method(:size), ObjectSpace::WeakMap.new][i % 16]
      KEPT << made
      TOLD << ADDRESS.bind_call(made)[/0x(\h+)/, 1]
    end
  },
  "forget" => proc { |_|
    [KEPT, TOLD].each(&:clear)
    GC.start
  },
  "events" => proc { |n| n == 1 ? ObjectSpace.trace_object_allocations_start : ObjectSpace.trace_object_allocations_stop }
}

# For the rehearsal (rehearsal.c).
MAKERS = KINDS.values.first(41)
KINDS.update(
  "able" => proc { |_|
    able = [GC.respond_to?(:compact) && "compact", Process.respond_to?(:fork) && "fork", defined?(Ractor) && "ractors"]
    $stdout.syswrite("able #{able.grep(String).join(" ")}\n")
  },
  "all" => proc { |n| MAKERS.each { |make| make.call(n) } },
  "kept" => proc { |n| n.times { |i| KEPT << [ScryPlain.new, "kept #{i} " * 9, { i => i }, [i] * 20] } },
  "threads" => proc { |n| Array.new(4) { Thread.new { MAKERS.each { |make| make.call(n) } } }.each(&:join) },
  "compact" => proc do |_| # that of 2.7 does nothing while GCs are disabled
    GC.enable
    GC.compact
    GC.disable
  end,
  "fork" => proc { |n|
    pid = fork do
      MAKERS.each { |make| make.call(n) }
      GC.start
    end
    status = Process.wait2(pid)[1]
    $stdout.syswrite("status #{status.exitstatus || -status.termsig}\n")
  },
  "ractors" => proc { |n|
    made = Ractor.new(n) { |m| m.times { [Object.new, +"a string"] } }
    made.respond_to?(:value) ? made.value : made.take
  }
)

while (line = $stdin.gets)
  name, n = line.split
  KINDS.fetch(name).call(n.to_i)
  TOLD.each { |address| $stdout.syswrite("at #{address}\n") }
  made = GC.stat(:total_allocated_objects)
  freed = GC.stat(:total_freed_objects)
  # Not "#{...}": the Strings of numbers below 10 are there already.
  $stdout.syswrite(format("counts %d %d %d %s %d\nready\n", made, freed, GC.count, name, GC.stat(:major_gc_count)))
end
