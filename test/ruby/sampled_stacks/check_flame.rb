# check_flame.rb PAGE.html REPORT.json: the page's rows and names are the report's; and, where there is a
# JavaScript engine, its code draws them.
require "json"

page = File.read(ARGV[0])
report = JSON.parse(File.read(ARGV[1]))
list = ->(name) { JSON.parse("[" + page[/^const #{name}=\[\n(.*?)^\];/m, 1].sub(/,\s*\z/, "") + "]") }
rows, names, talk = %w[rows names talk].map(&list)
own = Hash.new(0)
rows.each { |ns, frames| own[names[frames.last]] += ns }
wanted = Hash.new(0)
report["rows"].each do |r|
  next if r["self_ns"].zero?

  wanted[r["method"] ? "#{r["method"]}#{" (C)" if r["is_c"]}  #{r["file"]}:#{r["line"]}" : "(no frame known)"] += r["self_ns"]
end
abort "own times differ:\n#{own}\n#{wanted}" unless own == wanted
abort "the page says nothing of what is missing" unless talk[0].start_with?("scry stacks: pid")
abort "a name could be markup" if page[/^const names=\[\n(.*?)^\];/m, 1].match?(/[<>&]/)
if system("command -v node >/dev/null 2>&1")
  script = page[%r{<script>(.*)</script>}m, 1]
  stub = <<~JS
    let boxes=0;const made=()=>({style:{},append(){boxes++}});
    const parts={};const document={createElement:made,getElementById:i=>parts[i]??=made()};
    #{script}
    if(boxes<4)process.exit(1);
  JS
  IO.popen(%w[node -], "w") { |io| io.write(stub) }
  abort "the page's code does not draw" unless $?.success?
else
  puts "no node: the page's code was not run"
end
