# What replays predict beside what is so: predict.rb [RUNS [WORKLOAD...]], from bench/run. Prints the table of
# bench/malloc-replay.md. Each program is recorded once, replayed and really run under four allocators, interleaved.
# With threads a replay takes as long as the program: RUNS 3 took 3 to 16 minutes a threaded program at a load of 20 to 50.
require "json"
require "open3"
require "tmpdir"

here = __dir__
scry = ENV["SCRY"] || File.join(here, "../../build/scry")
runs = (ARGV[0] || 5).to_i
NOISE = 0.1 # of its median: peak memory that differs by more from run to run, of the program or of its replay, is chance
work = File.join(Dir.mktmpdir, "work")
services = File.join(File.dirname(work), "services")
{ "work.c" => work, "services.c" => services }.each do |source, program|
  system("gcc", "-O2", "-pthread", File.join(here, source), "-o", program, exception: true)
end
ruby = ["/usr/bin/ruby3.1", "/usr/bin/ruby"].find { |f| File.executable?(f) }
programs = %w[strings tree vectors buffers holes compiler pipeline apart server exchange sessions churn arenas trees].to_h { |w| [w, [work, w]] }
%w[documents cache frames workers words logs].each { |w| programs[w] = [services, w] }
programs["objects.py"] = ["/usr/bin/python3", File.join(here, "objects.py")]
programs["words.rb"] = [ruby, File.join(here, "words.rb")]
programs["words.pl"] = ["/usr/bin/perl", File.join(here, "words.pl")]
programs["sqlite.py"] = ["/usr/bin/python3", File.join(here, "sqlite.py")]
programs["tables.rb"] = [ruby, File.join(here, "tables.rb")]
programs["graph.pl"] = ["/usr/bin/perl", File.join(here, "graph.pl")]
programs["threads.py"] = ["/usr/bin/python3", File.join(here, "threads.py")]
programs["threads.rb"] = [ruby, File.join(here, "threads.rb")]
programs["sqlite.py, 4 threads"] = [*programs["sqlite.py"], "4"]
programs = programs.slice(*ARGV.drop(1)) if ARGV[1]
ENV["PYTHONMALLOC"] = "malloc"

def median(list) = list.sort[list.size / 2]
def percent(x) = format("%+.1f %%", x * 100)

puts "| program | threads | M calls | ns a call, the replay's own | fastest: predicted | really | by so much of glibc's CPU | judged | memory, off: glibc, jemalloc, tcmalloc, mimalloc | beyond all real runs | in the allocator, of the program's CPU |"
puts "|---|---|---|---|---|---|---|---|---|---|---|"
off = []
outside = []
noise = []
judged = Hash.new { |h, k| h[k] = Hash.new(0) }
programs.each do |name, command|
  text, talk, status = Open3.capture3(scry, "malloc", "compare", "--runs", runs.to_s, "--json", "--", *command)
  abort "#{name}: #{talk}" unless status.success?
  r = JSON.parse(text)
  bad = r["notes"].to_a.grep(/ended with status/)
  abort "#{name}: #{bad.join("; ")}" unless bad.empty? # what did not run whole compares with nothing
  totals = r["totals"]
  rows = r["rows"].select { |row| row["kind"] == "all" }
  glibc = rows.find { |row| row["allocator"] == "glibc" }
  real = rows.min_by { |row| row["real_cpu_ns"] }
  said = rows.find { |row| row["allocator"] == (totals["best_time"] || totals["winner"]) }
  # It matters where the real difference is more than a twentieth of the CPU time, and no noise: from glibc to the
  # fastest, or from glibc to the next where it is the fastest itself.
  slower = real == glibc ? (rows - [glibc]).min_by { |row| row["real_cpu_ns"] } : glibc
  gain = 1 - real["real_cpu_ns"].to_f / slower["real_cpu_ns"]
  matters = gain > 0.05 && real["real_cpu_max_ns"] < slower["real_cpu_min_ns"]
  # One that is not slower than the fastest outside the noise is as right.
  right = said && (said["real_cpu_min_ns"] <= real["real_cpu_max_ns"] || said["real_cpu_ns"] < real["real_cpu_ns"] * 1.03)
  verdict = said.nil? ? "cannot tell" : right ? "right" : "wrong"
  kind = totals["threads_peak"] > 1 ? "threaded" : "one thread"
  judged[kind][matters ? verdict : "no real difference"] += 1
  beyond = []
  errors = rows.map do |row|
    said_rss, least, most, middle = row.values_at(*%w[predicted_rss_peak_bytes real_rss_peak_min_bytes real_rss_peak_max_bytes real_rss_peak_bytes]).map(&:to_f)
    low, high = row.values_at("rss_peak_min_bytes", "rss_peak_max_bytes").map { |x| said_rss + x - row["rss_peak_bytes"] }
    error = said_rss / middle - 1
    beyond << (said_rss - said_rss.clamp(least, most)) / middle # what no run of the program has shown
    if [most - least, high - low].max > middle * NOISE
      noise << [[least - high, low - most, 0].max / middle, error.abs]
      "*#{percent(error)}*"
    else
      off << error.abs
      percent(error)
    end
  end
  puts "| #{name}#{" (not wholly recorded)" unless r.dig("data_quality", "is_complete")} | #{totals["threads_peak"]} | #{(totals["calls"] / 1e6).round(1)} | #{(totals["replay_cpu_ns"].to_f / totals["calls"]).round(2)} | #{said ? said["allocator"] : "-"} | #{real["allocator"]} | #{percent(-gain)} | #{matters ? verdict : "no real difference (#{verdict})"} | #{errors.join(", ")} | #{beyond.map { |x| percent(x) }.join(", ")} | #{totals["program_cpu_ns"] ? (glibc["cpu_ns"] * 100.0 / totals["program_cpu_ns"]).round(1) : "-"} % |"
  $stdout.flush
  outside.concat(beyond.map(&:abs))
end
puts
judged.each { |kind, counts| puts "#{kind}: #{counts.map { |k, v| "#{v} #{k}" }.join(", ")}." }
def tell(list) = "median #{(median(list) * 100).round(1)} %, greatest #{(list.max * 100).round(1)} %, #{list.count { |x| x > 0.1 }} above 10 %"
puts "Memory: error #{tell(off)}, over #{off.size} predictions."
puts "Where runs or replays differ by more than #{(NOISE * 100).round} % (*slanted*): error #{tell(noise.map(&:last))}, over #{noise.size}; between the nearest run and the nearest replay: #{tell(noise.map(&:first))}." unless noise.empty?
puts "Beyond all real runs, slanted ones included: #{tell(outside)}, over #{outside.size}."
