# Strings, split, changed and counted.
counts = Hash.new(0)
300.times do
  text = (1..400).map { |i| "word#{i * 7919 % 1000}" }.join(" ")
  text.split(" ").each { |w| counts[w.gsub(/o/, "0" * 30)] += 1 }
  text.scan(/w\w+/) { |w| counts[w.reverse] += 1 }
end
puts counts.size
