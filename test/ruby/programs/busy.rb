# Busy for long, in all the ways that fill tables: short-lived objects, code that is evaluated and
# dies, classes and fibers that come and go, threads. Says how many objects it has made and how large
# it is, until SIGTERM.
$stdout.sync = true
stop = false
trap(:TERM) { stop = true }

def rss_kib = File.read('/proc/self/status')[/VmRSS:\s+(\d+)/, 1].to_i

def round(i)
  2000.times { |k| [k, "text #{k}", { k => i }] }
  5.times { |k| eval("->(x) { [x, \"#{i}\"] }", TOPLEVEL_BINDING, "busy#{(i + k) % 500}.rb", 1 + k).call(i) }
  Class.new { def a = [1] }.new.a
  Fiber.new { Fiber.yield(Object.new); 1 }.tap(&:resume).resume
  Thread.new { Array.new(10) { Object.new } }.join if i % 10 == 0
end

puts "pid #{$$}"
i = 0
until stop
  round(i += 1)
  puts "round #{i} objects #{GC.stat(:total_allocated_objects)} rss #{rss_kib}" if i % 50 == 0
end
puts 'ended'
