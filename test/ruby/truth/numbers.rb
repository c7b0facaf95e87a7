# Numbers, ranges, regexps, symbols: literals that allocate, and those that do not.

def bignums(n)
  big = 2**100
  n.times do |i|
    2**64 + i
    big + 1
    big - big + 1
    big * big
    big / 3
    big % 1_000_007
    big.divmod(12345)
    -big
    big << 3
    big >> 3
    big & (big - 1)
    big ^ 1
    big.to_s
    big.to_s(16)
    big.digits(1000)
    Integer.sqrt(big)
    big.pow(3, 1_000_003)
    (1 << 62) + (1 << 62)
    4611686018427387904 * 4
    big == 2**100
    big.hash
  end
end

def floats(n)
  huge = 1.0e300
  tiny = 1.0e-300
  n.times do |i|
    huge + i
    huge * 2.0
    huge - 1.0
    huge / 3
    -huge
    huge.to_s
    huge.to_i
    tiny + tiny
    i * huge
    i + tiny
    1.5 + i
    1.25.round(1).to_r
    huge.divmod(7.0e299)
    [huge, tiny].sum
    huge.floor(-298)
  end
end

def others(n)
  n.times do |i|
    3r + i
    1/3r
    2i * i
    Rational(i, 7)
    Complex(i, 1)
    "1/3".to_r
    0.1r + 1
    Rational("0.75").to_f
    i.to_c.abs
    3.7.rationalize(1/100r)
  end
end

def ranges(n)
  n.times do |i|
    (i..10)
    x = (1..i)
    y = (1..10)
    z = ("a"..i.to_s)
    w = (i..)
    x.to_a
    x.step(2).to_a
    y.each_slice(3).to_a
    z.cover?("b")
    y % 3
    x.inspect
    w.first(2)
    (1.0e300..2.0e300)
    (1..i).sum
    Range.new(1, i, true)
  end
end

def regexps(n)
  n.times do |i|
    /plain/
    /once #{i}/o
    /inter #{i}/
    Regexp.new("n#{i}")
    Regexp.union("a#{i}", /b/)
    Regexp.escape("a.b")
    /x/.source
    /y/i.inspect.size
    (/plain/ =~ "plain").to_s
  end
end

def symbols(n)
  kept = []
  n.times do |i|
    kept << :"sym#{i}"
    kept << "dyn#{i}".to_sym
    kept << :"sym#{i}".to_s.intern
    :plain.to_s
    :plain.name
    :plain.inspect
    :plain.to_proc
    :plain <=> :other
    %i[a b c]
    kept.last.size
  end
  kept
end

def times(n)
  n.times do
    t = Time.at(1_700_000_000, 123, :millisecond)
    u = t + 60
    u - t
    u.strftime("%Y-%m-%d")
    t.utc.to_s
    t.getlocal("+09:00")
    t.to_a
    t.round
    t <=> u
    Time.utc(2024, 2, 29)
    Time.now.to_f.to_i
    Process.clock_gettime(Process::CLOCK_REALTIME).to_i
  end
end

def work
  bignums(20)
  floats(20)
  others(20)
  ranges(20)
  regexps(20)
  symbols(20)
  times(20)
end

work

# Where the VM changed the class word after the birth (doc/TRUTH.md):
# born: 18 Integer: ruby=0 scry=2
