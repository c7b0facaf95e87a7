# What `scry objects` costs, beside what a user would otherwise use.
#
#   ruby bench/objects.rb [ROUNDS] [OUT.md]        (bench/run calls it)
#
# Every round runs every tool once, in changing order, and compares it with the plain run of the
# same round; the table shows medians of these ratios. Nothing is pass or fail here.
# Environment: SCRY (default build/scry).

require 'etc'
require 'fileutils'
require 'json'
require 'open3'
require 'rbconfig'
require 'time'
require 'timeout'
require 'tmpdir'
require_relative 'page'

HERE = __dir__
ROOT = File.dirname(HERE)
SCRY = File.expand_path(ENV.fetch('SCRY', File.join(ROOT, 'build/scry')))
TMP = Dir.mktmpdir('scry-bench')
at_exit { FileUtils.remove_entry(TMP) }

# name => {child: the tool inside the process, wrap: how scry comes in, scale: share of the work}
# memory_profiler keeps every object: it gets a twentieth of the operations.
TOOLS = {
  'plain' => { child: 'none' },
  'empty raw hook' => { child: 'rawhook' },
  'empty raw hook, births only' => { child: 'rawhook_births' },
  'scry objects --' => { child: 'none', wrap: :spawn },
  'scry objects -p' => { child: 'none', wrap: :attach },
  'scry objects --source hooks -p' => { child: 'none', wrap: :attach, options: %w[--source hooks] },
  'scry objects --stacks -p' => { child: 'none', wrap: :attach, options: %w[--stacks] },
  'scry objects --sample 1000 -p' => { child: 'none', wrap: :attach, options: %w[--sample 1000] },
  'scry objects --source hooks --sample 1000 -p' => { child: 'none', wrap: :attach, options: %w[--source hooks --sample 1000] },
  'scry objects --sample 1000 --stacks -p' => { child: 'none', wrap: :attach, options: %w[--sample 1000 --stacks] },
  'ObjectSpace.trace_object_allocations' => { child: 'objspace' },
  'stackprof, mode: :object' => { child: 'stackprof' },
  'memory_profiler' => { child: 'memory_profiler', scale: 0.05 },
}.freeze

WORKLOADS = {
  'alloc' => { title: 'A loop that does nothing but allocate (`"a".dup`, `Object.new`, `[n, 2]`)', operations: 5_000_000 },
  'realistic' => { title: 'A realistic program (Sinatra requests, JSON, ERB)', operations: 35_000 },
}.freeze

def build_rawhook
  config = RbConfig::CONFIG
  out = File.join(TMP, 'rawhook.so')
  command = [config['CC'].split.first, '-O2', '-shared', '-fPIC', '-o', out,
             "-I#{config['rubyhdrdir']}", "-I#{config['rubyarchhdrdir']}", File.join(HERE, 'rawhook/rawhook.c')]
  system(*command) or abort 'bench: cannot build rawhook (needs ruby-dev)'
  ENV['RAWHOOK'] = out
end

def missing(tool)
  return "no scry at #{SCRY}" if tool[:wrap] && !File.executable?(SCRY)
  return if %w[none rawhook rawhook_births objspace].include?(tool[:child])

  system(RbConfig.ruby, '-e', "require '#{tool[:child]}'", err: File::NULL) ? nil : "no library #{tool[:child]}"
end

# Attaches, and waits until scry is in the process (there is code of no file: Ruby without a JIT has
# none), and half a second more for the hooks.
def attach(pid, out, options)
  scry = Process.spawn(SCRY, 'objects', *options, '-p', pid.to_s, '-o', out, out: File::NULL)
  60.times do
    break sleep(0.5) if File.foreach("/proc/#{pid}/maps").any? { |l| l.include?('scry') || l =~ /^\S+ ..x. \S+ 00:00 0\s*$/ }

    sleep 0.05
  end
  scry
end

def run_once(workload, tool)
  out = File.join(TMP, "#{rand(1 << 60)}.json")
  operations = (WORKLOADS[workload][:operations] * tool.fetch(:scale, 1)).to_i
  command = [RbConfig.ruby, File.join(HERE, 'child.rb'), File.join(HERE, "#{workload}.rb"), operations.to_s, tool[:child]]
  command = [SCRY, 'objects', '-o', out, '--'] + command if tool[:wrap] == :spawn
  Open3.popen2(*command) do |to, from, thread|
    ready = from.gets or abort "bench: #{command.join(' ')} did not start"
    scry = attach(ready[/\d+/].to_i, out, tool.fetch(:options, [])) if tool[:wrap] == :attach
    to.puts
    answer = from.gets or abort "bench: #{command.join(' ')} said nothing"
    if scry
      Process.kill(:INT, scry) rescue nil
      Process.wait(scry)
    end
    thread.value.success? or abort "bench: #{command.join(' ')}: #{thread.value}"
    result = JSON.parse(answer)
    result['data_quality'] = JSON.parse(File.read(out))['data_quality'] if File.exist?(out)
    result['operations'] = operations
    return result
  end
