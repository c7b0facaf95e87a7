# A heredoc with interpolation.
def work(a)
  <<~TEXT
    first
    second #{a}
    third
  TEXT
end

work("a")

# The right counts, and what the VM says instead:
# expect: 3 String 1
# expect: 10 String 1
# late: 3 String: ruby=0 scry=1
# late: 8 String: ruby=1 scry=0
