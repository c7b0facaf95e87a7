# waits.rb SCRY [RUBY [THREADS]]: how well a wait is told. Each of 200 threads waits for the lock once, while one
# computes; how long that was, scry says (its longest wait) and the VM's own events do (waits.c; Ruby 3.3 and later). Prints
# the middle, and the 90th and 99th of a hundred, of the differences, and how long the waits were. As root.
require "json"
require "rbconfig"
require "tmpdir"

scry, ruby, threads = File.expand_path(ARGV.fetch(0)), ARGV[1] || RbConfig.ruby, Integer(ARGV[2] || 200)
PROGRAM = <<~'RUBY'
  require ARGV[0]
  threads = ARGV[1].to_i
  said = Queue.new
  sleepers = Array.new(threads) do |i|
    Thread.new do
      Thread.current.name = "s#{i}"
      sleep
      Waits.last
      sleep i * 0.005 + 0.001 # it is woken, and waits: once
      last = Waits.last
      said << [i, last]
      sleep
    end
  end
  Thread.pass until sleepers.all?(&:stop?)
  $stdout.sync = true
  puts "ready"
  $stdin.gets
  sleepers.each(&:run)
  Thread.new { nil until said.size == threads }.join
  Array.new(threads) { said.pop }.each { |i, ns| puts "s#{i} #{ns}" }
  puts "done"
  $stdin.gets
RUBY
Dir.mktmpdir do |work|
  include = `#{ruby} -rrbconfig -e 'print RbConfig::CONFIG.values_at("rubyhdrdir", "rubyarchhdrdir").map { |d| "-I" + d }.join(" ")'`
  system("cc -O2 -shared -fPIC #{include} #{__dir__}/waits.c -o #{work}/waits.so") or abort
  system(scry, "gvl", "-q", "-o", "#{work}/x.scry", "--", ruby, "-e", "1") or abort # learned once
  IO.popen([ruby, "-e", PROGRAM, "#{work}/waits.so", threads.to_s], "r+") do |program|
    program.gets
    watch = spawn(scry, "gvl", "-q", "-p", program.pid.to_s, "--max-pause", "2s", "-o", "#{work}/x.json", "--force")
    sleep 1.5
    program.puts
    truth = {}
    truth.store(*$~.captures) while program.gets =~ /(s\d+) (\d+)/
    sleep 0.1
    Process.kill(:INT, watch)
    Process.wait(watch)
    program.puts
    waits = JSON.parse(File.read("#{work}/x.json"))["threads"].to_h { |t| [t["name"], t] }
    # being run was a wait, too, before the other one computed: a short one
    pairs = truth.filter_map { |name, ns| [waits[name]["wait_max_ns"], ns.to_i] if waits[name] && waits[name]["waits"] >= 1 }
    errors = pairs.map { |told, ns| told - ns }.sort_by(&:abs)
    at = ->(list, q) { list[((list.size - 1) * q).round] / 1000.0 }
    puts format("%d waits of %.0f us (median): differences of %.1f, %.1f and %.1f us (50, 90, 99 of 100), %d of them shorter", pairs.size,
                at[pairs.map(&:last).sort, 0.5], at[errors.map(&:abs), 0.5], at[errors.map(&:abs), 0.9], at[errors.map(&:abs), 0.99], errors.count(&:negative?))
  end
end
