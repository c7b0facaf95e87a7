# The calibration child's script: builds objects, code and stacks of known shape, says what it built,
# and sits still. Runs on every Ruby from 2.7; what a Ruby lacks is left out and then not learned.
# Each line is one fact: a word, then addresses (hex) and numbers; text is hex so that words stay words.
# Nothing here may be freed or moved: no GC runs, all samples hang on a constant.

GC.disable
$stdout.sync = false
KEEP = []
ADDRESS = Kernel.instance_method(:to_s)
def at(object)
  KEEP << object
  ADDRESS.bind(object).call[/0x(\h+)>?\z/, 1] || ADDRESS.bind(object).call[/0x(\h+)/, 1]
end
def hex(text)
  text.to_s.empty? ? "-" : text.to_s.unpack("H*")[0]
end
def fact(*words)
  puts words.join(" ")
end

# --- objects ---------------------------------------------------------------------------------------
class ScryCalibrationPlainObject; end
Array.new(200) { ScryCalibrationPlainObject.new }.each { |o| fact "slot", at(o) }
SELF = ScryCalibrationPlainObject.new

[1, 2, 3, 5, 8, 13, 16, 19, 22, 23].each do |n|
  s = +""
  n.times { |i| s << (97 + (i * 7 + n) % 26).chr }
  fact "string", at(s.dup), n, hex(s)
end
[1000, 1500, 2001, 4000].each do |n|
  s = +""
  n.times { |i| s << (65 + (i * 5 + n) % 26).chr }
  fact "string", at(s), n, hex(s)
end

OBJECTS = Array.new(120) { ScryCalibrationPlainObject.new }
[1, 2, 3, 100, 110].each do |n|
  first = OBJECTS.first(n)
  list = []
  first.each { |o| list << o }
  list = [first[0]] if n == 1
  list = [first[0], first[1]] if n == 2
  list = [first[0], first[1], first[2]] if n == 3
  fact "array", at(list), n, at(first[0]), at(first[n - 1])
end

# --- classes ---------------------------------------------------------------------------------------
module ScryCalibrationModuleWithALongName
  class InnerClassOfTheModule; end
  module InnerModuleOfTheModule
    class ThirdLevelOfNesting; end
  end
end
class ScryCalibrationOneMoreClass < ScryCalibrationPlainObject
  @first_variable = 1
  @second_variable = 2
  SOME_CONSTANT = 3
end
# Named late: variables came first.
ScryCalibrationNamedLate = Class.new.tap { |c| c.instance_variable_set(:@one, 1) }
ScryCalibrationNamedLater = Class.new.tap { |c| 3.times { |i| c.instance_variable_set("@three#{i}", i) } }
[ScryCalibrationPlainObject, ScryCalibrationModuleWithALongName, ScryCalibrationOneMoreClass,
 ScryCalibrationNamedLate, ScryCalibrationNamedLater,
 ScryCalibrationModuleWithALongName::InnerClassOfTheModule, Object, String, Thread, Comparable,
 ScryCalibrationModuleWithALongName::InnerModuleOfTheModule, Process::Status,
 ScryCalibrationModuleWithALongName::InnerModuleOfTheModule::ThirdLevelOfNesting].each do |c|
  fact "class", at(c), hex(c.name)
end
[ScryCalibrationPlainObject, ScryCalibrationOneMoreClass, ScryCalibrationNamedLate,
 ScryCalibrationOneMoreClass.singleton_class, Integer, Process::Status].each do |c|
  fact "super", at(c), at(c.superclass)
end

3.times do
  outer = Class.new
  outer.const_set(:ScryInner, Class.new)
  fact "tempclass", at(outer::ScryInner), hex(outer::ScryInner.name || "-")
  fact "anonymous", at(outer)
end
[[8, 0], [11, 2], [10, 0], [13, 3], [9, 1]].each do |bound, start|
  c = Class.new
  bound.times { |i| c.instance_variable_set("@v#{i}", i + 1000) }
  start.times { |i| c.remove_instance_variable("@v#{i}") }
  c.send(:remove_instance_variable, "@v#{bound / 2 + 1}") if start != 0
  fact "table", at(c), start, bound
end
3.times do
  o = ScryCalibrationPlainObject.new
  def o.only_mine; end
  fact "singleton", at(o.singleton_class), at(o)
end
[ScryCalibrationPlainObject, ScryCalibrationOneMoreClass].each do |c|
  fact "singleton", at(c.singleton_class), at(c)
end

# --- code ------------------------------------------------------------------------------------------
ISEQS = []
# Tells one piece of code: each instruction's position, name and line as the VM itself lists them.
def tell_iseq(iseq)
  rows = []
  line = position = 0
  iseq.to_a.last.each do |e|
    line = e if e.is_a?(Integer)
    next unless e.is_a?(Array)
    rows << [position, e[0], line]
    position += e.size
  end
  fact "iseq", at(iseq), hex(iseq.label), hex(iseq.path), iseq.first_lineno, position
  rows.each { |p, name, l| fact "insn", p, name, l }
  ISEQS << iseq
  rows
