# A program that does nothing but allocate: the worst case for every tool that sees each object.

def once(kind, n)
  case kind
  when 'dup' then n.times { 'a'.dup }
  when 'object' then n.times { Object.new }
  when 'array' then n.times { [n, 2] }
  end
end

# All three kinds, `n` times each: the operation that is counted is one round of the three.
WORK = lambda do |n|
  once('dup', n)
  once('object', n)
  once('array', n)
end
