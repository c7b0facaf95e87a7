# What sampling stacks costs a program, a web server, and scry: beside stackprof.
#
#   ruby bench/stacks.rb [ROUNDS] [OUT.md]        (bench/run calls it)
#
# Each round does the same work once for each tool and rate, in changing order; a ratio is to the plain
# run of the same round, by the program's own processor time (which other load of the machine does not
# lengthen as it does wall time), of the web server by requests a second and latency. Nothing is pass or fail
# here. Environment: SCRY_BUILD (default build);
# SECTIONS="pause web": only those of 1 8 pause busy web; a single one is printed without the head.

require 'etc'
require 'json'
require 'open3'
require 'socket'
require 'tmpdir'
require_relative 'page'

HERE = __dir__
SCRY = File.join(File.expand_path(ENV.fetch('SCRY_BUILD', File.join(File.dirname(HERE), 'build'))), 'scry')
TMP = Dir.mktmpdir('scry-bench')
at_exit { system('rm', '-rf', TMP) }

def median(list) = list.sort[list.size / 2]

ENGINES = { 'scry read' => %w[--engine=read], 'scry bpf' => %w[--engine=bpf], 'scry bpf --cpu' => %w[--engine=bpf --cpu] }.freeze
HELD = { 'scry --pause' => %w[--pause] }.freeze

# Seconds of wall and processor of one run, and scry's totals.
def work(threads, tool, rate)
  args = tool == :stackprof ? ['stackprof', rate.to_s] : []
  Open3.popen2('ruby', File.join(HERE, 'stacks/work.rb'), threads.to_s, *args) do |input, output, ended|
    pid = output.gets[/\d+/]
    if (options = ENGINES[tool] || HELD[tool])
      out = File.join(TMP, 'x.json')
      began = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      scry = Process.spawn(SCRY, 'stacks', '-q', *options, '-r', rate.to_s, '-p', pid, '--force', '-o', out)
      sleep 0.5 # it has come by then; what it sees before the work is idle threads
    end
    input.puts
    wall, cpu = output.gets.split.drop(1).map(&:to_f)
    if scry
      Process.kill(:INT, scry)
      Process.wait(scry)
      totals = JSON.parse(File.read(out))['totals'].merge('watched_ns' => (Process.clock_gettime(Process::CLOCK_MONOTONIC) - began) * 1e9)
    end
    abort "bench: the program under #{tool} at #{rate} ended with #{ended.value}" unless ended.value.success?
    { wall: wall, cpu: cpu, totals: totals }
  end
end

WAYS = [[:plain, 0], *[*ENGINES.keys, :stackprof].product([100, 1000, 10_000])].freeze

def section(threads, rounds)
  seen = Hash.new { |h, k| h[k] = [] }
  rounds.times do
    one = WAYS.shuffle.to_h { |way| [way, work(threads, *way)] }
    one.each { |way, r| seen[way] << r.merge(ratio: r[:cpu] / one[[:plain, 0]][:cpu]) }
  end
  lines = ["## #{threads} thread#{'s' if threads > 1}#{', all but one asleep' if threads > 1}", '',
           "Plain: #{format('%.2f', median(seen[[:plain, 0]].map { |r| r[:cpu] }))} s of processor time.", '',
           '| tool | samples a second asked | target slower by processor time | scry, % of a processor | us of scry a sample of a thread | us in the kernel a sample by eBPF | looks achieved | missed | valid | repaired | rejected |',
           '|---|---|---|---|---|---|---|---|---|---|---|']
  WAYS.drop(1).each do |way|
    rows = seen[way]
    t = rows.map { |r| r[:totals] }
    cells = [way[0], way[1], format('%+.1f %%', 100 * (median(rows.map { |r| r[:ratio] }) - 1))]
    cells += if t[0]
               [format('%.1f', median(t.map { |x| 100.0 * x['sampler_cpu_ns'] / x['watched_ns'] })),
                format('%.1f', median(t.map { |x| x['sampler_cpu_ns'] / 1000.0 / x['samples'] })),
                t[0]['clocked'] ? format('%.1f', median(t.map { |x| x['kernel_ns'] / 1000.0 / x['clocked'] })) : '-',
               median(t.map { |x| x['rate_achieved'] }), *%w[missed valid repaired rejected].map { |k| t.sum { |x| x[k] } }]
             else
               ['-'] * 8
             end
    lines << "| #{cells.join(' | ')} |"
  end
  lines + ['']
