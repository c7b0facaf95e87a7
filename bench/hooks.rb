# What a hook costs: ns per call for each kind and way, beside what else counts calls; and how long a
# process stands still while hooks are set, by its threads and by the number of hooks.
#
#   ruby bench/hooks.rb [ROUNDS] [OUT.md]        (bench/run calls it)
#
# Each round measures every way once, in changing order, in one program that runs on; a way is
# compared with the untraced call of the same round. Nothing is pass or fail here. The two sections
# that it writes replace those of the same name in OUT.md. Environment: SCRY_BUILD (default build).

require 'etc'
require 'fileutils'
require 'open3'
require 'time'
require 'timeout'
require 'tmpdir'
require_relative 'page'

HERE = __dir__
ROOT = File.dirname(HERE)
BUILD = File.expand_path(ENV.fetch('SCRY_BUILD', File.join(ROOT, 'build')))
STORM = File.join(BUILD, 'test/hook_storm')
TMP = Dir.mktmpdir('scry-bench')
at_exit { FileUtils.remove_entry(TMP) }

def build(name, *args)
  out = File.join(TMP, name)
  source = File.join(HERE, 'calls', "#{File.basename(name, '.so').sub(/^lib/, '')}.c")
  system('cc', '-O2', '-o', out, source, *args) or abort "bench: cannot build #{name}"
  out
end

CALLEE = build('libcallee.so', '-shared', '-fPIC')
CALLS = build('calls', '-fno-plt', '-fplt', "-L#{TMP}", '-lcallee', "-Wl,-rpath,#{TMP},-z,lazy")
SHIM = build('shim.so', '-shared', '-fPIC', '-ldl')
UPROBE = build('uprobe')

# A program that calls: measure(:plt, n) => [least, median] ns a call.
class Caller
  attr_reader :pid

  def initialize(env = {})
    @to, @from, @thread = Open3.popen2(env, CALLS)
    @pid = @from.gets[/\d+/].to_i
  end

  def measure(how, calls)
    @to.puts "#{how} #{calls}"
    Timeout.timeout(120) { @from.gets }.split.map(&:to_f)
  end

  def close
    @to.close
    @thread.value
  end
end

# Runs a tool beside the caller until its output matches, then the block, then ends it.
def beside(command, ready)
  Open3.popen3(*command) do |_, out, err, thread|
    Timeout.timeout(20) { out.each_line.find { |line| line =~ ready } } if ready.is_a?(Regexp)
    Timeout.timeout(20) { sleep 0.01 until ready.call } if ready.is_a?(Proc)
    result = thread.alive? ? yield : nil
    warn err.read unless result
    Process.kill(:TERM, thread.pid) rescue nil
    thread.value
    result
  end
end

def hooked(pid)
  -> { `#{BUILD}/scry patch list -p #{pid} 2>&1`.include?('applied') }
end

def storm(caller, way, name)
  ['sh', '-c', "exec #{STORM} -c -w #{way} -t 60000000 #{caller.pid} #{name} 2>&1"]
end

