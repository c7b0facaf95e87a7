# What recording malloc costs, beside what else records it: CPU ns a call in the program itself, its slowdown, and
# bytes a call on disk.
#
#   [ONLY=NAME] ruby bench/malloc.rb [ROUNDS] [OUT.md]        (bench/run calls it; ONLY programs with that in their name)
#
# Each round runs every program plain and under each recorder, in changing order; a recorder is compared with the plain
# run of the same round; medians. Processor time is what the program says of itself at its end, so what the recorder's
# own processes take on other cores is not in it. Nothing is pass or fail. Replaces the section "Recording" of OUT.md.

require 'etc'
require 'fileutils'
require 'open3'
require 'time'
require 'tmpdir'

HERE = __dir__
ROOT = File.dirname(HERE)
SCRY = File.expand_path('scry', ENV.fetch('SCRY_BUILD', File.join(ROOT, 'build')))
TMP = Dir.mktmpdir('scry-bench')
at_exit { FileUtils.remove_entry(TMP) }
ROUNDS = (ARGV[0] || 5).to_i

def build(name, *args)
  out = File.join(TMP, name)
  system('cc', '-O2', '-fno-builtin', '-o', out, File.join(HERE, 'malloc', "#{name[/\w+/]}.c"), *args) or
    abort "bench: cannot build #{name}"
  out
end

WORK = build('work', '-pthread')
TEXT = build('text.so', '-shared', '-fPIC')

JSON_PY = <<~PY
  import json, time
  a = [{str(i): ["x" * (i % 50), i, None]} for i in range(60000)]
  for i in range(4): json.loads(json.dumps(a))
  print("cpu", time.process_time(), "calls 0")
PY
STRINGS_RB = <<~RUBY
  words = (1..2000).map { |i| "word\#{i} " * (i % 20 + 1) }
  n = 0
  150.times { n += words.sum { |w| w.split(" ").map { |x| x.gsub("o", "0") }.size } }
  puts "cpu \#{Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID)} calls 0"
RUBY
WEB_RB = <<~RUBY
  require "#{File.join(HERE, 'realistic.rb')}"
  WORK.call(6000)
  puts "cpu \#{Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID)} calls 0"
RUBY
COMPILED_RB = <<~RUBY
  require "#{File.join(HERE, 'realistic.rb')}"
  Shop::PAGE.def_method(Shop, 'page(goods, title)')
  class ERB
    def result(b) = b.receiver.page(b.local_variable_get(:goods), b.local_variable_get(:title))
  end
RUBY
File.write(File.join(TMP, 'web.rb'), WEB_RB)
File.write(File.join(TMP, 'app.rb'), COMPILED_RB)
File.write(File.join(TMP, 'compiled.rb'), COMPILED_RB + WEB_RB)
File.write(File.join(TMP, 'parse.py'), JSON_PY)
File.write(File.join(TMP, 'strings.rb'), STRINGS_RB)

QUERIES = '15000'
DATABASE = system('mariadb-install-db', '--no-defaults', "--datadir=#{TMP}/data", '--auth-root-authentication-method=normal',
                  "--user=#{Etc.getpwuid.name}", '--skip-test-db', %i[out err] => '/dev/null')
PROGRAMS = {
  'one thread, tight loop' => [WORK, 'one', '10000000'],
  'one thread, 10 M calls/s' => [WORK, 'paced', '6000000'],
  'four threads, blocks freed by others' => [WORK, 'many', '10000000'],
  'puma, Sinatra, four clients' => ['ruby', File.join(HERE, 'malloc/puma.rb'), File.join(TMP, 'app.rb'), TMP, '12000'],
  'Ruby, Sinatra, JSON, ERB' => ['ruby', File.join(TMP, 'compiled.rb')],
  'the same, its template evaluated in each request' => ['ruby', File.join(TMP, 'web.rb')],
  'Ruby, strings' => ['ruby', '--disable-gems', File.join(TMP, 'strings.rb')],
  'Python, JSON' => ['/usr/bin/python3', File.join(TMP, 'parse.py')],
  'Python, JSON (PYTHONMALLOC=malloc)' => ['/usr/bin/python3', File.join(TMP, 'parse.py')],
  **(DATABASE ? { 'mariadbd, four clients' => [File.join(HERE, 'malloc/database.sh'), TMP, QUERIES] } : {}),
}.freeze
ONLY = ENV['ONLY'] # a part of the programs' names
FILES = { 'scry' => 'x.scry', 'scry --preload' => 'p.scry', 'heaptrack --raw' => 'heap.raw*', 'text, a write a call' => 'text.log' }.freeze