end

class ScryCalibrationPlainObject
  def scry_recursion_with_a_long_name(depth)
    if depth == 0
      scry_wait
    else
      scry_recursion_with_a_long_name(
        depth - 1)
    end
  end

  def scry_wait
    Thread.current[:ready] = true
    sleep
  end

  # Methods written in C, an operator among them, that call back into Ruby.
  def <=>(_)
    "x".each_byte { {1 => 2}.each_value { instance_exec { scry_recursion_with_a_long_name(3) } } }
  end

  def scry_c_methods
    [self] <=> [3]
  end

  def scry_temporaries
    [11, 22, 33,
     scry_wait]
  end
end
long = +"class ScryCalibrationPlainObject\n"
["a", "b"].each do |tag|
  long << "def scry_long_method_#{tag}(where)\n  n = 0\n"
  150.times do |i|
    long << "  n += where + #{i + 3}\n"
    long << "  scry_wait if where == #{i}\n" if [1, 5, 9, 60, 149].include?(i)
    long << "\n" * (i % 4)
  end
  long << "  n\nend\n"
end
long << "end\n"
eval(long, TOPLEVEL_BINDING, "scry_calibration_eval", 7)

SMALL = proc { |a| a }
NESTED = proc do |a|
  a.to_s
  a.inspect +
    a.to_s
end
kernel = ScryCalibrationPlainObject
[:scry_recursion_with_a_long_name, :scry_wait, :scry_temporaries, :scry_long_method_a,
 :scry_long_method_b].each { |m| tell_iseq(RubyVM::InstructionSequence.of(kernel.instance_method(m))) }
tell_iseq(RubyVM::InstructionSequence.of(method(:tell_iseq)))
tell_iseq(RubyVM::InstructionSequence.of(SMALL))
tell_iseq(RubyVM::InstructionSequence.of(NESTED))
4.times do |i|
  src = "\n" * i + "a = #{i}\nb = [a, a]\nc = b.map { |x|\n x + #{i} }\nputs(a,\n b,\n c)\n" * (i * 5 + 1)
  tell_iseq(RubyVM::InstructionSequence.compile(src, "scry_file_#{i}", nil, 11 * i + 3))
end

# --- which instructions allocate, and where pc stands meanwhile -----------------------------------
# "x =\n EXPR": EXPR's last instruction has its own line and the store that follows has another. Ruby
# computes the line of an allocation from (pc + 1) - 1 words, that is, from pc itself: the instruction's own line
# means that pc stood AT it (a leaf), the store's line means that pc had moved on. A line named through a C
# method's frame proves nothing: allocation_method_id is not nil then. EXPR must make a new object.
LEAF = <<'END'.split("\n")
|'lit'
|[1, 2, 3]
|{a: 1}
a = 1|[a, a]
a = 1|[]
a = 1|{a => a}
a = 1|{}
a = 1|(a..3)
a = 'b'|"z#{a}"
a = 'b'|a + a
a = [1]|a + a
a = 2**70|a + a
a = 2**62 - 1|a + 1
a = 1.0e-300|a + 1.0e-301
a = [1]|a - a
a = 2**70|a - 1
a = 1.0e-300|a - 1.0e-301
a = 2**70|a * 3
a = 2**62 - 1|a * a
a = 'b'|a * 3
a = 1.0e-300|a * 0.1
a = 2**90|a / 3
a = 1.0e-300|a / 10.0
a = 2**90; b = 2**80 + 1|a % b
a = 'b%d'|a % 5
a = 1.0e-300|a % 1.0e-301
a = [1]|a & a
a = 2**70; b = 2**71 - 1|a & b
a = [1]|a | a
a = 2**70; b = 2**71 - 1|a | b
a = 1|a << 80
a = 'abcd'|a[0..1]
a = 'abcd'|a[1]
a = [1, 2, 3]|a[0..1]
a = {1 => 2}|a[0..1]
a = 'b'|/#{a}z/
a = 'scrydyn'|:"#{a}#{rand(1 << 40)}"
a = 1..3|[*a]
a = [1]|[*a]
a = [1]|[*a, *a]
a = [1]|[1, *a]
a = [1]|[*a, 1]
a = 'az'|a.succ
a = 2**62 - 1|a.succ
a = 'q'; a =~ /(q)/|$1
a = 'q'; a =~ /(q)/|$&
a = 5|defined?(a.to_s)
a = Object.new|"#{a}"
a = 5|-a
|->{}
|proc {}
a = [3]|[1, 2, *a, {b: a}]
a = {b: 1}|{**a}
a = {b: 1}|{c: 2, **a}
|__method__
|3.7e-310
|'abc'.freeze
|-'abc'
END
TYPES = {"Object" => 1, "Float" => 4, "String" => 5, "Regexp" => 6, "Array" => 7, "Hash" => 8,
         "Range" => 9, "Integer" => 10, "Proc" => 12, "MatchData" => 13, "Symbol" => 20}
