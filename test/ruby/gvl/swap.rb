# "hog" holds the GVL in one C call, gives it to "next", which has waited, and waits for it while that one holds it.
$stdout.sync = true
def compute(rounds)
  "x".crypt("$6$rounds=#{rounds}$salt")
end
after = Thread.new { Thread.current.name = "next"; sleep 0.2; compute(2_000_000); sleep }
hog = Thread.new { Thread.current.name = "hog"; sleep 0.1; compute(6_000_000); Thread.pass; puts "over"; sleep }
puts "pid #{$$}"
hog.join
