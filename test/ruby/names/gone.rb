# Code that is gone, and whose memory is other code's, as soon as it has run: told to do so line by
# line on stdin. "hold K": in the method gone_K, at line K + 3 of gone_K.rb; "go": out of it, and
# gone. "fork": a child evaluates code and stays.
$stdout.sync = true
puts "pid #{$$}"
# A frame of its own, so that nothing on the stack refers to the code any more.
def hold(k)
  Object.new.instance_eval("\n" * k + "def gone_#{k}(io)\n\n  io.gets\nend; gone_#{k}($stdin)", "gone_#{k}.rb", 1)
end

def clear(depth) # what is left of it on the machine's stack
  depth.zero? ? nil : clear(depth - 1)
end

def reuse(k)
  clear(200)
  3.times { GC.start }
  500.times { |i| Object.new.instance_eval("def other_#{i}(io)\n\n\n\n\n\n  io.gets\nend", "other_#{k}.rb", 1) }
end

while (line = $stdin.gets)
  word, k = line.split
  case word
  when "hold"
    puts "held #{k.to_i + 3}"
    Fiber.new { hold(k.to_i) }.resume # with a machine stack of its own, too
    reuse(k)
    puts "gone"
  when "fork"
    done, tell = IO.pipe
    pid = fork do
      # what it makes is its own affair: nobody asked for it
      sum = (1..100).sum { |i| eval("[1].map { |x| x + #{i} }").first }
      tell.puts sum
      tell.flush
      sleep
    end
    puts "forked #{pid} #{done.gets}"
  when "end"
    Process.kill(:KILL, k.to_i)
    Process.wait(k.to_i)
    puts "ended"
  end
end
