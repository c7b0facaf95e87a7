# JSON: a C extension that calls back into Ruby (to_json, to_s, create_additions, object_class).

require 'json'

KEPT = %i[name list deep a b big thing]

class Thing
  def initialize(n)
    @n = n
  end

  def to_json(*args)
    { "thing" => @n }.to_json(*args)
  end
end

SAMPLE = { "name" => "scry", "list" => [1, 2.5, nil, true, "s"], "deep" => { "a" => [{ "b" => "c" }] }, "big" => 2**80 }

def generate(n)
  n.times do |i|
    JSON.generate(SAMPLE)
    SAMPLE.to_json
    JSON.pretty_generate(SAMPLE)
    JSON.generate([Thing.new(i), Thing.new("x")])
    [1, "a", nil].to_json
    "text \u00e9 \"quoted\"".to_json
    JSON.dump({ a: i })
  end
end

def parse(n)
  text = JSON.generate(SAMPLE)
  n.times do
    JSON.parse(text)
    JSON.parse(text, symbolize_names: true)
    JSON.parse('[1, "two", {"deep": 3.0e300}]')
    JSON.parse('"just a string"')
    JSON.load("[]")
    JSON.parse("{broken") rescue $!.class.name
  end
end

def around(n)
  n.times do
    JSON.parse(JSON.generate(SAMPLE)) == SAMPLE
    JSON(JSON([1, 2, 3]))
  end
end

def work
  generate(20)
  parse(20)
  around(20)
end

work

# Where the VM names the line of the next instruction:
# late: 46 Array: ruby=40 scry=60
# late: 47 Array: ruby=20 scry=0
