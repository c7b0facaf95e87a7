# frozen_string_literal: true

# A family of which each member's strings are known, made at one line, and too long for a slot (640 bytes from Ruby 3.2
# on): 1000 by the parent, 200, 400 and 600 by fork children that live on, 10 by one that becomes another Ruby, which
# makes 50; one becomes cat. "all" when that is done; a line ends it.
GC.disable
$stdout.sync = true
puts "pid #{$$}"

def make(n)
  n.times { |i| "x" * (700 + i % 50) }
end

make(1000)
done, say = IO.pipe
pids = [200, 400, 600].map do |n|
  fork do
    make(n)
    say.syswrite(".")
    sleep
  end
end
pids << fork do
  make(10)
  exec "ruby", "--disable-gems", "-e", <<~RUBY, say.fileno.to_s, say.fileno => say.fileno
    50.times { |i| 'x' * (700 + i % 50) }
    IO.for_fd(ARGV[0].to_i).syswrite('.')
    sleep
  RUBY
end
Process.wait(fork { exec "/bin/cat", "/dev/null" })
done.read(pids.size)
puts "all"
$stdin.gets
pids.each { |pid| Process.kill(:KILL, pid) }
pids.each { |pid| Process.wait(pid) }
