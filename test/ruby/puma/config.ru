# A small web program whose every answer can be checked by the one who asked (load.rb).

require 'json'
require 'erb'
require 'digest/sha2' # not by const_missing: its first use by many threads at once may fail

PAGE = ERB.new("<ul>\n<% items.each do |i| %><li><%= i %></li>\n<% end %></ul>\n")

# What a request allocates, on lines that the tests look for.
def items_of(n)
  Array.new(n) { |i| "item #{i}" }
end

def page(n)
  items = items_of(n)
  PAGE.result(binding)
end

def document(n)
  JSON.generate({ "n" => n, "items" => items_of(n) })
end

ANSWERS = {
  "/page" => ["text/html", method(:page)],
  "/json" => ["application/json", method(:document)],
  "/digest" => ["text/plain", ->(n) { Digest::SHA256.hexdigest("seed #{n}" * 50) }],
  "/sleep" => ["text/plain", ->(n) { sleep(n / 1000.0); "slept #{n}" }],
}.freeze

run lambda { |env|
  type, answer = ANSWERS[env["PATH_INFO"]]
  next [404, { "Content-Type" => "text/plain" }, ["not here"]] unless type

  n = env["QUERY_STRING"][/n=(\d+)/, 1].to_i
  [200, { "Content-Type" => type }, [answer.call(n)]]
}
