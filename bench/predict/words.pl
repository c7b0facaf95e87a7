# Lines taken apart and counted.
my %counts;
for my $round (1 .. 200) {
    my $text = join ' ', map { "word" . ($_ * 7919 % 3000) . ("x" x ($_ % 50)) } 1 .. 2000;
    $counts{reverse $_}++ for split / /, $text;
    my @sorted = sort { $counts{$a} <=> $counts{$b} } keys %counts;
}
print scalar(keys %counts), "\n";
