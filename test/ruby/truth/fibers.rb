# Fibers and external enumerators: the same lines on other stacks.

def generator(n)
  Fiber.new do
    n.times { |i| Fiber.yield("item #{i}") }
    :done
  end
end

def plain(n)
  f = generator(n)
  (n + 1).times { f.resume }
  f.alive?
end

def nested(n)
  n.times do
    outer = Fiber.new do |x|
      inner = Fiber.new { |y| Fiber.yield([y]); "in" }
      a = inner.resume(x)
      b = Fiber.yield(a + ["out"])
      inner.resume + b
    end
    outer.resume("a")
    outer.resume("b")
  end
end

def external(n)
  e = [1, 2, 3].each
  n.times do
    begin
      loop { [e.next] }
    rescue StopIteration
      nil
    end
    e.rewind
  end
end

def made(n)
  e = Enumerator.new do |y|
    a, b = 0, 1
    loop { y << "f#{a}"; a, b = b, a + b }
  end
  n.times { e.take(5) }
  n.times { e.lazy.map { |s| s + "!" }.select { |s| s.size > 2 }.first(3) }
  e.next + e.next + e.peek
  Enumerator.produce(1) { |x| x * 2 }.take(5)
  (e.each_slice(2).first(2)).flatten
end

def errors(n)
  n.times do
    f = Fiber.new { raise ArgumentError, "in fiber" }
    begin
      f.resume
    rescue ArgumentError => e
      e.message + "!"
    end
  end
end

def work
  plain(100)
  nested(20)
  external(5)
  made(10)
  errors(10)
end

work

# Where the VM changed the class word after the birth (doc/TRUTH.md):
# born: 50 Hash: ruby=0 scry=1
