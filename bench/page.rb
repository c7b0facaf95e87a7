# The pages bench/*.md: what a bench writes there.

# Puts `text` under the heading `## title` of a page, in place of what is there, or at its end.
def page_section(path, title, text)
  old = File.read(path)
  pattern = /^## #{Regexp.escape(title)}\n.*?(?=^## |\z)/m
  block = "## #{title}\n\n#{text.rstrip}\n\n"
  File.write(path, "#{(old =~ pattern ? old.sub(pattern) { block } : "#{old.rstrip}\n\n#{block}").rstrip}\n")
end

# A paragraph in lines of at most 120 characters.
def wrapped(text)
  text.split.join(' ').gsub(/(.{1,120})(?: |\z)/, "\\1\n").rstrip
end
