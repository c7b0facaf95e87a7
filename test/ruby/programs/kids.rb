# Forks children all the time, which compute and must come back right, until SIGTERM; beside them
# one child that lives as long as we do.
#
# Prints "children N" now and then; the last line is "children N wrong N".

$stdout.sync = true
stop = false
trap(:TERM) { stop = true }
puts "pid #{$$}"
long = fork do
  trap(:TERM, 'DEFAULT')
  loop { Array.new(10) { |i| "long #{i}" }; sleep 0.005 }
end
children = wrong = 0
until stop
  pids = Array.new(4) do
    fork do
      trap(:TERM, 'DEFAULT')
      sum = 0
      500.times { |i| sum += "child #{i}".size }
      exit!(sum == 4390 ? 0 : 1)
    end
  end
  pids.each do |pid|
    _, status = Process.wait2(pid)
    # One that was forked while our SIGTERM was pending has inherited it, from Ruby 3.3 on.
    wrong += 1 unless status.success? || (stop && status.termsig == Signal.list['TERM'])
    children += 1
  end
  puts "children #{children}" if children % 100 < 4
end
Process.kill(:TERM, long)
Process.wait(long)
puts "children #{children} wrong #{wrong}"
exit wrong.zero?
