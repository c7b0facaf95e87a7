# Substitution: with a string, a block, a hash, back references, and the match globals.

TEXT = "the year 2024, the month 11, the day 21, and the rest is silence"

def strings(n)
  n.times do
    TEXT.gsub("the", "a")
    TEXT.gsub(/\d+/, "<\\0>")
    TEXT.gsub(/(\w+) (\d+)/, '\2 \1')
    TEXT.sub(/(?<a>\w)/, '\k<a>')
    TEXT.dup.gsub!(/nothing/, "")
    TEXT.dup.sub!("the", "")
  end
end

def blocks(n)
  n.times do
    TEXT.gsub(/\d+/) { |d| (d.to_i + 1).to_s }
    TEXT.gsub(/(\w+) (\d+)/) { "#{$2} #{$1}" }
    TEXT.gsub(/e/) { $~.begin(0).to_s }
    TEXT.gsub(/\w+/, &:capitalize)
    TEXT.sub(/r(e)(s)/) { $~.captures.join }
    TEXT.gsub(/[aeiou]/).with_index { |v, i| i.even? ? v : v.upcase }
  end
end

def hashes(n)
  map = { "the" => "THE", "day" => "DAY" }
  auto = Hash.new { |_, k| "[#{k}]" }
  n.times do
    TEXT.gsub(/\w+/, map)
    TEXT.gsub(/\d+/, auto)
    TEXT.gsub(/[a-c]/, "a" => "1", "b" => "2")
  end
end

def globals(n)
  n.times do
    if TEXT =~ /(\d+), the (\w+) (\d+)/
      [$1, $2, $3, $~[0]]
      $` + $'
      $+
    end
    m = TEXT.match(/(?<year>\d{4})/)
    m[:year]
    m.pre_match
    m.names
    m.named_captures
    m.to_a
    case TEXT
    when /silence$/ then $~.to_s
    end
    if /(?<word>\w+)/ =~ TEXT
      word.upcase
    end
    TEXT.scan(/\d+/) { $~[0] }
    TEXT.each_char.select { |c| c =~ /[xyz]/ }
    TEXT.tr_s("a-z", "x").squeeze("x")
    TEXT.index(/year/)
    TEXT.slice(/day \d+/)
    TEXT.split(/,\s*/)
    TEXT.split(/(,)/, 3)
  end
end

def work
  strings(20)
  blocks(20)
  hashes(20)
  globals(20)
end

work
