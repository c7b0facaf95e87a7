# Forks COUNT children, at most PARALLEL at once; each makes a hundred Kids and leaves with 0.
#
#   ruby storm.rb COUNT PARALLEL      prints "children COUNT wrong N"

class Kid; end

count = Integer(ARGV.fetch(0))
parallel = Integer(ARGV.fetch(1))
wrong = running = 0
reap = lambda {
  _, status = Process.wait2
  wrong += 1 unless status.success?
  running -= 1
}
count.times do
  reap.call if running == parallel
  fork do
    sum = 0
    100.times { |i| Kid.new; sum += i }
    exit!(sum == 4950 ? 0 : 1)
  end
  running += 1
end
reap.call while running.positive?
puts "children #{count} wrong #{wrong}"
