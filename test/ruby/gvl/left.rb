# left.rb FILE: forks a child whose threads hand the lock on for each line that it reads; all end when FILE exists.
$stdout.sync = true
puts "pid #{$$}"
children, parent = [], $$
while $stdin.gets == "fork\n"
  children << fork do
    Array.new(3) { Thread.new { (50.times { Thread.pass }; sleep 0.0005) until File.exist?(ARGV[0]) || Process.ppid != parent } }.each(&:join)
    exit!(7)
  end
  puts "child #{children.last}"
end
puts "right #{children.map { |pid| Process.wait2(pid)[1].exitstatus.inspect }.join(" ")}"
