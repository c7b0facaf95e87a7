# Compares what `scry objects --json` says of a script with what the VM says (truth.rb) and with
# what the script declares.
#
#   ruby compare.rb truth  SCRIPT TRUTH.json SCRY.json   both agree, but for the declared lines
#   ruby compare.rb expect SCRIPT TRUTH.json [SCRY.json] both say what the script's table says
#   ruby compare.rb any    SCRIPT TRUTH.json SCRY.json   on another Ruby than the one that the tables
#                                                        were made on: equal, or as declared for scry
#   ruby compare.rb table  DIR                           the table of doc/TRUTH.md, from DIR/*.rb
#
# Declarations are comments of the script, a line may be FILE:LINE for eval'ed code:
#
#   # file: NAME                       rows of this file are compared too
#   # late: LINE CLASS: ruby=A scry=B  the VM counts A objects on the line, scry B, because the VM
#                                      takes the line of the next instruction
#   # born: LINE CLASS: ruby=A scry=B  likewise, because the VM hid or showed the object after its birth
#   # expect: LINE CLASS COUNT         the right count, known by construction (late/*.rb)
#
# Line 0 is the compiler's, before any line ran, and is not compared.
# An undeclared difference is a failure, and so is a declared one that did not occur.

require 'json'

class Script
  attr_reader :path, :files, :differs, :expect

  def initialize(path)
    @path = File.expand_path(path)
    @text = File.readlines(@path)
    @files = [@path] + @text.filter_map { |l| l[/^# file: (\S+)/, 1] }
    @differs = {}
    @expect = {}
    @text.each { |l| declare(l) }
  end

  def source(key)
    key[0] == @path ? @text[key[1] - 1].strip : ''
  end

  def say(key)
    "#{File.basename(key[0])}:#{key[1]} #{key[2]}"
  end

  # What the VM is expected to say: the right counts, but for the declared lines.
  def expect_of_ruby
    @expect.merge(@differs.transform_values { |ruby, _| ruby }).reject { |_, n| n.zero? }
  end

  private

  def declare(line)
    case line
    when /^# (?:late|born): (?:(\S+):)?(\d+) (\S+): ruby=(\d+) scry=(\d+)/
      @differs[key($1, $2, $3)] = [$4.to_i, $5.to_i]
    when /^# expect: (?:(\S+):)?(\d+) (\S+) (\d+)/
      @expect[key($1, $2, $3)] = $4.to_i
    when /^# (late|born|expect|file)\b(?!: )/
      abort "#{@path}: cannot read the declaration: #{line}"
    end
  end

  def key(file, line, klass)
    [file || @path, line.to_i, klass]
  end
end

# Rows of one report as {[file, line, class] => count}, only the script's own files.
def counts(path, script, what = 'allocated')
  report = JSON.parse(File.read(path))
  data_quality = report['data_quality'] || {}
  %w[lost errors].each { |k| abort "#{path}: #{k} is #{data_quality[k]}, the counts prove nothing" if data_quality[k].to_i != 0 }
  report.fetch('rows').each_with_object(Hash.new(0)) do |row, sum|
    next unless script.files.include?(row['file']) && row['line'].to_i.positive?

    sum[[row['file'], row['line'], row['class'].gsub(/0x\h+/, '0x')]] += row[what].to_i
  end
end

# The differences between two tables as lines of text.
def differences(script, left, right, names)
  (left.keys | right.keys).sort.filter_map do |key|
    a = left.fetch(key, 0)
    b = right.fetch(key, 0)
    format('%-40s %s=%d %s=%d   %s', script.say(key), names[0], a, names[1], b, script.source(key)) if a != b
  end
end

def truth(script, ruby, scry)
  script.differs.each do |key, (a, b)|
    got = [ruby.fetch(key, 0), scry.fetch(key, 0)]
    abort "#{script.say(key)}: declared ruby=#{a} scry=#{b}, got ruby=#{got[0]} scry=#{got[1]}" if got != [a, b]
    ruby.delete(key)
    scry.delete(key)
  end
  abort "#{script.path}: the VM saw no allocation at all" if ruby.empty?
  differences(script, ruby, scry, %w[ruby scry])
end

# A Ruby whose lines are never late agrees everywhere; one whose are agrees with the tables. What the VM
# has hidden may have been hidden after its birth.
def any(script, ruby, scry)
  abort "#{script.path}: the VM saw no allocation at all" if ruby.empty?
  counts(ARGV.fetch(1), script, 'hidden').each do |key, hidden|
    ruby[key] += (scry.fetch(key, 0) - ruby.fetch(key, 0)).clamp(0, hidden)
  end
  sums = [ruby, scry].map { |c| c.each_with_object(Hash.new(0)) { |((file, _, klass), n), sum| sum[[file, klass]] += n } }
  right = script.expect.merge(script.differs.transform_values { |_, b| b })
  same = right.select { |key, n| scry.fetch(key, 0) == n }.keys
  same.each { |key| [ruby, scry].each { |counts| counts.delete(key) } }
  bad = differences(script, ruby, scry, %w[ruby scry])
  return bad if bad.empty? || RUBY_VERSION >= '3.3'

  # To 3.2 the VM's line may be the next instruction's, whose line depends on the version: then an
  # object is somewhere else, but none is missing.
  return bad if sums[0].reject { |_, n| n.zero? } != sums[1].reject { |_, n| n.zero? }

  puts bad.map { |line| "elsewhere: #{line}" }
  []
end

def expect(script, ruby, scry)
  bad = differences(script, script.expect_of_ruby, ruby, %w[expected ruby])
  bad += differences(script, script.expect, scry, %w[expected scry]) if scry
  bad
end

def table(dir)
  puts '| script | line | source | class | right | ruby |', '|---|---|---|---|---|---|'
  Dir[File.join(dir, '*.rb')].sort.each do |path|
    script = Script.new(path)
    script.differs.sort.each do |key, (ruby, scry)|
      source = script.source(key).gsub('|', '\\|')
      puts "| #{File.basename(path)} | #{key[1]} | `#{source}` | #{key[2]} | #{scry} | #{ruby} |"
    end
  end
end

mode = ARGV.shift
if mode == 'table'
  table(ARGV.fetch(0))
  exit
end
script = Script.new(ARGV.fetch(0))
ruby = counts(ARGV.fetch(1), script)
scry = ARGV[2] && counts(ARGV[2], script)
total = (scry || ruby).values.sum
bad = send({ 'truth' => :truth, 'expect' => :expect, 'any' => :any }.fetch(mode), script, ruby, scry)
unless bad.empty?
  puts bad
  abort "#{File.basename(script.path)}: #{bad.size} lines differ"
end
puts "#{File.basename(script.path)}: #{total} objects, all on the right line"
