# Threads that compute through libruby, libcrypto and libc, and compare each answer with the first:
# digests, ciphers, signatures, big numbers, exceptions, fibers, strings, sorting, GC under stress.
#
#   hooked.rb [THREADS]     until SIGTERM; "round N" lines; the last line is "rounds N wrong N"
require "digest"
require "openssl"

$stdout.sync = true
KEY = OpenSSL::PKey::RSA.new(1024)
stop = false
trap(:TERM) { stop = true }

def crypto
  cipher = OpenSSL::Cipher.new("aes-256-gcm").encrypt
  cipher.key = "k" * 32
  cipher.iv = "i" * 12
  text = cipher.update("hello" * 50) + cipher.final
  signature = KEY.sign("SHA256", "message")
  [Digest::SHA256.hexdigest("a" * 1000), OpenSSL::Digest.hexdigest("SHA3-256", "b" * 500), text.unpack1("H*"),
   OpenSSL::HMAC.hexdigest("SHA512", "key", "data"), KEY.verify("SHA256", signature, "message"),
   KEY.verify("SHA256", signature, "massage"), (3.to_bn.mod_exp(2.to_bn**521 - 1, 2.to_bn**607 - 1)).to_s]
end

def raised(depth)
  depth.zero? ? Integer("zz") : raised(depth - 1)
rescue ArgumentError => e
  depth == 3 ? e.message : raise
ensure
  depth.to_s
end

def language
  fiber = Fiber.new { |v| 10.times { v = Fiber.yield(v * 2) }; v }
  fibers = (1..5).sum { |i| fiber.resume(i) }
  caught = catch(:done) { 10.times { |i| throw :done, i if i == 7 } }
  [fibers, caught, raised(5 - 2), (1..200).map { |i| "#{i * 7919 % 1009}" }.sort.join(",").hash == 0,
   "aXbXc".gsub(/X/) { |x| x.ord.to_s }, 3**500 % 1_000_007, [1.5, -2.25].pack("d*").unpack("d*"),
   format("%08.3f|%x|%s", 3.14159, 48_879, :sym), { a: 1, "b" => [2, nil] }.inspect, "äöü".encode("UTF-16LE").bytes.sum]
end

def everything
  [crypto, language].inspect
end

WANT = everything
raise "sha" unless WANT.include?("41edece42d63e8d9bf515a9ba6932e1c20cbc9f5a5d134645adb5db1b9737ea3")

rounds = wrong = 0
puts "pid #{$$}"
threads = (ARGV[0] || 3).to_i.times.map do
  Thread.new do
    until stop
      wrong += 1 unless everything == WANT
      rounds += 1
    end
  end
end
stressed = Thread.new do
  until stop
    sleep 0.2
    GC.stress = true
    wrong += 1 unless [raised(3), [1, "x"].inspect, :a.to_s] == ["invalid value for Integer(): \"zz\"", '[1, "x"]', "a"]
    GC.stress = false
  end
end
last = nil
until stop
  sleep 0.1
  puts "round #{last = rounds}" if rounds != last
end
(threads << stressed).each(&:join)
puts "rounds #{rounds} wrong #{wrong}"
exit wrong.zero?
