# The value of a method: the next instruction is on the line of `end`.
def text(a)
  "value #{a}"
end

def pair(a)
  { a => a }
end

text(1)
pair(1)

# The right counts, and what the VM says instead:
# expect: 3 String 1
# expect: 7 Hash 1
# late: 3 String: ruby=0 scry=1
# late: 4 String: ruby=1 scry=0
# late: 7 Hash: ruby=0 scry=1
# late: 8 Hash: ruby=1 scry=0
