# Arrays that yield and blocks make of their arguments.
def twice
  yield 1,
        2
  yield [3, 4]
  nil
end

def work
  twice do |*all|
    all
  end
  twice do |a, *rest|
    rest
  end
end

work

# The right counts:
# expect: 3 Array 2
# expect: 5 Array 4
