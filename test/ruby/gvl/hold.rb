# One C call that looks at no interrupt holds the GVL for as long as its rounds take, while another thread wants it.
$stdout.sync = true
waiter = Thread.new { Thread.current.name = "waiter"; sleep 0.001 while true }
sleep 0.001 until waiter.name
puts "pid #{$$}"
Thread.new { Thread.current.name = "hog"; "x".crypt("$6$rounds=#{ARGV[0]}$salt") }.join
puts "over"
sleep
