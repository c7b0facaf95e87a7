# What names from a probe cost a program that makes code: `scry stacks --names=probe` beside `--names=read`.
#
#   ruby bench/names.rb [ROUNDS] [OUT.md]        (bench/run calls it; RUBY: whose code)
#
# One process; its rounds are run in turn plain, with names read, and with the probe, so that what else the
# machine does is in all alike. Times are the program's own processor time. Nothing is pass or fail here.

require "etc"
require "tempfile"
require_relative "page"

SCRY = File.join(File.expand_path(ENV.fetch("SCRY_BUILD", File.join(File.dirname(__dir__), "build"))), "scry")
RUBY_COMMAND = ENV.fetch("RUBY", "ruby")
ROUNDS = Integer(ARGV[0] || 15)
$stdout.reopen(ARGV[1], "w") if ARGV[1]

CHILD = <<~'RUBY'
  require "objspace"
  $stdout.sync = true
  LIBRARY = $LOADED_FEATURES.grep(/\.rb\z/).select { |f| File.file?(f) }.max_by { |f| File.size(f) }
  TEXT = File.read(LIBRARY)
  WORK = {
    "eval" => ->(n) { n.times { eval("def made(x)\n y = x + 1\n [y].each { |z| z }\n y\nend") } },
    "compile" => ->(n) { n.times { RubyVM::InstructionSequence.compile(TEXT, LIBRARY) } },
    "run" => ->(n) { i = 0; i += 1 while i < n },
  }
  puts "ready #{File.basename(LIBRARY)} #{TEXT.count("\n")}"
  def cpu = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID, :nanosecond)
  def pieces = ObjectSpace.count_imemo_objects[:imemo_iseq]
  while (line = $stdin.gets)
    what, n = line.split
    GC.start
    GC.disable
    before = pieces
    began = cpu
    WORK[what].call(n.to_i)
    took = cpu - began
    puts "#{took} #{pieces - before}"
    GC.enable
  end
RUBY

script = Tempfile.new(["made", ".rb"]).tap { |f| f.write(CHILD); f.close }
child = IO.popen([RUBY_COMMAND, script.path], "r+")
_, library, lines = child.gets.split
ask = ->(what, n) { child.puts("#{what} #{n}"); child.flush; child.gets.split.map(&:to_i) }

# Runs the block while scry watches.
def watched(pid, names)
  return yield unless names

  out = Tempfile.new("names").path
  File.unlink(out)
  scry = Process.spawn(SCRY, "stacks", "-q", "-r", "1000", "--names=#{names}", "-p", pid.to_s, "-o", "#{out}.scry")
  sleep 0.01 until File.size?("#{out}.scry").to_i > 0
  sleep 0.05
  yield
ensure
  if names
    Process.kill(:INT, scry)
    Process.wait(scry)
    File.unlink("#{out}.scry")
  end
end

load_before = File.read("/proc/loadavg").split.first
sizes = { "eval" => 3000, "compile" => 6, "run" => 5_000_000 }
took = Hash.new { |h, k| h[k] = [] }
pieces = {}
ROUNDS.times do
  [nil, "read", "probe"].each do |names|
    watched(child.pid, names) do
      sizes.each do |what, n|
        ns, made = ask.call(what, n)
        took[[what, names]] << ns
        pieces[what] = made
      end
    end
  end
end
median = ->(list) { list.sort[list.size / 2] }

puts <<~TEXT
  # Naming code by a probe: what it costs

      ruby bench/names.rb [ROUNDS] [OUT.md]      # writes this page

  #{wrapped("Processor time of the program, medians of #{ROUNDS} rounds of one process: in turn plain, with `scry stacks " \
            "--names=read` and with `--names=probe`, 1000 looks a second. Ratios are of rounds that follow each other. The machine " \
            "is shared: see the load below; differences of some percent are noise.")}

  - #{Time.now.strftime("%Y-%m-%d")}, Linux #{Etc.uname[:release]}, #{Etc.nprocessors} CPUs, load #{load_before} at the beginning, #{File.read("/proc/loadavg").split.first} at the end
  - #{`#{RUBY_COMMAND} -v`.strip}

  | what the program does | pieces of code | plain, ms | read | probe | us more a piece than read |
  |---|---|---|---|---|---|
TEXT
names = {
  "eval" => "evaluates a method with a block, over and over",
  "compile" => "compiles #{library} (#{lines} lines), over and over",
  "run" => "runs, and makes no code",
}
sizes.each_key do |what|
  plain, read, probe = [nil, "read", "probe"].map { |n| took[[what, n]] }
  ratio = ->(list) { format("%+.1f %%", 100 * (median.call(list.zip(plain).map { |a, b| a.to_f / b }) - 1)) }
  more = pieces[what].zero? ? "-" : format("%.2f", median.call(probe.zip(read).map { |a, b| (a - b).to_f / pieces[what] }) / 1000)
  puts "| #{names[what]} | #{pieces[what]} | #{format("%.1f", median.call(plain) / 1e6)} | #{ratio.call(read)} | #{ratio.call(probe)} | #{more} |"
end
child.close_write
child.read
