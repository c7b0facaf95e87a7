# What stacks of callers cost: CPU ns a call in the program itself, more than without them.
#
#   ruby bench/callers.rb [ROUNDS] [OUT.md]        (bench/run calls it)
#
# Each round runs all variants in turn; a variant is compared with the same recording without stacks in the same
# round; medians. Nothing is pass or fail. Replaces the section "A call" of OUT.md.

require 'etc'
require 'fileutils'
require 'tmpdir'
require_relative 'page'

HERE = __dir__
SCRY = File.expand_path('scry', ENV.fetch('SCRY_BUILD', File.join(File.dirname(HERE), 'build')))
TMP = Dir.mktmpdir('scry-bench')
at_exit { FileUtils.remove_entry(TMP) }
ROUNDS = (ARGV[0] || 5).to_i
DEEP = File.join(TMP, 'deep')
system('cc', '-O2', '-fno-builtin', '-fomit-frame-pointer', '-o', DEEP, File.join(HERE, 'callers', 'deep.c')) or exit 1

MALLOC = ['malloc', 'record', '--force', '-o', File.join(TMP, 'x.scry')].freeze
CALLS = ['calls', '-x', 'malloc@libc.so.6', '--args=none', '--force', '-o', File.join(TMP, 'x.scry')].freeze
STACKS = { MALLOC => ->(n) { ["--stack=#{n}"] }, CALLS => ->(n) { ['-w', n.to_s] } }.freeze

def ns(command, depth, ways)
  out = IO.popen([*command, DEEP, depth.to_s, ways.to_s, '1000000'], err: File::NULL, &:read)
  out[/ns ([\d.]+)/, 1].to_f
end

def median(list)
  list.sort[list.size / 2]
end

lines = ["#{ROUNDS} rounds, medians, in brackets least and most; #{Etc.nprocessors} processors, " \
         "load #{File.read('/proc/loadavg').split.first}.", '']
lines << '| | frames | the same stack | 16 stacks in turn | 1,024 stacks in turn (8 frames: 256) |'
lines << '|---|---|---|---|---|'
{ 'malloc record --stack' => MALLOC, 'calls -w' => CALLS }.each do |name, command|
  [8, 16].each do |frames|
    cells = [1, 16, 1024].map do |ways|
      more = (1..ROUNDS).map do
        plain = ns([SCRY, *command, '--'], frames + 4, ways)
        ns([SCRY, *command, *STACKS[command].(frames), '--'], frames + 4, ways) - plain
      end
      format('%.1f (%.1f-%.1f)', median(more), more.min, more.max)
    end
    lines << "| #{name} | #{frames} | #{cells.join(' | ')} |"
  end
end
text = lines.join("\n")
puts text
page_section(ARGV[1], 'A call', text) if ARGV[1]
