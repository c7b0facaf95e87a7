# judge.rb TRUTH REPORT.json [sampled]: bytes of each line and class against what ObjectSpace.memsize_of said of
# them. What is not known must be said: only the rows of MatchData, whose content has no rule, may have some; all
# others are exact, of samples the bytes per object.
require "json"
sampled = ARGV[2]
report = JSON.parse(File.read(ARGV[1]))
rows = report["rows"].select { |r| r["file"]&.end_with?("make.rb") }.group_by { |r| [r["line"], r["class"]] }
bad = 0
File.foreach(ARGV[0]) do |text|
  line, klass, count, size = text.split
  row = (rows[[line.to_i, klass]] || []).max_by { |r| r["allocated"] }
  why =
    if !row then "no row"
    elsif !sampled && row["allocated"] != count.to_i then "#{row["allocated"]} objects"
    elsif row["unsized"].zero?
      "#{row["bytes"]} bytes" if (row["bytes"] - row["allocated"] * size.to_i).abs > (sampled ? 3 * size.to_i : 0)
    elsif klass != "MatchData" then "#{row["unsized"]} unsized"
    elsif row["unsized"] > row["allocated"] then "unsized beyond all"
    elsif row["bytes"] > row["allocated"] * size.to_i * 1.01 then "#{row["bytes"]} bytes, too many"
    elsif !row["is_slots_only"] then "not starred"
    end
  why ||= "live bytes" if row["live_unsized"].zero? && (row["live_bytes"] - row["live"] * size.to_i).abs > (sampled ? 3 * size.to_i : 0)
  next unless why
  bad += 1
  puts "line #{line} #{klass}: #{count} of #{size} bytes each, but #{why}: #{row}"
end
data_quality = report["data_quality"]
abort "lost #{data_quality["lost"]}, errors #{data_quality["errors"]}" if data_quality["lost"] != 0 || data_quality["errors"] != 0
exit(bad.zero? && File.size(ARGV[0]) > 100)
