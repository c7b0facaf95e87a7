# Literals whose instruction does not move on before it allocates: on time, in the VM's own report too.
def work(a)
  [
    "text",
    [a, a],
    [1, 2],
    { k: 1 },
    [],
    :"sym #{a}",
    -> { a },
    proc { a },
    a.dup,
    a.upcase,
    Object.new,
    a * 3,
  ]
end

work("a")

# The right counts:
# expect: 3 Array 1
# expect: 4 String 1
# expect: 5 Array 1
# expect: 6 Array 1
# expect: 7 Hash 1
# expect: 8 Array 1
# expect: 9 String 2
# expect: 9 Symbol 1
# expect: 10 Proc 1
# expect: 11 Proc 1
# expect: 12 String 1
# expect: 13 String 1
# expect: 14 Object 1
# expect: 15 String 1
# expect: 19 String 1
