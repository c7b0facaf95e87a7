# The calibration child's script: builds objects, code and stacks of known shape, says what it built,
# and sits still. Runs on every Ruby from 2.7; what a Ruby lacks is left out and then not learned.
# Each line is one fact: a word, then addresses (hex) and numbers; text is hex so that words stay words.
# Nothing here may be freed or moved: all samples hang on a constant, and GC runs only after the sizes.

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

# --- sizes -----------------------------------------------------------------------------------------
# "size ADDRESS MEMSIZE TAG FLAGS SLOT": every way in which a kind of object can hold its content, with values
# that are pointers and with room to spare, so that no field is the right one by chance.
# TAG: "ivars" has instance variables of its own though it is no plain object, "complex" is of a class with
# too many sets of variables, "hidden" is told by a wrapper.
# FLAGS now; they change when a String is scanned, and when a Ractor ends the transient heap (up to Ruby
# 3.2), which holds small contents until it is full: so this section comes early. "-": not known.
# SLOT: 0 where Ruby does not say it; then all slots have one size.
MEMORY = begin
  File.open("/proc/self/mem", "rb")
rescue SystemCallError
  nil
end
def slot_of(object)
  SLOTS_DIFFER ? ObjectSpace.dump(object)[/"slot_size":(\d+)/, 1].to_i : 0
end
def size(object, tag = "-")
  memsize = ObjectSpace.memsize_of(object)
  address = at(object)
  flags = MEMORY ? MEMORY.pread(8, address.hex).unpack("Q")[0].to_s(16) : "-"
  fact "size", address, memsize, tag, flags, slot_of(object)
  object
end
# What a shared String or Array shares is seen by nobody; its wrapper's memsize is its own slot and the hidden one's.
def size_hidden(object)
  ObjectSpace.reachable_objects_from(object).each do |o|
    size(o) if String === o && o != object
    next unless ObjectSpace::InternalObjectWrapper === o && [:T_STRING, :T_ARRAY].include?(o.type)
    KEEP << object
    fact "size", o.inspect[/0x(\h+)/, 1], ObjectSpace.memsize_of(o), "hidden", "-", slot_of(o)
  end
end
# Flags that any object may have.
def size_flags
  4.times do
    size(yield.tap(&:object_id))
    size(yield.freeze)
    o = yield
    size(o.tap { ObjectSpace.define_finalizer(o, proc {}) }) unless o.frozen?
    size(Ractor.make_shareable(yield)) if defined?(Ractor.make_shareable)
  end
end
# Content, length, encoding, and whether it was scanned or made unique have nothing to do with each other.
def size_mixed_strings
  marks = [:itself, :valid_encoding?, :freeze, :hash, :object_id]
  ["a", "\u00e9", "\xff"].product([1, 4, 150, 400], ["UTF-8", "US-ASCII", "BINARY", "EUC-JP"], marks, [:itself, :freeze]) do |text, n, encoding, a, b|
    s = (text * n).force_encoding(encoding)
    s = s[40..-1] if n == 400
    s.send(a)
    s.send(b)
    size(s)
    size(-(text * n).force_encoding(encoding)) if a == :freeze
  end
end
def size_strings
  size_mixed_strings
  (0..30).each { |n| size("x" * n) }
  [40, 47, 50, 77, 80, 100, 118, 119, 150, 160, 161, 200, 230, 300, 319, 320, 400, 560, 600].each { |n| size("y" * n) }
  40.times { |i| size("z" * (650 + i * i * 31)) }
  40.times { |i| size(String.new(capacity: 700 + i * 97) << "short") }
  40.times { |i| size((+"").tap { |s| (90 + i * 37).times { s << "ab" } }) }
  40.times { |i| size(eval("'#{"q" * (700 + i * 3)}'.dup")) }
  [8, 30, 800].each do |n|
    8.times { |i| ["", ".freeze", ".dup.freeze.itself"].each { |how| size(eval("'#{"l" * (n + i)}'#{how}")) } }
    8.times { |i| size(eval("# frozen_string_literal: true\n'#{"k" * (n + 9 + i)}'")) }
    8.times { |i| size(eval("{'#{"j" * (n + i)}' => 1}").keys[0]) }
  end
  20.times { |i| size_hidden(size(("w" * (900 + i * 13))[5 + i..-1])) }
  20.times { |i| size(("v" * (900 + i * 13)).freeze) }
  20.times { |i| size(-("u#{i}" * (200 + i))) }
  [1, 9, 200].each { |n| 12.times { |i| size(("t#{i}" * (n + i)).to_sym.to_s) } }
  20.times { |i| size(("s#{i}" * (200 + i)).to_sym.to_proc.inspect) }
  20.times { |i| size(("\u00e9" * (350 + i)).tap(&:valid_encoding?)) }
  20.times { |i| size(("\xff" * (700 + i)).tap(&:valid_encoding?).tap(&:hash)) }
  20.times { |i| size((+"r" * (700 + i)).tap(&:ascii_only?).tap(&:object_id)) }
  [RUBY_VERSION, RUBY_PLATFORM, RUBY_DESCRIPTION, RUBY_COPYRIGHT, RUBY_ENGINE, RUBY_RELEASE_DATE].each { |s| size(s) }
  (Encoding.list.map(&:name) + [nil, true, false].map(&:to_s) + RubyVM::OPTS).each { |s| size(s) }
  (0..12).each { |i| size(i.to_s) }
  names = Symbol.method_defined?(:name) ? Symbol.all_symbols.first(3000) : []
  names.each_slice(20) { |symbols| size(symbols[0].name) }
  Encoding.list.each_with_index do |e, i|
    size(("p" * 8).force_encoding(e))
    (e.name =~ /\AUTF-(16|32)/ ? 24 : 4).times do |n|
      s, slice = Array.new(2) { ((n % 6 < 2 ? "p\0\0\0" : "\xd8\xd8\xff\xff") * (200 + i + 7 * n)).force_encoding(e) }
      s.valid_encoding? if n % 6 < 4
      size(s)
      size(slice[100..-1]) if n % 4 == 0 # makes `slice` another kind
    end
  rescue StandardError
    next
  end
  [3, 1000].each { |n| size_flags { "n" * n } }
  20.times { |i| size(("o" * (i * 80)).tap { |s| s.instance_variable_set("@o#{i}", i) }, "ivars") }
