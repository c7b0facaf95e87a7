# work.rb THREADS: a fixed amount of Ruby work, in rounds that change their cost as real code does.
# Prints "pid", waits for a line, works, prints wall and processor seconds.
require 'json'

class Shop
  Item = Struct.new(:name, :price, :tags)

  def items(n) = (1..n).map { |i| Item.new("item #{i}", i * 37 % 101, %w[a b c].rotate(i % 3)) }
  def total(items) = items.sum { |i| discount(i) }
  def discount(item) = item.tags.include?('b') ? item.price * 0.9 : item.price
  def page(items) = items.group_by { |i| i.tags.first }.transform_values { |l| l.map(&:name).sort.first(3) }
  def round = JSON.parse(JSON.generate(page(items(60)))).size + total(items(40)).to_i
  def deep(n, &block) = n.zero? ? block.call : deep(n - 1, &block)
end

def clock(id) = Process.clock_gettime(id)

if ARGV[1] == 'stackprof'
  require 'stackprof'
  StackProf.start(mode: :wall, interval: 1_000_000 / ARGV[2].to_i, raw: false)
end
idle = (ARGV[0].to_i - 1).times.map { Thread.new { sleep } }
puts "pid #{$$}"
$stdout.flush
$stdin.gets
wall = clock(Process::CLOCK_MONOTONIC)
cpu = clock(Process::CLOCK_PROCESS_CPUTIME_ID)
shop = Shop.new
shop.deep(20) { 12_000.times { shop.round } }
puts "did #{clock(Process::CLOCK_MONOTONIC) - wall} #{clock(Process::CLOCK_PROCESS_CPUTIME_ID) - cpu}"
StackProf.stop if defined?(StackProf) # at its end it would crash
idle.each(&:kill)
