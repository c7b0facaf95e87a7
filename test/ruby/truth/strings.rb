# Strings: literals, interpolation, slices, mutation, encodings, formats.

def literals(n)
  n.times do
    a = "plain"
    b = 'single'
    c = "inter #{a} and #{b}"
    d = "adjacent " "pieces"
    e = %w[x y z]
    f = "frozen".freeze
    g = <<~TEXT
      a heredoc of #{n} lines
    TEXT
    h = ?c
    [a, b, c, d, e, f, g, h]
  end
end

def operators(n)
  n.times do |i|
    s = "abc" + "def"
    t = s * 3
    u = "%05d %s" % [i, s]
    v = s << "tail"
    w = s.dup
    x = +"x"
    y = -"y"
    z = s.to_s + t.to_str
    [u, v, w, x, y, z]
  end
end

def slices(n)
  text = "the quick brown fox jumps over the lazy dog, again and again and again"
  n.times do
    text[0, 5]
    text[4..]
    text[-3..-1]
    text[/q\w+/]
    text["fox"]
    text.slice(1, 40)
    text.byteslice(2, 30)
    text.chars
    text.bytes
    text.lines
    text.each_char { |c| c }
  end
end

def changes(n)
  n.times do
    s = "  Some Text  "
    s.strip
    s.upcase
    s.swapcase.downcase.capitalize
    s.reverse
    s.tr("a-y", "b-z")
    s.delete("e").squeeze
    s.center(40).ljust(50).rjust(60)
    s.succ
    s.chomp.chop
    s.insert(2, "more ")
    s.replace("other")
    s.prepend("pre", "fix")
    s.encode("UTF-8", "US-ASCII").force_encoding("BINARY")
    s.scrub + s.b
    s.unpack1("H*")
    s.sum + s.hash + s.crypt("ab").size
    s.partition("e")
    s.rpartition("e")
    s.each_line.to_a
    s.inspect + s.dump
  end
end

# The VM makes the answers hidden, and shows them when they are whole.
def encodings(n)
  text = "größer"
  n.times do
    text.encode("UTF-16LE")
    text.encode("ISO-8859-1").encode("UTF-16BE")
  end
end

def work
  literals(50)
  operators(50)
  slices(50)
  changes(50)
  encodings(50)
end

work

# Where the VM changed the class word after the birth (doc/TRUTH.md):
# born: 80 String: ruby=108 scry=109
# born: 81 String: ruby=213 scry=214