end
def size_arrays
  (0..90).each { |n| size(Array.new(n) { "a" }) }
  40.times { |i| size(Array.new(100 + i * 29) { "b" }) }
  40.times { |i| size([].tap { |a| (4 + i * 9).times { |n| a << n.to_s } }) }
  30.times { |i| size(Array.new(120 + i * 5).tap { |a| a.pop(100 + i) }) }
  30.times { |i| size(Array.new(120 + i * 5).tap { |a| a.shift(3 + i) }) }
  30.times { |i| size_hidden(size(Array.new(120 + i * 5)[3 + i..-1])) }
  30.times { |i| size(Array.new(120 + i * 5) { "c" }.tap { |a| KEEP << a[3..-1] }) }
  30.times { |i| size(Array.new(120 + i * 5) { "d" }.freeze.tap { |a| KEEP << a[3..-1] }) }
  30.times { |i| size(Array.new(120 + i * 5) { "e" }.freeze) }
  30.times { |i| size(eval("[#{(1..i * 3).to_a.join(",")}]")) }
  20.times { |i| size(Array.new(i * 9).tap(&:hash).tap(&:object_id)) }
  20.times { |i| size(Array.new(i * 9).sort_by!(&:to_s).concat([1, 2, 3])) }
  [1, 200].each { |n| size_flags { Array.new(n) } }
  20.times { |i| size(Array.new(i * 9).tap { |a| a.instance_variable_set("@a#{i}", i) }, "ivars") }
