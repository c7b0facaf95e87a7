# Allocates a known number of objects per round, on known lines, until SIGTERM; then says how many
# rounds it made. `scry objects -p` must see the lines in the right ratio.

class Point
  def initialize(x)
    @x = x
  end
end

def round(i)
  Point.new(i)
  Point.new(i)
  a = [i, i]
  b = { i => i }
  3.times { "text" }
  [a, b, Array.new(2)]
end

$stdout.sync = true
stop = false
trap(:TERM) { stop = true }
puts "pid #{$$}"
rounds = 0
until stop
  round(rounds)
  rounds += 1
end
puts "rounds #{rounds}"
