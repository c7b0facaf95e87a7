# A hash over several lines belongs to the line on which it opens.
def work(a)
  x = {
    one: a,
    two: a,
  }
  x.size
end

work(1)

# The right counts:
# expect: 3 Hash 1
