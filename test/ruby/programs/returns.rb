# Fibers, exceptions, catch, enumerators, threads, forks and GC stress, with a known answer. Until SIGTERM.
$stdout.sync = true
puts "pid #{$$}"
stop = false
trap(:TERM) { stop = true }
def deep(n) = n == 0 ? 1 : deep(n - 1) + 1
def round
  sum = 0
  fibers = 5.times.map { |k| Fiber.new { |x| 10.times { |i| x = Fiber.yield(x + i * k) }; raise "end #{k}" } }
  fibers.each { |f| 10.times { |i| sum += f.resume(i) }; begin; f.resume(0); f.resume(0); rescue => e; sum += e.message.size; end }
  20.times { |i| begin; deep(30); [1, 2, 3].each { |x| raise ArgumentError, "x#{x}" if x == 2 }; rescue ArgumentError => e; sum += e.message.size; end }
  sum += catch(:done) { 10.times { |i| throw :done, i if i == 7 } }
  e = Enumerator.new { |y| 5.times { |i| y << i } }
  loop { sum += e.next }
  sum += "hello world".scan(/o/).size + (1..50).map { |i| i.to_s * 3 }.join.size + {a: 1, b: [1, 2]}.inspect.size
  sum
end
want = round
n = 0
wrong = 0
threads = 3.times.map { Thread.new { until stop; wrong += 1 if round != want; n += 1; Thread.pass; end } }
stress = Thread.new { until stop; GC.stress = true; "abc".dup; GC.stress = false; GC.start; sleep 0.01; end }
until stop
  pid = fork { exit!(round == want ? 0 : 1) } if n % 50 == 0
  (Process.wait(pid); wrong += 1 unless $?.success?; pid = nil) if pid
  sleep 0.05
  puts "round #{n}"
end
threads.each(&:join)
puts "rounds #{n} wrong #{wrong}"
exit(wrong == 0)
