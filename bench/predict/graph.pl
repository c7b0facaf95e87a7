# A graph in hashes of arrays, walked, and cut.
use strict;
use warnings;

for my $round (1 .. 4) {
    my %edges;
    for my $i (1 .. 60000) {
        my ($from, $to) = (($i * 7919) % 9973, ($i * 104729 + $round) % 9973);
        push @{ $edges{"node$from"} }, { to => "node$to", weight => $i % 17, label => "from $from to $to" };
    }
    my (%seen, @queue);
    @queue = ("node1");
    while (defined(my $n = shift @queue)) {
        next if $seen{$n}++;
        push @queue, map { $_->{to} } grep { $_->{weight} > 2 } @{ $edges{$n} || [] };
    }
    delete $edges{$_} for grep { $seen{$_} } keys %edges;
}
