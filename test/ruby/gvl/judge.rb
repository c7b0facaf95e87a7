# judge.rb WHAT REPORT.json [NUMBER [REPORT.json ...]]: says what is wrong with a report of `scry gvl`; with more, of the
# same program, sums are of all.
require "json"
what, path, number, *more = ARGV
report = JSON.parse(File.read(path))
threads, totals = report["threads"], report["totals"]
by_name = threads.group_by { |t| t["name"] }
wrong = []
near = lambda do |name, value, truth, share, least = 0|
  wrong << "#{name}: #{value}, not #{truth}" unless (value - truth).abs <= [truth * share, least].max
end
sum = ->(t) { t.values_at("held_ns", "wanted_ns", "granted_ns", "without_ns", "unknown_ns").sum }
watched = totals["watched_ns"]
locks = report["locks"]
known_of = locks.to_h { |l| [l.values_at("pid", "ractor"), l["known_ns"] + l["unknown_ns"]] }
own = ->(t) { known_of.fetch(t.values_at("pid", "ractor")) } # how long the thread's lock was watched
comes = %w[started extension comers gives short late brief_ractors hog_ractor]

# Whatever it does: times add up.
threads.each { |t| near["time of #{t["name"]}", sum[t], own[t], 0.01] unless t["has_ended"] || comes.include?(what) }
threads.each { |t| wrong << "time of #{t["name"]}: #{sum[t]}" if sum[t] > own[t] * 1.01 && t["threads"] < 2 } # who came later, or has ended
locks.each do |l| # and in each ractor
  mine = threads.select { |t| own[t] && t.values_at("pid", "ractor") == l.values_at("pid", "ractor") }
  near["time of ractor #{l["ractor"]}", (0..7).sum { |i| l["runnable#{i}_ns"] }, l["known_ns"], 0.01, 2000]
  wrong << "held longer than ractor #{l["ractor"]} was watched" if l["held_ns"] > l["known_ns"] * 1.001 + 1000
  wrong << "ractor #{l["ractor"]} of other threads" unless l["held_ns"] == mine.sum { |t| t["held_ns"] }
end
ractor_of = threads.to_h { |t| [t.values_at("pid", "thread"), t["ractor"]] }
report["pairs"].each do |p| # who waits and who holds are of one lock
  ractors = p.values_at("waiter", "holder").compact.map { |n| ractor_of[[p["pid"], n]] } << p["ractor"]
  wrong << "a pair of ractors #{ractors}" unless ractors.uniq.size == 1
end
near["time by runnable threads", report["runnable"].sum { |r| r["time_ns"] }, watched - totals["unknown_ns"], 0.01]
wrong << "held longer than it was watched" if totals["held_ns"] > watched * 1.001
lost = threads.sum { |t| t["lost_ns"] }
near["what lines lost", report["rows"].sum { |r| r["lost_ns"] }, lost, 0.01, 1000]
waited = threads.sum { |t| t["wanted_ns"] + t["granted_ns"] }
near["what was waited for threads, and while it changed hands", lost + totals["handing_ns"], waited, 0.01, 1000]
near["what pairs lost", report["pairs"].sum { |p| p["lost_ns"] } + totals["unpaired_ns"], waited, 0.01, 1000]
near["where threads waited", report["waiting"].sum { |r| r["lost_ns"] }, waited, 0.01, 1000]
wrong << "errors or losses" unless report["data_quality"]["errors"].zero? && report["data_quality"]["lost"].zero?

# What the hooks did not produce: no thread runs Ruby code without the lock, nor while it waits.
wrong << "threads run Ruby code without the lock: #{totals["contradicted"]} of #{totals["looks"]}" unless totals["contradicted"].zero?
threads.each do |t|
  ran = t["ran_waiting_ns"].to_i
  wrong << "#{t["name"]} ran for #{ran} while it waited" if ran > 5_000_000 + 50_000 * t["waits"]
end

wrong << "a pair without waits" if report["pairs"].any? { |p| p["waits"].to_i < 1 }
threads.each do |t| # each part of what it is part of
  native, off, cpu = t.values_at("without_native_ns", "without_off_ns", "cpu_ns")
  wrong << "native code of #{t["name"]}: #{native} of #{cpu}" if native && (native + off != t["without_ns"] || native > cpu)
end

