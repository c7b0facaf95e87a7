# Threads that stand still, each in another shape of code. Prints what Ruby says of each: its name,
# then "path\tline\tlabel" of each frame, the newest first.
module Deep
  class Shape
    def plain = stop
    def with_block = [1].each { |x| x.then { stop } }
    def self.single = stop
    class << self
      def inner = yield
    end
    def long_lines(
      a = 1,
      b = 2
    )
      c = a +
          b
      c.times do
        stop
      end
    end
    def rescued
      raise "x"
    rescue RuntimeError
      stop
    end
    def ensured
      1
    ensure
      stop
    end
    def recursion(n) = n.zero? ? stop : recursion(n - 1)
    define_method(:defined) { |x = 1| stop }
    def method_missing(name, *rest) = name == :ghost ? stop : super
    def respond_to_missing?(*) = true
    alias other plain
    def evaluated = eval("\n\nstop", binding, "given.rb", 70)
    def by_string = instance_eval("stop", "in_string.rb", 5)
    def kept
      x = 1
      @keep = -> { x }
      stop
    end
    def curried = method(:stop).to_proc.call
    def sorted = [2, 1].sort_by { |x| stop }
    def spread(*args, key: 1, **rest, &block) = stop
    def through_send = send(:plain)
    def public = public_send(:kept)
    def heavy
      a = [1, 2, 3].map { |x| x * 2 }
      b = a.each_with_index.map do |x, i|
        x + i
      end
      c = b.reduce(:+)
      d = "#{a} #{b} #{c}"
      e = { a => b, c => d }
      f = e.map { |k, v| [k, v] }
      g = f.flatten.size
      h = g > 3 ? g : 0
      i = h + g
      j = i.to_s * 2
      k = j.bytes.sum
      l = k.times.to_a.first(3)
      m = l.each_slice(2).to_a
      n = m.dig(0, 0)
      o = [n, m, l, k, j, i, h].compact.size
      stop if o
      p o
    end
  end
  module Mixin
    def mixed = stop
    module_function
    def func = stop
  end
  class Child < Shape
    include Mixin
    def plain = super
    private def stop = (Thread.current[:stands] = true; sleep)
  end
  class Shape
    private def stop = (Thread.current[:stands] = true; sleep)
    def self.stop = (Thread.current[:stands] = true; sleep)
  end
end
def Deep.stop = (Thread.current[:stands] = true; sleep)
module Deep::Mixin
  def self.stop = (Thread.current[:stands] = true; sleep)
end
def toplevel = (Thread.current[:stands] = true; sleep)
ANONYMOUS = Class.new(Deep::Shape) { def unnamed = stop }
OBJECT = Object.new
def OBJECT.own = (Thread.current[:stands] = true; sleep)

SHAPES = {
  plain: -> { Deep::Shape.new.plain }, with_block: -> { Deep::Shape.new.with_block },
  single: -> { Deep::Shape.single }, inner: -> { Deep::Shape.inner { Deep.stop } },
  long_lines: -> { Deep::Shape.new.long_lines }, rescued: -> { Deep::Shape.new.rescued },
  ensured: -> { Deep::Shape.new.ensured }, recursion: -> { Deep::Shape.new.recursion(40) },
  defined: -> { Deep::Shape.new.defined }, ghost: -> { Deep::Shape.new.ghost },
  other: -> { Deep::Shape.new.other }, evaluated: -> { Deep::Shape.new.evaluated },
  by_string: -> { Deep::Shape.new.by_string }, kept: -> { Deep::Shape.new.kept },
  curried: -> { Deep::Shape.new.curried }, sorted: -> { Deep::Shape.new.sorted },
  spread: -> { Deep::Shape.new.spread(1, key: 2, z: 3) { 4 } }, send: -> { Deep::Shape.new.through_send },
  public: -> { Deep::Shape.new.public }, heavy: -> { Deep::Shape.new.heavy },
  super: -> { Deep::Child.new.plain }, mixed: -> { Deep::Child.new.mixed },
  func: -> { Deep::Mixin.func }, toplevel: -> { toplevel },
  unnamed: -> { ANONYMOUS.new.unnamed }, own: -> { OBJECT.own },
  fiber: -> { Fiber.new { toplevel }.resume }, enumerator: -> { Enumerator.new { |y| toplevel; y << 1 }.next },
  proc: proc { proc { |x| toplevel }.call(1) }, class_body: -> { Class.new { Deep.stop } },
  at_class: -> { eval("class InBody; Deep.stop; end") },
  catch: -> { catch(:x) { toplevel } }, tap: -> { 1.tap { toplevel } }, step: -> { 1.step(2) { toplevel } },
  hash: -> { Hash.new { |h, k| toplevel }[1] }, compare: -> { [OBJECT, OBJECT].each_with_object([]) { toplevel } },
}.freeze

threads = SHAPES.map do |name, shape|
  t = Thread.new { Thread.current.name = name.to_s; shape.call }
  Thread.pass until t[:stands] && t.stop?
  t
end
threads.each do |t|
  puts "thread #{t.name}"
  t.backtrace_locations.each { |l| puts "#{l.path}\t#{l.lineno}\t#{l.label}" }
end
puts "ruby #{RUBY_VERSION}"
$stdout.flush
sleep
