# The backtrace of an exception.
def work
  begin
    raise "lost"
  rescue => e
    e
  end
end

work

# The right counts, and what the VM says instead:
# expect: 4 RuntimeError 1
# expect: 4 String 1
# expect: 4 Thread::Backtrace 1
# late: 2 Thread::Backtrace: ruby=1 scry=0
# late: 4 Thread::Backtrace: ruby=0 scry=1
