# Blocks, procs, lambdas, closures, method objects, yield with and without arrays.

def each_twice
  yield "one", 1
  yield ["two", 2]
end

def taken(&block)
  block
end

def passed(&block)
  each_twice(&block)
end

def called(&block)
  block.call("x")
end

def counter
  n = 0
  [-> { n += 1 }, -> { "#{n}" }]
end

def curry(n)
  n.times do
    add = ->(a, b) { [a, b] }
    add.curry[1][2]
    (add >> :first.to_proc).call("a", "b")
    add.arity
    add.parameters
    add.to_proc.call(1, 2)
  end
end

def procs(n)
  n.times do
    a = proc { |x| [x] }
    b = lambda { |x| "#{x}" }
    c = ->(x) { { x => x } }
    d = Proc.new { |x, y| y }
    a.call(1)
    a.(1)
    a[1]
    a.yield(1)
    b.call(2)
    c.call(3)
    d.call([1, 2])
    taken { |x| x }
    taken(&a)
    taken(&:upcase)
    called { |x| x + "y" }
    passed { |s, _| s + "z" }
  end
end

def methods_as_blocks(n)
  n.times do
    m = "text".method(:upcase)
    m.call
    m.unbind
    %w[a b].map(&method(:String))
    [1, 2].each(&method(:Array))
    %w[a b].each_with_index.map { |s, i| s * i }
    [[1, [2, 3]]].each { |a, (b, c)| [a, b, c] }
    [[1, 2]].each { |a, *b| b }
    [[1, 2]].map { _1 + _2 }
    1.then { |x| [x] }
    "t".tap { |t| t.dup }
  end
end

def work
  30.times { each_twice { |s, n| [s, n] } }
  30.times { counter.map(&:call) }
  curry(30)
  procs(30)
  methods_as_blocks(30)
end

work
