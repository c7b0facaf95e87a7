# Runs one workload under one in-process tool and says how long it took.
#
#   ruby child.rb WORKLOAD.rb OPERATIONS TOOL     (started by objects.rb)
#
# "ready PID" is printed after the warm-up; the work begins when a line comes on stdin, so that a
# tool can be attached in between. Then one JSON line: ns of the work, ns with the tool's
# own report, objects allocated.

require File.expand_path(ARGV[0])
operations = Integer(ARGV[1])
tool = ARGV[2]

TOOLS = {
  'none' => [-> {}, -> {}],
  'rawhook' => [-> { require ENV.fetch('RAWHOOK'); RawHook.start }, -> { RawHook.counts.all?(&:positive?) or abort 'rawhook saw nothing' }],
  'rawhook_births' => [-> { require ENV.fetch('RAWHOOK'); RawHook.start_births }, -> { RawHook.counts[0].positive? or abort 'rawhook saw nothing' }],
  'objspace' => [-> { require 'objspace'; ObjectSpace.trace_object_allocations_start },
                 -> { ObjectSpace.trace_object_allocations_stop }],
  'memory_profiler' => [-> { require 'memory_profiler'; MemoryProfiler.start }, -> { MemoryProfiler.stop }],
  'stackprof' => [-> { require 'stackprof'; StackProf.start(mode: :object, interval: 1, raw: false) },
                  -> { StackProf.stop; StackProf.results }],
}.freeze

def clock
  Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond)
end

WORK.call([operations / 20, 1].max)
GC.start
$stdout.sync = true
puts "ready #{$$}"
$stdin.gets
start, stop = TOOLS.fetch(tool)
start.call
# The first moments belong to arming: an attached tool is switched on at the first wake.
WORK.call([operations / 20, 1].max)
made = GC.stat(:total_allocated_objects)
begin_ns = clock
WORK.call(operations)
work_ns = clock - begin_ns
made = GC.stat(:total_allocated_objects) - made
stop.call
puts %({"ns": #{work_ns}, "with_report_ns": #{clock - begin_ns}, "objects": #{made}})
