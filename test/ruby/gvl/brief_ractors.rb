# So many ractors, one after the other, each with a second thread; what they compute is known. It begins a second after a
# line of input.
$VERBOSE = nil
$stdout.sync = true
puts "pid #{$$}"
$stdin.gets
sleep 1
value = Ractor.method_defined?(:value) ? :value : :take
sum = Array.new(ARGV[0].to_i) do |k|
  Ractor.new(k) do |n|
    other = Thread.new { (1..20_000).sum { |i| i % 7 } }
    (1..20_000).sum { |i| i % 5 } + other.value + n
  end.__send__(value)
end.sum
puts "sum #{sum}"
$stdin.gets
