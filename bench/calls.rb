# What tracing a call costs: ns per traced call, entry and return, beside untraced, `patch time` and ltrace; and
# queries per second of mysql2 with and without a traced function.
#
#   ruby bench/calls.rb [ROUNDS] [OUT.md]
#
# Each round measures every way once; the least of each counts. Nothing is pass or fail here.
# Environment: SCRY_BUILD (default build).

require 'open3'
require 'timeout'
require 'tmpdir'
require_relative 'page'

ROOT = File.dirname(__dir__)
SCRY = File.join(File.expand_path(ENV.fetch('SCRY_BUILD', File.join(ROOT, 'build'))), 'scry')
ROUNDS = (ARGV[0] || 5).to_i
TMP = Dir.mktmpdir('scry-bench')
SOURCE = File.join(__dir__, 'calls', 'traced.c')
QUIET = { out: '/dev/null', err: '/dev/null' }.freeze

at_exit do
  Process.kill(:KILL, @server) if @server
  system('rm', '-rf', TMP)
end

def build
  lib = File.join(TMP, 'libmariadb_bench.so')
  system('cc', '-O2', '-DLIBRARY', '-shared', '-fPIC', '-o', lib, SOURCE, exception: true)
  system('cc', '-O2', '-pthread', '-o', "#{TMP}/traced", SOURCE, "-L#{TMP}", '-lmariadb_bench', "-Wl,-rpath,#{TMP}",
         exception: true)
  File.write("#{TMP}/conf", PROTOTYPES)
end

class Caller
  attr_reader :pid

  def initialize
    @to, @from, @thread = Open3.popen2("#{TMP}/traced")
    @pid = @from.gets[/\d+/].to_i
  end

  def measure(line)
    @to.puts line
    Timeout.timeout(300) { @from.gets }.split.map(&:to_f)
  end

  def close
    @to.close
    @thread.value
  end
end

# Runs scry on a process until the block is done; returns the block's value and what scry said.
def beside(pid, *args)
  err = File.join(TMP, 'err')
  scry = spawn(SCRY, *args, '-p', pid.to_s, out: '/dev/null', err: err)
  Timeout.timeout(30) { sleep 0.01 until File.exist?(err) && File.read(err).include?('watching') }
  value = yield
  Process.kill(:INT, scry)
  Process.wait(scry)
  [value, File.read(err)]
end

def least(store, name, value)
  store[name] = [store[name], value].compact.min
end

def ltrace(line)
  return nil unless system('which ltrace', **QUIET)

  # 1000 calls; the program says itself what one takes
  out, = Open3.capture2('ltrace', '-o', '/dev/null', '-e', 'traced_plain', "#{TMP}/traced", stdin_data: line)
  out.lines.last.split.first.to_f
end

# By the PLT of the program, of 10,000 calls a chunk.
def uftrace(line)
  return nil unless system('which uftrace', **QUIET)

  out, = Open3.capture2('uftrace', 'record', '--force', '--no-event', '-d', "#{TMP}/uftrace.data", "#{TMP}/traced",
                        stdin_data: line, err: '/dev/null')
  system('rm', '-rf', "#{TMP}/uftrace.data", "#{TMP}/uftrace.data.old")
  out.lines.last&.split&.first&.to_f
end

# Entry and return by the kernel, durations into a histogram.
def bpftrace(caller, line)
  return nil unless system('which bpftrace', **QUIET)

  at = "#{TMP}/libmariadb_bench.so:traced_plain"
  tracer = IO.popen(['bpftrace', '-e', "BEGIN { printf(\"on\\n\") } uprobe:#{at} { @s[tid] = nsecs } " \
                     "uretprobe:#{at} { @h = hist(nsecs - @s[tid]); delete(@s[tid]) }", { err: '/dev/null' }])
  Timeout.timeout(60) do
    nil while (said = tracer.gets) && !said.start_with?('on')
  end
  sleep 1 # it says so before its last probe is on
  value = caller.measure(line)[0]
  Process.kill(:INT, tracer.pid)
  tracer.read
  tracer.close
  value
