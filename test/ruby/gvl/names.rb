# Two threads with names longer than the kernel keeps, the one renamed all the time, and one without a name; a pool of
# native threads has some to run. Until TERM.
$stdout.sync = true
over = false
trap("TERM") { over = true }
threads = ["sidekiq.processor/default-1", "sidekiq.processor/default-2"].map do |name|
  Thread.new do
    Thread.current.name = name
    sleep 0.001 until over
  end
end
threads << Thread.new { sleep 0.001 until over }
threads << Thread.new do
  n = 0
  until over
    Thread.current.name = "a thread whose name changes #{n += 1}"
    sleep 0.001
  end
end
puts "pid #{$$}"
threads.each(&:join)
puts "right"
