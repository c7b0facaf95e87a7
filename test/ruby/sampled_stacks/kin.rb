# kin.rb [FILE]: starts programs in every way; each works for a while under a method of its own name,
# and for as long as it takes to have had a share of a processor. Waits for FILE first.
WORK = "t = Time.now + 0.8; nil while Time.now < t || Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID) < 0.6"
eval("def spin; #{WORK}; end")

def worker = spin
def grandchild = spin
def demon = spin
def code(name) = "def #{name}; #{WORK}; end; #{name}"

$stdout.syswrite("ready")
sleep 0.01 until ARGV.empty? || File.exist?(ARGV[0])
pids = [fork { worker }]
pids << fork { Process.wait(fork { grandchild }) }
pids << fork do
  Process.daemon(true, true)
  demon
end
pids << fork { exec RbConfig.ruby, "-e", code("execed") }
pids << spawn(RbConfig.ruby, "-e", code("spawned"))
pids << spawn("true")
pids << spawn("exec 9>&1; #{RbConfig.ruby} -e '#{code("below_a_shell")}'; true")
exit pids.all? { |pid| Process.wait2(pid)[1].success? } ? 3 : 1