rescue Timeout::Error, Errno::EPIPE
  nil
end

WAYS = {
  'plain' => ['no string, 4 argument registers', 'plain 10000'],
  'text' => ['a string of 44 bytes that is marked, 3 registers', 'text 10000'],
  'other' => ['a string of 44 bytes, 2 registers', 'other 1000'],
  'out' => ['the same, and a number that it writes', 'out 1000']
}.freeze
PROTOTYPES = "int traced_other(string, long);\nint traced_out(string, +long*);\n"

def costs
  ns = Hash.new { |h, k| h[k] = {} }
  lost = 0
  ROUNDS.times do
    c = Caller.new
    WAYS.each do |way, (_, line)|
      least(ns[way], 'untraced', c.measure(line)[0])
      function = way == 'text' ? 'mysql_real_query' : "traced_#{way}"
      value, = beside(c.pid, 'patch', 'time', function, '-o', "#{TMP}/o.json", '--force') { c.measure(line)[0] }
      least(ns[way], 'patch time', value)
      value, said = beside(c.pid, 'calls', '-F', "#{TMP}/conf", '-x', function, '-c') { c.measure(line)[0] }
      least(ns[way], 'scry calls', value)
      lost += said[/([\d,]+) lost/, 1].to_s.delete(',').to_i
      value, said = beside(c.pid, 'calls', '--engine=breakpoint', '-x', function, '-c') { c.measure(line[/\w+/] + ' 400')[0] }
      least(ns[way], 'breakpoints', value)
      lost += said[/([\d,]+) lost/, 1].to_s.delete(',').to_i
    end
    beside(c.pid, 'calls', '--engine=breakpoint', '-x', 'traced_plain', '-c') do
      least(ns['threads'], 'breakpoints', c.measure('many 1000 16')[0] / 16)
    end
    value = bpftrace(c, 'plain 10000')
    least(ns['plain'], 'bpftrace', value) if value
    c.close
    value = ltrace("plain 1000\n")
    least(ns['plain'], 'ltrace', value) if value
    value = uftrace("plain 10000\n")
    least(ns['plain'], 'uftrace', value) if value
  end
  [ns, lost]
end

QUERIES = <<~'RUBY'
  require "mysql2"
  c = Mysql2::Client.new(socket: ARGV[0], username: "root")
  puts "ready"; $stdout.flush
  while $stdin.gets
    began = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    cpu = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID)
    20_000.times { |i| c.query("SELECT #{i}+1").first }
    cpu = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID) - cpu
    puts "#{20_000 / (Process.clock_gettime(Process::CLOCK_MONOTONIC) - began)} #{cpu * 1e6 / 20_000}"; $stdout.flush
  end
RUBY

def server
  data = "#{TMP}/db"
  return nil unless system("mariadb-install-db --no-defaults --datadir=#{data} --auth-root-authentication-method=normal " \
                           "--user=$(id -un) --skip-test-db", **QUIET)
  @server = spawn('mariadbd', '--no-defaults', "--datadir=#{data}", "--socket=#{TMP}/s", '--skip-networking',
                  "--pid-file=#{TMP}/pid", "--user=#{`id -un`.strip}", **QUIET)
  Timeout.timeout(30) { sleep 0.05 until system("mariadb --no-defaults -u root -S #{TMP}/s -e 'SELECT 1'", **QUIET) }
  "#{TMP}/s"
end

