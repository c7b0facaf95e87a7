# short.rb FOLDER WORK: two threads compute side by side, most of the time in short calls of one method: of an extension in C
# that takes so many microseconds, or (WORK is ruby) of Ruby. Prints the method's share by the clocks of one that does the
# same alone, before: `share 0.9`.
require File.join(ARGV[0], "hog.so") unless ARGV[1] == "ruby"
$stdout.sync = true
now = -> { Process.clock_gettime(Process::CLOCK_MONOTONIC) }

def short; i = 0; i += 1 while i < 40; end
def long; i = 0; i += 1 while i < 160; end
def ruby; short; long; short; long; short; long; end
def leaf(ns) Hog.spin(ns); end
def native(ns) leaf(ns); leaf(ns); leaf(ns); leaf(ns); leaf(ns); leaf(ns); end

ns = ARGV[1].to_i * 1000
work = ARGV[1] == "ruby" ? -> { ruby } : -> { native(ns) }
if ARGV[1] == "ruby" # each of both for a while in turn
  cpu = -> { Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID) }
  times = Array.new(40) { %i[short long].map { |m| began = cpu[]; 2000.times { __send__(m) }; cpu[] - began } }
  sums = times.transpose.map { |t| t.sort.first(20).sum }
  share = sums[1] / sums.sum
else
  began = now[]
  work.call while now[] - began < 0.4
  share = Hog.spun / 1e9 / (now[] - began)
end
puts "share #{share}"
till = now[] + 1.5
Array.new(2) { Thread.new { work.call while now[] < till } }.each(&:join)
