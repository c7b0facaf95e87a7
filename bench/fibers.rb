# How long `scry fibers` takes for 1,000, 10,000 and 100,000 fibers, beside gdb's way where there is one: the table in
# bench/fibers.md. ruby bench/fibers.rb [ROUNDS [FILE]]; needs what `make` builds. For a target each, the median of the rounds.
require "etc"
BUILD = ENV.fetch("SCRY_BUILD", File.expand_path("../build", __dir__))
TARGETS = "#{BUILD}/test/targets/target_"
GDB_COMMANDS = File.expand_path("../src/fiber/scryfiber-gdb.py", __dir__)
rounds = (ARGV[0] || 3).to_i
CASES = [
  ["libscryfiber, 64 KiB, guards within the mapping", "fibers_scry", "64"],
  ["ucontext, malloc'ed stacks of 64 KiB, 1 to 40 frames", "fibers_ucontext", "64", "heap"],
  ["Boost.Context, malloc'ed stacks of 64 KiB", "fibers_boost", "64", "heap"],
]
GDB_MOST = 10_000

# Seconds on the clock and of a processor, and the peak of resident memory in MiB, of a command.
def measure(*command)
  before = Process.times
  began = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  pid = spawn(*command, out: File::NULL, err: File::NULL)
  peak = 0
  until Process.wait(pid, Process::WNOHANG)
    peak = [peak, File.read("/proc/#{pid}/status")[/VmHWM:\s+(\d+)/, 1].to_i].max rescue nil
    sleep 0.005
  end
  wall = Process.clock_gettime(Process::CLOCK_MONOTONIC) - began
  after = Process.times
  [wall, after.cutime + after.cstime - before.cutime - before.cstime, peak / 1024.0]
end

def median(all)
  all.transpose.map { |x| x.sort[x.size / 2] }
end

def with_target(name, count, rest)
  input, keep = IO.pipe
  output, out = IO.pipe
  pid = spawn(TARGETS + name, count.to_s, *rest, in: input, out: out)
  input.close
  out.close
  output.gets or raise "#{name} did not begin"
  yield pid
ensure
  keep.close
  Process.wait(pid)
end

def show(x)
  format("%.2f s, %.2f s, %d MiB", *x)
end

lines = ["| fibers | `scry fibers`: clock, processor, peak memory | gdb with scryfiber-gdb.py, `scry-fiber-bt all` |", "|---|---|---|"]
CASES.each do |title, name, *rest|
  next unless File.executable?(TARGETS + name)

  [1000, 10_000, 100_000].each do |count|
    with_target(name, count, rest) do |pid|
      scry = median(Array.new(rounds) { measure("#{BUILD}/scry", "fibers", "-p", pid.to_s) })
      gdb = if name == "fibers_scry" && count <= GDB_MOST
              show(measure("gdb", "-nx", "-batch", "-p", pid.to_s, "-ex", "source #{GDB_COMMANDS}", "-ex", "scry-fiber-bt all"))
            elsif name == "fibers_scry"
              "not tried"
            else
              "has none"
            end
      lines << "| #{count.to_s.gsub(/(\d)(?=(\d{3})+$)/, '\1,')} of #{title} | #{show(scry)} | #{gdb} |"
      warn lines.last
    end
  end
end
text = <<MD
# scry fibers: how long it takes

    ruby bench/fibers.rb [ROUNDS [FILE]]

#{Etc.nprocessors} processors, shared with others, so processor time says more than time on the clock. The median of #{rounds} runs; gdb
once, up to #{GDB_MOST} fibers. gdb stops the program for all that time; `scry fibers` stops no thread. gdb has commands for
libscryfiber only; for other contexts each program needs a script of its own.

#{lines.join("\n")}
MD
ARGV[1] ? File.write(ARGV[1], text) : puts(text)
