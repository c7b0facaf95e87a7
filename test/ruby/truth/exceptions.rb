# Exceptions: raise, rescue, retry, ensure, throw, backtraces, causes.

class Own < StandardError
  def initialize(detail)
    super("own: #{detail}")
  end
end

def deep(n)
  return raise(Own, "deep") if n.zero?
  deep(n - 1)
end

def simple(n)
  n.times do
    begin
      raise "plain"
    rescue => e
      e.message
    end
    begin
      raise ArgumentError, "with class"
    rescue TypeError, ArgumentError => e
      e.full_message(highlight: false).size
    end
    (raise "modifier") rescue "rescued"
    Integer("x") rescue nil
    nil.nothing rescue $!.message.size
    [].fetch(9) rescue $!.class.to_s
    {}.fetch(:k) rescue $!.key
    1 / 0 rescue $!
  end
end

def traces(n)
  n.times do
    begin
      deep(10)
    rescue Own => e
      e.backtrace
      e.backtrace_locations
      e.backtrace.first(2)
    end
  end
end

def chains(n)
  n.times do
    begin
      begin
        raise "inner"
      rescue
        raise Own, "outer"
      end
    rescue Own => e
      e.cause.message + e.detailed rescue "no method"
    ensure
      ["ensured"]
    end
  end
end

def again(n)
  n.times do
    tries = 0
    begin
      tries += 1
      raise "try #{tries}" if tries < 3
      "ok"
    rescue
      retry
    else
      ["else"]
    end
  end
end

def thrown(n)
  n.times do
    catch(:tag) { 3.times { |i| throw :tag, [i] if i == 1 } }
    catch { |t| throw t, "v" }
    [1, 2, 3].each { |x| break [x] if x == 2 }
    loop { break "b" }
    e = Own.new("kept")
    e.exception("other")
    e.set_backtrace(["a:1", "b:2"])
  end
end

def work
  simple(20)
  traces(20)
  chains(20)
  again(20)
  thrown(20)
end

work

# Where the VM names the line of the next instruction:
# late: 16 Thread::Backtrace: ruby=20 scry=0
# late: 17 Thread::Backtrace: ruby=0 scry=20
# late: 21 Thread::Backtrace: ruby=20 scry=0
# late: 22 Thread::Backtrace: ruby=0 scry=20
# late: 50 Thread::Backtrace: ruby=20 scry=0
# late: 51 Thread::Backtrace: ruby=0 scry=20
