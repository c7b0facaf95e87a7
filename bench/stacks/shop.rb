# Work in rounds that change their cost as real code does.
class Shop
  Item = Struct.new(:name, :price, :tags)

  def items(n) = (1..n).map { |i| Item.new("item #{i}", i * 37 % 101, %w[a b c].rotate(i % 3)) }
  def total(items) = items.sum { |i| discount(i) }
  def discount(item) = item.tags.include?('b') ? item.price * 0.9 : item.price
  def page(items) = items.group_by { |i| i.tags.first }.transform_values { |l| l.map(&:name).sort.first(3) }
  def round = JSON.parse(JSON.generate(page(items(60)))).size + total(items(40)).to_i
  def deep(n, &block) = n.zero? ? block.call : deep(n - 1, &block)
end
