# The arrays and hashes of a call's arguments are made before the callee has a frame.
def take(*list, **opts)
  nil
end

def work(a)
  take(
    a, a,
  )
  take(a,
       k: a)
  nil
end

work(1)

# The right counts:
# expect: 7 Array 1
# expect: 7 Hash 1
# expect: 10 Array 1
# expect: 10 Hash 1