def run(recorder, name)
  Dir.glob(File.join(TMP, FILES.fetch(recorder, 'none'))).each { |f| File.delete(f) }
  command = PROGRAMS[name]
  env = [name[/\((\w+)=(\w+)\)/] && [$1, $2]].compact.to_h
  case recorder
  when 'scry' then command = [SCRY, 'malloc', 'record', '-v', '--force', '-o', File.join(TMP, 'x.scry'), '--', *command]
  when 'scry --preload'
    command = [SCRY, 'malloc', 'record', '--preload', '-q', '--force', '-o', File.join(TMP, 'p.scry'), '--', *command]
  when 'heaptrack --raw' then command = ['heaptrack', '--raw', '-o', File.join(TMP, 'heap'), *command]
  when 'text, a write a call'
    env.update('LD_PRELOAD' => TEXT, 'TEXT_LOG' => File.join(TMP, 'text.log'))
  end
  out, err, status = Open3.capture3(env, *command)
  abort "bench: #{recorder} failed: #{err}" unless status.success? || out.include?('cpu')
  { cpu: out[/cpu ([\d.]+)/, 1].to_f, calls: err.scan(/: (\d+) calls/).flatten.map(&:to_i).max.to_i,
    bytes: Dir.glob(File.join(TMP, FILES.fetch(recorder, 'none'))).sum { |f| File.size(f) } }
end

def median(list)
  list.sort[list.size / 2]
end

# { program => { recorder => [run of each round] } }
def measure
  recorders = ['plain', *FILES.keys]
  recorders.delete('heaptrack --raw') unless system('command -v heaptrack >/dev/null')
  PROGRAMS.select { |name, _| name[ONLY.to_s] }.to_h do |name, _|
    runs = Hash.new { |h, k| h[k] = [] }
    ROUNDS.times do |i|
      recorders.rotate(i).each { |recorder| runs[recorder] << run(recorder, name) }
    end
    warn "#{name} done"
    [name, runs]
  end
end

def row(program, recorder, runs)
  calls = median(runs['scry'].map { |r| r[:calls] })
  added = runs[recorder].zip(runs['plain']).map { |with, without| (with[:cpu] - without[:cpu]) * 1e9 / calls }
  slowdown = runs[recorder].zip(runs['plain']).map { |with, without| with[:cpu] / without[:cpu] }
  bytes = median(runs[recorder].map { |r| r[:bytes] }).to_f / calls
  format('| %s | %s | %.1f | %.1f (%.1f-%.1f) | x%.2f | %.2f |', program, recorder, calls / 1e6, median(added), added.min,
         added.max, median(slowdown), bytes)
end

def section(results)
  cpu = File.read('/proc/cpuinfo')[/model name\s*: (.*)/, 1]
  head = <<~TEXT
    ## Recording

    #{Time.now.utc.strftime('%Y-%m-%d')}, #{Etc.nprocessors} processors (#{cpu}), load #{File.read('/proc/loadavg')[/\S+/]}; #{ROUNDS} rounds,
    medians, in brackets least and most. *ns a call*: processor time of the program itself, more than without, by its
    calls. heaptrack also walks stacks; the text has no threads and no times.

    | program | recorder | M calls | ns a call | CPU time | bytes a call |
    |---|---|---|---|---|---|
  TEXT
  head + results.flat_map { |program, runs|
    (runs.keys - ['plain']).sort_by { |k| FILES.keys.index(k) }.map { |recorder| row(program, recorder, runs) }
  }.join("\n") + "\n"
end

def write(path, text)
  old = File.exist?(path) ? File.read(path) : "# malloc: cost\n\n"
  rest = old.sub(/^## Recording\n.*?(?=^## |\z)/m, '')
  File.write(path, "#{rest.chomp}\n\n#{text}".gsub(/\n{3,}/, "\n\n"))
end

text = section(measure)
ARGV[1] ? write(ARGV[1], text) : puts(text)