case what
when "share" # three compute in turns of one length; who sleeps takes next to nothing; the idle are without it
  # some wait while it changes hands, which takes long where others want the processors
  known = watched - totals["unknown_ns"]
  wrong << "held by all: #{totals["held_ns"]} of #{known}" if totals["held_ns"] + totals["handing_ns"] < known * 0.99
  near["contended", totals["contended_ns"], watched, 0.02]
  busy = Array.new(3) { |i| by_name.fetch("busy#{i}")[0] }
  # in turn; how long a turn is the machine says as well, where others want the processors
  turns = busy.map { |b| b["yields"] }
  # one that others keep from a processor when it is its turn may be overtaken (to 3.2)
  wrong << "turns: #{turns}" unless turns.min.positive? && turns.max - turns.min <= 2 + turns.max / 5
  wrong << "no thread was checked: #{totals["looks"]}" unless totals["looks"].to_i.positive?
  near["held by the three", busy.sum { |b| b["held_ns"] }, totals["held_ns"], 0.03]
  wrong << "one held it for no turn: #{busy}" unless busy.all? { |b| b["held_ns"] > watched / 20 }
  wrong << "io held it" if by_name.fetch("io")[0]["held_ns"] > watched / 50
  %w[nap queue mutex join].each { |n| near["#{n} without it", by_name.fetch(n)[0].values_at("without_ns", "unknown_ns").sum, watched, 0.01] }
  line = report["rows"].max_by { |r| r["lost_ns"] }
  wrong << "blames #{line}" unless line["file"].to_s.end_with?("share.rb") && line["line"] == 7
  line = report["waiting"].max_by { |r| r["lost_ns"] } # the three wait there two thirds of the time
  wrong << "waits at #{line}" unless line["file"].to_s.end_with?("share.rb") && line["line"] == 7
  near["waited there", line["lost_ns"], 2 * watched, 0.05, 250_000_000]
  line = report["waiting"].find { |r| r["line"] == 10 && r["method"] == "Kernel#sleep" }
  io = by_name.fetch("io")[0]
  near["waited by io at its sleep", line["lost_ns"], io["wanted_ns"] + io["granted_ns"], 0.05, 5_000_000] if line
  wrong << "io waits nowhere" unless line
when "native" # who packs without the lock runs native code, the others none; those that hold it may get no processor
  packs, computes, sleeps = %w[packs computes sleeps].map { |n| by_name.fetch(n)[0] }
  native, cpu = packs.values_at("without_native_ns", "cpu_ns")
  wrong << "native: #{native} of #{cpu}" unless native.to_i.positive? && native >= cpu - packs["held_ns"]
  wrong << "computes in native code: #{computes}" if computes["without_native_ns"].to_i > computes["without_ns"] + 1
  wrong << "sleeps on a processor: #{sleeps}" if sleeps["without_native_ns"].to_i > sleeps["cpu_ns"]
  met = report["pairs"].find { |p| p["waiter"] == sleeps["thread"] && p["holder"] == computes["thread"] }
  wrong << "sleeps waited for computes: #{met}" unless met && met["waits"].between?(1, computes["takes"])
when "both" # NUMBER: so long it packed, by its own clock, and beside that it slept with the lock: by samples that is seen
  both = by_name.fetch("both")[0]
  wrong << "not by samples: #{both}" unless both["without_native_is_least"] == false
  near["native code", both["without_native_ns"].to_i, number.to_i, 0.1, 30_000_000]
  wrong << "it did not sleep with the lock: #{both}" unless both["held_ns"] > both["cpu_held_ns"].to_i * 2
when "threshold" # all are shorter: none has a stack, and all are counted
  brief = report["waiting"].find { |r| r["method"] == "[waits shorter than --threshold]" }
  wrong << "no brief waits: #{report["waiting"]}" unless brief
  near["brief waits", brief["waits"], totals["waits"], 0, threads.size] if brief # but who waited at the beginning
  near["waits at lines", report["waiting"].sum { |r| r["waits"] }, totals["waits"], 0]
when "names" # whole, and the last one; NUMBER 1: in the kernel's words there is one for the thread without
  wrong << "names: #{by_name.keys}" unless by_name.key?("sidekiq.processor/default-1") && by_name.key?("sidekiq.processor/default-2")
  last = by_name.keys.compact.filter_map { |n| n[/\Aa thread whose name changes (\d+)\z/, 1]&.to_i }
  wrong << "the name that changes: #{last}" unless last.size == 1 && last[0] > 1
  wrong << "names: #{by_name.keys}" if number.to_i == 1 && by_name.keys.none? { |n| n.to_s.start_with?("names.rb:") }
