# A slice of an array by a range literal: opt_aref calls no frame of its own.
def work(list)
  [
    list[0..1],
    nil,
    1,
  ]
end

work([1, 2, 3])

# The right counts, and what the VM says instead:
# expect: 3 Array 1
# expect: 4 Array 1
# expect: 10 Array 1
# late: 4 Array: ruby=0 scry=1
# late: 5 Array: ruby=1 scry=0
