# compare.rb TOLD DUMP.json: what Ruby told of its threads, and what scry read; frame for frame.
require "json"

told = {}
version = nil
File.foreach(ARGV[0], chomp: true) do |line|
  case line
  when /\Athread (.*)/ then told[$1] = []
  when /\Aruby (.*)/ then version = Gem::Version.new($1)
  else told.values.last << line.split("\t")
  end
end
abort "the program did not come to its end" unless version && told.size > 30

# From 3.4 on backtraces name the class, and leave out the frames of rescue and ensure. From 4.0 on a
# method of the VM that is written in Ruby has its caller's place there, as one in C.
NAMES_CLASS = version >= Gem::Version.new("3.4")
HIDES_PLACE = version >= Gem::Version.new("4.0")

def own?(frame) = frame["file"].to_s.start_with?("<internal:")

# What Ruby would print of these frames: of each the places that it may name, and the method.
def as_told(frames)
  line = nil # of a frame that is left out: it is where the method stands
  frames.each_with_index.filter_map do |f, i|
    if NAMES_CLASS && f["label"].match?(/\A(rescue|ensure) in /)
      line ||= f["line"]
      next
    end
    caller = frames[i..].find { |g| !own?(g) } || f
    places = HIDES_PLACE && own?(f) ? [caller] : NAMES_CLASS && own?(f) ? [f, caller] : [f]
    [places.map { |g| [g["file"].to_s, (line || g["line"]).to_i.to_s] }, NAMES_CLASS ? f["method"] : f["label"]].tap { line = nil }
  end
end

# Code given to eval is `<compiled>` to the VM there; backtraces call it after its scope.
def same?(seen, frames)
  seen.size == frames.size && seen.zip(frames).all? do |(places, name), (path, line, label)|
    places.include?([path, line]) && (name == label || (NAMES_CLASS && name == "<compiled>"))
  end
end

dump = JSON.parse(File.read(ARGV[1]))
bad = told.reject do |name, frames|
  thread = dump["threads"].find { |t| t["name"] == name } or abort "no thread #{name}"
  seen = as_told(thread["frames"])
  next true if same?(seen, frames) && thread["verdict"] == "valid" && thread["unnamed"].zero?

  puts "thread #{name}: #{thread["verdict"]}, #{thread["unnamed"]} unnamed", "  Ruby:", frames.map { |f| "    #{f.join(" ")}" }, "  scry:", seen.map { |f| "    #{f.join(" ")}" }
end
puts "#{told.size} threads, #{told.values.sum(&:size)} frames, #{bad.size} differ"
exit bad.empty?
