# Calls umask(N) for many N, and prints for each the lines of Ruby that call it, as the VM itself says. With a file
# as argument it waits until that is there.

C = %w[each map times call send instance_eval new loop public_send define_method value join resume eval inject tap fork].freeze
TAG = Struct.new(:next).new(1000)
LINES = Queue.new

def told(locations)
  tag = TAG.next += 1
  rescues = locations.each_index.select { |i| locations[i].label.start_with?("rescue in ") }
  locations = locations.reject.with_index { |_, i| rescues.include?(i - 1) } # from 3.4 on they are one frame
  frames = locations.reject { |l| l.path.start_with?("<internal:") || (C.include?(l.base_label) && l.label !~ /block/) }
  LINES << "#{Process.pid} #{tag} #{frames.map { |l| [l.path, l.lineno, l.base_label].join("\t") }.join("|")}"
  tag
end

def ask; File.umask(told(caller_locations(0))); end

def deep(n, &block)
  n.zero? ? block.call : deep(n - 1, &block)
end

def handed_on
  [1, 2].each do |i|
    i.times { ask }
  end
end

class Plain
  def method_missing(name, *) name == :gone ? ask : super; end
  def respond_to_missing?(*) true; end
  define_method(:made) { ask }

  def rescued
    raise "x"
  rescue RuntimeError
    ask
  ensure
    ask
  end
end

def evaluated
  40.times do |i|
    eval("def evaluated_#{i % 3}\n" + "\n" * i + "  ask\nend", binding, "made_#{i % 5}.rb", 10 * i + 1)
    send("evaluated_#{i % 3}")
    eval("ask; " * (i % 4 + 1), binding, "once_#{i}.rb", i + 1)
    GC.start if (i % 4).zero?
  end
end

def in_threads
  4.times.map { |i| Thread.new { 20.times { |k| deep(i + k) { ask } } } }.each(&:join)
end

def in_fibers
  f = Fiber.new { 3.times { ask; Fiber.yield; deep(3) { ask } } }
  3.times { f.resume }
end

def in_children
  2.times do
    pid = fork do
      ask
      handed_on
      GC.start
      evaluated
      fork { in_threads; print_lines }.then { |p| Process.wait(p) }
      print_lines
    end
    Process.wait(pid)
  end
end

def print_lines
  $stdout.write(Array.new(LINES.size) { LINES.pop + "\n" }.join)
  $stdout.flush
  exit!(0) if Process.pid != FIRST
end

FIRST = Process.pid
if ARGV[0]
  $stderr.puts "ready"
  sleep 0.01 until File.exist?(ARGV[0])
end
ask
handed_on
deep(30) { ask }
deep(300) { ask }
Plain.new.gone
Plain.new.made
Plain.new.rescued
evaluated
in_threads
in_fibers
3.times { ask; GC.start }
in_children if ENV["CHILDREN"]
GC.compact if GC.respond_to?(:compact) && ENV["COMPACT"]
ask
print_lines