end

# A stopped program uses no processor: how long it was stopped has columns of its own.
def held_section(rounds)
  lines = ['## Stopping: --pause', '',
           "A stopped program uses no processor, so its own time says nothing of the stops. They have columns of their own, as scry\nmeasures them: from when a thread may have been stopped to the last release.", '',
           '| threads | samples a second asked | target slower by processor time | stopped, % of the time | a look: median, us | longest, us | looks achieved | left out | scry, % of a processor | repaired | rejected |',
           '|---|---|---|---|---|---|---|---|---|---|---|']
  [1, 8].product([10, 100, 1000]).each do |threads, rate|
    rows = rounds.times.map do
      one = [[:plain, 0], ['scry --pause', rate]].shuffle.to_h { |way| [way[0], work(threads, *way)] }
      one['scry --pause'].merge(ratio: one['scry --pause'][:cpu] / one[:plain][:cpu])
    end
    t = rows.map { |r| r[:totals] }
    cells = [threads, rate, format('%+.1f %%', 100 * (median(rows.map { |r| r[:ratio] }) - 1)),
             format('%.2f', median(t.map { |x| 100.0 * x['held_ns'] / x['watched_ns'] })), *%w[held_median_ns held_longest_ns].map { |k| format('%.0f', median(t.map { |x| x[k] / 1000.0 })) },
             median(t.map { |x| x['rate_achieved'] }), t.sum { |x| x['looks_spared'] + x['looks_late'] },
             format('%.1f', median(t.map { |x| 100.0 * x['sampler_cpu_ns'] / x['watched_ns'] })), *%w[repaired rejected].map { |k| t.sum { |x| x[k] } }]
    lines << "| #{cells.join(' | ')} |"
  end
  lines + ['', "Measured at a load of #{File.read('/proc/loadavg').split.first}.", '']
end

# --- all busy ---------------------------------------------------------------------------------------

BUSY_SECONDS = 3

# scry's share of a processor and its time a sample while `count` all work, without its beginning and end; what
# processes give is in one recording (-f).
def busy(count, kind, tool)
  Open3.popen2('ruby', '-W0', File.join(HERE, 'stacks/work.rb'), count.to_s, kind, BUSY_SECONDS.to_s) do |input, output, _|
    pid = output.gets[/\d+/]
    out = File.join(TMP, 'x.json')
    scry = Process.spawn(SCRY, 'stacks', '-q', *ENGINES[tool], *('-f' if kind == 'processes'), '-r', '1000', '-p', pid, '--force', '-o', out)
    sleep 0.5
    began = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    spent = lambda { File.read("/proc/#{scry}/schedstat").to_i }
    before = spent.call
    input.puts
    sleep BUSY_SECONDS - 0.5 # none of it has ended
    share = (spent.call - before) / 1e9 / (Process.clock_gettime(Process::CLOCK_MONOTONIC) - began)
    output.gets
    Process.kill(:INT, scry)
    Process.wait(scry)
    totals = JSON.parse(File.read(out))['totals']
    { share: 100 * share, us: 1e6 * share * BUSY_SECONDS / totals['samples'], totals: totals } # nearly all are of that time
  end
end

