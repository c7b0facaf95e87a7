# 64 threads that make objects and check them, now and then a few of them under GC.stress, until SIGTERM.
# A wrong result ends it with status 1; else the last line is "rounds N" and the status 0.

THREADS = 64

def work(seed)
  words = Array.new(20) { |i| "#{seed}-#{i}" }
  index = words.each_with_index.to_h
  text = words.map { |w| w.sub('-', ':') }.join(',')
  index.size == 20 && text.count(':') == 20 && Struct.new(:a, :b).new(seed, text).b.equal?(text)
end

def stressed
  GC.stress = true
  yield
ensure
  GC.stress = false
end

$stdout.sync = true
stop = false
trap(:TERM) { stop = true }
counts = Array.new(THREADS, 0)
threads = Array.new(THREADS) do |t|
  Thread.new do
    until stop
      stressed { [t.to_s, { t => [t] }] } if t.zero? && (counts[t] % 10).zero?
      unless work(t)
        puts "wrong: thread #{t}"
        exit! 1
      end
      counts[t] += 1
      sleep 0.001 if t.odd?
    end
  end
end
puts "pid #{$$}"
threads.each(&:join)
puts "rounds #{counts.sum}"
