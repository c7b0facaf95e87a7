# Makes code of all kinds while nothing is collected, and prints how much of it the VM says there is:
# born.rb; a line on stdin begins. Then sleeps until stdin ends.
require "objspace"
$stdout.sync = true
def count
  ObjectSpace.count_imemo_objects[:imemo_iseq]
end

KINDS = [
  -> { eval("def named_a(x)\n x + 1\nend\nnamed_a(1)", TOPLEVEL_BINDING, "evaluated.rb", 10) },
  -> { eval("class Made; def in_class; [1].each { |i| i }; end; new.in_class; end", TOPLEVEL_BINDING, "m.rb") },
  -> { RubyVM::InstructionSequence.compile("[1, 2].map { |x| begin; x; rescue; 2; ensure; 3; end }", "compiled.rb").eval },
  -> { Object.class_eval { define_method(:defined_a) { 1 } } },
  -> { instance_eval("begin; raise 'x'; rescue => e; e; end", "instance.rb", 7) },
  -> {
    code = "def loaded_a\n  1\nend\n#{"x = 1\n" * 200}loaded_a { |y|\n y }"
    $binary = RubyVM::InstructionSequence.compile(code, "binary.rb").to_binary
  },
  -> { RubyVM::InstructionSequence.load_from_binary($binary).eval },
  -> { eval("def a_name_that_is_long_#{"x" * 300}\n  1\nend", TOPLEVEL_BINDING, "/a/path/that/is/long/#{"p" * 400}.rb") },
  -> { eval("# \u00e9\ndef \u00fcber\n  1\nend", TOPLEVEL_BINDING, "\u00fcber.rb") },
  -> { eval((1..1500).map { |i| "x = #{i}" }.join("\n"), TOPLEVEL_BINDING, "many_lines.rb") },
]
puts "ready"
$stdin.gets
GC.start
GC.disable
count
before = count
kept = KINDS.map(&:call)
made = count - before
puts "made #{made}"
$stdin.read