def queries
  socket = server or return nil
  rates = { without: [], with: [], scry: [] } # [queries/s, us of the client's processor a query]
  to, from, thread = Open3.popen2('ruby', '-e', QUERIES, socket)
  from.gets
  measure = lambda do
    to.puts
    from.gets.split.map(&:to_f)
  end
  measure.call
  (4 * ROUNDS).times do
    rates[:without] << measure.call
    own = Process.times
    rates[:with] << beside(thread.pid, 'calls', '-x', 'mysql_send_query', '-tt', '-T') { measure.call }[0]
    rates[:scry] << (Process.times.cutime + Process.times.cstime - own.cutime - own.cstime) * 1e6 / 20_000
  end
  to.close
  rates
end

build
ns, lost = costs
c = Caller.new
burst, = beside(c.pid, 'calls', '-x', 'traced_plain', '-c') { c.measure('many 1000000 1')[0] }
many, = beside(c.pid, 'calls', '-x', 'traced_plain', '-c') { c.measure('many 100000 16')[0] }
c.close
rates = queries
median = ->(a) { a.sort[a.size / 2] }
out = [wrapped("Entry, return, arguments and result of each call are recorded. The least of #{ROUNDS} rounds, each of which measures " \
               "all ways one after the other; #{`nproc`.strip} processors, load #{File.read('/proc/loadavg').split.first}.")]
out << '' << '| ns a call | untraced | patch time | scry calls | more than untraced | by breakpoints | uftrace | bpftrace | ltrace 0.7.3 |' << '|---|---|---|---|---|---|---|---|---|'
WAYS.each do |way, (name, _)|
  n = ns[way]
  out << format('| %s | %.1f | %.1f | %.1f | %.1f | %d | %s | %s | %s |', name, n['untraced'], n['patch time'], n['scry calls'],
                n['scry calls'] - n['untraced'], n['breakpoints'], *%w[uftrace bpftrace ltrace].map { |t| n[t] ? n[t].round : '' })
end
n = ns['plain']
others = { 'uftrace' => 'calls through the PLT', 'bpftrace' => 'uprobe and uretprobe, a histogram, no single call shown', 'ltrace' => '' }
times = others.filter_map do |t, what|
  n[t] && format('%s%s %d times', t, what.empty? ? '' : " (#{what})", ((n[t] - n['untraced']) / (n['scry calls'] - n['untraced'])).round)
end
out << '' << wrapped("Beside what scry adds to a call, others add: #{times.join(', ')}.") if times.any?
out << '' << wrapped("#{lost} entries or returns were lost, as a program waits rather than lose one: a program that does nothing but call is " \
                     "slowed to what the keeper can take. A million calls in a row take #{(burst / 1000).round(2)} s" \
                     "#{n['ltrace'] && ", under ltrace #{(n['ltrace'] / 1000).round} s"}; with 16 threads that do so at once a call " \
                     "of the slowest takes #{(many / 1000).round(1)} us. With breakpoints 16 threads together make a call each " \
                     "#{(ns['threads']['breakpoints'] / 1000).round(1)} us.")
sections = { 'A call' => out.join("\n") }
if rates
  row = ->(name, of) { format('| %s | %d | %.1f |', name, median[of.map(&:first)], median[of.map(&:last)]) }
  slower = rates[:without].zip(rates[:with]).map { |a, b| 100 * (b[1] / a[1] - 1) }.sort
  sections['Queries'] = [
    "mysql2, `SELECT n+1` over a socket; medians of #{slower.size} pairs, one after the other:", '',
    '| | queries/s | us of the client\'s processor a query |', '|---|---|---|',
    row['untraced', rates[:without]], row['`scry calls -x mysql_send_query -tt -T`', rates[:with]], '',
    wrapped(format('The client takes %.1f %% more of its processor (half of the pairs lie between %.1f and %.1f), scry itself %.1f us a ' \
                   'query, its start and end included. Rates differ by more than that from run to run, as server, client and scry ' \
                   'share the processors.', median[slower], slower[slower.size / 4], slower[slower.size * 3 / 4], median[rates[:scry]]))
  ].join("\n")
end
sections.each { |title, text| ARGV[1] ? page_section(ARGV[1], title, text) : puts("## #{title}", '', text, '') }
