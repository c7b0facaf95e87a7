# 400 classes, MADE objects of each, in turn: the strictest rhythm there is, as every 400th object is of
# one class, every 100th of one of four. Of each class every other object is kept.
MADE = 4000
CLASSES = Array.new(400) { |i| Object.const_set("Class#{i}", Class.new) }
KEPT = Array.new(400 * MADE / 2)
at = 0
(MADE / 2).times do
  i = 0
  while i < 400
    CLASSES[i].new
    i += 1
  end
  i = 0
  while i < 400
    KEPT[at] = CLASSES[i].new
    at += 1
    i += 1
  end
end
i = nil
GC.start
GC.start
