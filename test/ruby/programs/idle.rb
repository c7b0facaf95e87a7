# Threads that all sleep; each line of input is some work, whose answer is known.
$stdout.sync = true
3.times { Thread.new { sleep } }
puts "pid #{$$}"
puts "answer #{(1..2000).sum { |i| [i, i.to_s].size }}" while $stdin.gets
