# sizes_compare.rb DUMP SIZES: ObjectSpace.dump_all's memsize of every object against what ruby_probe -s said.
# Prints what is wrong, then per type how many were equal, unknown and wrong. Ends with 1 when any size is
# wrong, or when an object is unknown whose kind must be known and that has no instance variables of its own.
MUST = %w[STRING ARRAY HASH OBJECT STRUCT BIGNUM FLOAT SYMBOL RATIONAL COMPLEX].freeze
truth = {}
own = File.readlines("#{ARGV[0]}.own").map { |line| [line.hex, true] }.to_h
File.foreach(ARGV[0]) do |line|
  next unless line =~ /\A\{"address":"0x(\h+)", "type":"(\w+)"/
  address, type = $1.hex, $2
  truth[address] = [type, line[/"memsize":(\d+)/, 1].to_i, line] unless type == "SHAPE"
end
counts = Hash.new { |h, k| h[k] = [0, 0, 0] }
bad = 0
seen = 0
File.foreach(ARGV[1]) do |line|
  next unless line =~ /\Asize 0x(\h+) type (\d+) slot (\d+) extra (\S+)/
  address, slot, extra = $1.hex, $3.to_i, $4
  type, memsize, dump = truth.fetch(address)
  seen += 1
  kind = extra =~ /\A\d/ ? (slot + extra.to_i == memsize ? 0 : 2) : 1
  counts[type][kind] += 1
  next unless kind == 2 || (kind == 1 && MUST.include?(type) && !own[address])
  bad += 1
  line = "wrong: #{line}" if kind == 2
  puts "#{line.chomp} but #{dump[0, 300]} memsize #{memsize}" if bad <= 5
end
counts.sort.each { |type, n| puts format("%-10s %7d equal %7d unknown %7d wrong", type, *n) }
puts "#{seen} of #{truth.size} objects looked at"
exit(bad == 0 && seen == truth.size && seen > 10_000 ? 0 : 1)
