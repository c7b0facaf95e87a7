# app.rb: a small Sinatra application, as puma's `app`: some Ruby work and a page for each request.
# STACKPROF=RATE: sampled by stackprof from within (wall mode: by a signal).
require 'json'
require 'sinatra/base'
require_relative 'shop'

class App < Sinatra::Base
  set :environment, :production
  set :logging, false
  set :protection, false

  get('/page/:n') do
    content_type :json
    shop = Shop.new
    JSON.generate(page: shop.page(shop.items(params['n'].to_i)), total: shop.total(shop.items(30)))
  end
end

if ENV['STACKPROF']
  require 'stackprof'
  StackProf.start(mode: :wall, interval: 1_000_000 / ENV['STACKPROF'].to_i, raw: false)
  at_exit { StackProf.stop }
end
