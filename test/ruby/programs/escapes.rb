# Names meant for a terminal: of a class, a method, a file, threads and the program. Prints "pid N".
ODD = "\e[31m\u009b\u202e\u2028"
Process.setproctitle("ruby#{ODD}")
Odd = Object.const_set("Odd\u202e\u009b", Class.new)
eval <<~RUBY, binding, "/tmp/#{ODD}\n.rb", 7
  Odd.define_method("make#{ODD}\n") do
    100.times { Odd.new }
    sum = 0
    20_000.times { |i| sum += i }
  end
RUBY
Thread.new { sleep }.name = "t#{ODD}\n"
Thread.current.name = "m#{ODD}"
$stdout.sync = true
puts "pid #{$$}"
odd = Odd.new
loop { odd.public_send("make#{ODD}\n"); sleep 0.001 }