when "stacks" # each wait is told with where its thread stood: of threads that wait at one line, all of them
  wrong << "#{totals["unstacked_waits"]} waits without a stack" unless totals["unstacked_waits"].zero?
  # a wait that was on at the beginning is no wait of its thread nor of its line
  near["waits at lines", report["waiting"].sum { |r| r["waits"] }, totals["waits"], 0]
  at = ->(line) { report["waiting"].select { |r| r["line"] == line && r["file"].to_s.end_with?("share.rb") } }
  {7 => %w[busy0 busy1 busy2], 10 => %w[io]}.each do |line, names|
    rows, who = at[line], by_name.values_at(*names).flatten
    near["waits at line #{line}", rows.sum { |r| r["waits"] }, who.sum { |t| t["waits"] }, 0, names.size]
    near["waited at line #{line}", rows.sum { |r| r["lost_ns"] }, who.sum { |t| t["wanted_ns"] + t["granted_ns"] }, 0.01, 1_000_000]
    longest, own = rows.map { |r| r["wait_max_ns"].to_i }.max, who.map { |t| t["wait_max_ns"].to_i }.max
    older = who.map { |t| t["older_wait_ns"] }.max # from its first event on it may be the longest
    wrong << "longest at line #{line}: #{longest}, not #{own}" unless longest.between?(own, [own, older].max)
  end
  wrong << "io never waited" if at[10].sum { |r| r["waits"] }.zero? # a turn is as long as the machine makes it
  wrong << "waits nowhere: #{at[10]}" unless at[10].all? { |r| r["method"] == "Kernel#sleep" && r["frames"].size >= 1 && r["samples"].nil? }
  # right behind the verdict; but where holders had no processor it is told before that their line is not known
  said = report["notes"].reject { |n| n.include?("of the time that others waited has no known line") }[1].to_s
  said = said[/\Athey waited most at .*share\.rb:7 .*, in ([\d,]+) waits, the longest /, 1].to_s.delete(",").to_i
  most = report["waiting"].max_by { |r| r["lost_ns"] }
  wrong << "it is not said: #{report["notes"]}" unless most["line"] == 7 && said == most["waits"] && said.positive?
when "hog" # one thread holds it, in C, for so long by its own clock; another one wants it all the time
  hog, waiter = by_name.fetch("hog")[0], by_name.fetch("waiter")[0]
  near["held by hog", hog["held_ns"], number.to_i, 0.03, 5_000_000]
  pair = report["pairs"].find { |p| p["holder"] == hog["thread"] && p["waiter"] == waiter["thread"] }
  wrong << "hog is not to blame" unless pair && pair["lost_ns"] > number.to_i / 2
  wrong << "another one is worse: #{threads[0]}" unless threads[0] == hog
  line = report["rows"].max_by { |r| r["lost_ns"] }
  wrong << "blames #{line}" unless [20, 24].include?(line["line"])
when "hold" # one thread holds it from before the watch to after it, or for so long
  hog, waiter = by_name.fetch("hog")[0], by_name.fetch("waiter")[0]
  known = watched - totals["unknown_ns"]
  wrong << "hog is not to blame: #{threads[0]}" unless threads[0] == hog
  line = report["rows"].max_by { |r| r["lost_ns"] }
  wrong << "blames #{line}" unless line["line"] == 6 && line["file"].to_s.end_with?("hold.rb")
  line = report["waiting"].max_by { |r| r["lost_ns"] }
  wrong << "waits at #{line}" unless line["line"] == 3 && line["file"].to_s.end_with?("hold.rb")
  notes = report["notes"].join("\n")
  if number == "0"
    near["held by hog", hog["held_ns"], known, 0.01]
    near["lost by its line", line["lost_ns"], known, 0.01]
    near["the wait that is not over", waiter["open_wait_ns"], known, 0.01]
    wrong << "does not say who waits still" unless notes.match?(/still waiting at the end: waiter/)
    wrong << "it has ended" if hog["has_ended"] || waiter["has_ended"]
  else
    near["the wait from before", waiter["older_wait_ns"], hog["held_ns"], 0.05, 5_000_000]
    wrong << "does not say who had waited" unless notes.match?(/waiting from before the watch: waiter/)
  end
