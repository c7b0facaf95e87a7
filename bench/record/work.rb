# work.rb ROUNDS: each makes a String whose bytes malloc serves, so an event for each instrument; nothing is collected
# meanwhile. Prints the processor time of a round, in ns.
rounds = ARGV[0].to_i
GC.disable
make = ->(n) { n.times { |i| "x" * (100 + i % 50) } }
make[1000]
began = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID, :nanosecond)
make[rounds]
puts "ns #{(Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID, :nanosecond) - began).fdiv(rounds)}"
