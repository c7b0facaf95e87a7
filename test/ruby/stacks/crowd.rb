# Sixty-four threads and their fibers, each with a stack of its own.
require_relative 'seen'

def deeper(n, &block)
  n.zero? ? block.call : deeper(n - 1, &block)
end

LOCK = Mutex.new # of SEEN, not of the allocations
alias unlocked spot
def spot
  Spot.new
  key = caller_locations(1).reject { |l| C_NAMES[l.base_label] || l.path.start_with?('<internal:') }
  text = key.map { |l| "#{File.basename(l.path)}:#{l.lineno}:#{l.label}" }.reverse.join(';').freeze
  LOCK.synchronize { SEEN[text] += 1 }
end

64.times.map do |i|
  Thread.new do
    fiber = Fiber.new { loop { deeper(i % 9) { spot }; Fiber.yield } }
    20.times do |j|
      deeper(i % 13) { spot }
      fiber.resume
      Thread.pass if j % 4 == 0
    end
  end
end.each(&:join)