when "swap" # one that held it at the beginning gives it to one that waited then
  hog, after = by_name.fetch("hog")[0], by_name.fetch("next")[0]
  near["the wait from before", after["older_wait_ns"], hog["held_ns"], 0.05, 5_000_000]
  wrong << "hog held it, and did not wait before: #{hog}" unless hog["older_wait_ns"].zero?
  near["hog's wait", hog["wait_max_ns"], after["held_ns"], 0.05, 5_000_000]
when "brief" # eight of 8 ms in a program of two seconds, which says how long it slept: were no more when they had ended
  first = threads.max_by { |t| t["without_ns"] }
  brief = threads - [first]
  wrong << "there are #{brief.sum { |t| t["threads"] }}" unless brief.sum { |t| t["threads"] } == 8
  brief.each do |t|
    wrong << "a tid is missing: #{t}" unless t["tid"].to_i > 0
    wrong << "it has not ended, or long after it had: #{t}" unless t["has_ended"] && t["without_ns"] < 500_000_000
  end
  # a keeper that has no processor meanwhile sees no names
  wrong << "names are missing: #{by_name.keys}" if by_name.keys.grep(/^brief\d$/).size < number.to_i
  wrong << "the first one has ended" if first["has_ended"]
  slept = File.read(more[0])[/^slept (\d+)/, 1].to_i
  wrong << "the first one without it: #{first["without_ns"]} of #{slept}" unless first["without_ns"].between?(slept * 0.99, slept + 9 * 500_000_000)
when "comers" # NUMBER threads and the first one: more than there are rows; none is missing, and none counted twice
  number = number.to_i
  wrong << "there are #{threads.sum { |t| [t["threads"], 1].max }}" unless threads.sum { |t| [t["threads"], 1].max } == number + 1
  wrong << "turns were not counted: #{totals["crowded"]}" unless totals["crowded"].zero?
  # each gets the lock when it starts, and when its sleep is over
  ended = threads.reject { |t| t["thread"] == 1 || t["name"] == "ruby" && !t["has_ended"] }
  wrong << "takes: #{ended.sum { |t| t["takes"] }}" if ended.sum { |t| t["takes"] } < 2 * number
  wrong << "they have not ended: #{ended.count { |t| !t["has_ended"] }}" if ended.count { |t| !t["has_ended"] } > 300
  sums = threads.select { |t| t["thread"] >= 4096 }
  wrong << "nothing is summed" if sums.sum { |t| t["threads"] } < number - 2047
  wrong << "not by name: #{sums.map { |t| t["name"] }}" unless sums.map { |t| t["name"] }.uniq.size == sums.size
  near["waits at lines", report["waiting"].sum { |r| r["waits"] }, totals["waits"], 0, 8] if report["waiting"].any? { |r| r["waits"] }
when "gives" # a call that gives the lock away makes nobody wait, wherever its thread was put off when it had it again
  mixed = by_name.fetch("mixed")[0]
  wrong << "another one is worse: #{threads[0]}" unless threads[0] == mixed
  rows = [report, *more.map { |m| JSON.parse(File.read(m)) }].flat_map { |r| r["rows"] }
  at = ->(line) { rows.select { |r| r["line"] == line && r["file"].to_s.end_with?("gives.rb") }.sum { |r| r["lost_ns"] } }
  wrong << "it lost them #{at[8]} where it sleeps, and #{at[7]} where it computes" if at[8] > at[7] / 3 || at[7].zero?
when "crowd" # more pairs than there is room for: the sums above hold all the same, and it is said
  wrong << "every pair found room" unless totals["unpaired_ns"] > 0
  wrong << "it is not said" unless report["notes"].any? { |n| n.match?(/of the waiting is in no pair/) }
  wrong << "handing over is not said" unless report["notes"].any? { |n| n.match?(/while the lock was being handed over/) }
