# Calls from lines in a known ratio. MODE: threads that live for long; a thread for each request, that lives for some
# milliseconds; children that are forked; a line that another program runs, by exec. Prints its pid, waits for a line
# when it is told to (WAIT), and says what it has done.
require "rbconfig"
mode, rounds, waits = ARGV[0], ARGV[1].to_i, ARGV[2]

def often = 3.times { Process.ppid }   # line 7
def seldom = File.exist?("/nowhere")   # line 8
def request
  5.times { often }
  5.times { seldom }
end

$stdout.sync = true
puts "pid #{$$}"
$stdin.gets if waits
case mode
when "threads"
  2.times.map { Thread.new { rounds.times { request } } }.each(&:join)
when "requests"
  rounds.times { Thread.new { request; sleep 0.001; request }.join }
when "forks"
  4.times { fork { rounds.times { request } } }
  Process.waitall
when "exec"
  exec(RbConfig.ruby, "--disable=gems", __FILE__, "threads", rounds.to_s)
end
puts "done"
