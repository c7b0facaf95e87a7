# What the VM itself says a script allocates: the truth that `scry objects` is held against.
#
#   TRUTH=OUT.json ruby -r ./truth.rb SCRIPT
#
# The script runs as the main program, as it does under scry, so its lines run equally often on
# equally deep stacks. Tracing starts before the script is compiled; the collector is off, so every
# object that a line made is still there when the heap is walked at exit. Nothing here runs on
# a line of the script.
#
# The trick: each_object hides the metaclass that comes with every class; dump_all shows it, so
# T_CLASS is counted there. Objects that the VM keeps to itself have no class there: it may have hidden
# them at once, or later, when scry has counted them already; so they are told apart, as `hidden`.

require 'objspace'

at_exit do
  ObjectSpace.trace_object_allocations_stop
  script = File.expand_path($0)
  # `# file: NAME` names a file that the script only pretends to have (eval'ed code).
  files = [script] + File.readlines(script).filter_map { |l| l[/^# file: (\S+)/, 1] }
  class_of = Kernel.instance_method(:class)
  name_of = Module.instance_method(:inspect)
  counts = Hash.new(0)
  hidden = Hash.new(0)
  ObjectSpace.each_object do |object|
    file = ObjectSpace.allocation_sourcefile(object)
    next unless files.include?(file)

    klass = class_of.bind_call(object)
    next if klass == Class

    name = name_of.bind_call(klass).gsub(/0x\h+/, '0x')
    counts[[file, ObjectSpace.allocation_sourceline(object), name]] += 1
  end

  require 'json'
  dump = ObjectSpace.dump_all(output: :file)
  File.foreach(dump.path) do |line|
    is_class = line.include?('"type":"CLASS"')
    next unless line.include?('"file":') && (is_class || !line.include?('"class":'))

    object = JSON.parse(line)
    next unless files.include?(object['file'])

    klass = is_class ? 'Class' : { 'MATCH' => 'MatchData' }.fetch(object['type'], object['type'].capitalize)
    (is_class ? counts : hidden)[[object['file'], object['line'].to_i, klass]] += 1
  end
  File.unlink(dump.path)

  rows = (counts.keys | hidden.keys).sort.map do |key|
    { file: key[0], line: key[1], class: key[2], allocated: counts[key], hidden: hidden[key] }
  end
  File.write(ENV.fetch('TRUTH'), JSON.generate({ schema: 'truth/1', rows: rows }) << "\n")
end

GC.start
GC.disable
ObjectSpace.trace_object_allocations_start
