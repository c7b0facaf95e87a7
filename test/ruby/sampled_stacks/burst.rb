# Eight threads that run for 2 ms of their clocks and wait for the next word between: most bursts lie between two
# looks. Writes the truth to ARGV[1]: seconds of thread clocks in hot, of the process, and of the process outside of hot
# with its start; ARGV[0] bursts.
def cpu = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID)
def process = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID)
first = process

def hot
  to = cpu + 0.002
  while cpu < to
    i = 0
    i += 1 while i < 3000
  end
end

words = Queue.new
answers = Queue.new
spent = Array.new(8, 0.0)
8.times do |n|
  Thread.new do
    loop do
      words.pop
      began = cpu
      hot
      spent[n] += cpu - began
      answers << 1
    end
  end
end
sleep 0.2 # scry comes
before = process
ARGV[0].to_i.times do
  words << 1
  answers.pop
  sleep 0.003
end
last = process
File.write(ARGV[1], %({"hot": #{spent.sum}, "process": #{last - before}, "others": #{last - first - spent.sum}}))
