# work.rb THREADS: a fixed amount of Ruby work; THREADS - 1 sleep. work.rb 8 threads|ractors|processes SECONDS: all
# work, for so long. Prints "pid", waits for a line, works, prints wall and processor seconds.
require 'json'
require_relative 'shop'

def clock(id) = Process.clock_gettime(id)

if ARGV[1] == 'stackprof'
  require 'stackprof'
  StackProf.start(mode: :wall, interval: 1_000_000 / ARGV[2].to_i, raw: false)
end
def works(seconds)
  ends = clock(Process::CLOCK_MONOTONIC) + seconds
  shop = Shop.new
  shop.deep(20) { shop.total(shop.items(40)) while clock(Process::CLOCK_MONOTONIC) < ends }
end

if %w[threads ractors processes].include?(ARGV[1])
  count, seconds = ARGV[0].to_i, ARGV[2].to_f
  puts "pid #{$$}"
  $stdout.flush
  $stdin.gets
  wall = clock(Process::CLOCK_MONOTONIC)
  cpu = clock(Process::CLOCK_PROCESS_CPUTIME_ID)
  case ARGV[1]
  when 'threads' then count.times.map { Thread.new { works(seconds) } }.each(&:join)
  when 'ractors' then count.times.map { Ractor.new(seconds) { |s| works(s) } }.each(&:take)
  else count.times { fork { works(seconds) } }.tap { Process.waitall }
  end
  puts "did #{clock(Process::CLOCK_MONOTONIC) - wall} #{clock(Process::CLOCK_PROCESS_CPUTIME_ID) - cpu}"
  exit
end
idle = (ARGV[0].to_i - 1).times.map { Thread.new { sleep } }
puts "pid #{$$}"
$stdout.flush
$stdin.gets
wall = clock(Process::CLOCK_MONOTONIC)
cpu = clock(Process::CLOCK_PROCESS_CPUTIME_ID)
shop = Shop.new
shop.deep(20) { 12_000.times { shop.round } }
puts "did #{clock(Process::CLOCK_MONOTONIC) - wall} #{clock(Process::CLOCK_PROCESS_CPUTIME_ID) - cpu}"
StackProf.stop if defined?(StackProf) # at its end it would crash
idle.each(&:kill)
