# What several instruments cost at once: processor time of the program itself, a round of which is an event for each.
#
#   ruby bench/record.rb [ROUNDS] [OUT.md]        (bench/run calls it)
#
# Each round runs all variants in turn; costs are differences within a round, to the program without any; medians.
# Nothing is pass or fail. Replaces the sections "An event" and "Start" of OUT.md.

require 'etc'
require 'fileutils'
require 'tmpdir'
require_relative 'page'

HERE = __dir__
SCRY = File.expand_path('scry', ENV.fetch('SCRY_BUILD', File.join(File.dirname(HERE), 'build')))
TMP = Dir.mktmpdir('scry-bench')
at_exit { FileUtils.remove_entry(TMP) }
ROUNDS = (ARGV[0] || 5).to_i
EVENTS = 300_000
FEWER = 20_000 # for who stops the program at each
RUBY = ['ruby', '--disable-gems'].freeze
OUT = ['--force', '-q', '-o', File.join(TMP, 'x.scry')].freeze
CALLS = ['-x', 'malloc@libc.so.6', '--args=none'].freeze

def scry(*args) = [SCRY, *args, *OUT, '--']
ALONE = {
  'objects' => scry('objects'),
  'malloc' => scry('malloc', 'record'),
  'calls' => scry('calls', *CALLS),
  'gvl' => scry('gvl'),
}.freeze
TOGETHER = [%w[objects malloc], %w[malloc calls], %w[objects gvl], %w[objects malloc calls], %w[objects malloc gvl calls]]
           .to_h { |parts| [parts, scry('record', '-e', parts.join(','), *(parts.include?('calls') ? CALLS : []))] }.freeze
OTHERS = {
  'heaptrack' => ['heaptrack', '--raw', '-o', File.join(TMP, 'heap')],
  'ltrace' => ['ltrace', '-x', 'malloc@libc.so.6', '-e', '', '-o', '/dev/null'],
}.select { |name, _| system('which', name, out: File::NULL) }.freeze

def ns(command, events = EVENTS)
  IO.popen([*command, *RUBY, File.join(HERE, 'record', 'work.rb'), events.to_s], err: File::NULL, &:read)[/^ns ([\d.]+)/, 1].to_f
end

def wall_ms(command)
  began = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  system(*command, *RUBY, '-e', '1', out: File::NULL, err: File::NULL) or warn "#{command} failed"
  (Process.clock_gettime(Process::CLOCK_MONOTONIC) - began) * 1000
end

def median(list) = list.sort[list.size / 2]
def cell(list) = format('%.0f (%.0f-%.0f)', median(list), list.min, list.max)

variants = { 'plain' => [] }.merge(ALONE, TOGETHER, OTHERS)
variants.each_value { |command| ns(command, 1000) } # what is not known yet is learned
loads = []
took = Hash.new { |h, k| h[k] = [] }
start = Hash.new { |h, k| h[k] = [] }
ROUNDS.times do
  loads << File.read('/proc/loadavg').split.first
  variants.each do |name, command|
    took[name] << ns(command, name == 'ltrace' ? FEWER : EVENTS)
    start[name] << wall_ms(command)
  end
end

said = "#{ROUNDS} rounds, medians, in brackets least and most; #{Etc.nprocessors} processors, load before each round " \
       "#{loads.join(', ')}."
more = took.to_h { |name, list| [name, list.zip(took['plain']).map { |a, b| a - b }] }
plain = median(took['plain'])
slower = ->(list) { format('x%.2f', median(list) / plain) }
lines = [wrapped("#{said} A round of the program alone takes #{plain.round} ns."), '',
         '| | ns a round more | slowdown | the same, one after the other: ns more, in all | of that |', '|---|---|---|---|---|']
ALONE.each_key { |name| lines << "| scry #{name} | #{cell(more[name])} | #{slower[took[name]]} | | |" }
TOGETHER.each_key do |parts|
  sums = more.values_at(*parts).transpose.map(&:sum)
  lines << "| scry record -e #{parts.join(',')} | #{cell(more[parts])} | #{slower[took[parts]]} | #{cell(sums)} | " \
           "#{(100 * median(more[parts]) / median(sums)).round} % |"
end
OTHERS.each_key { |name| lines << "| #{name} | #{cell(more[name])} | #{slower[took[name]]} | | |" }
if OTHERS.size == 2
  sums = more.values_at('heaptrack', 'ltrace').transpose.map(&:sum)
  lines << "| heaptrack, then ltrace | #{cell(sums)} | | | |"
end
event = lines.join("\n")

lines = ["The same rounds: ms of wall time of `ruby --disable-gems -e 1`, which takes #{median(start['plain']).round} by itself.", '',
         '| | ms more | one after the other |', '|---|---|---|']
late = start.to_h { |name, list| [name, list.zip(start['plain']).map { |a, b| a - b }] }
ALONE.each_key { |name| lines << "| scry #{name} | #{cell(late[name])} | |" }
TOGETHER.each_key do |parts|
  lines << "| scry record -e #{parts.join(',')} | #{cell(late[parts])} | #{cell(late.values_at(*parts).transpose.map(&:sum))} |"
end
OTHERS.each_key { |name| lines << "| #{name} | #{cell(late[name])} | |" }
begun = lines.join("\n")

puts event, '', begun
{ 'An event' => event, 'Start' => begun }.each { |title, text| page_section(ARGV[1], title, text) } if ARGV[1]
