# judge.rb MADE LIVE REPORT...: do reports of sampled/classes.rb keep what they promise? In each report
# there are 400 classes, so 400 figures whose truth is known, each beside its 95 % interval.
#
# Of 400 intervals 380 are expected to hold the truth, with a standard deviation of 4.4 if they are
# independent; 355 or fewer is what chance does once in 10^7. Intervals that are too wide would hold
# all: the squares of (figure - truth) / (half a width / 1.96) have the mean 1, with a deviation of
# sqrt(2 / 400) = 0.07 a report; more than 0.4 from it is not chance. The sum over all classes has
# no bias: its mean over the reports is within 5 of its own deviations.
require 'json'

made = Integer(ARGV.shift)
live = Integer(ARGV.shift)
bad = []
errors = { 'allocated' => [], 'live' => [] }
ARGV.each do |path|
  report = JSON.parse(File.read(path))
  %w[lost errors].each { |k| abort "#{k} is #{report['data_quality'][k]}, the counts prove nothing" if report['data_quality'][k] != 0 }
  rows = report['rows'].select { |r| r['class'] =~ /\AClass\d+\z/ }
  abort "#{rows.size} classes, not 400" unless rows.size == 400
  { 'allocated' => made, 'live' => live }.each do |what, truth|
    next if truth.zero?

    known = rows.select { |r| r["#{what}_error"] }
    held = known.count { |r| (r[what] - truth).abs <= r["#{what}_error"] }
    squares = known.sum { |r| ((r[what] - truth) / (r["#{what}_error"] / 1.96))**2 } / known.size
    puts "#{File.basename(path)} #{what}: #{held} of #{known.size} hold the truth, mean square #{squares.round(2)}"
    bad << "#{what}: only #{known.size} have an interval" if known.size < 385
    bad << "#{what}: #{held} hold the truth" if held <= 355 - (400 - known.size)
    bad << "#{what}: mean square #{squares}" if (squares - 1).abs > 0.4
    spread = Math.sqrt(rows.sum { |r| (r["#{what}_error"].to_f / 1.96)**2 })
    errors[what] << (rows.sum { |r| r[what] } - 400 * truth) / spread
  end
end
errors.each do |what, list|
  next if list.empty?

  mean = list.sum / Math.sqrt(list.size)
  puts "#{what}: the sums are off by #{list.map { |e| e.round(2) }.join(', ')} deviations"
  bad << "#{what}: the mean of the sums is #{mean.round(2)} deviations off" if mean.abs > 5
end
abort bad.join("\n") unless bad.empty?
