# Big literals, one element a line, where the VM's own tracing is one line late for the instructions
# that moved on before they allocate (see late/ and doc/TRUTH.md).

class Settings
  TABLE = [
    "first",
    "second",
    ["nested", "array"],
    { key: "value" },
  ]
  MAP = {
    "one" => "uno",
    "two" => ["dos", "2"],
    "three" => { "drei" => "tre" },
  }
  WORDS = %w[
    alpha
    beta
    gamma
  ]
end

def arrays(n, a)
  n.times do
    [
      "x",
      "y",
      [a, a],
      [1, 2],
      { k: 1 },
      a.dup,
      a.upcase,
      Object.new,
    ]
  end
end

def hashes(n, a)
  n.times do
    {
      "k1" => "v1",
      "k2" => [a],
      a => a.dup,
      sym: "v",
      "k3" => a.to_sym.to_s,
    }
  end
end

def interpolated(n, a)
  n.times do
    [
      "one #{a}",
      "two #{a}",
      a,
      "three #{a}",
      nil,
    ]
  end
end

def heredocs(n, a)
  n.times do
    <<~ONE
      line one
      line #{a}
      line #{[a].inspect} three
    ONE
    x = <<~TWO + <<~THREE
      two
      #{a}
    TWO
      three
      #{a.upcase}
    THREE
    x.size
  end
end

def calls(n, a)
  n.times do
    [a, "b"]
      .map { |s| s + "c" }
      .select { |s| s.size > 1 }
      .map(&:upcase)
      .join(
        ", ",
      )
    format(
      "%s %s",
      a,
      "arg",
    )
    Hash[
      "a",
      1
    ]
  end
end

def conditions(n, a)
  n.times do |i|
    b =
      if i.even?
        "even"
      else
        "odd"
      end
    c = case i % 3
        when 0 then "zero"
        when 1
          "one"
        else
          ["two"]
        end
    d = a &&
        "and"
    [b, c, d]
  end
end

def work
  arrays(20, "a")
  hashes(20, "a")
  interpolated(20, "a")
  heredocs(20, "a")
  calls(20, "a")
  conditions(21, "a")
end

work

# Where the VM names the line of the next instruction:
# late: 5 Hash: ruby=1 scry=0
# late: 9 Hash: ruby=0 scry=1
# late: 11 Hash: ruby=2 scry=1
# late: 14 Hash: ruby=0 scry=1
# late: 40 Hash: ruby=0 scry=20
# late: 47 Hash: ruby=20 scry=0
# late: 53 String: ruby=0 scry=20
# late: 55 String: ruby=20 scry=0
# late: 56 String: ruby=0 scry=20
# late: 57 String: ruby=20 scry=0
