# Methods written in C: what they make counts on the line of the Ruby code that called them.

Point = Struct.new(:x, :y)

def conversions(n)
  n.times do |i|
    (i + 1000).to_s
    i.to_s(2)
    i.digits
    i.fdiv(3).to_s
    Integer("12", 8)
    Float("1.5e300")
    String(i)
    sprintf("%08.3f|%x|%-10s", i, i, "s")
    format("%<a>d %<b>s", a: 1, b: "c")
    i.chr
    :sym.to_proc.call("s") rescue nil
    :sym.to_s
  end
end

def searching(n)
  n.times do
    "a,b,c".split(",")
    "a b c".split
    "a1b22".scan(/\d+/)
    "a1b22".scan(/([a-z])(\d+)/)
    "a1b22".scan(/\d/) { |m| m }
    "a-b".match(/(?<l>\w)-(?<r>\w)/)
    "a-b" =~ /-/
    "a-b".match?(/-/)
    "a-b".sub("-", "+")
    "a-b".gsub(/[ab]/, "x")
    "a-b".tr("a", "b").each_char.to_a
    "a-b".start_with?("a")
    "abc".each_byte.to_a
    "2024-01-02"[/(\d+)-(\d+)/, 2]
  end
end

def structs(n)
  n.times do |i|
    p = Point.new(i, i)
    p.to_a
    p.to_h
    p.inspect
    p.dup
    p == Point.new(1, 2)
    p.each { |v| v }
    p.members
    Comparable.instance_method(:clamp)
    i.clamp(1, 5)
  end
end

def marshal(n)
  n.times do
    s = Marshal.dump([1, "two", { three: 3.5 }, 2**70])
    Marshal.load(s)
    Marshal.load(Marshal.dump(Point.new("a", :b)))
  end
end

def enumerables(n)
  n.times do
    [3, 1, 2].sort_by { |x| -x }
    [3, 1, 2].map { |x| x.to_s }
    (1..6).each_slice(2) { |s| s }
    (1..6).each_slice(4).to_a
    (1..4).each_cons(2).map { |a, b| a + b }
    (1..4).each_with_index { |a, i| a }
    (1..4).zip(5..8)
    (1..4).reduce(:+)
    (1..4).each_entry { |x| x }
    (1..4).min_by { |x| -x }
    (1..4).minmax
    (1..10).step(3).to_a
    1.step(10, 4) { |x| x }
    1.upto(3).map { |x| x }
    3.times.to_a
    (1..3).inject { |a, b| a + b }
    ("a".."e").to_a
    ("a".."e").each { |s| s }
    [1, 2, 3, 4].each_slice(2).with_index.map { |s, i| [s, i] }
  end
end

def others(n)
  n.times do
    Object.new
    Object.new.inspect.size
    Random.new(42).bytes(8)
    Random.new(1).rand(1.0)
    [1, 2, 3].shuffle(random: Random.new(3))
    Object.new.singleton_methods
    Process.clock_gettime(Process::CLOCK_MONOTONIC, :float_second)
    File.join("a", "b")
    File.basename("/a/b.rb", ".rb")
    File.expand_path("x", "/tmp")
    Dir.pwd
    ENV["HOME"]
    ENV.fetch("NOT_THERE", "d")
    ObjectSpace::WeakMap.new
    Thread.current.name
    Math.sqrt(2)
    rand(1)
    caller(0)
    caller_locations(0)
    __dir__
    Kernel.instance_method(:then)
    String.instance_methods(false).size
    Class.name.to_s + Comparable.to_s
  end
end

def work
  conversions(30)
  searching(30)
  structs(30)
  marshal(30)
  enumerables(30)
  others(30)
end

work

# Where the VM changed the class word after the birth (doc/TRUTH.md):
# born: 3 Array: ruby=0 scry=1
# born: 3 Hash: ruby=0 scry=1
