# Fibers that wait at known places: two alike, one elsewhere, one that has ended, and the one that runs.
def wait_here = Fiber.yield

def wait_there
  [1].each { Fiber.yield }
end

FIBERS = [Fiber.new { wait_here }, Fiber.new { wait_here }, Fiber.new { wait_there }, Fiber.new { 1 }]
FIBERS.each(&:resume)
$stdout.syswrite("ready")
Fiber.new { sleep }.resume
