# Asks the server of config.ru all the time and checks each answer.
#
#   ruby load.rb PORT [CLIENTS]     until SIGTERM, or SIGINT
#
# Prints "asked N" five times a second; the last line is "asked N wrong N". Exit 0: all answers were right.

require 'digest/sha2' # not by const_missing: its first use by many threads at once may fail
require 'json'
require 'net/http'

port = Integer(ARGV.fetch(0))
clients = Integer(ARGV.fetch(1, '6'))
$stdout.sync = true
stop = false
%w[TERM INT].each { |s| trap(s) { stop = true } }

def items_of(n)
  Array.new(n) { |i| "item #{i}" }
end

EXPECTED = {
  '/page' => ->(n) { "<ul>\n#{items_of(n).map { |i| "<li>#{i}</li>\n" }.join}</ul>\n" },
  '/json' => ->(n) { JSON.generate({ 'n' => n, 'items' => items_of(n) }) },
  '/digest' => ->(n) { Digest::SHA256.hexdigest("seed #{n}" * 50) },
  '/sleep' => ->(n) { "slept #{n}" },
}.freeze

asked = Array.new(clients, 0)
wrong = Queue.new
threads = Array.new(clients) do |id|
  Thread.new do
    until stop
      begin
        Net::HTTP.start('127.0.0.1', port, read_timeout: 10) do |http|
          200.times do |i|
            break if stop

            path = EXPECTED.keys[(i + id) % EXPECTED.size]
            n = (i * 7 + id) % 40
            answer = http.get("#{path}?n=#{n}")
            asked[id] += 1
            body = answer.body.gsub(/\n+/, "\n")
            next if answer.code == '200' && body == EXPECTED[path].call(n).gsub(/\n+/, "\n")

            wrong << "#{path}?n=#{n}: #{answer.code} #{answer.body[0, 80].inspect}"
          end
        end
      rescue StandardError => e
        wrong << "#{e.class}: #{e.message}"
        sleep 0.05
      end
    end
  end
end

until stop
  sleep 0.2
  puts "asked #{asked.sum}"
end
threads.each(&:join)
bad = Array.new(wrong.size) { wrong.pop }
puts bad.first(20), "asked #{asked.sum} wrong #{bad.size}"
exit asked.sum.positive? && bad.empty?
