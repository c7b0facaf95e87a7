# A range of computed ends.
def work(n)
  [
    1..n,
    n,
    nil,
  ]
end

work(9)

# The right counts, and what the VM says instead:
# expect: 3 Array 1
# expect: 4 Range 1
# late: 4 Range: ruby=0 scry=1
# late: 5 Range: ruby=1 scry=0
