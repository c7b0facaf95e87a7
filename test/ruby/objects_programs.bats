#!/usr/bin/env bats
# Real programs, alone and under `scry objects` plain, sampled and with stacks: what they print and
# write is the same. What is not installed is skipped aloud.

load lib

WAYS=("" "--sample=100" "--stacks")

# same NAME COMMAND...: standard output, status and the files under $T/NAME.* are the same in all ways.
# The command is a bash command line in which @ is the number of the run.
same() {
	local name=$1 command=$2 i
	(cd "$T" && bash -c "${command//@/0}") >"$T/$name.out0" 2>"$T/$name.err0" || { cat "$T/$name.err0"; false; }
	for i in 1 2 3; do
		# shellcheck disable=SC2086
		(cd "$T" && "$SCRY" objects -q --top 0 ${WAYS[$((i - 1))]} -o "$T/$name$i.json" -- bash -c "exec ${command//@/$i}") >"$T/$name.out$i" 2>"$T/$name.err$i" ||
			{ echo "way $i"; cat "$T/$name.err$i"; false; }
		cmp "$T/$name.out0" "$T/$name.out$i"
		json_is "$T/$name$i.json" 'r["data_quality"]["errors"] == 0 && r["totals"]["allocated"] > 10_000'
	done
}

@test "programs: rdoc of a library: the same pages" {
	command -v rdoc >/dev/null || skip "no rdoc: run make deps"
	mkdir "$T/src"
	cp "$("$RUBY" -e 'puts File.join(RbConfig::CONFIG["rubylibdir"], "set.rb")')" "$("$RUBY" -e 'puts File.join(RbConfig::CONFIG["rubylibdir"], "optparse.rb")')" "$T/src/"
	same rdoc "\"$RUBY\" \"\$(command -v rdoc)\" --quiet --ri -o pages@ src/set.rb src/optparse.rb"
	[ "$(find "$T/pages0" -type f | wc -l)" -gt 50 ]
	for i in 1 2 3; do
		diff -r -x created.rid -x cache.ri "$T/pages0" "$T/pages$i"
	done
}

@test "programs: rake with many tasks" {
	command -v rake >/dev/null || skip "no rake: run make deps"
	cat >"$T/Rakefile" <<'RUBY'
require 'digest'
(1..150).each do |i|
  task "t#{i}" => (i > 1 ? ["t#{i - 1}"] : []) do
    puts Digest::SHA256.hexdigest((1..i * 10).map(&:to_s).join(','))
  end
end
multitask many: (1..150).map { |i| "t#{i}" }
task default: :many
RUBY
	same rake "\"$RUBY\" \"\$(command -v rake)\" -f Rakefile"
}

@test "programs: irb runs a session" {
	"$RUBY" -e 'require "irb"' 2>/dev/null || skip "no irb: run make deps"
	printf 'def fib(n) = n < 2 ? n : fib(n - 1) + fib(n - 2)\nfib(15)\n"a".."e"\n{a: [1, 2]}.to_a.flatten\nraise "oops"\n(1..50).sum { |x| x ** 2 }\n' >"$T/session"
	same irb "\"$RUBY\" -rirb -e 'IRB.setup(nil, argv: []); IRB.conf[:USE_MULTILINE] = false; IRB.conf[:USE_COLORIZE] = false; IRB.conf[:PROMPT_MODE] = :SIMPLE; IRB::Irb.new.run(IRB.conf)' <session"
	grep -q 610 "$T/irb.out0"
	grep -q 42925 "$T/irb.out0"
}

