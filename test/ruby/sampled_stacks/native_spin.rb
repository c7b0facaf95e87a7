# native_spin.rb: Ruby waits, and a native thread of the program's own, of which the VM knows nothing,
# runs all the time. Prints its pid, then "ready" or why it cannot; ends with its stdin.
puts "pid #{$$}"
begin
  require "fiddle"
  libc = Fiddle.dlopen(nil)
  mmap = Fiddle::Function.new(libc["mmap"], [Fiddle::TYPE_VOIDP, Fiddle::TYPE_SIZE_T] + [Fiddle::TYPE_INT] * 3 + [Fiddle::TYPE_LONG], Fiddle::TYPE_VOIDP)
  create = Fiddle::Function.new(libc["pthread_create"], [Fiddle::TYPE_VOIDP] * 4, Fiddle::TYPE_INT)
  code = mmap.call(nil, 4096, 7, 0x22, -1, 0) # private, anonymous
  code[0, 2] = "\xeb\xfe".b # jmp to itself
  failed = create.call(Fiddle::Pointer.malloc(8), nil, code, nil)
  puts failed == 0 ? "ready" : "no thread: #{failed}"
rescue LoadError, Fiddle::DLError => e
  puts "no fiddle: #{e.message}"
end
$stdout.flush
$stdin.read
exit!(0)
