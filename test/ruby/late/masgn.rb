# Multiple assignment that keeps a rest.
def work(list)
  first,
  *rest = list
  [first,
   rest]
end

work([1, 2, 3])

# The right counts:
# expect: 3 Array 1
# expect: 5 Array 1
# expect: 9 Array 1
