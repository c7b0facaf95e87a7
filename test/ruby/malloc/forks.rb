# Children, and theirs, each of which makes blocks of a size of its own on one line, before and in code that is
# eval'ed after the fork; prints "PID SIZE LINE COUNT".
def work(level)
  size = 100_000 + Process.pid % 10_000 * 16
  kept = Array.new(50) { "x" * size } # line 5
  puts "#{Process.pid} #{size} #{__LINE__ - 1} 50"
  eval("\n\nkept << Array.new(30) { 'y' * (size + 8) }", binding, "evaled.rb", 1)
  puts "#{Process.pid} #{size + 8} 3 30"
  $stdout.flush
  2.times { Process.wait(fork { work(level - 1) }) } if level > 0
  kept.size
end
work(2)
