# make.rb TRUTH [wait]: makes thousands of each kind of object, each kind on a line of its own and of one size, and
# writes "LINE CLASS COUNT BYTES_OF_EACH" as ObjectSpace.memsize_of says. Some kinds are kept, of others only
# the last. With `wait` it prints "ready" and waits for a line first, and for another one at the end.
require "objspace"
truth = File.open(ARGV[0], "w")
if ARGV[1]
  $stdout.puts "ready"
  $stdout.flush
  $stdin.gets
end
N = 3000
X = "x"
BIG = 2**70
Pair = Struct.new(:a, :b)
class Few; def initialize; @a = @b = 1; end; end
class Many; def initialize; @a = @b = @c = @d = @e = @f = @g = @h = @i = @j = 1; end; end
$kept = []
$said = []
def said(line, object, count = N)
  $said << [line, object.class.name, count, ObjectSpace.memsize_of(object)]
end
last = nil
i = 0
say = ->(line) { said(line, last) }
(i = 0; while i < N; last = X * 10; i += 1; end); say.(__LINE__)
(i = 0; while i < N; last = X * 500; i += 1; end); say.(__LINE__)
(i = 0; while i < N; last = X * 700; i += 1; end); say.(__LINE__)
(i = 0; while i < N; $kept << (last = X * 90); i += 1; end); say.(__LINE__)
(i = 0; while i < N; $kept << (last = X * 900); i += 1; end); say.(__LINE__)
(i = 0; while i < N; last = Object.new; i += 1; end); say.(__LINE__)
(i = 0; while i < N; $kept << (last = Few.new); i += 1; end); say.(__LINE__)
(i = 0; while i < N; last = Many.new; i += 1; end); say.(__LINE__)
(i = 0; while i < N; $kept << (last = Array.new(3)); i += 1; end); say.(__LINE__)
(i = 0; while i < N; last = Array.new(20); i += 1; end); say.(__LINE__)
(i = 0; while i < N; last = Array.new(200); i += 1; end); say.(__LINE__)
(i = 0; while i < N; last = {a: i, b: i}; i += 1; end); say.(__LINE__)
(i = 0; while i < N; last = {a: i, b: i, c: i, d: i, e: i, f: i, g: i, h: i, i: i, j: i}; i += 1; end); say.(__LINE__)
(i = 0; while i < N; $kept << (last = {a: i, b: i, c: i, d: i, e: i, f: i, g: i, h: i, i: i, j: i}); i += 1; end); say.(__LINE__)
(i = 0; while i < N; last = Pair.new(1, 2); i += 1; end); say.(__LINE__)
(i = 0; while i < N; last = Rational(i, 7919); i += 1; end); say.(__LINE__)
(i = 0; while i < N; last = Complex(i, 1); i += 1; end); say.(__LINE__)
(i = 0; while i < N; last = 1.5e300 * i + 1e300; i += 1; end)
(i = 0; while i < N; last = BIG + i; i += 1; end); say.(__LINE__)
(i = 0; while i < N; last = X.match(/x/); i += 1; end); say.(__LINE__)
said = $said.map { |row| row.join(" ") }.join("\n")
truth.puts said
truth.close
if ARGV[1]
  $stdout.puts "done"
  $stdout.flush
  $stdin.gets
end