ensure
  FileUtils.rm_f(out)
end

def median(list)
  sorted = list.sort
  (sorted[(sorted.size - 1) / 2] + sorted[sorted.size / 2]) / 2.0
end

# All rounds of one workload: {tool name => [result, ...]}, index = round.
def measure(workload, tools, rounds)
  results = Hash.new { |h, k| h[k] = [] }
  rounds.times do |round|
    tools.keys.rotate(round).each do |name|
      results[name] << run_once(workload, tools[name])
      warn format('%-10s round %d  %-40s %8.3f s', workload, round + 1, name, results[name].last['ns'] / 1e9)
    end
  end
  results
end

def per_operation(result, key = 'ns')
  result[key].to_f / result['operations']
end

def row(name, results)
  mine = results[name]
  plain = results['plain']
  hook = results['empty raw hook']
  slower = median(mine.zip(plain).map { |a, b| per_operation(a) / per_operation(b) })
  report = median(mine.zip(plain).map { |a, b| per_operation(a, 'with_report_ns') / per_operation(b) })
  per_object = ->(r) { r['ns'].to_f / r['objects'] }
  above = median(mine.zip(hook).map { |a, b| per_object.(a) - per_object.(b) })
  lost = mine.sum { |r| r.dig('data_quality', 'lost').to_i }
  claimed = mine.filter_map { |r| r.dig('data_quality', 'overhead_pct') }
  note = mine[0]['data_quality'] ? "lost #{lost}, says ~#{claimed.empty? ? '?' : median(claimed).round}%" : ''
  format('| %s | %.2fx | %.2fx | %.1f | %+.1f | %s |', name, slower, report, median(mine.map(&per_object)), above, note)
end

def first_line(*command)
  Open3.capture2e(*command)[0].lines.first.to_s.strip
rescue Errno::ENOENT
  'not there'
end

def packages
  names = %w[ruby3.1 ruby-memory-profiler ruby-stackprof ruby-sinatra ruby-rack]
  names.filter_map do |n|
    version = Open3.capture2e('dpkg-query', '-W', '-f', '${Version}', n)
    "#{n} #{version[0]}" if version[1].success?
  end.join(', ')
end

def head(rounds)
  cpu = File.read('/proc/cpuinfo')[/^model name\s*: (.*)/, 1]
  <<~TEXT
    # The cost of watching every object

        ruby bench/objects.rb [ROUNDS] [OUT.md]      # writes this page

    Ratios are medians over #{rounds} rounds, each tool against the plain run of the same round.

    - *with report* adds the time in which an in-process tool makes its report before the program goes on.
    - *ns/object* is the time of the whole loop by the number of objects.
    - *above hook* is what a tool adds to a raw event hook that only counts: the least for any tool that sees each object.
    - *says* is the overhead that scry's own report estimates.
    - memory_profiler keeps every object, so it gets a twentieth of the work; its times are per operation.

    Measured on:

    - #{Time.now.utc.strftime('%Y-%m-%d')}, #{first_line('uname', '-sr')}, #{Etc.nprocessors} CPUs (#{cpu})
    - #{RUBY_DESCRIPTION}
    #{wrapped("- #{packages}").gsub("\n", "\n  ")}
    - scry: #{File.executable?(SCRY) ? first_line(SCRY, '--version') : 'not built'}
  TEXT
end

rounds = Integer(ARGV[0] || 5)
out = ARGV[1] || File.join(HERE, 'objects.md')
build_rawhook
skipped = TOOLS.to_h { |name, tool| [name, missing(tool)] }.compact
tools = TOOLS.reject { |name, _| skipped[name] }
text = head(rounds)
WORKLOADS.each do |workload, about|
  results = measure(workload, tools, rounds)
  plain = results['plain']
  text << "\n## #{about[:title]}\n\n"
  text << format("Plain: %.2f s, %d objects.\n\n", median(plain.map { |r| r['ns'] / 1e9 }), plain[0]['objects'])
  text << "| tool | slower | with report | ns/object | above hook | notes |\n|---|---|---|---|---|---|\n"
  TOOLS.each_key { |name| text << (skipped[name] ? "| #{name} | skipped: #{skipped[name]} |||||" : row(name, results)) << "\n" }
end
File.write(out, text)
puts text
