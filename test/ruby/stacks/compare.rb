# compare.rb TRUTH.json REPORT: every stack of Spot objects that `scry objects --stacks --json` or
# `--folded` printed, and how often, is what the program noted of itself. Fails on any difference.
require 'json'

truth = JSON.parse(File.read(ARGV[0]))
text = File.read(ARGV[1])
got = Hash.new(0)
if text.start_with?('{')
  report = JSON.parse(text)
  %w[lost errors].each { |k| abort "#{k} is #{report['data_quality'][k]}, the counts prove nothing" if report['data_quality'][k] != 0 }
  report['rows'].each do |row|
    frames = (row['frames'] || []).drop(1).reverse.reject { |f| f['file'].to_s.start_with?('<internal:') }
    got[frames.map { |f| "#{File.basename(f['file'].to_s)}:#{f['line']}:#{f['method']}" }.join(';')] += row['allocated']
  end
else
  truth = truth.transform_keys { |k| k.tr(' ', '_') }
  text.each_line do |line|
    frames, count = line.match(/\A(.*) (\d+)\n\z/).captures
    frames = frames.split(';').grep_v(/\A<internal:/)
    abort "not a Spot made by spot: #{line}" unless frames.pop == '[Spot]' && frames.pop =~ /:spot\z/
    got[frames.map { |f| f.sub(%r{\A[^:]*/}, '') }.join(';')] += count.to_i
  end
end
abort 'the program noted nothing' if truth.empty?
bad = (truth.keys | got.keys).reject { |k| truth[k].to_i == got[k] }
bad.sort.first(40).each { |k| puts "program #{truth[k].to_i}, scry #{got[k]}: #{k[0, 400]}" }
abort "#{bad.size} of #{truth.size} stacks differ" unless bad.empty?
puts "#{truth.values.sum} objects, #{truth.size} stacks"
