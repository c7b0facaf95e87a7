# The ring by Ruby's Fiber#transfer: ruby ring.rb PASSES. Prints what bench/threadring prints, ns of CPU time a pass.
require "fiber"
threads, passes = 403, Integer(ARGV[0] || 2_000_000)
def grow(frames, &body) = frames.zero? ? body.call : grow(frames - 1, &body)

times = [0, 100].map do |frames|
  left, main, fibers = 0, Fiber.current, []
  threads.times do |me|
    fibers << Fiber.new do
      grow(frames) do
        loop do
          if left > 0
            left -= 1
            fibers[(me + 1) % threads].transfer
          else
            main.transfer
          end
        end
      end
    end
  end
  left = 2 * threads
  fibers[0].transfer
  left = passes
  from = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID)
  fibers[0].transfer
  (Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID) - from) * 1e9 / passes
end
printf("{\"way\":\"ruby\",\"flat_ns\":%.2f,\"grown_ns\":%.2f,\"version\":\"%s\"}\n", *times, RUBY_VERSION)
