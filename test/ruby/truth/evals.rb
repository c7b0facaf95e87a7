# Code made at run time: eval with a name and a line, instance_eval, class_eval, define_method, and
# many short-lived instruction sequences while the collector runs.
# file: generated.erb
# file: looped.erb
# file: template.erb

class Target
end

# The collector may not take these out of the VM's table of frozen strings, or the next eval would make
# them again: how often depends on when it runs.
PINNED = ["a".freeze, "b".freeze, "x".freeze, "c".freeze, "m".freeze, "iv".freeze].freeze

def named(n)
  n.times { eval("a = 'x'\nb = [a]\n{ b => a }", binding, "generated.erb", 10) }
  n.times { eval("\n'far' + 'away'\n", nil, "generated.erb", 100) }
end

def bodies(n)
  t = Target.new
  n.times { t.instance_eval("@a = 'iv'; [@a]", "generated.erb", 20) }
  n.times { t.instance_eval { @b = ["iv"] } }
  n.times { t.instance_exec(1) { |x| @c = [x] } }
  Target.class_eval("def made(x)\n  [x, 'm']\nend\n", "generated.erb", 30)
  n.times { t.made(1) }
  Target.class_eval { def direct(x) = [x, "d"] }
  n.times { t.direct(1) }
  Target.send(:define_method, :defined) { |x| [x, "b"] }
  n.times { t.defined(1) }
  Target.module_eval("def self.on_class = 'c'", "generated.erb", 40)
  n.times { Target.on_class }
  t.define_singleton_method(:single) { "s" }
  n.times { t.single }
end

# The instruction sequence of each round dies before the next rounds: its address is used again.
# (The empty arrays make the collector run; GC.start would run it in truth mode, too.)
def loops
  200.times do |i|
    eval("x = 'a'\n" * (i % 7) + "y = ['b', #{i}]\n", nil, "looped.erb", 1)
    2000.times { [] }
  end
end

def templates(n)
  body = "_o = +''\n3.times do |i|\n  _o << \"row \#{i}\" << [i].to_s\nend\n_o"
  n.times { eval(body, nil, "template.erb", 1) }
  compiled = eval("proc { |name|\n  \"hello \#{name}\"\n}", nil, "template.erb", 50)
  n.times { compiled.call("x") }
end

def sequences(n)
  n.times { RubyVM::InstructionSequence.compile("1 + 1").eval }
end

def work
  named(20)
  bodies(20)
  loops
  templates(20)
  sequences(10)
end

work

# Where the VM names the line of the next instruction:
# late: template.erb:51 String: ruby=0 scry=20
# late: template.erb:52 String: ruby=20 scry=0

# Where the VM changed the class word after the birth (doc/TRUTH.md):
# born: 15 Hash: ruby=0 scry=20
# born: 16 Hash: ruby=0 scry=20
# born: 21 Hash: ruby=0 scry=20
# born: 24 Hash: ruby=0 scry=1
# born: 30 Hash: ruby=0 scry=1
# born: 40 Hash: ruby=0 scry=200
# born: 47 Array: ruby=40 scry=100
# born: 47 Hash: ruby=0 scry=20
# born: 48 Array: ruby=2 scry=5
# born: 48 Hash: ruby=0 scry=1
# born: 53 Hash: ruby=0 scry=10
