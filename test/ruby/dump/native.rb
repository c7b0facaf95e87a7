# native.rb LIVE.json NATIVE.json [GDB]: the native dump has Ruby's frames as the plain one has them, woven; and
# native frames as gdb has them, but for the interpreter's own, which Ruby's frames stand for.
require "json"

plain, native = ARGV.first(2).map { |path| JSON.parse(File.read(path)) }
gdb = ARGV[2] && File.readlines(ARGV[2]).filter_map { |l| l =~ /^TID (\d+) (.*)/ && [$1.to_i, $2.split.map { |w| w.split(":", 2) }] }.to_h
bad = []
native["threads"].each do |t|
  of_ruby = t["frames"].reject { |f| f["kind"] == "native" }
  bad << "#{t["name"]}: Ruby's frames" unless of_ruby == plain["threads"].find { |p| p["tid"] == t["tid"] }["frames"]
  bad << "#{t["name"]}: #{t["native_end"]}, merged: #{t["is_merged"]}" unless t["native_end"] == "whole" && t["is_merged"]
  # The thread's first C frame stands below its own native frames.
  first = t["frames"].first
  bad << "#{t["name"]}: #{first} is the newest" unless first["kind"] == "native" && first["module"].include?("libc")
end
with_block = native["threads"].find { |t| t["name"] == "with_block" } || native["threads"].find { |t| t["frames"].any? { |f| f["label"] == "each" } }
each = with_block["frames"].index { |f| f["method"] == "Array#each" && f["kind"] == "c" } # from 3.4 on it is Ruby's own
bad << "above each: #{with_block["frames"][each - 1]}" if each && !%w[rb_ary_each].include?(with_block["frames"][each - 1]["name"] || "rb_ary_each")
native_count = 0
left = Hash.new(0)
(native["threads"] + native["others"]).each do |t|
  mine = t["frames"].filter_map { |f| f["address"] }
  native_count += mine.size
  next unless gdb

  at = 0
  gdb.fetch(t["tid"]).each { |pc, name| mine[at] == pc.hex ? at += 1 : left[name] += 1 }
  bad << "#{t["tid"]}: #{mine.map { |pc| pc.to_s(16) }} is not #{gdb[t["tid"]]}" unless at == mine.size
end
# Without symbols gdb has no name for the interpreter; the outermost frame of a fiber has no pc.
bad << "gdb has more: #{left}" unless left.keys.all? { |name| %w[? vm_exec_core vm_exec rb_vm_exec].include?(name) }
puts bad, "#{native_count} native frames, #{left.values.sum} of the interpreter, #{bad.size} complaints"
exit bad.empty? && native_count > 300
