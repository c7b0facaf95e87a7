# Evaluates methods that are busy for a moment, at a known line, and are gone and collected at once:
# busy.rb SECONDS TRUTH, of processor time. Into TRUTH: how many of them it was in these methods, and in all.
def cpu
  Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID)
end

def hold(k)
  Object.new.instance_eval("#{"\n" * (k % 50)}def gone_#{k}\n  began = cpu\n  i = 0\n  i += 1 while i < 20_000\n  $busy += cpu - began\nend; gone_#{k}", "gone_#{k}.rb", 1)
end

def clear(depth) # what is left of it on the machine's stack
  depth.zero? ? nil : clear(depth - 1)
end

$busy = 0
sleep 0.5 # scry comes
began = cpu
k = 0
while cpu < began + ARGV[0].to_f
  3.times { hold(k += 1) }
  clear(100)
  GC.start
end
File.write(ARGV[1], "#{$busy} #{cpu - began}")
