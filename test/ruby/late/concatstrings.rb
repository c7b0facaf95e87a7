# An interpolated string in a multi-line literal.
def work(a)
  [
    "one #{a}",
    a,
    nil,
  ]
end

work("a")

# The right counts, and what the VM says instead:
# expect: 3 Array 1
# expect: 4 String 1
# expect: 10 String 1
# late: 4 String: ruby=0 scry=1
# late: 5 String: ruby=1 scry=0