def offset(symbol)
  `nm -D --defined-only #{CALLEE}`[/^(\h+) . #{symbol}$/, 1].to_i(16)
end

WAYS = {
  'untraced, through the PLT' => { how: :plt },
  'count, by the entry' => { how: :plt, tool: ->(c) { storm(c, 'entry', 'callee@libcallee') } },
  'count, by the GOT slot' => { how: :plt, tool: ->(c) { storm(c, 'got', 'callee@libcallee') } },
  'LD_PRELOAD shim that counts (atomic)' => { how: :plt, preload: true },
  'uprobe, counted by perf events' => { how: :plt, calls: 2_000, tool: ->(c) { [UPROBE, c.pid.to_s, CALLEE, offset('callee').to_s] }, ready: /on/ },
  'ltrace -c' => { how: :plt, calls: 100, needs: 'ltrace', tool: ->(c) { ['ltrace', '-c', '-e', 'callee', '-p', c.pid.to_s] }, ready: -> { sleep 1 } },
  'untraced, direct call' => { how: :direct },
  'direct call, count by the entry' => { how: :direct, tool: ->(c) { storm(c, 'entry', 'callee_inside@calls') } },
  'direct call, count by the call site' => { how: :direct, tool: ->(c) { storm(c, 'site', 'callee_inside@calls') } },
}.freeze

def median(list)
  list.sort[list.size / 2]
end

def measure_way(way, callers)
  calls = way.fetch(:calls, 1_000_000)
  caller = callers[way[:preload] ? :shimmed : :plain]
  return caller.measure(way[:how], calls) unless way[:tool]

  beside(way[:tool].call(caller), way.fetch(:ready) { hooked(caller.pid) }) { caller.measure(way[:how], calls) }
end

def calls_table(rounds)
  callers = { plain: Caller.new, shimmed: Caller.new('LD_PRELOAD' => SHIM) }
  skipped = WAYS.select { |_, w| w[:needs] && !system("command -v #{w[:needs]} >/dev/null") }.keys
  skipped.each { |name| warn "bench: skipped, not installed: #{name}" }
  results = Hash.new { |h, k| h[k] = [] }
  rounds.times do |round|
    ran = (WAYS.keys - skipped).rotate(round).to_h { |name| [name, measure_way(WAYS[name], callers)] }
    ran.each do |name, ns|
      next skipped.push(name) unless ns

      plain = ran[WAYS[name][:how] == :plt ? 'untraced, through the PLT' : 'untraced, direct call']
      results[name] << [ns[1], ns[0], ns[1] - plain[1], ns[1] / plain[1]]
    end
  end
  callers.each_value(&:close)
  rows = results.slice(*WAYS.keys).map do |name, list|
    format('| %s | %.2f | %.2f | %+.2f | %.2f |', name, median(list.map(&:first)), list.map { |l| l[1] }.min, median(list.map { |l| l[2] }),
           median(list.map { |l| l[3] }))
  end
  [rows, skipped.uniq]
end

HOOKS = {
  1 => ['fn_0_0@target_thousand'],
  100 => ['fn_0_*@target_thousand'],
  1000 => ['fn_*@target_thousand'],
  'all' => ['-a', '/'], # of the program and its libraries, libcrypto among them
}.freeze
THREADS = { '1 sleeping' => [1, 1], '16 sleeping' => [16, 1], '128 sleeping' => [128, 1], '8 busy' => [8, 0] }.freeze

# [median on, longest on, median off] ms, and of how many hooks
def pause(pid, hooks)
  options = hooks.take(hooks.size - 1)
  out, status = Open3.capture2e(STORM, '-n', '15', '-t', '1000', *options, pid.to_s, hooks.last)
  abort "bench: #{out}" unless status.success?
  on, longest, off = out[/^pause.*/].scan(/\d+/).map(&:to_i)
  [on / 1000.0, longest / 1000.0, off / 1000.0, out[/^functions (\d+)/, 1].to_i - out[/refused (\d+)/, 1].to_i]
end

def pauses_table
  crypto = Dir['/usr/lib/x86_64-linux-gnu/libcrypto.so.3'].first.to_s
  THREADS.map do |name, (threads, rounds)|
    pid = Process.spawn({ 'LD_PRELOAD' => crypto }, File.join(BUILD, 'test/targets/target_thousand'), threads.to_s, rounds.to_s, out: File::NULL)
    sleep 0.5
    cells = HOOKS.map { |count, hooks| format('%.2f, %.2f; %.2f%s', *pause(pid, hooks).then { |a| [*a.take(3), count == 'all' ? " (#{a[3]})" : ''] }) }
    Process.kill(:TERM, pid)
    Process.wait(pid)
    "| #{name} | #{cells.join(' | ')} |"
  end
end

rounds = (ARGV[0] || 7).to_i
out = ARGV[1] || File.join(HERE, 'hooks.md')
rows, skipped = calls_table(rounds)
machine = "#{Time.now.utc.strftime('%Y-%m-%dT%H:%MZ')}, #{Etc.uname[:sysname]} #{Etc.uname[:release]}, #{Etc.nprocessors} CPUs"
page_section(out, 'Cost of a call', <<~MD)
  #{wrapped("#{machine}, #{rounds} rounds, each way once a round in changing order (`bench/hooks.rb`). Each way is compared with the " \
            "untraced call of its round. The function has three instructions, and each call waits for the result of the one before." \
            "#{" Skipped: #{skipped.join(', ')}." if skipped.any?}")}

  | way | ns a call, median | least | beside untraced, ns | ratio |
  |---|---|---|---|---|
  #{rows.join("\n")}

  Nearly all of a counted call is the `lock` of its addition, as in the shim: with a plain `incq` the same stub costs +0.29
  ns by the entry, +0.03 ns by slot or site (measured once, by hand). Without the lock, calls are lost when threads count at
  once. ltrace was measured apart: some 80,000 ns a call ([calls.md](calls.md)).
MD
page_section(out, 'Pause', <<~MD)
  #{machine}. How long all threads are stopped, in ms: putting the
  hooks in, median and longest of 15; taking them out, median. With more than 4,096 changes there are several stops, and the
  number is the longest. "All hooks" is every function of the program, libc, libcrypto and the loader (in brackets: how
  many).

  | threads | #{HOOKS.keys.map { |n| n == 1 ? '1 hook' : "#{n} hooks" }.join(' | ')} |
  |---|#{'---|' * HOOKS.size}
  #{pauses_table.join("\n")}
MD
