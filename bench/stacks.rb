# What sampling stacks costs a program, and scry: beside stackprof.
#
#   ruby bench/stacks.rb [ROUNDS] [OUT.md]        (bench/run calls it)
#
# Each round does the same work once for each tool and rate, in changing order; a ratio is to the plain
# run of the same round, by the program's own processor time (which other load of the machine does not
# lengthen as it does wall time). Nothing is pass or fail here. Environment: SCRY_BUILD (default build).

require 'etc'
require 'json'
require 'open3'
require 'tmpdir'

HERE = __dir__
SCRY = File.join(File.expand_path(ENV.fetch('SCRY_BUILD', File.join(File.dirname(HERE), 'build'))), 'scry')
TMP = Dir.mktmpdir('scry-bench')
at_exit { system('rm', '-rf', TMP) }

def median(list) = list.sort[list.size / 2]

ENGINES = { 'scry read' => %w[--engine=read], 'scry bpf' => %w[--engine=bpf], 'scry bpf --cpu' => %w[--engine=bpf --cpu] }.freeze

# Seconds of wall and processor of one run, and scry's totals.
def work(threads, tool, rate)
  args = tool == :stackprof ? ['stackprof', rate.to_s] : []
  Open3.popen2('ruby', File.join(HERE, 'stacks/work.rb'), threads.to_s, *args) do |input, output, ended|
    pid = output.gets[/\d+/]
    if ENGINES[tool]
      out = File.join(TMP, 'x.json')
      began = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      scry = Process.spawn(SCRY, 'stacks', '-q', *ENGINES[tool], '-r', rate.to_s, '-p', pid, '--force', '-o', out)
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

rounds = (ARGV[0] || 5).to_i
text = ['# Sampling stacks: what it costs', '',
        "Written by `bench/stacks.rb`; do not edit. Medians of #{rounds} rounds; ratios are of the program's own processor time to the plain run of the same round.",
        'scry samples all threads, with lines and states, from outside; stackprof (wall mode) one thread, by a signal and within the program; its own report is not in it.',
        'By eBPF what runs gives its samples itself, in the kernel, at each tick of its own clock; that is in the program\'s own time. With --cpu nothing else is looked at (looks: 0).',
        'The machine is shared: the load is given below, and differences of some percent are noise.', '',
        "- #{Time.now.strftime('%F')}, Linux #{Etc.uname[:release]}, #{Etc.nprocessors} CPUs, load #{File.read('/proc/loadavg').split.first} at the beginning",
        "- #{RUBY_DESCRIPTION}", "- stackprof #{Gem.loaded_specs['stackprof']&.version || `ruby -e 'require "stackprof"; print StackProf::VERSION'`}", ''] +
       section(1, rounds) + section(8, rounds)
text[7] += ", #{File.read('/proc/loadavg').split.first} at the end"
ARGV[1] ? File.write(ARGV[1], text.join("\n")) : puts(text)
