# Counts down, in one thread or split over several, or over processes.
#
# Source: slides 3 to 11 of Beazley's "In Search of the Perfect GIL". See README.md in this folder.
use strict;
use warnings;
use Config;
use Getopt::Long;
use JSON::PP;
use Time::HiRes qw(clock_gettime CLOCK_MONOTONIC);

sub countdown {
    my ($n) = @_;
    $n-- while $n > 0;
    return;
}

my ( $mode, $workers, $work ) = ( 'sequential', 1, 100_000_000 );
GetOptions( 'mode=s' => \$mode, 'workers=i' => \$workers, 'work=i' => \$work ) or exit 2;
if ( $mode eq 'thread' ) {
    if ( !$Config{useithreads} ) {
        print encode_json( { lacks => 'this Perl has no threads' } ), "\n";
        exit 3;
    }
    require threads;
}

my $part  = int( $work / $workers );
my $begun = clock_gettime(CLOCK_MONOTONIC);
if ( $mode eq 'sequential' ) {
    countdown($work);
}
elsif ( $mode eq 'thread' ) {
    my @threads = map { threads->create( \&countdown, $part ) } 1 .. $workers;
    $_->join for @threads;
}
else {
    for ( 1 .. $workers ) {
        my $pid = fork // die "fork: $!";
        if ( !$pid ) {
            countdown($part);
            exit 0;
        }
    }
    for ( 1 .. $workers ) {
        wait;
        die 'a child failed' if $?;
    }
}
print encode_json( { elapsed_s => clock_gettime(CLOCK_MONOTONIC) - $begun } ), "\n";
