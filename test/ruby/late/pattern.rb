# Pattern matching: deconstruct_keys and the rest hash.
def work(a)
  case { a: a, b: a }
  in { a: Integer, **rest }
    rest
  end
end

work(1)

# The right counts, and what the VM says instead:
# expect: 3 Hash 1
# expect: 4 Hash 1
# late: 3 Hash: ruby=0 scry=1
# late: 4 Hash: ruby=2 scry=1