when "passes" # why a thread gives the lock and wants it again; who is quicker than those that wait
  threads.each { |t| wrong << "#{t["name"]}: #{t}" unless t["yields"] == t["forced"].to_i + t["passes"].to_i }
  %w[busy sort].each do |n|
    t = by_name.fetch(n)[0]
    wrong << "#{n} was not forced: #{t}" unless t["forced"] > 2 && t["passes"].zero?
  end
  passer = by_name.fetch("passer")[0]
  wrong << "passer passes: #{passer}" unless passer["passes"] > 2 && passer["forced"] <= passer["passes"] / 2
  brief = by_name.fetch("brief")[0]
  wrong << "brief is not quicker: #{brief}" if number == "1" && brief["overtakes"] < 10
  wrong << "#{totals["overtakes"]} were quicker, where the lock is given to the next" if number == "2" && totals["overtakes"]
when "extension" # NUMBER: what the program has printed. A library in C holds the lock for so long, and others lose that
  said = File.readlines(number).map(&:split).to_h { |words| [words[0..-2].join(" "), words[-1].to_i] }
  hog = by_name.fetch("hog")[0]
  near["held by hog", hog["held_ns"], said.fetch("held"), 0.1]
  row = report["rows"].max_by { |r| r["lost_ns"] }
  wrong << "blames #{row}" unless row["library"].to_s.end_with?("/hog.so") && row["function"] == "hog_hold" &&
                                  row["method"] == "Hog.hold" && row["line"] == 27
  wrong << "lost by it: #{row["lost_ns"]}" unless row["lost_ns"].between?(said["held"], 2 * said["held"])
  slept = report["waiting"].find { |r| r["line"] == 15 && r["method"] == "Kernel#sleep" }
  waiter = by_name.fetch("waiter")[0]
  near["waited after its sleep", slept ? slept["lost_ns"] : 0, waiter["wanted_ns"] + waiter["granted_ns"], 0.1]
  # the VM's own hooks know when each thread was ready, and when it ran again
  %w[waiter counter hog].each do |n|
    thread, truth = by_name.fetch(n)[0], said["waited #{n}"]
    next unless truth
    near["waited by #{n}", thread["wanted_ns"] + thread["granted_ns"], truth, 0.01, 5_000_000]
  end
