# Threads that split and change strings.
4.times.map do |n|
  Thread.new do
    counts = Hash.new(0)
    200.times do
      text = (1..400).map { |i| "word#{i * 7919 * (n + 1) % 1000}" }.join(" ")
      text.split(" ").each { |w| counts[w.gsub(/o/, "0" * 30)] += 1 }
    end
  end
end.each(&:join)
