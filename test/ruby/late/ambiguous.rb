# Two instructions that share one program counter; the first has moved on, the second has not. The depth of
# the value stack tells them apart, but not after one that takes one operand and gives one (splatarray).
def hashes
  [
    {},
    { k: 1 },
    nil,
  ]
end

def strings(a)
  [
    "one #{a}",
    "two",
    nil,
  ]
end

def arrays(list)
  [
    [*list],
    [1, 2],
    [list, list],
    nil,
  ]
end

def slices(list)
  [
    list[0..1],
    [1, 2],
    nil,
  ]
end

hashes
strings("a")
arrays([1])
slices([1, 2, 3])

# The right counts, and what the VM says instead:
# expect: 4 Array 1
# expect: 5 Hash 1
# expect: 6 Hash 1
# expect: 12 Array 1
# expect: 13 String 1
# expect: 14 String 1
# expect: 20 Array 1
# expect: 21 Array 0
# expect: 22 Array 2
# expect: 23 Array 1
# expect: 29 Array 1
# expect: 30 Array 1
# expect: 31 Array 1
# expect: 37 String 1
# expect: 38 Array 1
# expect: 39 Array 1
# late: 5 Hash: ruby=0 scry=1
# late: 6 Hash: ruby=2 scry=1
# late: 13 String: ruby=0 scry=1
# late: 14 String: ruby=2 scry=1
# late: 30 Array: ruby=0 scry=1
# late: 31 Array: ruby=2 scry=1
