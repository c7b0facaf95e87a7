# Two threads by turns hold the lock in C for so many ms, and sleep for 20, for 1.5 s.
now = -> { Process.clock_gettime(Process::CLOCK_MONOTONIC) }
number = 3**60_000
busy = lambda do |ms|
  till = now[] + ms / 1000.0
  number * number while now[] < till
end
ends = now[] + 1.5
Array.new(2) do |i|
  Thread.new do
    Thread.current.name = "turn#{i}"
    while now[] < ends
      busy[ARGV[0].to_i]
      sleep 0.02
    end
  end
end.each(&:join)
