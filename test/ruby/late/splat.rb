# Splats: copied by splatarray or concatarray, in the frame that writes them.
def work(list)
  [
    [*list],
    nil,
    [1, *list],
    nil,
    [*list, 1],
    nil,
  ]
end

work([1, 2])

# The right counts, and what the VM says instead:
# expect: 3 Array 1
# expect: 4 Array 1
# expect: 6 Array 2
# expect: 8 Array 2
# expect: 13 Array 1
# late: 4 Array: ruby=0 scry=1
# late: 5 Array: ruby=1 scry=0
# late: 6 Array: ruby=1 scry=2
# late: 7 Array: ruby=1 scry=0
# late: 8 Array: ruby=1 scry=2
# late: 9 Array: ruby=1 scry=0
