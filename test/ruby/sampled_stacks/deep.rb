# deep.rb DEPTH TRUTH.json: works at the end of a chain of that many calls, blocks and C methods among
# them, and tells what the VM says its callers are.
require "json"

def work
  x = 0
  x += 1 while x < 100_000
end

def leaf
  callers = caller_locations(1).reverse
  File.write("#{ARGV[1]}.new", JSON.generate(callers.map { |l| [l.path, l.lineno, l.base_label] }))
  File.rename("#{ARGV[1]}.new", ARGV[1])
  loop { work }
end

def even(left)
  return leaf if left <= 0

  odd(left - 1)
end

def odd(left)
  kept = proc { left } # its environment is on the heap
  [kept.call].each { |n| even(n - 1) }
end

even(ARGV[0].to_i)
