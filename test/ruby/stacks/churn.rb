# Code that dies while the program goes on: its memory is given out again, and so are the addresses
# of classes, fibers and threads. $CHURN: "", "compact" (auto_compact), "stress" (GC.stress now and then).
require_relative 'seen'

GC.auto_compact = true if ENV['CHURN'] == 'compact'
ROUNDS = ENV['CHURN'] == 'stress' ? 40 : 1500

def through
  yield
end

ROUNDS.times do |i|
  GC.stress = true if ENV['CHURN'] == 'stress' && i % 8 == 3
  code = "m = Module.new { def self.run_#{i % 7}; #{"\n" * (i % 5)}through { spot }; end }; m.run_#{i % 7}"
  eval(code, TOPLEVEL_BINDING, "churn#{i % 50}.rb", 1 + i % 11)
  GC.stress = false
  Fiber.new { spot }.resume if i % 3 == 0
  Thread.new { through { spot } }.join if i % 17 == 0
  Class.new.new
  GC.start if i % 100 == 0
  GC.compact if ENV['CHURN'] == 'compact' && i % 150 == 0
end
