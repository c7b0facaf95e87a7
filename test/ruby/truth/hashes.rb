# Hashes: literals, string keys, defaults, iteration, transformation, comparison by identity.

def literals(n, a, b)
  n.times do
    x = { a => b }
    y = { one: 1, two: 2 }
    z = {}
    w = { **y, three: 3 }
    v = { "key" => 1, a.dup => 2 }
    u = { a:, b: }
    t = Hash[[[1, 2], [3, 4]]]
    [x, y, z, w, v, u, t]
  end
end

# The first comparison of two arrays makes a Hash; without this one it would be made wherever two
# keys' hashes collide, which differs from run to run, as their seed does.
def keys(n)
  [n].eql?([0])
  h = {}
  n.times do |i|
    h["key#{i}"] = i
    h["key#{i}"]
    h[[i, i]] = "v"
    h[i.to_f / 3] = nil
    h[i] ||= "d"
  end
  h.size
end

def defaults(n)
  h = Hash.new { |hash, k| hash[k] = [k] }
  n.times { |i| h[i] << i }
  g = Hash.new("x")
  n.times { |i| g[i] + "y" }
end

def operations(n)
  h = { a: 1, b: 2, c: 3 }
  n.times do
    h.dup
    h.merge({ d: 4 })
    h.merge({ a: 4 }) { |_, x, y| [x, y] }
    h.map { |k, v| [k, v] }
    h.each { |k, v| [k, v] }
    h.each_pair { |pair| pair }
    h.select { |_, v| v > 1 }
    h.reject { |_, v| v > 1 }
    h.min_by { |_, v| v }
    h.sort_by { |_, v| -v }
    h.to_a
    h.keys + h.values
    h.invert
    h.transform_values { |v| v.to_s }
    h.transform_keys(&:to_s)
    h.group_by { |_, v| v.odd? }
    h.partition { |_, v| v.odd? }
    h.each_with_object({}) { |(k, v), m| m[v] = k }
    h.inject(0) { |s, (_, v)| s + v }
    h.sum { |_, v| v }
    h.find { |_, v| v == 2 }
    h.filter_map { |k, v| k if v > 1 }
    h.any? { |k, v| v > 5 }
    h.to_h { |k, v| [v, k] }
    h.inspect
    h.slice(:a, :b).compact
    h.reduce { |a, b| a }
    h.zip([1, 2])
    h.dig(:a)
    h.sort.first
  end
end

def large(n)
  h = {}
  n.times { |i| h[i.to_s] = i }
  h.delete_if { |_, v| v.even? }
  h.rehash
  h.to_a.size
end

def work
  literals(50, "a", "b")
  keys(200)
  defaults(50)
  operations(30)
  large(500)
end

work
