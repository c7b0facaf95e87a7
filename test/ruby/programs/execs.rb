# Starts Ruby programs in all the ways there are; each makes a thousand Ones or two thousand Twos.
#
#   ruby execs.rb FOLDER      where one.rb and two.rb are written

ONE = File.join(ARGV.fetch(0), 'one.rb')
TWO = File.join(ARGV.fetch(0), 'two.rb')
File.write(ONE, "class One; end\n1000.times { One.new }\n")
File.write(TWO, "class Two; end\n2000.times { Two.new }\n")
RUBY = ENV.fetch('RUBY', 'ruby')

class Self; end
500.times { Self.new }
system(RUBY, ONE)                       # vfork and exec
system("#{RUBY} #{ONE}; true")          # by a shell, which forks
pid = fork { exec RUBY, TWO }
Process.wait(pid)
IO.popen("#{RUBY} #{TWO} | cat", &:read)
exec RUBY, ONE
