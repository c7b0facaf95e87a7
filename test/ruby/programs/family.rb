# Three children, each with a child of its own; every process makes a known number of objects of its
# class, and says its pid.

class Parent; end
class Child; end
class Grandchild; end

$stdout.sync = true
puts "parent #{$$}"
5.times { Parent.new }
3.times do |i|
  fork do
    puts "child #{$$}"
    (1000 * (i + 1)).times { Child.new }
    sleep 0.3 # long enough to be found
    fork { 77.times { Grandchild.new } }
    Process.wait
    3.times { Child.new }
  end
end
Process.waitall
7.times { Parent.new }
puts 'done'
