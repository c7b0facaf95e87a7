# A program as people run them: web requests through Sinatra and its Rack middleware, with JSON that is parsed
# and made, and a template. In one process, without sockets, so that only the program is measured.
# The operation that is counted is one request.

ENV['APP_ENV'] = 'production'
require 'erb'
require 'json'
require 'rack/mock'
require 'sinatra/base'

class Shop < Sinatra::Base
  set :environment, :production
  set :host_authorization, {} if respond_to?(:host_authorization)
  disable :protection
  GOODS = Array.new(60) do |i|
    { 'id' => i, 'name' => "thing #{i}", 'price' => i * 1.25, 'tags' => %w[new sale last].rotate(i).first(2) }
  end
  PAGE = ERB.new(<<~HTML, trim_mode: '-')
    <html><head><title><%= title %></title></head><body>
    <% goods.each do |g| -%>
      <div class="good" id="g<%= g['id'] %>"><b><%= ERB::Util.h(g['name']) %></b>
        <% g['tags'].each do |t| %><i><%= t %></i><% end %>
        <span><%= format('%.2f', g['price']) %></span></div>
    <% end -%>
    </body></html>
  HTML

  get('/goods') do
    title = "page #{params['page']}"
    goods = GOODS.each_slice(20).to_a[params['page'].to_i % 3]
    PAGE.result(binding)
  end

  get('/goods/:id.json') do
    content_type :json
    JSON.generate(GOODS.find { |g| g['id'] == params['id'].to_i })
  end

  post('/order') do
    order = JSON.parse(request.body.read)
    lines = order['lines'].map { |l| GOODS[l['id']].merge('count' => l['count']) }
    total = lines.sum { |l| l['price'] * l['count'] }
    content_type :json
    JSON.pretty_generate('customer' => order['customer'].split.map(&:capitalize).join(' '), 'lines' => lines,
                         'total' => total, 'key' => lines.map { |l| l['name'].gsub(/\s+/, '-') }.join('/'))
  end
end

ASK = Rack::MockRequest.new(Shop)
ORDER = JSON.generate('customer' => 'jo doe', 'lines' => Array.new(12) { |i| { 'id' => i * 3, 'count' => i + 1 } })

def request(i)
  answer =
    case i % 3
    when 0 then ASK.get("/goods?page=#{i}")
    when 1 then ASK.get("/goods/#{i % 60}.json")
    else ASK.post('/order', input: ORDER, 'CONTENT_TYPE' => 'application/json')
    end
  raise "request #{i}: #{answer.status} #{answer.body[0, 200]}" unless answer.status == 200 && answer.body.size > 30
end

WORK = ->(n) { n.times { |i| request(i) } }
