# Methods that match regular expressions, and collections of garbage while they run: what a match leaves behind lies in
# an object of each call's own, where the VM keeps the method too.
def spin(n) = n < 2 ? n : spin(n - 1) + spin(n - 2)
def parse(text) = text =~ /b(.)d/ && handle(text)

def handle(text)
  found = text.match(/(c+)/)
  Array.new(30) { |i| "garbage #{i}" }
  spin(11) + found[1].size
end

puts "ready"
$stdout.flush
loop { parse("abcdccc") }