when "short" # NUMBER: what the program has printed. The share of the waiting that is a method's in short calls: of all, or
  # of that and another's
  kind, truth = File.read(number).split
  lost = ->(&which) { report["rows"].select(&which).sum { |r| r["lost_ns"] } }
  share = if kind == "c"
            lost.call { |r| r["library"].to_s.end_with?("/hog.so") && r["function"] == "hog_spin" }.fdiv(lost.call { true })
          else
            lost.call { |r| r["method"] == "Object#long" }.fdiv(lost.call { |r| %w[Object#long Object#short].include?(r["method"]) })
          end
  wrong << "a share of #{share.round(3)}, by its own clocks #{truth}" unless (share - truth.to_f).abs <= 0.1
when "ractors" # in each ractor two share its lock; NUMBER: so many beside the first. 0: threads take turns on native threads
  wrong << "ractors: #{locks}" unless locks.map { |l| l["ractor"] }.sort == [*1..number.to_i + 1]
  said = ->(pattern) { report["notes"].any? { |n| n.match?(pattern) } }
  wrong << "not seen: #{report["notes"]}" if said[/more ractor/]
  wrong << "turns on native threads: #{said[/M:N/]}" if number == "0" && !said[/M:N/]
  names = locks.map do |l|
    near["contended in ractor #{l["ractor"]}", l["contended_ns"], l["known_ns"], 0.02]
    mine = threads.select { |t| t["ractor"] == l["ractor"] }
    busy = mine.select { |t| t["held_ns"] > own[t] / 20 }
    wrong << "#{busy.size} compute in ractor #{l["ractor"]}: #{mine}" unless busy.size == 2
    # in turns of one length; how long a turn is the machine says as well
    turns = busy.map { |t| t["yields"] }
    wrong << "turns in ractor #{l["ractor"]}: #{turns}" unless turns.min.to_i.positive? && turns.max - turns.min <= 2 + turns.max / 5
    # one of the two waits while it changes hands, which takes long where others want the processors
    handing = report["pairs"].sum { |p| p["ractor"] == l["ractor"] && !p["holder"] ? p["lost_ns"] : 0 }
    wrong << "held in ractor #{l["ractor"]}: #{l["held_ns"]} of #{l["known_ns"]}" if l["held_ns"] + handing < l["known_ns"] * 0.99
    busy.map { |t| t["name"] }.sort
  end
  unless number == "0" && names.flatten.none?
    wrong << "not these: #{names}" unless names.sort == [%w[busy0 busy1], *Array.new(number.to_i) { |i| ["r#{i}t0", "r#{i}t1"] }].sort
  end
  near["queue without it", by_name.fetch("queue")[0].values_at("without_ns", "unknown_ns").sum, known_of.values.max, 0.01] if number != "0"
  line = report["rows"].select { |r| r["frames"].to_a.any? { |f| f["line"] == 8 && f["file"].to_s.end_with?("/ractors.rb") } }.sum { |r| r["lost_ns"] }
  lost = threads.sum { |t| t["ractor"] == 1 ? 0 : t["lost_ns"] }
  near["lost because of the ractors' line", line, lost, 0.1] unless number == "0"
when "late" # a ractor that was made in the watch: all of its time; NUMBER: what it has printed, how long its threads computed
  late = by_name.values_at("late0", "late1").flatten.compact # one may not run before the other has ended
  wrong << "of one ractor, not the first: #{late}" unless late.map { |t| t["ractor"] }.uniq.size == 1 && late[0]["ractor"] > 1
  lock = locks.find { |l| l["ractor"] == late[0]["ractor"] }
  wrong << "watched from before it was made: #{lock}" unless lock["unknown_ns"].zero? && lock["known_ns"] < watched
  handing = report["pairs"].sum { |p| p["ractor"] == lock["ractor"] && !p["holder"] ? p["lost_ns"] : 0 }
  held = lock["held_ns"]
  wrong << "held for #{held}, and #{handing}, of #{number}" if held > number.to_i * 1.1 || held + handing < number.to_i * 0.9
when "hog_ractor" # NUMBER: what the program has printed. A library in C holds a ractor's lock, and its threads wait for that
  said = File.readlines(number).map(&:split).to_h { |words| [words[0..-2].join(" "), words[-1].to_i] }
  hog, waiter = by_name.fetch("hog")[0], by_name.fetch("waiter")[0]
  wrong << "ractors: #{hog["ractor"]} and #{waiter["ractor"]}" unless hog["ractor"] == waiter["ractor"] && hog["ractor"] > 1
  near["held by hog", hog["held_ns"], said.fetch("held"), 0.1]
  row = report["rows"].max_by { |r| r["lost_ns"] }
  wrong << "blames #{row}" unless row["library"].to_s.end_with?("/hog.so") && row["function"] == "hog_hold" && row["method"] == "Hog.hold"
  wrong << "lost by it: #{row["lost_ns"]} of #{hog["lost_ns"]}" if row["lost_ns"] < hog["lost_ns"] / 2
  wrong << "who waits in other ractors: #{report["pairs"]}" if report["pairs"].any? { |p| p["ractor"] != hog["ractor"] && p["lost_ns"] > hog["lost_ns"] / 10 }
when "brief_ractors" # NUMBER ractors, which have ended: each is counted, or said not to be
  over = locks.select { |l| l["ractor"] > 1 }
  unseen = report["notes"].filter_map { |n| n[/\A([\d,]+) more ractor/, 1]&.delete(",")&.to_i }.sum
  wrong << "#{over.size} and #{unseen} more" unless (over.size + unseen).between?(number.to_i * 0.98, number.to_i) && over.size >= number.to_i / 10
  wrong << "#{over.count { |l| l["is_over"] }} are over" unless over.count { |l| l["is_over"] } >= over.size - 16
  wrong << "threads: #{over.map { |l| l["threads"] }.tally}" unless over.all? { |l| l["threads"].between?(1, 2) }
when "sampled" # by `stacks --gvl` at the same time, of 10,000 samples and more: the share of all threads' time
  stacks = JSON.parse(File.read(more[0]))["totals"]
  wrong << "#{stacks["samples"]} samples" if stacks["samples"] < 10_000
  here = 100.0 * waited / threads.sum { |t| sum[t] }
  there = 100.0 * stacks["state_gvl_ns"] / stacks["wall_ns"]
  wrong << "waiting is #{here} % here, and #{there} % by samples" if (here - there).abs > 2
when "asleep" # who has the lock need not run
  wrong << "it ran for #{totals["cpu_ns"]}" if totals["cpu_ns"] > totals["held_ns"] / 2
  wrong << "it is not said" unless report["notes"].any? { |n| n.match?(/the lock was held for .*, but the process ran for/) }
end
puts wrong
exit wrong.empty?
