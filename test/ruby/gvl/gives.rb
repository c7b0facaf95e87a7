# One computes (line 7) and sleeps for a moment (line 8), again and again; two others want the lock meanwhile. Beside them
# so many processes take the processors: a thread that has just been woken, and has the lock, is often put off then.
beside = Array.new(ARGV[0].to_i) { spawn("timeout", "20", "sh", "-c", "while :; do :; done") }
Thread.new do
  Thread.current.name = "mixed"
  loop do
    x = 0; x += 1 while x < 60_000
    sleep 0.0001
  end
end
2.times { |i| Thread.new { Thread.current.name = "nap#{i}"; loop { sleep 0.0001 } } }
sleep 2
beside.each { |pid| Process.kill(:TERM, pid) }