def busy_section(rounds)
  ways = [[1, 'threads'], *[8].product(%w[threads ractors processes])].product(ENGINES.keys).map(&:flatten)
  seen = Hash.new { |h, k| h[k] = [] }
  rounds.times { ways.shuffle.each { |way| seen[way] << busy(*way) } }
  lines = ['## When all work, at 1000 a second', '',
           wrapped("All of scry's processor time while they work, without its beginning (some 40 ms to learn the program and to load eBPF) and its end, " \
                   'which are in the tables above. As many run at a time as there are processors. Of threads one runs; those that wait for the ' \
                   "VM's lock are samples too, except with --cpu."), '',
           '| how many | of what | tool | scry, % of a processor | us of scry a sample | samples | repaired | rejected |', '|---|---|---|---|---|---|---|---|']
  ways.each do |way|
    sums = %w[samples repaired rejected].map { |k| seen[way].sum { |r| r[:totals][k] } }
    cells = [*way, format('%.1f', median(seen[way].map { |r| r[:share] })), format('%.1f', median(seen[way].map { |r| r[:us] })), *sums]
    lines << "| #{cells.join(' | ')} |"
  end
  lines + ['']
end

# --- a web server -----------------------------------------------------------------------------------

WEB_SECONDS = 2

# Requests a second and latencies in ms of puma with 5 threads, asked by 4 connections.
def serve(tool, rate)
  env = tool == :stackprof ? { 'STACKPROF' => rate.to_s } : {}
  port = TCPServer.open('127.0.0.1', 0) { |s| s.addr[1] }
  puma = Process.spawn(env, 'puma', '-q', '-e', 'production', '-t', '5:5', '-b', "tcp://127.0.0.1:#{port}", File.join(HERE, 'stacks/app.ru'), out: File::NULL)
  url = "http://127.0.0.1:#{port}/page/20"
  tries = 0
  until system('curl', '-sf', '-m', '1', '-o', File::NULL, url)
    abort "bench: puma under #{tool} does not answer" if (tries += 1) > 400 || Process.wait(puma, Process::WNOHANG)
    sleep 0.05
  end
  load_for = ->(s) { IO.popen(['wrk', '-t1', '-c4', "-d#{s}s", '--latency', url], &:read) }
  if ENGINES[tool]
    out = File.join(TMP, 'x.json')
    scry = Process.spawn(SCRY, 'stacks', '-q', *ENGINES[tool], '-r', rate.to_s, '-p', puma.to_s, '--force', '-o', out)
  end
  load_for.call(1)
  said = load_for.call(WEB_SECONDS)
  if scry
    Process.kill(:INT, scry)
    Process.wait(scry)
    totals = JSON.parse(File.read(out))['totals']
  end
  ms = ->(p) { said[/^\s+#{p}%\s+([\d.]+)(us|ms|s)/] ? $1.to_f * { 'us' => 0.001, 'ms' => 1, 's' => 1000 }[$2] : abort("bench: wrk says no latency:\n#{said}") }
  { rps: said[/Requests\/sec:\s+([\d.]+)/, 1].to_f, p50: ms[50], p99: ms[99], totals: totals }
ensure
  Process.kill(:KILL, puma)
  Process.wait(puma)
end

def web_section(rounds)
  seen = Hash.new { |h, k| h[k] = [] }
  rounds.times do
    one = WAYS.shuffle.to_h { |way| [way, serve(*way)] }
    one.each { |way, r| seen[way] << r.merge(%i[rps p50 p99].to_h { |k| [:"#{k}_ratio", r[k] / one[[:plain, 0]][k]] }) }
  end
  plain = seen[[:plain, 0]]
  lines = ['## A web server: puma, 5 threads, Sinatra; 4 connections (wrk) on the same machine', '',
           "Plain: #{median(plain.map { |r| r[:rps] }).round} requests a second, p50 #{format('%.2f', median(plain.map { |r| r[:p50] }))} ms, p99 #{format('%.2f', median(plain.map { |r| r[:p99] }))} ms. #{rounds == 1 ? 'One round' : "#{rounds} rounds"}; changes are to its plain run.", '',
           '| tool | samples a second asked | throughput | p50 | p99 | looks achieved | samples | repaired | rejected |', '|---|---|---|---|---|---|---|---|---|']
  WAYS.drop(1).each do |way|
    rows = seen[way]
    cells = way + %i[rps_ratio p50_ratio p99_ratio].map { |k| format('%+.1f %%', 100 * (median(rows.map { |r| r[k] }) - 1)) }
    t = rows.map { |r| r[:totals] }
    cells += t[0] ? [median(t.map { |x| x['rate_achieved'] }), *%w[samples repaired rejected].map { |k| t.sum { |x| x[k] } }] : ['-'] * 4
    lines << "| #{cells.join(' | ')} |"
  end
  lines + ['']
end

# Not of this run: what perf, strace and small programs said once, of the same kind of machine.
SHARES = ['## Where it goes', '', <<~TEXT].freeze
  Of scry's processor time, measured once on a virtual machine at a load of 5 to 30, so only the shares are of use:

  | reading, 10000 a second | |
  |---|---|
  | process_vm_readv, three fifths of it finding and holding pages (0.4 us and more for each of ten pieces, about 2 us a call before the first) | 38 % |
  | /proc and /proc/PID/mem | 24 % |
  | sleeping and waking: 15 to 18 us each on that machine, whatever is done then | 21 % |
  | scry's own code | 13 % |

  By eBPF with --cpu, 1000 a second and one thread, a watch of 10 s takes 6 to 10 us a sample more than one of 2 s.

  On a quicker machine (0.58 s for the same work) the program took 1.5 % more processor time by reading and 3.6 % by eBPF at
  1000 a second, and 2.9 % with stackprof; a sample of one thread took 46 us by reading.

  The goal, 3 us for a sample of a thread that runs, cannot be met by reading twice from outside. A clock of eBPF on each
  thread would cost the program 12 us more at each switch of a thread that has one (4.0 without, 16.5 with, minima), as the
  kernel sets its timer anew; a page in which a thread counts its turns on a processor costs it 0.03 us.
TEXT

rounds = (ARGV[0] || 5).to_i
began_at = File.read('/proc/loadavg').split.first
sections = ENV.fetch('SECTIONS', '1 8 pause busy web').split
parts = sections.map do |name|
  { 'pause' => -> { held_section(rounds) }, 'busy' => -> { busy_section((rounds / 2).clamp(1, 3)) }, 'web' => -> { web_section((rounds / 2).clamp(1, 3)) } }
    .fetch(name, -> { section(name.to_i, rounds) }).call
end
if parts.size == 1
  puts parts
  exit
end
text = ['# Sampling stacks: what it costs', '',
        '    ruby bench/stacks.rb [ROUNDS] [OUT.md]      # writes this page; SECTIONS: a part of it', '',
        wrapped("Medians of #{rounds} rounds; ratios are of the program's own processor time to the plain run of the same round. scry " \
                'samples all threads, with lines and states, from outside. stackprof (wall mode) samples one thread, by a signal and ' \
                'within the program; its own report is not in the times. By eBPF threads that run report their own samples, in the ' \
                "kernel, at the ticks of a clock on each processor: that is in the program's own time. With --cpu there are no looks from " \
                'outside (0). The machine is shared: see the load below; differences of some percent are noise, and so are all where ' \
                'the plain run is slow.'), '',
        "- #{Time.now.strftime('%F')}, Linux #{Etc.uname[:release]}, #{Etc.nprocessors} CPUs, load #{began_at} at the beginning",
        "- #{RUBY_DESCRIPTION}", "- stackprof #{Gem.loaded_specs['stackprof']&.version || `ruby -e 'require "stackprof"; print StackProf::VERSION'`}", ''] +
       parts.flatten + SHARES
text[6] += ", #{File.read('/proc/loadavg').split.first} at the end"
ARGV[1] ? File.write(ARGV[1], text.join("\n")) : puts(text)
