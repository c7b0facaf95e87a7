# Makes thousands of objects of each kind that scry can measure, in all the states in which they hold their
# content, then writes every living object of the heap as the VM sees it (ObjectSpace.dump_all) to
# ARGV[0], the addresses of those with instance variables to ARGV[0].own, and sits still. Hidden objects
# are in the first list too.
require "objspace"
require "json"
require "set"
require "time"

KEPT = []
random = Random.new(4711)
def text(random, size)
  (0...size).map { (97 + random.rand(26)).chr }.join
end

800.times do |i|
  s = text(random, random.rand(200))
  KEPT << s << s.dup << s[3..-1] << s * random.rand(20) << s.to_sym << -s << s.to_sym.to_s
  KEPT << (String.new(capacity: random.rand(5000)) << s) << s.dup.freeze << s.b << "#{s}\u00e9#{i}" << s.unpack("a*")[0]
  KEPT << (s * 9).slice(20, 900) << s.split("e") << s.gsub("a", "bcd") << "#{s}#{s}".tap { |x| x.clear if i % 5 == 0 }
  KEPT << s.encode("UTF-16LE") << (s * 12).encode("UTF-16BE") << (s * 9).encode("UTF-32LE") << (s * 8).encode("EUC-JP")
end
800.times do |i|
  a = Array.new(random.rand(60)) { |n| n.to_s }
  KEPT << a << a.dup << a.first(7) << a[2..-1] << a.map(&:to_sym) << a.each_slice(4).to_a << a.sort_by(&:size)
  KEPT << (a * 9).tap { |x| x.shift(random.rand(99)) } << (a * 3).tap { |x| x.pop(random.rand(50)) } << a.dup.freeze << (a * 4).drop(5)
  KEPT << [i] << [i, a] << [] << (a + a).freeze.last(30) << a.product([1, 2]).first(9) << a.dup.clear << a.permutation(1).first(2)
end
500.times do |i|
  n = random.rand(40)
  h = (0...n).each_with_object({}) { |k, x| x["key#{k}"] = k }
  KEPT << h << h.dup << h.invert << h.select { |_, v| v.odd? } << {} << {a: i} << h.merge({z: 1}) << h.to_a << h.compare_by_identity
  KEPT << Hash.new { |x, k| x[k] = k } << h.dup.tap { |x| x.keys.first(n / 2).each { |k| x.delete(k) } } << h.group_by { |_, v| v % 3 }
end
(9..40).each { |n| KEPT << eval("{#{(0...n).map { |i| "k#{i}: #{i}" }.join(",")}}") << Hash[*(1..2 * n)] }
8.times { |n| KEPT << (0...(3 << 2 * n)).each_with_object({}) { |k, x| x[k] = k } }

POINTS = (1..12).map { |n| Struct.new(*(1..n).map { |i| :"m#{i}" }) }
WIDE = Struct.new(*(1..90).map { |i| :"m#{i}" })
VALUES = defined?(Data.define) ? (1..6).map { |n| Data.define(*(1..n).map { |i| :"m#{i}" }) } : []
PLAIN = (0..30).map { |n| Class.new { define_method(:initialize) { |k| k.times { |i| instance_variable_set("@v#{i}", self) } } } }
500.times do |i|
  POINTS.each { |s| KEPT << s.new(i) }
  KEPT << WIDE.new(i) << (i..i + 1) << ("a".."b#{i}") << (i * 0.3)...(i * 0.7)
  VALUES.each { |s| KEPT << s.new(*[i] * s.members.size) }
  PLAIN.each_with_index { |c, n| KEPT << c.new(random.rand(n + 1)) }
  KEPT << 2**random.rand(3000) << -(3**random.rand(90)) << Rational(i, 7) << Complex(i, 2) << i * 1.0e-300 << "dynamic #{i}".to_sym
  KEPT << Object.new.tap { |o| random.rand(9).times { |v| o.instance_variable_set("@o#{v}", 1) } }
  KEPT << PLAIN[9].new(9).tap { |o| o.remove_instance_variable("@v#{random.rand(9)}") }
  KEPT << PLAIN[20].new(20).freeze << PLAIN[5].new(4).dup << POINTS[5].new(1).freeze << PLAIN[30].new(30).clone
  KEPT << Set.new((0..random.rand(30)).to_a) << Time.at(i) << Time.at(i).iso8601 << JSON.parse(%({"a": [#{i}, 2.5, "x#{i}"], "b": {"c": null}}))
  KEPT << "match #{i}".match(/m(\w+) (\d+)/) << proc { i } << [i].each << /r#{i}/ << i.method(:+)
end
mixed = Class.new
40.times { |i| KEPT << mixed.new.tap { |o| (i % 5).times { |v| o.instance_variable_set("@m#{i}_#{v}", 1) } } }
20.times { |i| KEPT << ("variables of its own " * i).tap { |s| s.instance_variable_set("@i", i) } << [i].tap { |a| a.instance_variable_set("@i", i) } }
KEPT.each_with_index { |o, i| o.object_id if i % 7 == 0 }
[Class, Module, Method].each { |c| ObjectSpace.each_object(c).first(50).each(&:to_s) }

3.times { GC.start }
3000.times { |i| KEPT << text(random, i % 90) << [i, i.to_s] << {i => [i]} } # young ones as well
GC.disable
File.open(ARGV[0], "w") { |f| ObjectSpace.dump_all(output: f) }
address = Kernel.instance_method(:to_s)
File.open("#{ARGV[0]}.own", "w") do |f|
  ObjectSpace.each_object { |o| f.puts address.bind(o).call[/0x\h+/] if Object === o && o.instance_variables.any? }
end
puts "ready"
$stdout.flush
sleep
