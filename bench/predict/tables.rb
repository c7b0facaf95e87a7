# Lines of text become rows, rows become groups, groups become text.
lines = Array.new(60_000) { |i| "#{i * 7919 % 10_007};name#{i % 977};#{i * 31 % 1000}.#{i % 100};#{"x" * (i % 40 + 20)}" }
6.times do
  rows = lines.map { |l| l.split(";") }
  groups = rows.group_by { |r| r[1] }
  text = groups.map { |name, g| "#{name}: #{g.sum { |r| r[2].to_f }.round(2)} #{g.map(&:last).uniq.join(",")}" }.join("\n")
  text.each_line.map { |l| l.sub("name", "the name that is ").chomp }.sort
end
