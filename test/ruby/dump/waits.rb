# Threads of known names that wait for known things.
require "socket"

def named(name, &work)
  Thread.new { Thread.current.name = name; work.call }
end
class Deep
  def down(n) = n.zero? ? sleep : down(n - 1)
end

queue = Queue.new
r, _w = IO.pipe
server = TCPServer.new("127.0.0.1", 0)
client = TCPSocket.new("127.0.0.1", server.addr[1])
named("nap") { sleep 1000 }
named("forever") { sleep }
named("pipe") { r.read(1) }
named("peer") { client.gets }
named("queue") { queue.pop }
named("deep") { Deep.new.down(29) }
other = Queue.new
4.times { named("alike") { other.pop } }
3.times { |i| named("busy#{i + 1}") { x = 0; x += 1 while true } }
puts "ready"
$stdout.flush
sleep
