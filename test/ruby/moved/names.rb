# Code and classes that a compaction moves and that die afterwards: what comes to their old addresses
# has another name. Each round makes 2 + 3 Made in code of each of MANY files, and 1 + 2 objects of
# each of MANY classes.
class Made; end
MANY = 400

def make(klass)
  klass.new
end

def shake
  # Everything that can be moved is moved.
  GC.respond_to?(:verify_compaction_references) ? GC.verify_compaction_references(toward: :empty) : GC.compact
end

12.times do |i|
  code = MANY.times.map { |j| eval("proc { Made.new }", TOPLEVEL_BINDING, "made#{i}_#{j}.rb", 100 + j) }
  classes = MANY.times.map { |j| Object.const_set("Round#{i}_#{j}", Class.new) }
  code.each { |c| 2.times(&c) }
  classes.each { |k| make(k) }
  shake
  code.each { |c| 3.times(&c) }
  classes.each { |k| 2.times { make(k) } }
  MANY.times { |j| Object.send(:remove_const, "Round#{i}_#{j}") }
  code = classes = nil
  GC.start
end
