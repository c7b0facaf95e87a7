# A block made a proc when its parameter is read.
def take(&block)
  [
    block,
    nil,
  ]
end

def work
  take do
    nil
  end
  nil
end

work

# The right counts:
# expect: 3 Array 1
# expect: 4 Proc 1
