# An interpolated regexp.
def work(a)
  [
    /x#{a}/,
    nil,
    1,
  ]
end

work("a")

# The right counts, and what the VM says instead:
# expect: 3 Array 1
# expect: 4 Regexp 1
# expect: 4 String 6
# expect: 10 String 1
# late: 4 Regexp: ruby=0 scry=1
# late: 4 String: ruby=0 scry=6
# late: 5 Regexp: ruby=1 scry=0
# late: 5 String: ruby=6 scry=0
