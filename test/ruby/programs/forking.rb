# Forks children that allocate, compute and must come back right, until SIGTERM.

$stdout.sync = true
stop = false
trap(:TERM) { stop = true }
puts "pid #{$$}"
forks = 0
until stop
  pid = fork do
    trap(:TERM, 'DEFAULT')
    sum = 0
    2000.times { |i| sum += "child #{i}".size + [i, { i => i }].size }
    GC.start
    exit!(sum == 22_890 ? 0 : 1)
  end
  _, status = Process.wait2(pid)
  abort "wrong: child #{pid}: #{status}" unless status.success?
  IO.popen(%w[echo ran], &:read) == "ran\n" or abort 'wrong: popen'
  system('true') or abort 'wrong: system'
  forks += 1
  Array.new(10) { |i| "parent #{i}" }
  puts "ok #{forks}"
end
