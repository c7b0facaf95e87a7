# forged.rb COUNT DEPTH: links COUNT copies of the thread that runs into the ractor's list, each with a copy of its
# execution context, and so with its stack of DEPTH frames. Then it does nothing, in C, so that nobody uses them.
require "fiddle"
COUNT, DEPTH = ARGV.map(&:to_i)
PAUSE = Fiddle::Function.new(Fiddle::Handle::DEFAULT["pause"], [], Fiddle::TYPE_INT)
COPY = Fiddle::Function.new(Fiddle::Handle::DEFAULT["memcpy"], [Fiddle::TYPE_VOIDP] * 2 + [Fiddle::TYPE_SIZE_T], Fiddle::TYPE_VOIDP)
TH_EC, EC_TH = 40, 48 # rb_thread_t.ec, rb_execution_context_t.thread_ptr
HALF = 512

def get(at) = Fiddle::Pointer.new(at)[0, 8].unpack1("Q")

def put(at, value)
  Fiddle::Pointer.new(at)[0, 8] = [value].pack("Q")
end

def forge
  th = get(Fiddle.dlwrap(Thread.current) + 32)
  ec = get(th + TH_EC)
  get(ec + EC_TH) == th or abort "not laid out as expected"
  GC.disable
  base = Fiddle::Pointer.malloc(2 * HALF * COUNT).to_i
  after, last = get(th), th
  COUNT.times do |i|
    at = base + 2 * HALF * i
    COPY.call(at, th, HALF)
    COPY.call(at + HALF, ec, HALF)
    put(at + TH_EC, at + HALF)
    put(at + HALF + EC_TH, at)
    put(at + 8, last)
    put(last, at)
    last = at
  end
  put(last, after)
  put(after + 8, last)
  $stdout.syswrite("ready")
  PAUSE.call
end

def deep(n) = n.zero? ? forge : deep(n - 1)

deep(DEPTH)
