# measure.rb SCRY [ROUNDS] [RUBY...]: what `scry gvl` costs, as rows for bench/gvl.md. Each round is one alone and one
# watched, in turn; the median of the differences, and their quartiles. As root. For each Ruby (default: the one that runs
# this): a take and a give (take.rb), a call on another mutex (other.c), and with puma installed its processor time for a
# request, in windows of one running server (config.ru and load.rb of test/ruby/puma). That is summed by the kernel to the
# nanosecond, and comes with the interval in which the median of all such pairs is, 19 times of 20. Beside it the same for
# a process that does nothing but wake each millisecond, as scry's keeper does: what of the cost is that of being disturbed.
require "fileutils"
require "rbconfig"
require "socket"
require "tmpdir"

HERE = __dir__
PUMA = File.expand_path("../../test/ruby/puma", HERE)
scry = File.expand_path(ARGV.fetch(0))
rounds = Integer(ARGV.fetch(1, "9"))
rubies = ARGV.size > 2 ? ARGV[2..] : [RbConfig.ruby]
work = Dir.mktmpdir
at_exit { FileUtils.rm_rf(work) }

def quartiles(list)
  sorted = list.sort
  [0.5, 0.25, 0.75].map { |q| sorted[((sorted.size - 1) * q).round] }
end

# Of the median: by how many of the pairs may lie on one side of it (sign test).
def interval(list)
  sorted = list.sort
  rank = (0..sorted.size / 2).find { |k| (0..k).sum { |i| choose(sorted.size, i) } > 0.025 * 2**sorted.size } || 0
  [quartiles(list)[0], sorted[[rank - 1, 0].max], sorted[-[rank, 1].max]]
end

def choose(n, k)
  (1..k).inject(1) { |product, i| product * (n - i + 1) / i }
end

def row(what, alone, more, unit, spread = :quartiles)
  middle, low, high = send(spread, more)
  puts format("| %s | %.1f | %+.1f (%+.1f to %+.1f) %s |", what, quartiles(alone)[0], middle, low, high, unit)
  $stdout.flush
end

# The number that the command prints last, alone and watched.
in_turn = lambda do |command|
  watched = [scry, "gvl", "-q", "-o", "#{work}/x.scry", "--force", "--", *command]
  pairs = Array.new(rounds) { [command, watched].map { |words| IO.popen(words, &:read).lines.last.to_f } }
  [pairs.map(&:first), pairs.map { |alone, with| with - alone }]
end

cpu_ns = ->(pid) { Dir["/proc/#{pid}/task/*/schedstat"].sum { |f| File.read(f).to_i } }
asked = ->(path) { File.readlines(path).grep(/^asked/).last.to_s[/\d+/].to_i }
WAKER = "loop { sleep 0.001 }"

serve = lambda do |ruby|
  port = TCPServer.open("127.0.0.1", 0) { |s| s.addr[1] }
  server = spawn(ruby, "-S", "puma", "-t", "5:5", "-b", "tcp://127.0.0.1:#{port}", "#{PUMA}/config.ru", out: "#{work}/puma", err: %i[child out])
  sleep 2
  load = spawn(ruby, "#{PUMA}/load.rb", port.to_s, "6", out: "#{work}/load")
  sleep 2
  beside = {watched: [scry, "gvl", "-q", "-p", server.to_s, "-o", "#{work}/p.scry", "--force"], woken: [ruby, "-e", WAKER]}
  window = lambda do |way|
    pid = beside[way] && spawn(*beside[way])
    sleep 1 # it is in
    before = [cpu_ns[server], asked["#{work}/load"]]
    sleep 0.05 until asked["#{work}/load"] >= before[1] + 2000
    after = [cpu_ns[server], asked["#{work}/load"]]
    Process.kill(way == :watched ? :INT : :TERM, pid) && Process.wait(pid) if pid
    (after[0] - before[0]) / (after[1] - before[1]) / 1000.0
  end
  ways = %i[alone watched woken]
  turns = Array.new(rounds) { |i| ways.rotate(i).to_h { |way| [way, window[way]] } }
  [load, server].each { |pid| Process.kill(:TERM, pid) && Process.wait(pid) }
  alone = turns.map { |t| t[:alone] }
  row("puma, us a request", alone, turns.map { |t| (t[:watched] / t[:alone] - 1) * 100 }, "%", :interval)
  row("puma beside a process that wakes each millisecond", alone, turns.map { |t| (t[:woken] / t[:alone] - 1) * 100 }, "%", :interval)
end

rubies.each do |ruby|
  puts `#{ruby} -e 'print RUBY_DESCRIPTION'`
  system(scry, "gvl", "-q", "-o", "#{work}/x.scry", "--force", "--", ruby, "-e", "1") # learned once
  alone, more = in_turn[[ruby, "#{HERE}/take.rb"]]
  row("a take and a give (half a round of take.rb), ns", alone.map { |n| n / 2 }, more.map { |n| n / 2 }, "ns")
  include = `#{ruby} -rrbconfig -e 'print RbConfig::CONFIG.values_at("rubyhdrdir", "rubyarchhdrdir").map { |d| "-I" + d }.join(" ")'`
  if system("cc -O1 -shared -fPIC #{include} #{HERE}/other.c -o #{work}/other.so 2>/dev/null")
    alone, more = in_turn[[ruby, "-r", "#{work}/other.so", "-e", "puts Array.new(3) { Other.turns(10_000_000) }.min"]]
    row("a lock and unlock of another mutex, ns", alone, more, "ns")
  end
  serve[ruby] if system("#{ruby} -S puma --version >/dev/null 2>&1")
end
