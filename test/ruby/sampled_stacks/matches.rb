# Methods of two classes that match regular expressions, and collections of garbage while they run: what a match leaves
# behind lies in an object of each call's own, where the VM keeps the method too; freed, it is soon another method's.
def spin(n) = n < 2 ? n : spin(n - 1) + spin(n - 2)

class Handler
  def handle(text)
    found = text.match(/(c+)/)
    Array.new(30) { |i| "garbage #{i}" }
    spin(11) + found[1].size
  end
end

class Reader
  HANDLER = Handler.new
  def parse(text) = text =~ /b(.)d/ && HANDLER.handle(text)
end

puts "ready"
$stdout.flush
reader = Reader.new
loop { reader.parse("abcdccc") }
