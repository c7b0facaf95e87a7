# cluster.rb FILE [RUBY...]: two workers; when FILE is there two more, and one that becomes RUBY. All
# work till they have had their share of a processor.
def work(seconds)
  cpu = -> { Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID) }
  till = cpu.call + seconds
  nil while cpu.call < till
end

def early(file)
  sleep 0.01 until File.exist?(file)
  work(0.2)
end

def late = work(0.2)

file, *ruby = ARGV
code = "def execed; a = Process.clock_gettime(2); nil while Process.clock_gettime(2) - a < 0.4; end; execed"
pids = Array.new(2) { fork { early(file) } }
$stdout.syswrite("ready")
sleep 0.01 until File.exist?(file)
pids += Array.new(2) { fork { late } }
pids << fork { exec(*ruby, "--disable=gems", "-e", code) }
exit(pids.all? { |pid| Process.wait2(pid)[1].success? })
