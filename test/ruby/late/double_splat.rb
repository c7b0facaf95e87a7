# Double splats: the hash is made by newhash or by a VM-core call.
def work(hash)
  [
    { **hash },
    nil,
    { **hash, z: 1 },
    nil,
  ]
end

work({ a: 1 })

# The right counts:
# expect: 3 Array 1
# expect: 4 Hash 1
# expect: 6 Hash 1
# expect: 11 Hash 1
