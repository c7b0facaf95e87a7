# measure.rb SCRY [ROUNDS] [RUBY...]: what `scry gvl` costs, as rows for bench/gvl.md. Each round is one alone and one
# watched, in turn; the median of the differences, and their quartiles. As root. For each Ruby (default: the one that runs
# this): a take and a give (take.rb), a call on another mutex (other.c), and with puma installed its processor time for a
# request, in windows of one running server (config.ru and load.rb of test/ruby/puma).
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

def row(what, alone, more, unit)
  middle, low, high = quartiles(more)
  puts format("| %s | %.1f | %+.1f (%+.1f to %+.1f) %s |", what, quartiles(alone)[0], middle, low, high, unit)
  $stdout.flush
end

# The number that the command prints last, alone and watched.
in_turn = lambda do |command|
  watched = [scry, "gvl", "-q", "-o", "#{work}/x.scry", "--force", "--", *command]
  pairs = Array.new(rounds) { [command, watched].map { |words| IO.popen(words, &:read).lines.last.to_f } }
  [pairs.map(&:first), pairs.map { |alone, with| with - alone }]
end

cpu_s = lambda do |pid|
  File.read("/proc/#{pid}/stat").split(") ").last.split.values_at(11, 12).sum(&:to_i) / 100.0
end

asked = ->(path) { File.readlines(path).grep(/^asked/).last.to_s[/\d+/].to_i }

serve = lambda do |ruby|
  port = TCPServer.open("127.0.0.1", 0) { |s| s.addr[1] }
  server = spawn(ruby, "-S", "puma", "-t", "5:5", "-b", "tcp://127.0.0.1:#{port}", "#{PUMA}/config.ru", out: "#{work}/puma", err: %i[child out])
  sleep 2
  load = spawn(ruby, "#{PUMA}/load.rb", port.to_s, "6", out: "#{work}/load")
  sleep 2
  window = lambda do |watch|
    pid = watch && spawn(scry, "gvl", "-q", "-p", server.to_s, "-d", "4s", "-o", "#{work}/p.scry", "--force")
    sleep 1 # it is in
    before = [cpu_s[server], asked["#{work}/load"]]
    sleep 2
    after = [cpu_s[server], asked["#{work}/load"]]
    pid ? Process.wait(pid) : sleep(1)
    (after[0] - before[0]) / (after[1] - before[1]) * 1e6
  end
  pairs = Array.new(rounds) { |i| i.even? ? [window[false], window[true]] : [window[true], window[false]].reverse }
  [load, server].each { |pid| Process.kill(:TERM, pid) && Process.wait(pid) }
  row("puma, us a request", pairs.map(&:first), pairs.map { |alone, with| (with / alone - 1) * 100 }, "%")
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
