# Arithmetic and concatenation that the VM does without a call.
def work(s, list, f)
  [
    s + s,
    nil,
    list + list,
    nil,
    f * 1.0e200,
    nil,
  ]
end

work("s", [1], 1.0e100)

# The right counts:
# expect: 3 Array 1
# expect: 4 String 1
# expect: 6 Array 1
# expect: 8 Float 1
# expect: 13 Array 1
# expect: 13 String 1