@test "programs: erb, json, yaml, csv and gsub in one script" {
	cat >"$T/mix.rb" <<'RUBY'
require 'erb'
require 'json'
require 'yaml'
require 'csv'
require 'set'
require 'digest'
sum = Digest::SHA256.new
300.times do |i|
  data = { 'i' => i, 'list' => (1..i % 30).to_a, 'text' => "line #{i}\n" * (i % 5), 'nested' => { 'a' => [nil, true, 1.5] } }
  back = JSON.parse(JSON.pretty_generate(data))
  raise 'json' unless back == data
  raise 'yaml' unless YAML.load(data.to_yaml) == data
  rows = CSV.parse(CSV.generate { |c| (i % 9).times { |k| c << [k, "v#{k}", nil] } })
  page = ERB.new("<% data['list'].each do |x| %><li><%= x %></li>\n<% end %>", trim_mode: '<>').result(binding)
  sum << page.gsub(/\d+/) { |n| (n.to_i * 7).to_s } << rows.to_s << Set.new(data['list']).to_a.to_s << eval("[#{i}, #{i} ** 20].inspect")
end
puts sum.hexdigest
RUBY
	same mix "\"$RUBY\" mix.rb"
}

@test "programs: a sinatra application under puma: every answer is right, watched in all ways" {
	need_gem sinatra/base
	need_gem rack
	command -v puma >/dev/null || skip "no puma: run make deps"
	mkdir "$T/app"
	cat >"$T/app/config.ru" <<'RUBY'
require 'sinatra/base'
require 'json'
class App < Sinatra::Base
  set :environment, :production
  set :logging, false
  get('/square/:n') { |n| content_type :json; { n: n.to_i, list: (1..n.to_i % 50).map { |x| x * x }, text: "n=#{n} " * 3 }.to_json }
  post('/echo') { request.body.read.reverse }
  get('/page/:name') { |name| erb '<% 20.times do |i| %><p><%= i %> <%= name %></p><% end %>', locals: { name: name } }
  get('/missing/:x') { halt 404, "no #{params[:x]}" }
end
run App
RUBY
	cat >"$T/client.rb" <<'RUBY'
require 'net/http'
require 'json'
port = Integer(ARGV[0])
stop = false
trap(:TERM) { stop = true }
wrong = asked = 0
lock = Mutex.new
$stdout.sync = true
4.times.map do |t|
  Thread.new do
    Net::HTTP.start('127.0.0.1', port) do |http|
      i = t
      until stop
        i += 4
        good = [
          JSON.parse(http.get("/square/#{i}").body) == { 'n' => i, 'list' => (1..i % 50).map { |x| x * x }, 'text' => "n=#{i} " * 3 },
          http.post('/echo', "text #{i}" * 20, 'Content-Type' => 'text/plain').body == ("text #{i}" * 20).reverse,
          http.get("/page/p#{i}").body == 20.times.map { |k| "<p>#{k} p#{i}</p>" }.join,
          http.get("/missing/#{i}").then { |r| r.code == '404' && r.body == "no #{i}" },
        ]
        lock.synchronize { asked += 4; wrong += good.count(false); puts "asked #{asked} wrong #{wrong}" if i % 40 < 4 }
      end
    end
  end
end.each(&:join)
puts "asked #{asked} wrong #{wrong}"
exit wrong.zero?
RUBY
	port=$(free_port)
	start puma puma --quiet -e production -t 4:4 -b "tcp://127.0.0.1:$port" "$T/app/config.ru"
	local puma=$PID
	wait_for 30 bash -c "echo >/dev/tcp/127.0.0.1/$port"
	start client "$RUBY" "$T/client.rb" "$port"
	local client=$PID
	wait_for 30 in_file "^asked" "$T/client.out"
	for i in 1 2 3; do
		# shellcheck disable=SC2086
		"$SCRY" objects -p "$puma" -d 2s --top 0 ${WAYS[$((i - 1))]} -o "$T/o$i.json" || { cat "$T/puma.err"; false; }
		json_is "$T/o$i.json" 'r["data_quality"]["errors"] == 0 && rows.any? { |x| x["file"].to_s.end_with?("config.ru") && x["allocated"] > 0 }'
	done
	kill -TERM "$client"
	finish "$client" || { tail -n 3 "$T/client.out" "$T/client.err"; false; }
	tail -1 "$T/client.out" | grep -q "wrong 0$"
	kill -0 "$puma"
	[ "$(mappings "$puma")" -le 1 ]
}
