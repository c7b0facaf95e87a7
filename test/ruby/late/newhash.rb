# A hash of computed values, and an empty one, in a multi-line literal.
def work(a)
  [
    { a => a },
    a,
    {},
    nil,
  ]
end

work(1)

# The right counts, and what the VM says instead:
# expect: 3 Array 1
# expect: 4 Hash 1
# expect: 6 Hash 1
# late: 4 Hash: ruby=0 scry=1
# late: 5 Hash: ruby=1 scry=0
# late: 6 Hash: ruby=0 scry=1
# late: 7 Hash: ruby=1 scry=0
