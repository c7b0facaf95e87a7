# ruby ask.rb SOCKET REQUESTS: four clients, each with a connection of its own, ask a server on a UNIX socket the
# requests of bench/realistic.rb in turn. Ends with 1 if an answer is not as it should be.
require 'json'
require 'socket'

path, requests = ARGV
ORDER = JSON.generate('customer' => 'jo doe', 'lines' => Array.new(12) { |i| { 'id' => i * 3, 'count' => i + 1 } })

def request(i)
  case i % 3
  when 0 then "GET /goods?page=#{i} HTTP/1.1\r\nHost: shop\r\n\r\n"
  when 1 then "GET /goods/#{i % 60}.json HTTP/1.1\r\nHost: shop\r\n\r\n"
  else "POST /order HTTP/1.1\r\nHost: shop\r\nContent-Type: application/json\r\nContent-Length: #{ORDER.size}\r\n\r\n#{ORDER}"
  end
end

def connect(path)
  UNIXSocket.new(path)
rescue Errno::ENOENT, Errno::ECONNREFUSED
  sleep 0.05
  (@tries = @tries.to_i + 1) < 600 ? retry : abort('ask: nobody listens')
end

def ask(socket, i)
  socket.write(request(i))
  head = socket.gets("\r\n\r\n") or abort 'ask: no answer'
  length = head[/^content-length: (\d+)/i, 1].to_i
  body = socket.read(length)
  abort "ask: request #{i}: #{head}#{body[0, 200]}" unless head.start_with?('HTTP/1.1 200') && length > 30
end

first = connect(path)
4.times.map { |k| Thread.new { (s = k.zero? ? first : connect(path)) && k.step(requests.to_i - 1, 4) { |i| ask(s, i) } } }.each(&:join)