end
def size_hashes
  made = proc { |n| {}.tap { |h| n.times { |i| h["k#{i}"] = h } } }
  3.times { (0..60).each { |n| size(made[n]) } }
  (0..30).each { |n| size(made[n].compare_by_identity) }
  (0..30).each { |n| size(made[n * 3].tap { |h| h.keys.first(n * 2).each { |k| h.delete(k) } }) }
  (0..30).each { |n| size(made[n].dup.tap { |h| h.default = "x" }) }
  (0..20).each { |n| size(made[n].clear) }
  (0..20).each { |n| size(made[n].freeze.tap(&:object_id)) }
  (0..20).each { |n| size(Hash.new { |h, k| h[k] = k }.merge!(made[n])) }
  (0..20).each { |n| size(made[n].select { true }) }
  (9..40).each { |n| 2.times { size(eval("{#{(1..n).map { |i| "'k#{i}' => #{i}" }.join(",")}}")) } }
  (9..40).each { |n| 2.times { size(Hash[*(1..2 * n)]) } }
  big = {}
  (6..17).each do |n|
    big[big.size] = 0 while big.size <= 1 << n - 1
    2.times { size(big.dup) }
  end
  [0, 1, 20].each { |n| size_flags { Hash[(1..n).map { |i| [i, i] }] } }
  20.times { |i| size(made[i].tap { |h| h.instance_variable_set("@h#{i}", i) }, "ivars") }
end
def size_objects
  [0..40, 0..12, 45..52, 82..84, 160..164].each do |counts|
    counts.each do |n|
      c = Class.new
      4.times { |k| size(c.new.tap { |o| (n + k).times { |i| o.instance_variable_set("@v#{i}", "v") } }) }
    end
  end
  20.times do |n|
    o = Class.new.new
    (n + 2).times { |i| o.instance_variable_set("@v#{i}", "v") }
    n.times { |i| o.remove_instance_variable("@v#{i}") }
    size(o.freeze.tap(&:object_id))
  end
  [0, 2, 30].each do |n|
    c = Class.new
    size_flags { c.new.tap { |o| n.times { |i| o.instance_variable_set("@u#{i}", i) } } }
  end
  c = Class.new
  40.times { |n| c.new.tap { |o| (n + 3).times { |i| o.instance_variable_set("@w#{n}_#{i}", "w") } } }
  24.times do |n|
    size(c.new.tap { |o| ((1 << n / 3) + 1).times { |i| o.instance_variable_set("@x#{n}_#{i}", "x") } }, "complex")
  end
end
def size_others
  [*1..20, 32, 33, 48, 63, 64, 65, *79..100].each { |n| size(Struct.new(*(1..n).map { |i| "m#{i}".to_sym }).new("s")) }
  4.times { (1..9).each { |n| size(Struct.new(*(1..n).map { |i| "m#{i}".to_sym }).new(*["s"] * n)) } }
  (1..20).each { |n| size(Data.define(*(1..n).map { |i| "m#{i}".to_sym }).new(*["s"] * n)) } if defined?(Data.define)
  [2, 20].each { |n| Struct.new(*(1..n).map { |i| "m#{i}".to_sym }).tap { |c| size_flags { c.new } } }
  10.times { |n| size(("a".."b#{n}")) }
  10.times { |n| size((1..n + 2**70)) }
  10.times { |n| size(Struct.new(:a, :b).new(1).tap { |s| s.instance_variable_set("@s#{n}", n) }, "ivars") }
  80.times { |n| size((3**(40 + n * 11)) * (n.even? ? 1 : -1)) }
  40.times { |n| size(2**(63 + n * 5) - 1) }
  40.times { |n| size(2**(70 + n * 13) / 3**n + 2**64) }
  40.times { |n| size((2**(6000 + n * 777)) * (n.even? ? 1 : -1)) }
  40.times { |n| size((2**(900 + n * 117)) * (n % 3 == 0 ? -1 : 1)) }
  [proc { 2**64 }, proc { 2**7000 }, proc { 1.5e-300 }, proc { Rational(3, 7) }, proc { Complex(3, 7) }].each { |made| size_flags(&made) }
  size_flags { "symbol #{rand(1 << 40)}".to_sym }
  40.times { |n| size(1.0e-300 * (n + 1)) }
  Encoding.list.each_with_index do |e, i|
    size("sym\xe9#{i}".dup.force_encoding(e).to_sym) rescue next
  end
  40.times { |n| size("scry symbol #{n}".to_sym) }
  40.times { |n| size(Rational(n + 1, 97 + n)) }
  40.times { |n| size(Complex(n, 2**(n + 60))) }
end
begin
  require "objspace"
  SLOTS_DIFFER = ObjectSpace.dump("").include?("slot_size")
  [:size_objects, :size_others, :size_hashes, :size_arrays, :size_strings].each do |kind|
    send(kind)
  rescue StandardError, SyntaxError
    next
  end
rescue LoadError
  nil
end
4.times { GC.start(full_mark: false) } # old objects leave the transient heap

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
    KEEP << (list = Array.new(240) { Array.new(n) }) # pages are looked at when all has been said
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
  begin
    Process.kill(:KILL, pid)
  rescue SystemCallError
    nil # not permitted where it has no pid namespace of its own; it ends by itself
  end
  Process.wait(pid)
  fact "hooks", said.to_s.empty? ? "crash" : said
end

# --- stacks ----------------------------------------------------------------------------------------
# Each thread has a name, holds one to three Mutexes, and has let go of one.
LOCKS = []
def take_locks(n)
  Thread.current.name = "scry calibration thread #{n}"
  held = Array.new(1 + n % 3) { Mutex.new.tap(&:lock) }
  LOCKS << [Thread.current, held, Mutex.new.tap(&:lock).tap(&:unlock)]
end
THREADS = []
THREADS << Thread.new { take_locks(0); SELF.scry_recursion_with_a_long_name(24) }
[1, 5, 9, 60, 149].each { |n| THREADS << Thread.new { take_locks(n); SELF.scry_long_method_a(n) } }
THREADS << Thread.new { take_locks(2); SELF.scry_temporaries }
THREADS << Thread.new { take_locks(3); SELF.scry_c_methods }
THREADS.each { |t| Thread.pass until t[:ready] && t.stop? }

def tell_thread(thread, native)
  fact "thread", at(thread), native || 0
  (thread.backtrace_locations || []).each { |l| fact "frame", hex(l.base_label), l.lineno, hex(l.path) }
end
def native_id(thread)
  thread.respond_to?(:native_thread_id) ? thread.native_thread_id : 0
end
THREADS.each { |t| tell_thread(t, native_id(t)) }
LOCKS.each do |thread, held, free|
  fact "named", at(thread), hex(thread.name)
  held.each { |m| fact "held", at(m), at(thread) }
  fact "free", at(free)
end
fact "self", at(SELF)
fact "main", at(Thread.current), native_id(Thread.current)

if defined?(Ractor)
  # Ractor.main is newer than Ractor itself; the count of ractors is one more proof.
  fact "ractor", at(Ractor.current), at(Thread.current)
  seen = start_ractor
  KEEP << seen
  fact "ractor", at(seen[0]), seen[1][/0x(\h+)/, 1]
end

MEMORY&.close
fact "ready"
$stdout.flush
sleep
