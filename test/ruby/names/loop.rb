# Evaluates code until SIGTERM, and checks what it computes.
$stdout.sync = true
trap(:TERM) { $end = true }
puts "ready"
k = sum = 0
until $end
  k += 1
  sum += eval("x = #{k}; [x].map { |y| y }.first")
end
puts sum == k * (k + 1) / 2 ? "right" : "wrong: #{sum} of #{k}"
