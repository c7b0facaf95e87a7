# Eight threads, one after the other, that compute for 8 ms each; then two seconds or so, it prints how long,
# in which there is nothing but the first one.
now = -> { Process.clock_gettime(Process::CLOCK_MONOTONIC) }
8.times do |i|
  Thread.new { Thread.current.name = "brief#{i}"; till = now[] + 0.008; nil while now[] < till }.join
end
began = now[]
sleep 2
puts "slept #{((now[] - began) * 1e9).to_i}"
