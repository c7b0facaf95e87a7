# short.rb FOLDER WORK [CHILDREN]: in this process, or in so many children each, two threads compute side by side, most of
# the time in short calls of one method: of an extension in C that takes so many microseconds, or (WORK is ruby) two of
# Ruby. Prints the method's share, or that of the longer one of the two, by the clocks of one that does the same alone,
# before: `c 0.9`, `ruby 0.8`. How long it computes is processor time: so many samples, however busy the machine is.
require File.join(ARGV[0], "hog.so") unless ARGV[1] == "ruby"
$stdout.sync = true
now = -> { Process.clock_gettime(Process::CLOCK_MONOTONIC) }
cpu = -> { Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID) }

def short; i = 0; i += 1 while i < 40; end
def long; i = 0; i += 1 while i < 160; end
def ruby; short; long; short; long; short; long; end
def leaf(ns) Hog.spin(ns); end
def native(ns) leaf(ns); leaf(ns); leaf(ns); leaf(ns); leaf(ns); leaf(ns); end

ns = ARGV[1].to_i * 1000
work = ARGV[1] == "ruby" ? -> { ruby } : -> { native(ns) }
if ARGV[1] == "ruby" # each of both in turn; the median, as in a few rounds something else has the processor
  shares = Array.new(201) do
    short, long = %i[short long].map { |m| began = now[]; 100.times { __send__(m) }; now[] - began }
    long / (short + long)
  end
  share = shares.sort[100]
else # in batches, of which the quicker half count, for the same reason
  times = Array.new(300) do
    began, spun = now[], Hog.spun
    [500_000 / ns / 6, 1].max.times { work.call; cpu[] }
    [now[] - began, Hog.spun - spun]
  end
  sums = times.sort.first(150).transpose.map(&:sum)
  share = sums[1] / 1e9 / sums[0]
end
puts "#{ARGV[1] == "ruby" ? "ruby" : "c"} #{share}"
compute = lambda do
  till = cpu[] + 1
  Array.new(2) { Thread.new { work.call while cpu[] < till } }.each(&:join)
end
ARGV[2] ? ARGV[2].to_i.times { fork(&compute) } : compute.call
Process.waitall
