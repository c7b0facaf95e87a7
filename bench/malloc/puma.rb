# ruby puma.rb APP DIR REQUESTS: puma with the Sinatra program APP (bench/realistic.rb, its template compiled) in this
# process, asked by four clients of another over sockets; "cpu S": seconds of its processor time for REQUESTS, behind
# a third as many that are not counted. The clients are not recorded.
require 'etc'
app, dir, requests = ARGV
socket = File.join(dir, 'socket')
File.delete(socket) if File.exist?(socket)

pid = Process.pid
clock = "awk '{ print ($14 + $15) / #{Etc.sysconf(Etc::SC_CLK_TCK)} }' /proc/#{pid}/stat"
ask = "ruby #{File.join(__dir__, 'ask.rb')} #{socket}"
Process.spawn({ 'LD_PRELOAD' => nil }, 'sh', '-c', <<~SH)
  #{ask} #{requests.to_i / 3} && before=$(#{clock}) && #{ask} #{requests} && after=$(#{clock}) &&
    echo "cpu $(awk "BEGIN { print $after - $before }") calls 0"
  kill #{pid}
SH

require app
require 'puma'
require 'puma/server'
$0 = 'puma'
server = Puma::Server.new(Shop, Puma::Events.strings, min_threads: 4, max_threads: 4)
server.add_unix_listener(socket)
trap(:TERM) { Thread.new { server.stop(true) } }
server.run.join
