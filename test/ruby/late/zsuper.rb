# super without arguments builds its arguments in the frame that calls.
class Base
  def hello(a, *rest, **opts)
    nil
  end
end

class Derived < Base
  def hello(a, *rest, k: 1, **opts)
    super
  end
end

Derived.new.hello(1, 2, z: 3)

# The right counts, and what the VM says instead:
# expect: 2 Class 2
# expect: 8 Class 2
# expect: 10 Array 3
# expect: 10 Hash 1
# expect: 14 Array 1
# expect: 14 Derived 1
# expect: 14 Hash 1
# late: 10 Array: ruby=2 scry=3
# late: 11 Array: ruby=1 scry=0
