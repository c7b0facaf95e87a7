# compare.rb EXPECTED EVENTS: are the blocks of each expected size from the expected line, and from nowhere
# else? EVENTS: `scry report --view events --json` of the recording. Prints what differs.
require "json"

expected = File.readlines(ARGV[0]).map(&:split).to_h { |file, line, bytes, count| [bytes.to_i, [file, line.to_i, count.to_i]] }
places = {}
seen = Hash.new { |h, bytes| h[bytes] = Hash.new(0) }
File.foreach(ARGV[1]) do |text|
  event = JSON.parse(text)
  case event["event"]
  when "caller" # the newest holds
    places[event["caller"]] = [event["file"], event["line"]]
  when "malloc"
    next unless %w[malloc calloc].include?(event["function"]) || [1, 2].include?(event["function"])
    seen[event["size"]][event["caller"]] += 1 if expected[event["size"]]
  end
end
bad = 0
expected.each do |bytes, (file, line, count)|
  got = Hash.new(0)
  seen[bytes].each { |caller, n| got[places[caller]] += n }
  next if got == { [file, line] => count }
  bad += 1
  puts "#{bytes} bytes: #{count} of #{file}:#{line} expected, got #{got.map { |at, n| "#{n} of #{at ? at.join(":") : "?"}" }.join(", ")}" if bad <= 20
end
puts "#{bad} of #{expected.size} differ" if bad > 0
exit bad == 0
