# For the other side of truth.rb where a Ruby's counts depend on the collector (interned strings of
# compiled code are made anew when they were collected): the same preparations, without tracing.

require 'objspace'

GC.start
GC.disable
