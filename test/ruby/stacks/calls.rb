# A known tree of calls: blocks, C functions in between, recursion, evals, exceptions, fibers, threads.
require_relative 'seen'

def one; spot; end

def two
  one
  one
  spot
end

3.times { two }
[1, 2, 3].each do |i|
  [i].map { |x| spot if x > 1 }
end
%w[b a c].sort_by { |x| spot; x }
1.upto(3) { |x| (1..x).inject { |p, q| spot; p + q } }

def down(n)
  return spot if n.zero?

  down(n - 1)
end
[0, 1, 5, 50, 300].each { |n| 2.times { down(n) } }

class Odd
  define_method(:defined_one) { |&b| b.call }
  def method_missing(name, *) = name == :ghost ? spot : super
  def respond_to_missing?(*) = true
end
Odd.new.defined_one { spot }
Odd.new.ghost
Odd.new.instance_eval { spot }
Odd.new.instance_exec(1) { |_| spot }
Odd.new.send(:ghost)
Odd.class_eval { spot }

eval("spot\nspot", binding, 'made.rb', 70)
20.times { |i| eval("def gen_#{i % 3}; spot; end; gen_#{i % 3}", TOPLEVEL_BINDING, "gen#{i}.rb", i + 1) }

def guarded
  begin
    spot
    raise 'x'
  rescue RuntimeError
    spot
  ensure
    spot
  end
end
2.times { guarded }
catch(:done) { [1].each { spot; throw :done } }
begin
  [1, 2].each do |x|
    raise 'y' if x == 2
  ensure
    spot
  end
rescue RuntimeError
  spot
end

a = proc { spot }
b = lambda { a.call }
b.call
b.()
[1, 2].each(&a)

e = Enumerator.new { |y| 3.times { spot; y << 1 } }
e.next
e.next
f = Fiber.new { spot; Fiber.yield; two; 1 }
f.resume
f.resume
4.times.map { |i| Thread.new { (i + 1).times { one }; Thread.pass; down(3) } }.each(&:join)
200.times { |i| Fiber.new { down(i % 4); Fiber.yield; one }.then { |x| x.resume; x.resume if i.even? } }
