# Blocks of known sizes, each size from one line only; what is expected goes to stdout:
# file, line, bytes of a block, how many. A String of n bytes has a block of n + 1, an Array of 8 each.
$expected = []

def expect(line, bytes, count, file = __FILE__)
  $expected << [file, line, bytes, count].join(" ")
end

def strings(keep, n)
  i = 0
  while i < n
    keep[i] = "s" * 1003
    i += 1
  end
end

def arrays(keep, n)
  n.times do |i|
    keep[i] =
      Array.new(777)
  end
end

class Maker
  define_method(:make) { "d" * 1113 }

  def method_missing(name, *) = name == :ghost ? "m" * 1233 : super
  def respond_to_missing?(*) = true
end

# Fibers, threads that end, a thread that lives on: each reads its own frames.
def others(keep)
  threads = (0...4).map do |k|
    Thread.new do
      250.times { |i| keep[k * 250 + i] = "t" * (2003 + k * 16) }
    end
  end
  threads.each(&:join)
  fiber = Fiber.new do
    100.times { |i| keep[i] = "f" * 1333; Fiber.yield }
  end
  100.times { fiber.resume }
end

# Code that ends, and whose memory others get at once: same shapes, other names and lines.
def evals(keep, n)
  n.times do |i|
    eval("keep[i] = 'e' * #{4003 + i * 16}", binding, "ev_#{i % 7}.rb", i + 1)
    expect(i + 1, 4004 + i * 16, 1, "ev_#{i % 7}.rb")
    GC.start if i % 20 == 19
  end
end

def run
  strings(Array.new(500), 500)
  expect(12, 1004, 500)
  arrays(Array.new(300), 300)
  expect(20, 6216, 300)
  maker = Maker.new
  40.times { maker.make }
  expect(25, 1114, 40)
  30.times { maker.ghost }
  expect(27, 1234, 30)
  others(Array.new(1000))
  4.times { |k| expect(35, 2004 + k * 16, 250) }
  expect(40, 1334, 100)
  evals(Array.new(200), 200)
end

if ARGV[0] # to be attached to: begins when it is told so
  $stderr.puts "ready"
  $stderr.flush
  (idle = "w" * 900; sleep 0.01) until File.exist?(ARGV[0])
end
run
puts $expected
