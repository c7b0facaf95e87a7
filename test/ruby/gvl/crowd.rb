# So many threads hand the lock on as fast as they can: more pairs than are kept, with 330.
$stdout.sync = true
ARGV[0].to_i.times { Thread.new { loop { Thread.pass } } }
puts "pid #{$$}"
sleep
