# Two methods that do nothing, called in turn as fast as can be: the hardest stack to read whole. The
# same with methods written in C, and with blocks.
def one
end
def two(a, b, c) = nil
def calls
  200_000.times do
    one
    two(1, 2, 3)
    1.fdiv(2)
    "x".eql?(3)
    [].each { one }
  end
end
puts "ready"
$stdout.flush
loop { calls }
