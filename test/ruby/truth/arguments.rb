# Arguments: optional, splat, keyword, double splat, forwarding, blocks, destructuring, patterns.

def positional(a, b = "b", *rest, last)
  [a, b, rest, last]
end

def keywords(a:, b: "b", **rest)
  rest
end

def mixed(a, *b, c: 1, **d, &e)
  e
end

def anonymous(*, **)
  nil
end

def forward(...)
  mixed(...)
end

def optional(a = [], b = {}, c: "c", d: [a])
  d
end

def last_hash(options = {})
  options
end

def nokey(**nil)
  "n"
end

def sums(*n) = n.sum

def calls(n)
  list = [1, 2, 3]
  opts = { a: 1, z: 2 }
  n.times do
    positional(1, 2)
    positional(1, 2, 3)
    positional(1, 2, 3, 4, 5)
    positional(*list)
    positional(*list, *list)
    keywords(a: 1)
    keywords(a: 1, b: 2, x: 3)
    keywords(**opts)
    keywords(**opts, b: 3)
    mixed(1)
    mixed(1, 2, c: 3, k: 4)
    mixed(1, *list, **opts) { "blk" }
    mixed(1, &:upcase)
    anonymous(1, 2, a: 3)
    forward(1, 2, c: 3)
    forward(1) { |x| x }
    optional
    optional(1, 2)
    optional("s", c: "cc")
    last_hash(a: 1)
    last_hash({ a: 1 })
    last_hash("k" => 1)
    nokey
    sums(*list, 4)
    sums(*1..4)
    send(:sums, *list)
    method(:sums).call(*list)
    public_send(:then) { |x| "t" }
  end
end

def assignments(n)
  n.times do
    a, b = 1, 2
    a, b = b, a
    c, (d, *e), f = 1, [2, 3, 4], 5
    *g, h = [1, 2, 3]
    i = *1..3
    j = *nil
    k, l = "a b".split
    a += 1
    m = [*"a".."c"]
    [c, d, e, f, g, h, i, j, k, l, m]
  end
end

def patterns(n)
  n.times do
    case { name: "x", list: [1, [2, 3]] }
    in { name: String => s, list: [Integer => a, [b, *c]] }
      [s, a, b, c]
    end
    case [1, 2, 3, 4]
    in [first, *, last]
      "#{first} #{last}"
    end
    { k: 1, o: 2 } => { k:, **rest }
    rest.size + k
    (5 in Integer | Float) ? "num" : "other"
  end
end

def work
  calls(30)
  assignments(30)
  patterns(30)
end

work

# Where the VM names the line of the next instruction:
# late: 20 Array: ruby=0 scry=60
# late: 20 Hash: ruby=0 scry=90
# late: 21 Array: ruby=60 scry=0
# late: 21 Hash: ruby=90 scry=0
# late: 89 Hash: ruby=0 scry=30
# late: 90 Hash: ruby=30 scry=0
