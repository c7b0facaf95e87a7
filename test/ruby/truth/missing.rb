# Dynamic dispatch: method_missing, respond_to_missing?, send, delegation, refinements, aliases.

class Ghost
  def method_missing(name, *args, **opts, &block)
    return super if name == :absent
    block ? block.call(args) : [name, args]
  end

  def respond_to_missing?(name, all = false)
    name.to_s.start_with?("g") || super
  end
end

class Proxy < BasicObject
  def initialize(to)
    @to = to
  end

  def method_missing(name, *args, &block)
    @to.__send__(name, *args, &block)
  end
end

module Loud
  refine String do
    def loud = upcase + "!"
  end
end

using Loud

class Base
  def hello(a, b = "b", *c, d:, e: "e", **f) = [a, b, c, d, e, f]
  alias hi hello
end

class Derived < Base
  def hello(...) = super(...)
end

class Plain < Base
  def hello(a, b = "bb", d: "d", **)
    super
  end
end

def ghosts(n)
  g = Ghost.new
  n.times do
    g.one
    g.two(1, 2)
    g.three(a: 1)
    g.four { |x| x.dup }
    g.respond_to?(:gone)
    g.public_send(:five, "x")
    g.absent rescue "rescued"
  end
end

def proxies(n)
  p = Proxy.new([3, 1, 2])
  n.times do
    p.sort
    p.map { |x| x.to_s }
    p.first(2)
    Proxy.new("s")
  end
end

def dispatch(n)
  d = Derived.new
  q = Plain.new
  n.times do
    "quiet".loud
    d.hello("a", d: 1)
    d.hi("a", "b", "c", d: 1, z: 2)
    q.hello("x")
    q.__send__(:hello, "y", d: "z")
    [1, 2].public_send(:map) { |x| [x] }
    Kernel.instance_method(:dup).bind_call("s")
    d.method(:hello).owner
    "str".then(&:upcase)
  end
end

def work
  ghosts(30)
  proxies(30)
  dispatch(30)
end

work

# Where the VM names the line of the next instruction:
# late: 43 Array: ruby=0 scry=60
# late: 43 Hash: ruby=60 scry=120
# late: 44 Array: ruby=60 scry=0
# late: 44 Hash: ruby=60 scry=0
# late: 82 Proc: ruby=0 scry=1
# late: 83 Proc: ruby=1 scry=0

# Where the VM changed the class word after the birth (doc/TRUTH.md):
# born: 25 Hash: ruby=0 scry=2
# born: 30 Hash: ruby=0 scry=1
