# check_flame.rb PAGE.html REPORT.json: the page's rows and names are the report's; and, where there is a
# browser, its code draws them, searches, and shows one thread.
require "json"

page = File.read(ARGV[0])
report = JSON.parse(File.read(ARGV[1]))
list = ->(name) { JSON.parse("[" + page[/^const #{name}=\[\n(.*?)^\];/m, 1].sub(/,\s*\z/, "") + "]") }
rows, names, gems, threads, states, talk = %w[rows names gems threads states talk].map(&list)
own = Hash.new(0)
rows.each { |ns, frames| own[names[frames.last]] += ns }
wanted = Hash.new(0)
report["rows"].each do |r|
  next if r["self_ns"].zero?

  wanted[r["method"] ? "#{r["method"]}#{" (C)" if r["is_c"]}  #{r["file"]}:#{r["line"]}" : "(no frame known)"] += r["self_ns"]
end
abort "own times differ:\n#{own}\n#{wanted}" unless own == wanted
abort "each name has a gem" unless names.size == gems.size && gems.include?("(app)")
abort "a row has no thread or state" unless rows.all? { |_, _, t, s| threads[t] && states[s] }
abort "the page says nothing of what is missing" unless talk[0].start_with?("scry stacks: pid")
abort "a name could be markup" if page[/^const names=\[\n(.*?)^\];/m, 1].match?(/[<>&]/)
# Its code, run by what can run it: boxes are drawn, as many as searching, choosing and reset leave.
browser = %w[chromium chromium-browser google-chrome].find { |b| system("command -v #{b} >/dev/null 2>&1") }
if browser
  page.sub!("</body>", <<~HTML)
    <script>
    const count = s => document.querySelectorAll(s).length, said = [];
    said.push(count("#g div"), count("#app span"));
    $("search").value = names[0]; $("search").oninput();
    said.push(count("#g .found"));
    $("reset").onclick();
    said.push(count("#g .found"), count("#g div"));
    $("thread").value = threads[0]; $("thread").onchange();
    said.push(Math.round(root.v), root.c.size);
    document.title = "said " + said.join(" ");
    </script></body>
  HTML
  File.write(ARGV[0] + ".run.html", page)
  dom = IO.popen([browser, "--headless", "--no-sandbox", "--disable-gpu", "--user-data-dir=#{ARGV[0]}.profile",
                  "--dump-dom", "file://#{File.expand_path(ARGV[0])}.run.html"], err: File::NULL, &:read)
  said = dom[/<title>said ([\d ]+)</, 1] or abort "the page's code does not run"
  boxes, chips, found, left, again, of_thread, = said.split.map(&:to_i)
  abort "boxes: #{said}" unless boxes >= 4 && chips >= 1 && found >= 1 && left.zero? && again == boxes
  wanted = rows.sum { |ns, _, t| t.zero? ? ns : 0 }
  abort "one thread has #{of_thread} ns, not #{wanted}" unless of_thread == wanted
else
  puts "no browser: the page's code was not run"
end
