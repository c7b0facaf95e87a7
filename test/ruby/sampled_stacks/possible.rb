# A program whose every possible stack is known (check_possible.rb knows it too), run while code is made and thrown away
# ("made N" after each 1200 pieces), objects are collected and moved, and threads and fibers come and go.
N = 101
module P
  def self.hold(n) = (x = n; x += 1 while x < n + 30; x)
end
N.times do |k|
  eval(<<~RUBY, TOPLEVEL_BINDING, "n#{k}.rb", 1)
    def P.n#{k}(d)
      return 0 if d == 0
      n#{(k * 7 + 1) % N}(d - 1)
      n#{(k * 11 + 5) % N}(d - 1)
      [1].each { n#{(k * 13 + 3) % N}(d - 1) }
      d.to_s
      begin; raise "x" if d == 1; rescue; n#{(k * 17 + 2) % N}(d - 1); end
    end
  RUBY
end

stop = Thread.new { sleep(ARGV[0].to_f); exit!(0) }
stop.priority = 3
Thread.new do # code that lives for a moment only
  k = 0
  loop do
    k += 1
    eval("#{"\n" * (k % 97)}def P.churn_#{k}(x) = hold(x)", TOPLEVEL_BINDING, "churn_#{k}.rb", 1)
    5.times { P.public_send("churn_#{k}", k) }
    P.singleton_class.send(:remove_method, "churn_#{k}")
    puts "made #{k}" if k % 1200 == 0
  end
end
Thread.new { k = 0; loop { P.n17(3); Thread.new { P.n18(k % 3 + 1) }.join; k += 1 } }
Thread.new { k = 0; loop { Fiber.new { P.n19(k % 4) }.resume; k += 1 } }
Thread.new { loop { Enumerator.new { |y| y << P.n20(2) }.next } }
Thread.new do # collect, and move
  loop do
    GC.start(full_mark: rand < 0.5, immediate_sweep: rand < 0.5)
    GC.compact if rand < 0.2 && GC.respond_to?(:compact)
    sleep 0.002
  end
end
$stdout.sync = true
puts "ready"
3.times { |i| Thread.new { k = i; loop { P.n21(4); k += 1 } } }
k = 0
loop { P.public_send("n#{k % N}", 3); k += 1 }
