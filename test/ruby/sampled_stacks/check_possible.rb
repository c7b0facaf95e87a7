# check_possible.rb STACKS.json MIN [jit]: are all stacks possible in possible.rb? The samples that were
# labelled rejected have no stack. A name that is only told at the code's birth has no class. With
# `jit` operators may be methods that are called.
require "json"

N = 101
NEXT = { 3 => [7, 1], 4 => [11, 5], 5 => [13, 3], 7 => [17, 2] }.freeze

Frame = Struct.new(:file, :line, :method, :c)

OPERATORS = { 2 => %w[==], 3 => %w[-], 4 => %w[-], 5 => %w[-], 7 => %w[== -] }.freeze

def callee?(k, line, callee) = callee.delete_prefix("P.") == "n#{(k * NEXT[line][0] + NEXT[line][1]) % N}"

# What a frame of nK may call from its line.
def may_call?(f, kind, k, callee)
  return true if ARGV[2] == "jit" && OPERATORS.fetch(f.line, []).any? { |o| callee == "Integer##{o}" }
  case [kind, f.line]
  in [nil, 3 | 4] then callee?(k, f.line, callee)
  in [nil, 5] then callee == "Array#each"
  in ["block in ", 5] then callee?(k, 5, callee)
  in [nil, 6] then callee == "Integer#to_s"
  in [nil, 7] then callee.sub("P.", "") == "rescue in n#{k}" || callee == "Kernel#raise"
  in ["rescue in ", 7] then callee?(k, 7, callee) || callee == "Module#==="
  else false
  end
end

def place?(f, kind, k) = f.file == "n#{k}.rb" && (1..8).cover?(f.line) && (kind.nil? || f.line == 5 || f.line == 7)

# Who may call nK (and churn, hold) besides each other.
ROOTS = /\A(block (\(\d+ levels\) )?in )?<main>\z|\AKernel#(public_send|send)\z|\ABasicObject#__send__\z/

def wrong(caller, f)
  return if f.method == "(garbage collection)" # any line may cause one
  return if f.method == "(unknown: it ran between looks)" # no stack: time that no look can place

  case f.method
  when /\A(block in |rescue in )?(?:P\.)?n(\d+)\z/
    kind, k = $1, $2.to_i
    return "is not where its name says" unless place?(f, kind, k)
  when /\A(?:P\.)?churn_(\d+)\z/
    return "is not where its name says" unless f.file == "churn_#{$1}.rb" && f.line == $1.to_i % 97 + 1
  when "P.hold"
    return "is not where its name says" unless f.file.end_with?("possible.rb") && f.line == 5
    return "is called by another" if caller && !caller.method.match?(/\A(P\.)?churn_\d+\z/)
  when /\A(block (\(\d+ levels\) )?in )?<main>\z/
    return "is not where its name says" unless f.file.end_with?("possible.rb") || f.file.start_with?("n", "churn_")
  else
    return "has no name of the program's" unless f.c || f.file.start_with?("<internal:") || f.method == "<compiled>"
  end
  return unless caller

  case caller.method
  when /\A(block in |rescue in )?(?:P\.)?n(\d+)\z/
    return "cannot be called from there" unless f.method == "Array#each" && caller.line == 5 || may_call?(caller, $1, $2.to_i, f.method)
  when /\A(P\.)?churn_/
    return "cannot be called from there" unless f.method == "P.hold"
  when "P.hold"
    return "cannot be called from there" unless f.c
  when "Array#each"
    return "cannot be called from there" unless f.method.match?(/\Ablock in (P\.)?n\d/) || f.c
  else
    return "cannot be called from there" if f.method.match?(/\A(P\.)?(n\d|churn)/) && !caller.method.match?(ROOTS)
  end
  nil
end

report = JSON.parse(File.read(ARGV[0]))
bad = Hash.new(0)
seen = 0
report["rows"].each do |row|
  next unless row["method"]

  frames = (row["frames"] || []).reverse.map { |f| Frame.new(f["file"].to_s, f["line"], f["method"], f["kind"] == "c") }
  seen += row["samples"]
  ([nil] + frames).each_cons(2) do |caller, f|
    why = wrong(caller, f) or next
    bad["#{caller&.method}:#{caller&.line} -> #{f.method} (#{f.file}:#{f.line}) #{why}"] += row["samples"]
    break
  end
end
t = report["totals"]
puts "#{seen} samples with a stack, #{report["rows"].size} different; valid #{t["valid"]}, repaired #{t["repaired"]}, rejected #{t["rejected"]}, dropped #{t["dropped"]}; impossible: #{bad.values.sum}"
bad.sort_by { |_, n| -n }.first(15).each { |what, n| puts "#{n} x #{what}" }
exit bad.empty? && seen >= ARGV[1].to_i