def try_leaf(iseq, run)
  KEEP << iseq
  rows = tell_iseq(iseq)
  store = rows.rindex { |_, name, _| name.to_s.start_with?("setlocal") }
  return unless store && store > 0
  position, name, own = rows[store - 1]
  return if name.to_s =~ /send|invoke/ # calls: they always push a frame
  after_position, _, after = rows[store]
  before = store > 1 ? rows[store - 2][2] : -1
  x = nil
  ObjectSpace.trace_object_allocations { x = run.call }
  KEEP << x
  return unless ObjectSpace.allocation_sourcefile(x) == "scry_leaf"
  line = ObjectSpace.allocation_sourceline(x)
  through_c = [nil, :scry_block_parameter].include?(ObjectSpace.allocation_method_id(x)) ? 0 : 1
  fact "leaf", position, after_position - position, name, TYPES[x.class.name] || 0, line, before, own,
       after, through_c
end
def try_row(setup, expression)
  iseq = RubyVM::InstructionSequence.compile("#{setup}\nx =\n#{expression}\nx", "scry_leaf", nil, 1)
  try_leaf(iseq, iseq.method(:eval))
rescue SyntaxError, StandardError
  nil
end
# A block parameter becomes a Proc when it is first read.
def try_block
  eval("def scry_block_parameter(&b)\nx =\nb\nx\nend", TOPLEVEL_BINDING, "scry_leaf", 1)
  try_leaf(RubyVM::InstructionSequence.of(method(:scry_block_parameter)), proc { scry_block_parameter {} })
rescue SyntaxError, StandardError
  nil
end
begin
  require "objspace"
  LEAF.each { |row| try_row(*row.split("|", 2)) }
  try_block
rescue LoadError
  nil
end

# --- heap pages: slots of each size that this Ruby has --------------------------------------------------
# 240 objects of one size do not fit into one page, so that each size tells of several.
if ObjectSpace.respond_to?(:dump)
  [1, 7, 17, 37, 75].each do |n|
    list = Array.new(240) { Array.new(n) }
    list.each_slice(12) do |part|
      size = ObjectSpace.dump(part[0])[/"slot_size":(\d+)/, 1]
      fact "page", at(part[0]), size if size
    end
  end
end
fact "gcstat", GC.stat.key?(:compact_count) ? 1 : 0

# --- event hooks and ractors ---------------------------------------------------------------------------
def start_ractor
  if defined?(Ractor::Port)
    port = Ractor::Port.new
    r = Ractor.new(port) do |to|
      to << Ractor.make_shareable([Thread.current.to_s, Object.new])
      sleep
    end
    [r, *port.receive]
  else
    r = Ractor.new do
      Ractor.yield(Ractor.make_shareable([Thread.current.to_s, Object.new]))
      sleep
    end
    [r, *r.take]
  end
end
# Does the allocation tracing of one ractor see an object of another, or crash when another starts (to
# 3.1.3)? Tried in a process of its own.
if defined?(Ractor) && ObjectSpace.respond_to?(:trace_object_allocations)
  $stdout.flush
  r, w = IO.pipe
  pid = fork do
    Thread.new { sleep 1; Process.exit!(false) }
    seen = ObjectSpace.trace_object_allocations { start_ractor }
    w.write(ObjectSpace.allocation_sourcefile(seen[2]) ? "1" : "0")
    w.close
    Process.exit!(true)
  end
  w.close
  said = r.read if IO.select([r], nil, nil, 2)
  Process.kill(:KILL, pid)
  Process.wait(pid)
  fact "hooks", said.to_s.empty? ? "crash" : said
end

# --- stacks ----------------------------------------------------------------------------------------
THREADS = []
THREADS << Thread.new { SELF.scry_recursion_with_a_long_name(24) }
[1, 5, 9, 60, 149].each { |n| THREADS << Thread.new { SELF.scry_long_method_a(n) } }
THREADS << Thread.new { SELF.scry_temporaries }
THREADS << Thread.new { SELF.scry_c_methods }
THREADS.each { |t| Thread.pass until t[:ready] && t.stop? }

def tell_thread(thread, native)
  fact "thread", at(thread), native || 0
  (thread.backtrace_locations || []).each { |l| fact "frame", hex(l.base_label), l.lineno, hex(l.path) }
end
def native_id(thread)
  thread.respond_to?(:native_thread_id) ? thread.native_thread_id : 0
end
THREADS.each { |t| tell_thread(t, native_id(t)) }
fact "self", at(SELF)
fact "main", at(Thread.current), native_id(Thread.current)

if defined?(Ractor)
  # Ractor.main is newer than Ractor itself; the count of ractors is one more proof.
  fact "ractor", at(Ractor.current), at(Thread.current)
  seen = start_ractor
  KEEP << seen
  fact "ractor", at(seen[0]), seen[1][/0x(\h+)/, 1]
end

fact "ready"
$stdout.flush
sleep
