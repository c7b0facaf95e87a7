# ends.rb SCRY: so many children, each of which says between which moments of the monotonic clock its first thread came,
# are watched; then all are left, one after the other, which takes its time. But all are watched to one moment. Prints
# what is wrong.
require "json"
now = -> { Process.clock_gettime(Process::CLOCK_MONOTONIC) }
CHILDREN = 24
program = <<~RUBY
  $stdout.syswrite("runs\n")
  sleep 0.01 until File.exist?(ARGV[0])
  now = -> { Process.clock_gettime(Process::CLOCK_MONOTONIC) }
  kids = Array.new(#{CHILDREN}) { fork { before = now[]; Thread.new { loop { sleep 0.01 } }; $stdout.syswrite("\#{$$} \#{before} \#{now[]}\n"); sleep } }
  sleep 0.01 while File.exist?(ARGV[0])
  kids.each { |k| Process.kill(:KILL, k) }
  Process.waitall
RUBY
go, json = %w[go gvl.json].map { |name| File.join(ENV.fetch("T"), name) }
out, out_in = IO.pipe
err, err_in = IO.pipe
parent = spawn(ENV.fetch("RUBY", "ruby"), "-e", program, go, out: out_in)
raise "it does not run" unless out.gets == "runs\n"
scry = spawn(ARGV[0], "gvl", "-f", "-v", "--json", "-o", json, "--max-pause", "2s", "-p", parent.to_s, err: err_in)
[out_in, err_in].each(&:close)
nil until err.gets.match?(/agent (mapped|adopted)/)
File.write(go, "")
born = Array.new(CHILDREN) { out.gets.split.map(&:to_f) }.to_h { |pid, *times| [pid.to_i, times] }
sleep 1 # each has an event
Process.kill(:INT, scry)
left = []
while (line = err.gets)
  left << now[] if line.include?(" ended: ")
  break if left.size == CHILDREN + 1
end
File.delete(go)
Thread.new { nil while err.gets }
[scry, parent].each { |pid| Process.wait(pid) }
lengths = JSON.parse(File.read(json))["threads"].group_by { |t| t["pid"] }.transform_values do |threads|
  threads.map { |t| t.values_at("held_ns", "wanted_ns", "granted_ns", "without_ns").sum / 1e9 }.max
end
ends = born.map { |pid, (before, after)| [before + lengths.fetch(pid), after + lengths.fetch(pid)] }
apart, took = ends.map(&:first).max - ends.map(&:last).min, left.last - left.first
puts "the first is left #{took} s before the last, their watches end #{apart} s apart"
exit apart < took / 2
