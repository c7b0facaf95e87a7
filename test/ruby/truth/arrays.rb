# Arrays: literals, splats, sharing, sorting, set operations, iteration.

def literals(n, a, b)
  n.times do
    [a, b]
    x = [a, b]
    y = [1, 2, 3]
    z = []
    w = [*x, *y]
    v = [a, *y, b]
    p, q = b, a
    h, *t = y
    (i, j), k = [x, y]
    [z, w, v, p, q, h, t, i, j, k]
  end
end

def sharing(n)
  big = (1..100).to_a
  n.times do
    big[1..50]
    big[0, 40]
    big.first(30)
    big.last(30)
    big.drop(10).take(20)
    big.dup.shift(5)
    big.rotate(3)
    big.each_slice(10) { |s| s }
    big.each_cons(90) { |s| s }
    big.partition(&:even?)
    big.combination(1).first(3)
  end
end

def operations(n)
  a = [3, 1, 2, 3]
  b = [2, 3, 4]
  n.times do
    a + b
    a - b
    a & b
    a | b
    a * 2
    a * ","
    a.sort
    a.sort { |x, y| y <=> x }
    a.sort_by { |x| -x }
    a.min(2) + a.max(2)
    a.uniq
    a.uniq { |x| x.odd? }
    a.reverse.compact.flatten
    a.zip(b)
    a.product(b)
    [a, [b, [a]]].flatten
    a.map { |x| [x] }
    a.flat_map { |x| [x, x] }
    a.each_with_index.map { |x, i| [x, i] }
    a.each_with_object([]) { |x, m| m << x }
    a.inject { |x, y| x + y }
    a.group_by { |x| x }
    a.tally
    a.chunk_while { |x, y| x < y }.to_a
    a.pack("C*").unpack("C*")
    a.inspect
    a.join("-")
    a.hash
    a.to_h { |x| [x, x] }
    a.values_at(0, 2, 9)
    a.permutation(2).to_a
    a.cycle.lazy.map { |x| x + 1 }.first(3)
  end
end

def growth(n)
  n.times do
    a = Array.new(5)
    b = Array.new(5) { |i| "s#{i}" }
    c = Array(1..3)
    c.push(4).unshift(0).insert(2, 9)
    c.concat(a, b)
    c.fill(0)
    c.delete_if { |x| x == 1 }
  end
end

def work
  literals(50, "a", "b")
  sharing(50)
  operations(30)
  growth(50)
end

work

# Where the VM changed the class word after the birth (doc/TRUTH.md):
# born: 49 Hash: ruby=0 scry=30
# born: 50 Hash: ruby=0 scry=30
# born: 54 Hash: ruby=0 scry=30
