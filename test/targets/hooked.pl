# Computes through perl and compares each answer with the first.
# hooked.pl, until SIGTERM: "round N" lines; the last line is "rounds N wrong N".
use strict;
use warnings;
use Digest::MD5 qw(md5_hex);
use Digest::SHA qw(sha256_hex);
use Time::HiRes qw(time);

my $stop = 0;
$SIG{TERM} = sub { $stop = 1 };
$| = 1;

sub raised {
	my $n = shift;
	my $r = eval { die "deep\n" if $n == 0; raised($n - 1) };
	die $@ if !defined $r && $n != 3;
	return defined $r ? $r : "caught $@";
}

sub everything {
	my %h = map { $_ => $_ * 7919 % 1009 } 1 .. 100;
	my @s = sort { $h{$a} <=> $h{$b} || $a <=> $b } keys %h;
	(my $t = "aXbXc") =~ s/X/ord($&)/ge;
	return join "|", md5_hex("a" x 1000), sha256_hex("abc"), "@s", $t, raised(3), sprintf("%08.3f %x", 3.14159, 48879),
	  unpack("H*", pack("d<Nn", 1.5, 7, 9)), scalar reverse("hello");
}

my $want = everything();
die "sha" unless $want =~ /ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad/;
my ($rounds, $wrong, $last) = (0, 0, time);
print "pid $$\n";
until ($stop) {
	$wrong++ if everything() ne $want;
	$rounds++;
	if (time - $last > 0.1) {
		print "round $rounds\n";
		$last = time;
	}
}
print "rounds $rounds wrong $wrong\n";
exit($wrong != 0);
